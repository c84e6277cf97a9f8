package httpapi

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
)

func proxies(blocks ...string) *Proxies {
	var trusted []netip.Prefix
	for _, block := range blocks {
		trusted = append(trusted, netip.MustParsePrefix(block))
	}
	return NewProxies(trusted)
}

func TestWhoAClientIs(t *testing.T) {
	t.Parallel()
	p := proxies("10.0.0.0/24", "fd00::/64")
	for name, c := range map[string]struct {
		proxies *Proxies
		remote  string
		header  http.Header
		want    string
		via     bool
	}{
		"nobody is trusted": {nil, "10.0.0.1:9", http.Header{ForwardedFor: {"1.2.3.4"}}, "10.0.0.1:9",
			false},
		"no proxy":                   {p, "9.9.9.9:9", http.Header{}, "9.9.9.9:9", false},
		"made up by a stranger":      {p, "9.9.9.9:9", http.Header{ForwardedFor: {"1.2.3.4"}}, "9.9.9.9:9", false},
		"a proxy that does not tell": {p, "10.0.0.1:9", http.Header{}, "10.0.0.1:9", false},
		"by one":                     {p, "10.0.0.1:9", http.Header{ForwardedFor: {"1.2.3.4"}}, "1.2.3.4", true},
		"by two": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"1.2.3.4, 10.0.0.2"}}, "1.2.3.4",
			true},
		"by two, in two lines": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"1.2.3.4", "10.0.0.2"}},
			"1.2.3.4", true},
		"made up before a proxy": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"8.8.8.8, 1.2.3.4"}}, "1.2.3.4",
			true},
		"made up, and a proxy's line": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"8.8.8.8", "1.2.3.4"}},
			"1.2.3.4", true},
		"a proxy's address made up": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"8.8.8.8, 10.0.0.9, 1.2.3.4"}},
			"1.2.3.4", true},
		"all are proxies": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"10.0.0.3, 10.0.0.2"}},
			"10.0.0.3", true},
		"with a port": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"1.2.3.4:5678"}}, "1.2.3.4",
			true},
		"IPv6": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"2001:db8::7"}}, "2001:db8::7",
			true},
		"IPv6 in brackets": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"[2001:db8::7]"}}, "2001:db8::7",
			true},
		"IPv6 with a port": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"[2001:db8::7]:5678"}},
			"2001:db8::7", true},
		"IPv6 with a zone": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"fe80::1%eth0"}}, "fe80::1",
			true},
		"a proxy by IPv6": {p, "[fd00::1]:9", http.Header{ForwardedFor: {"1.2.3.4"}}, "1.2.3.4", true},
		"IPv4 in IPv6": {p, "[::ffff:10.0.0.1]:9",
			http.Header{ForwardedFor: {"8.8.8.8, ::ffff:1.2.3.4, ::ffff:10.0.0.2"}}, "1.2.3.4", true},
		"unknown": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"1.2.3.4, unknown"}},
			"10.0.0.1:9", false},
		"unknown to the second": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"1.2.3.4, <script>, 10.0.0.2"}},
			"10.0.0.2", true},
		"nothing between commas": {p, "10.0.0.1:9", http.Header{ForwardedFor: {", ,1.2.3.4, ,"}}, "1.2.3.4",
			true},
		"an address in another notation": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"010.0.0.2"}}, "10.0.0.1:9",
			false},
		"a name": {p, "10.0.0.1:9", http.Header{ForwardedFor: {"localhost"}}, "10.0.0.1:9",
			false},
		"the other header": {p, "10.0.0.1:9", http.Header{"Forwarded": {"for=8.8.8.8"}}, "10.0.0.1:9",
			false},
		"both, one made up": {p, "10.0.0.1:9", http.Header{"Forwarded": {"for=8.8.8.8"},
			ForwardedFor: {"1.2.3.4"}}, "1.2.3.4", true},
		"not over a network": {p, "@", http.Header{ForwardedFor: {"1.2.3.4"}}, "@", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.proxies.client(&http.Request{RemoteAddr: c.remote, Header: c.header})
			require.Equal(t, c.want, got.Address)
			require.Equal(t, map[bool]string{true: c.remote}[c.via], got.Proxy)
		})
	}
}

func TestWhetherAClientSpeaksHTTPS(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tls    *tls.ConnectionState
		header http.Header
		want   bool
	}{
		"to us":               {&tls.ConnectionState{}, http.Header{"X-Forwarded-Proto": {"http"}}, true},
		"to a proxy":          {nil, http.Header{"X-Forwarded-Proto": {"https"}}, true},
		"to the first of two": {nil, http.Header{"X-Forwarded-Proto": {"HTTPS, http"}}, true},
		"not to the first":    {nil, http.Header{"X-Forwarded-Proto": {"http, https"}}, false},
		"to nobody":           {nil, http.Header{"X-Forwarded-Proto": {"httpsx"}}, false},
	} {
		require.Equal(t, c.want, ClientOf(&http.Request{TLS: c.tls, Header: c.header}).HTTPS, name)
	}
}

// FuzzNobodySaysWhoTheyAre has clients send whatever they like, directly and through a proxy that adds whom it hears.
func FuzzNobodySaysWhoTheyAre(f *testing.F) {
	for _, seed := range []string{"", "1.2.3.4", "for=1.2.3.4", `for="`, `for="\`, `"`, "10.0.0.2",
		`for="[fd00::1]:9";x="\",`, "unknown, ,", "\x00,é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		const added = "192.0.2.7"
		p := proxies("10.0.0.0/24")
		r := &http.Request{RemoteAddr: "192.0.2.7:9", Header: http.Header{ForwardedFor: {sent}}}
		require.Equal(t, "192.0.2.7:9", p.client(r).Address, "without a proxy")
		for name, lines := range map[string][]string{"in one line": {sent + ", " + added}, "in two": {sent, added}} {
			r = &http.Request{RemoteAddr: "10.0.0.1:9", Header: http.Header{ForwardedFor: lines}}
			got := p.client(r)
			require.Equal(t, "192.0.2.7", got.Address, name)
			require.Equal(t, "10.0.0.1:9", got.Proxy)
		}
		r = &http.Request{RemoteAddr: "10.0.0.1:9", Header: http.Header{ForwardedFor: {sent}}}
		if got := p.client(r); got.Proxy != "" {
			_, err := netip.ParseAddr(got.Address)
			require.NoError(t, err, "what is logged is an address")
		}
	})
}

func TestARequestKnowsItsClient(t *testing.T) {
	t.Parallel()
	var seen Client
	s := New(Options{Proxies: proxies("192.0.2.0/24")}) // where httptest's clients are
	s.Handle(access.Open, http.MethodGet, "/who", http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		seen = ClientOf(r)
	}))
	r := httptest.NewRequest(http.MethodGet, "/who", http.NoBody)
	r.Header.Set(ForwardedFor, "1.2.3.4")
	s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, Client{Address: "1.2.3.4", Proxy: r.RemoteAddr}, seen)
}
