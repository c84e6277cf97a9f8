package guard

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/config/pki"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{certificate, key, filepath.Join(dir, name+"-ca.pem")}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue writes a certificate for a name, and its key.
func (a *authority) issue(t *testing.T, dir, name string, serial int64) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	certificate, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	writePEM(t, certificate, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", keyDER)
	return certificate, key
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// serveTLS serves everything behind a gate over https and returns the URL of a path that operators may use.
func serveTLS(t *testing.T, files TLSFiles, g *Gate) string {
	t.Helper()
	config, err := ServerTLS(files, zap.NewNop())
	require.NoError(t, err)
	api := httpapi.New(httpapi.Options{Gate: g})
	api.Handle(access.Operate, http.MethodGet, "/who", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := access.From(r.Context())
		_, _ = w.Write([]byte(string(id.Kind) + " " + id.ID))
	}))
	api.Handle(access.Operate, http.MethodGet, "/wait", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, _ = w.Write([]byte(context.Cause(r.Context()).Error()))
	}))
	server := api.HTTPServer()
	server.TLSConfig = config
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return "https://" + listener.Addr().String() + "/who"
}

// get fetches over a connection of its own. It returns the answer's status, body and the server's certificate's serial.
func get(t *testing.T, url string, config *tls.Config) (status int, body string, serial int64, err error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return 0, "", 0, err
	}
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, "HTTP/1.1", response.Proto, "over HTTP/2 one connection carries many requests")
	text := make([]byte, 4096)
	n, _ := response.Body.Read(text)
	return response.StatusCode, string(text[:n]), response.TLS.PeerCertificates[0].SerialNumber.Int64(), nil
}

// TestSubjectsNameTheirKind has certificates with one name each, of each kind.
func TestSubjectsNameTheirKind(t *testing.T) {
	t.Parallel()
	const name, mail, uri = "ops.example.com", "ops@example.com", "spiffe://example.com/ops"
	parsed, err := url.Parse(uri)
	require.NoError(t, err)
	certificates := map[string]*x509.Certificate{
		"cn":              {Subject: pkix.Name{CommonName: name}},
		"dns":             {DNSNames: []string{name}},
		"mail":            {EmailAddresses: []string{mail}},
		"mail like a dns": {EmailAddresses: []string{name}},
		"uri":             {URIs: []*url.URL{parsed}},
		"cn like a mail":  {Subject: pkix.Name{CommonName: mail}},
		"cn like a uri":   {Subject: pkix.Name{CommonName: uri}},
		"nameless":        {},
	}
	for subject, wants := range map[string][]string{
		name: {"cn", "dns"}, "cn:" + name: {"cn"}, "dns:" + name: {"dns"}, mail: {"mail"}, "mail:" + mail: {"mail"},
		uri: {"uri"}, "": nil, "cn:": nil, "dns:": nil, "mail:": nil, "mail:" + name: {"mail like a dns"},
	} {
		var met []string
		for kind, c := range certificates {
			if _, known := identityOfCertificate([]Certificate{{Subject: subject, Role: api.RoleViewer}}, c); known {
				met = append(met, kind)
			}
		}
		require.ElementsMatch(t, wants, met, subject)
	}
}

