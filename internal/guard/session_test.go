package guard

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// signedIn is what a browser has of a session.
type signedIn struct {
	*http.Cookie
	key string
}

func signIn(t *testing.T, g *Gate, token string) signedIn {
	t.Helper()
	out, err := g.signIn(context.Background(), &signInInput{Body: SignInRequest{Token: token}})
	require.NoError(t, err)
	require.NotContains(t, out.SetCookie.String(), token)
	require.NotContains(t, out.SetCookie.String(), out.Body.SessionKey)
	return signedIn{&out.SetCookie, out.Body.SessionKey}
}

func browser(method string, s signedIn) *http.Request {
	r := request(method, "")
	s.on(r)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func (s signedIn) on(r *http.Request) {
	r.AddCookie(s.Cookie)
	r.Header.Set(httpapi.SessionKeyHeader, s.key)
}

// TestACookieAloneIsNoSession: browsers send cookies to all ports of a host name, so whoever listens on another has it.
func TestACookieAloneIsNoSession(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	g := s.gate(Options{EndSession: func(context.Context, access.EndedSession) error {
		t.Error("a session was ended without its key")
		return nil
	}})
	c, other := signIn(t, g, token), signIn(t, g, token)
	for name, key := range map[string]string{"none": "", "wrong": "wrong", "of another session": other.key} {
		stolen := signedIn{c.Cookie, key}
		_, code := ask(t, g, access.View, browser(http.MethodGet, stolen))
		require.Equal(t, protocol.CodeUnauthorized, code, name)
		require.NoError(t, g.signOut(t.Context(), c.Value, key), name)
	}
	_, code := ask(t, g, access.View, browser(http.MethodGet, c))
	require.Empty(t, code)
}

// TestCookiesOfOtherPagesDoNotLockOut has pages of another port set cookies of the session's name, which a browser
// sends before it or behind it.
func TestCookiesOfOtherPagesDoNotLockOut(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, record := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	for name, junk := range map[string]string{
		"junk": "junk", "empty": "",
		"another session's": signIn(t, s.gate(Options{SessionKey: []byte("k")}), token).Value,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ended []string
			g := s.gate(Options{SessionKey: []byte("k"), EndSession: func(_ context.Context, e access.EndedSession) error {
				ended = append(ended, e.Token)
				return nil
			}})
			api := httpapi.New(httpapi.Options{Gate: g})
			RegisterSession(api.API(), g)
			ask := func(method string, c signedIn, cookies string) *httptest.ResponseRecorder {
				r := httptest.NewRequest(method, "/api/v1/session", http.NoBody)
				r.Header.Set("Cookie", cookies)
				r.Header.Set(httpapi.SessionKeyHeader, c.key)
				r.Header.Set("Sec-Fetch-Site", "same-origin")
				w := httptest.NewRecorder()
				api.Handler().ServeHTTP(w, r)
				return w
			}
			theirs := httpapi.SessionCookie + "=" + junk
			for i, around := range [][2]string{
				{theirs + "; other=x; ", ""}, {"", "; " + theirs}, {theirs + "; " + theirs + "; ", "; " + theirs},
			} {
				c := signIn(t, g, token)
				cookies := around[0] + httpapi.SessionCookie + "=" + c.Value + around[1]
				shown := ask(http.MethodGet, c, cookies)
				require.Equal(t, http.StatusOK, shown.Code, shown.Body)
				require.Contains(t, shown.Body.String(), "expires_at")
				require.Equal(t, http.StatusUnauthorized, ask(http.MethodGet, signedIn{key: "wrong"}, cookies).Code)
				require.Equal(t, http.StatusNoContent, ask(http.MethodDelete, c, cookies).Code)
				require.Len(t, ended, i+1)
				require.Equal(t, record.ID, ended[i])
				require.Equal(t, http.StatusUnauthorized, ask(http.MethodGet, c, cookies).Code)
			}
		})
	}
}

