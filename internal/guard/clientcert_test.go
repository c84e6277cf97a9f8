package guard

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/config/pki"
)

// certificateOf signs a certificate for a client, or of an authority.
func (a *authority) certificateOf(t *testing.T, name string, key crypto.PublicKey, isCA bool) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(5), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: isCA, BasicConstraintsValid: isCA, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return certificate
}

// A stranger may show any certificates before anything is proven. What takes long to verify is refused before.
func TestClientCertificatesAreCheckedCheaply(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	clients, others := newAuthority(t, dir, "clients"), newAuthority(t, dir, "others")
	pool := x509.NewCertPool()
	pool.AddCert(clients.certificate)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	large, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	require.NoError(t, err)
	modulus := new(big.Int).Lsh(big.NewInt(3), 8190)
	good := clients.certificateOf(t, "ops", &key.PublicKey, false)
	between := others.certificateOf(t, "clients", &key.PublicKey, true) // its name is that of the authority
	for name, tt := range map[string]struct {
		sent []*x509.Certificate
		at   time.Time
		want string
	}{
		"none":                      {nil, now, ""},
		"a good one":                {[]*x509.Certificate{good}, now, ""},
		"with others":               {[]*x509.Certificate{good, between, between}, now, ""},
		"with too many":             {[]*x509.Certificate{good, between, between, between}, now, "the client sent 4 certificates, and may send 3"},
		"of another authority":      {[]*x509.Certificate{others.certificateOf(t, "ops", &key.PublicKey, false)}, now, "signed by unknown authority"},
		"expired":                   {[]*x509.Certificate{good}, now.Add(2 * time.Hour), "expired"},
		"a large exponent":          {[]*x509.Certificate{clients.certificateOf(t, "ops", &rsa.PublicKey{N: modulus.Add(modulus, big.NewInt(1)), E: 1<<31 - 1}, false)}, now, "a key of another kind"},
		"a slow one of another":     {[]*x509.Certificate{good, others.certificateOf(t, "clients", &large.PublicKey, true)}, now, "a key of another kind"},
		"a slow one of a good name": {[]*x509.Certificate{clients.certificateOf(t, "ops", &large.PublicKey, false)}, now, "a key of another kind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the second time, the good ones are remembered
				err := checkClient(pool, tt.sent, tt.at)
				if tt.want == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, tt.want)
			}
			if len(tt.sent) > 0 && tt.want == "" {
				require.Error(t, checkClient(x509.NewCertPool(), tt.sent, now), "the authorities have changed")
			}
		})
	}
}

// Of a connection little is read until its handshake is over, and then all.
func TestHandshakesAreShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers, clients := newAuthority(t, dir, "servers"), newAuthority(t, dir, "clients")
	certificate, key := servers.issue(t, dir, "mainstay.example", 1)
	config, err := ServerTLS(TLSFiles{Certificate: certificate, Key: key, ClientCA: clients.file}, zap.NewNop())
	require.NoError(t, err)
	own, ownKey := clients.issue(t, dir, "ops.example", 7)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := tls.NewListener(LimitHandshakes(listener), config)
	t.Cleanup(func() { _ = served.Close() })
	for name, copies := range map[string]int{"a client's own": 0, "100 kB of certificates": 300} {
		t.Run(name, func(t *testing.T) {
			config, err := pki.Client(servers.file, own, ownKey)
			require.NoError(t, err)
			for range copies {
				config.Certificates[0].Certificate = append(config.Certificates[0].Certificate, servers.certificate.Raw)
			}
			config.ServerName = "mainstay.example"
			ended := make(chan error, 1)
			go func() {
				conn, err := served.Accept()
				if err == nil {
					_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
					read := 0
					for b := make([]byte, 8<<10); err == nil && read < 2*shakeBytes; {
						var n int
						n, err = conn.Read(b)
						read += n
					}
					_ = conn.Close()
				}
				ended <- err
			}()
			conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err == nil {
				_, err = conn.Write(make([]byte, 2*shakeBytes))
				_ = conn.Close()
			}
			if copies == 0 {
				require.NoError(t, err)
				require.NoError(t, <-ended)
				return
			}
			require.ErrorContains(t, <-ended, "EOF")
		})
	}
}

// While one of the files cannot be read, what can be read of the others counts: so that an authority can be taken out.
func TestAuthoritiesChangeWhateverTheServersKeyIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers, clients, others := newAuthority(t, dir, "servers"), newAuthority(t, dir, "clients"), newAuthority(t, dir, "others")
	certificate, key := servers.issue(t, dir, "mainstay.example", 1)
	r := &tlsReload{files: TLSFiles{Certificate: certificate, Key: key, ClientCA: clients.file}, logger: zap.NewNop()}
	require.NoError(t, r.load())
	was := r.present
	writePEM(t, key, "EC PRIVATE KEY", []byte("half of it"))
	writePEM(t, filepath.Join(dir, "clients-ca.pem"), "CERTIFICATE", others.certificate.Raw)
	require.ErrorContains(t, r.load(), "read the TLS certificate and key")
	require.Equal(t, was.Certificates, r.present.Certificates)
	pool := x509.NewCertPool()
	pool.AddCert(others.certificate)
	require.True(t, pool.Equal(r.present.ClientCAs))
}
