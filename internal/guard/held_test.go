package guard

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

// TestAHeldRequestEndsWithItsToken has streams and waits whose token is revoked, expires, or cannot be looked at.
func TestAHeldRequestEndsWithItsToken(t *testing.T) {
	t.Parallel()
	const first = "0123456789-the-first-admin-token-0123"
	for name, c := range map[string]struct {
		expires time.Duration
		cookie  bool
		first   bool
		happens func(s *shelf)
		ends    time.Duration // at the latest; 0: it does not end
	}{
		"revoked":           {0, false, false, func(s *shelf) { s.set(nil) }, tokensFresh + 2*heldLook},
		"a revoked page's":  {0, true, false, func(s *shelf) { s.set(nil) }, tokensFresh + 2*heldLook},
		"its time is over":  {time.Minute, false, false, func(*shelf) {}, time.Minute + heldLook},
		"a page's is over":  {0, true, false, func(*shelf) {}, sessionLife + heldLook},
		"nothing happens":   {0, false, false, func(*shelf) {}, 0},
		"nobody can tell":   {0, false, false, func(s *shelf) { s.set(errAway) }, 0},
		"the first admin's": {0, false, true, func(s *shelf) { s.set(nil) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShelf()
				record := access.Record{Kind: api.TokenAPI, Role: api.RoleViewer}
				if c.expires > 0 {
					record.ExpiresAt = time.Now().Add(c.expires)
				}
				token, _ := s.add(1, record)
				g := New(Options{Tokens: s.read, AdminToken: first})
				r := request(http.MethodGet, map[bool]string{true: first, false: token}[c.first])
				if c.cookie {
					r = browser(http.MethodGet, signIn(t, g, token))
				}
				ctx, done, err := g.Admit(r, httpapi.Route{Policy: access.View}, nil)
				require.NoError(t, err)
				begun := time.Now()
				c.happens(s)
				select {
				case <-ctx.Done():
					require.ErrorIs(t, context.Cause(ctx), errTokenGone)
					require.NotZero(t, c.ends)
					require.LessOrEqual(t, time.Since(begun), c.ends)
				case <-time.After(2 * sessionLife):
					require.Zero(t, c.ends, "it should have ended")
				}
				done(http.StatusOK)
				if c.ends == 0 && !c.first {
					require.ErrorIs(t, context.Cause(ctx), context.Canceled,
						"what was answered is not looked at any more")
				}
			})
		})
	}
}

func TestTwoProofsAreNone(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	g := s.gate(Options{})
	r := request(http.MethodGet, token)
	r.Header.Add("Authorization", "Bearer "+token)
	_, code := ask(t, g, access.View, r)
	require.Equal(t, "invalid_token", code, "a proxy may have looked at the other one")
}