func TestABrowsersSessionLivesAsLongAsItsToken(t *testing.T) {
	t.Parallel()
	key := []byte("of all gateways")
	s := newShelf()
	token, record := s.add(1, access.Record{Name: "ops", Kind: api.TokenAPI, Role: api.RoleOperator, Tenant: "acme"})
	short, _ := s.add(2, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer, ExpiresAt: s.now.Add(time.Hour)})
	g := s.gate(Options{SessionKey: key})
	c := signIn(t, g, token)
	require.True(t, c.HttpOnly)
	require.False(t, c.Secure, "over plain http a browser would not send it back")
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Equal(t, int(sessionLife/time.Second), c.MaxAge)
	require.Equal(t, 3600, signIn(t, g, short).MaxAge, "not longer than the token")

	id, code := ask(t, g, access.Operate.Scoped(), browser(http.MethodPost, c))
	require.Empty(t, code)
	require.Equal(t, access.Identity{Kind: api.IdentityToken, ID: record.ID, Name: "ops", Role: api.RoleOperator,
		Tenant: "acme", Cookie: true}, id)
	_, code = ask(t, s.gate(Options{SessionKey: key}), access.View.Scoped(), browser(http.MethodGet, c))
	require.Empty(t, code, "another gateway with the same key knows it")
	_, code = ask(t, s.gate(Options{SessionKey: []byte("another")}), access.View.Scoped(), browser(http.MethodGet, c))
	require.Equal(t, protocol.CodeUnauthorized, code)

	s.pass(sessionLife)
	_, code = ask(t, g, access.View.Scoped(), browser(http.MethodGet, c))
	require.Equal(t, protocol.CodeUnauthorized, code)
	c = signIn(t, g, token)
	s.set(nil)
	s.pass(tokensFresh)
	_, code = ask(t, g, access.View.Scoped(), browser(http.MethodGet, c))
	require.Equal(t, protocol.CodeUnauthorized, code, "a revoked token takes its sessions along")
}

// TestASignedOutSessionIsOver signs one of two sessions of a token out: here, and at another gateway.
func TestASignedOutSessionIsOver(t *testing.T) {
	t.Parallel()
	const admin = "0123456789-the-first-admin-token-0123"
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	o := Options{SessionKey: []byte("of all gateways"), AdminToken: admin}
	o.EndSession = func(_ context.Context, ended access.EndedSession) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = access.EndSession(s.ended, ended, s.now)
		return nil
	}
	here, elsewhere := s.gate(o), s.gate(o)
	looks := func(g *Gate, c signedIn) string {
		_, code := ask(t, g, access.View, browser(http.MethodGet, c))
		return code
	}
	for _, of := range []string{token, admin} {
		c, other := signIn(t, here, of), signIn(t, here, of)
		require.NotEqual(t, c.Value, other.Value)
		require.Empty(t, looks(here, c))
		require.Empty(t, looks(elsewhere, c))
		require.NoError(t, here.signOut(t.Context(), c.Value, c.key))
		require.NoError(t, here.signOut(t.Context(), c.Value, c.key), "once more is no mistake")
		require.Equal(t, protocol.CodeUnauthorized, looks(here, c))
		s.pass(tokensFresh)
		require.Equal(t, protocol.CodeUnauthorized, looks(elsewhere, c))
		require.Empty(t, looks(elsewhere, other), "the other session goes on")
	}
	c := signIn(t, here, token)
	here.endSession = func(context.Context, access.EndedSession) error { return errAway }
	code, _ := httpapi.Code(here.signOut(t.Context(), c.Value, c.key))
	require.Equal(t, protocol.CodeUnavailable, code)
	require.Empty(t, looks(here, c), "who is told so is signed in yet")
	require.NoError(t, here.signOut(t.Context(), "forged", c.key), "there is nothing to end")
}

// Each sign-out is a change of the one workflow that has all tokens: those of one token must not keep admins from it.
func TestSignOutsOfOneTokenHaveARate(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer, Tenant: "acme"})
	other, _ := s.add(2, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	changes := 0
	g := s.gate(Options{EndSession: func(context.Context, access.EndedSession) error { changes++; return nil }})
	out := func(token string) error {
		c := signIn(t, g, token)
		return g.signOut(t.Context(), c.Value, c.key)
	}
	for range signOutBurst {
		require.NoError(t, out(token))
	}
	code, _ := httpapi.Code(out(token))
	require.Equal(t, protocol.CodeRateLimited, code)
	require.Equal(t, signOutBurst, changes)
	require.NoError(t, out(other))
	s.pass(time.Second)
	require.NoError(t, out(token))
}