// The name of a certificate is shown to people, in terminals too.
func TestTheNameOfACertificateIsPrintable(t *testing.T) {
	t.Parallel()
	who, known := identityOfCertificate([]Certificate{{Subject: "dns:ops", Role: api.RoleViewer}},
		&x509.Certificate{Subject: pkix.Name{CommonName: "a\x1b[2Jb"}, DNSNames: []string{"ops"}})
	require.True(t, known)
	require.Equal(t, "a [2Jb", who.Name)
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers, clients, strangers := newAuthority(t, dir, "servers"), newAuthority(t, dir, "clients"), newAuthority(t,
		dir, "strangers")
	certificate, key := servers.issue(t, dir, "mainstay.example", 1)
	s := newShelf()
	s.now = time.Now() // as the handshake's
	g := s.gate(Options{Certificates: []Certificate{
		{Subject: "ops.example", Role: api.RoleOperator}, {Subject: "look.example", Role: api.RoleViewer},
		{Subject: "agents.example", Joins: true, Cluster: "build"},
	}})
	url := serveTLS(t, TLSFiles{Certificate: certificate, Key: key, ClientCA: clients.file}, g)
	strict := serveTLS(t, TLSFiles{Certificate: certificate, Key: key, ClientCA: clients.file, RequireClient: true}, g)
	for name, c := range map[string]struct {
		url    string
		from   *authority
		name   string
		status int // 0: the handshake fails
		body   string
	}{
		"operator":                {url, clients, "ops.example", 200, "certificate ops.example"},
		"viewer":                  {url, clients, "look.example", 403, ""},
		"an agent's":              {url, clients, "agents.example", 403, ""},
		"a name without a role":   {url, clients, "nobody.example", 401, ""},
		"none":                    {url, nil, "", 401, ""},
		"none where one must be":  {strict, nil, "", 0, ""},
		"another authority's":     {url, strangers, "ops.example", 0, ""},
		"operator, where it must": {strict, clients, "ops.example", 200, "certificate ops.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var own, ownKey string
			if c.from != nil {
				own, ownKey = c.from.issue(t, t.TempDir(), c.name, 7)
			}
			config, err := pki.Client(servers.file, own, ownKey)
			require.NoError(t, err)
			if c.from == strangers { // Go would not show what the server does not ask for
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
					error) {
					return &config.Certificates[0], nil
				}
			}
			status, body, _, err := get(t, c.url, config)
			if c.status == 0 {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.status, status, body)
			if c.body != "" {
				require.Equal(t, c.body, body)
			}
		})
	}
	_, _, _, err := get(t, url, nil)
	require.Error(t, err, "the system's authorities do not know this server's")
	old := &tls.Config{RootCAs: nil, MaxVersion: tls.VersionTLS11} //nolint:gosec // that it is refused is what is tested
	old.RootCAs, err = pki.Authorities(servers.file)
	require.NoError(t, err)
	_, _, _, err = get(t, url, old)
	require.Error(t, err, "TLS below 1.2")
}

// TestAnOpenConnectionEndsWithItsCertificate has a connection with requests, and one with a stream, outlive what their
// certificate rests on.
func TestAnOpenConnectionEndsWithItsCertificate(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(t *testing.T, s *shelf, clients, others *authority){
		"it expires": func(_ *testing.T, s *shelf, _, _ *authority) { s.pass(2 * time.Hour) },
		"its authority is taken out": func(t *testing.T, _ *shelf, clients, others *authority) {
			t.Helper()
			writePEM(t, clients.file, "CERTIFICATE", others.certificate.Raw)
			later := time.Now().Add(time.Hour)
			require.NoError(t, os.Chtimes(clients.file, later, later))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			servers, clients, others := newAuthority(t, dir, "servers"), newAuthority(t, dir, "clients"), newAuthority(t,
				dir, "others")
			certificate, key := servers.issue(t, dir, "mainstay.example", 1)
			own, ownKey := clients.issue(t, dir, "ops.example", 7)
			s := newShelf()
			s.now = time.Now()
			g := s.gate(Options{Certificates: []Certificate{{Subject: "ops.example", Role: api.RoleOperator}}})
			url := serveTLS(t, TLSFiles{Certificate: certificate, Key: key, ClientCA: clients.file}, g)
			config, err := pki.Client(servers.file, own, ownKey)
			require.NoError(t, err)
			transport := &http.Transport{TLSClientConfig: config}
			t.Cleanup(transport.CloseIdleConnections)
			look := func(url string) *http.Response {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
				require.NoError(t, err)
				response, err := transport.RoundTrip(r)
				require.NoError(t, err, "the connection that is open is used: a new one would be refused")
				t.Cleanup(func() { _ = response.Body.Close() })
				return response
			}
			stream := look(strings.TrimSuffix(url, "who") + "wait")
			require.Equal(t, http.StatusOK, stream.StatusCode)
			next := func() *http.Response {
				response := look(url)
				_, err := io.Copy(io.Discard, response.Body)
				require.NoError(t, err)
				return response
			}
			require.Equal(t, http.StatusOK, next().StatusCode)
			happens(t, s, clients, others)
			last := next()
			for deadline := time.Now().Add(20 * time.Second); last.StatusCode == http.StatusOK; last = next() {
				require.True(t, time.Now().Before(deadline), "it is still let in")
				<-time.After(50 * time.Millisecond)
			}
			require.Equal(t, http.StatusUnauthorized, last.StatusCode)
			require.True(t, last.Close, "another certificate can only be shown on another connection")
			said, err := io.ReadAll(stream.Body)
			require.NoError(t, err)
			require.Contains(t, string(said), errCertificateGone.Error())
		})
	}
}

func TestTLSFilesAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers := newAuthority(t, dir, "servers")
	certificate, key := servers.issue(t, dir, "mainstay.example", 1)
	files := TLSFiles{Certificate: certificate, Key: key}
	_, err := ServerTLS(files, zap.NewNop())
	require.NoError(t, err)
	r := &tlsReload{files: files, logger: zap.NewNop()}
	require.NoError(t, r.load())
	serial := func(at time.Time) int64 {
		leaf, err := x509.ParseCertificate(r.current(at).Certificates[0].Certificate[0])
		require.NoError(t, err)
		return leaf.SerialNumber.Int64()
	}
	at := time.Now()
	require.EqualValues(t, 1, serial(at))
	touch := func(age time.Duration) {
		for _, file := range []string{certificate, key} {
			require.NoError(t, os.Chtimes(file, at.Add(age), at.Add(age)))
		}
	}
	servers.issue(t, dir, "mainstay.example", 2)
	touch(time.Hour)
	require.EqualValues(t, 1, serial(at.Add(tlsLook-1)), "it is not looked each time")
	require.EqualValues(t, 2, serial(at.Add(tlsLook)))
	require.NoError(t, os.WriteFile(key, []byte("half a key"), 0o600))
	require.EqualValues(t, 2, serial(at.Add(2*tlsLook)), "what cannot be used changes nothing")
	servers.issue(t, dir, "mainstay.example", 3)
	touch(2 * time.Hour)
	require.EqualValues(t, 3, serial(at.Add(3*tlsLook)))
}

func TestARunningServerTakesANewCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers := newAuthority(t, dir, "servers")
	certificate, key := servers.issue(t, dir, "mainstay.example", 1)
	url := serveTLS(t, TLSFiles{Certificate: certificate, Key: key}, newShelf().gate(Options{}))
	config, err := pki.Client(servers.file, "", "")
	require.NoError(t, err)
	_, _, serial, err := get(t, url, config)
	require.NoError(t, err)
	require.EqualValues(t, 1, serial)
	servers.issue(t, dir, "mainstay.example", 2)
	require.Eventually(t, func() bool {
		_, _, serial, err := get(t, url, config)
		return err == nil && serial == 2
	}, 20*time.Second, 100*time.Millisecond)
}

func TestWrongTLSSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newAuthority(t, dir, "a")
	certificate, key := a.issue(t, dir, "x.example", 1)
	_, otherKey := a.issue(t, dir, "y.example", 2)
	empty := filepath.Join(dir, "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, files := range map[string]TLSFiles{
		"no key": {Certificate: certificate}, "another's key": {Certificate: certificate, Key: otherKey},
		"no such file":     {Certificate: certificate, Key: "/no/such"},
		"empty authority":  {Certificate: certificate, Key: key, ClientCA: empty},
		"required of whom": {Certificate: certificate, Key: key, RequireClient: true},
	} {
		_, err := ServerTLS(files, zap.NewNop())
		require.Error(t, err, name)
	}
	for name, files := range map[string][3]string{"certificate alone": {"", certificate, ""},
		"key alone": {"", "", key}, "empty authority": {empty, "", ""}} {
		_, err := pki.Client(files[0], files[1], files[2])
		require.Error(t, err, name)
	}
	config, err := pki.Client("", "", "")
	require.NoError(t, err)
	require.Nil(t, config)
}
