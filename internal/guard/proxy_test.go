package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
)

// from is a client that dials from one of this machine's addresses.
func from(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// behindProxy is a server with security on, and a reverse proxy at 127.0.0.9 that it trusts and that speaks https, as
// it says. Sign-ins are what strangers may do.
func behindProxy(t *testing.T) (direct, proxied, audit string) {
	t.Helper()
	audit = filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := OpenAudit(audit, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	proxies := httpapi.NewProxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")})
	gate := New(Options{
		AdminToken: "0123456789-the-first-admin-token-0123", Rate: DefaultRate, Burst: DefaultBurst, Audit: log,
		Tokens: func(context.Context) ([]access.Record, []access.EndedSession, error) { return nil, nil, nil },
	})
	at := time.Now() // it stands still: no budget grows while a busy machine is slow
	gate.now = func() time.Time { return at }
	api := httpapi.New(httpapi.Options{Gate: gate, Proxies: proxies})
	RegisterSession(api.API(), gate)
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: from(t, "127.0.0.9").Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("X-Forwarded-Proto", "https")
			// what the client has made up stays, as with many proxies
			host, _, _ := net.SplitHostPort(r.In.RemoteAddr)
			made := strings.Join(r.In.Header[httpapi.ForwardedFor], ", ")
			r.Out.Header.Set(httpapi.ForwardedFor, strings.TrimPrefix(made+", "+host, ", "))
		}})
	t.Cleanup(proxy.Close)
	return server.URL, proxy.URL, audit
}

func trySignIn(t *testing.T, c *http.Client, url, token string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/v1/session",
		strings.NewReader(`{"token":"`+token+`"}`))
	require.NoError(t, err)
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response
}

// TestClientsBehindAProxyAreThemselves has strangers guess tokens through one reverse proxy, and beside it.
func TestClientsBehindAProxyAreThemselves(t *testing.T) {
	t.Parallel()
	direct, proxied, audit := behindProxy(t)
	one, two := from(t, "127.0.0.2"), from(t, "127.0.0.3")
	limited := 0
	for i := range failedBurst + 100 {
		made := http.Header{httpapi.ForwardedFor: {netip.AddrFrom4([4]byte{8, 8, 8, byte(i)}).String()}}
		if trySignIn(t, one, proxied, "guess", made).StatusCode == http.StatusTooManyRequests {
			limited++
		}
	}
	require.Positive(t, limited, "a made-up address is no new budget")
	require.Equal(t, http.StatusUnauthorized, trySignIn(t, two, proxied, "guess", nil).StatusCode,
		"a neighbour behind the proxy has its own")
	require.Equal(t, http.StatusUnauthorized, trySignIn(t, two, direct, "guess",
		http.Header{httpapi.ForwardedFor: {"127.0.0.2"}}).StatusCode)

	response := trySignIn(t, two, proxied, "0123456789-the-first-admin-token-0123", nil)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.True(t, response.Cookies()[0].Secure, "the browser speaks https to the proxy")

	data, err := os.ReadFile(audit)
	require.NoError(t, err)
	addresses := map[string]bool{}
	for line := range bytes.Lines(data) {
		var e Entry
		require.NoError(t, json.Unmarshal(line, &e))
		if e.Proxy != "" {
			addresses[e.Address] = true
			require.True(t, strings.HasPrefix(e.Proxy, "127.0.0.9:"))
		} else {
			require.True(t, strings.HasPrefix(e.Address, "127.0.0.3:"), "directly: %s", e.Address)
		}
	}
	require.Equal(t, map[string]bool{"127.0.0.2": true, "127.0.0.3": true}, addresses)
}