func TestASessionOfTheFirstAdminEndsWithItsSecret(t *testing.T) {
	t.Parallel()
	key := []byte("of all gateways")
	s := newShelf()
	c := signIn(t, s.gate(Options{SessionKey: key, AdminToken: "0123456789-the-first-admin-token-0123"}),
		"0123456789-the-first-admin-token-0123")
	_, code := ask(t, s.gate(Options{SessionKey: key, AdminToken: "0123456789-another-admin-token-01234"}), access.View,
		browser(http.MethodGet, c))
	require.Equal(t, protocol.CodeUnauthorized, code)
}

func TestForgedSessions(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	g := s.gate(Options{})
	good := signIn(t, g, token)
	raw, err := base64.RawURLEncoding.DecodeString(good.Value)
	require.NoError(t, err)
	longer := strings.Replace(string(raw), `"e":1`, `"e":9`, 1)
	require.NotEqual(t, string(raw), longer)
	for name, value := range map[string]string{
		"empty": "", "no base64": "%%%", "short": "aaaa",
		"a later end": base64.RawURLEncoding.EncodeToString([]byte(longer)),
		"cut":         good.Value[:len(good.Value)-4], "the token itself": token,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, code := ask(t, g, access.View, browser(http.MethodGet, signedIn{&http.Cookie{Name: good.Name, Value: value}, good.key}))
			require.Equal(t, protocol.CodeUnauthorized, code)
		})
	}
	_, code := ask(t, g, access.View, browser(http.MethodGet, good))
	require.Empty(t, code)
}

func TestSignInTakesOnlyAPITokens(t *testing.T) {
	t.Parallel()
	s := newShelf()
	join, _ := s.add(1, access.Record{Kind: api.TokenJoin, Cluster: "c"})
	g := s.gate(Options{})
	for _, token := range []string{join, "wrong"} {
		_, err := g.signIn(t.Context(), &signInInput{Body: SignInRequest{Token: token}})
		require.Error(t, err)
	}
}

// TestPagesFromElsewhereDoNotAct has a browser that sends its cookie along with requests that other pages cause.
func TestPagesFromElsewhereDoNotAct(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleOperator})
	g := s.gate(Options{})
	c := signIn(t, g, token)
	for name, tt := range map[string]struct {
		method, site, origin string
		bearer               bool
		code                 string
	}{
		"own page":              {http.MethodPost, "same-origin", "http://example.com", false, ""},
		"own page, old browser": {http.MethodPost, "", "http://example.com", false, ""},
		"another site": {http.MethodPost, "cross-site", "http://evil.example", false,
			protocol.CodeForbidden},
		"another port": {http.MethodPost, "same-site", "http://example.com:99", false,
			protocol.CodeForbidden},
		"another site, old browser":       {http.MethodPost, "", "http://evil.example", false, protocol.CodeForbidden},
		"says nothing":                    {http.MethodDelete, "", "", false, protocol.CodeForbidden},
		"opaque":                          {http.MethodPost, "", "null", false, protocol.CodeForbidden},
		"looking is harmless":             {http.MethodGet, "cross-site", "", false, ""},
		"a program with a token needs no": {http.MethodPost, "", "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(tt.method, "")
			if tt.bearer {
				r = request(tt.method, token)
			} else {
				c.on(r)
			}
			for header, value := range map[string]string{"Sec-Fetch-Site": tt.site, "Origin": tt.origin} {
				if value != "" {
					r.Header.Set(header, value)
				}
			}
			_, code := ask(t, g, access.Operate, r)
			require.Equal(t, tt.code, code)
		})
	}
}

// FuzzSessionSeal opens what browsers may send as a cookie: only what was sealed is opened.
func FuzzSessionSeal(f *testing.F) {
	seal := newSessionSeal([]byte("of all gateways"))
	good := seal.seal(sessionClaims{ID: "i", Token: "t", Print: "p", Opened: 1, Expires: 2})
	for _, seed := range []string{good, good[1:], good + "A", "", "%%", strings.Repeat("A", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		claims, ok := seal.open(value)
		if ok && seal.seal(claims) != good {
			t.Fatalf("%q was opened as %+v", value, claims)
		}
	})
}
