package guard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// shelf is where the tokens of a test are, with a clock.
type shelf struct {
	mu     sync.Mutex
	now    time.Time
	tokens []access.Record
	ended  []access.EndedSession
	err    error
	reads  int
	hold   chan struct{} // unless nil, a reading waits for it
}

func newShelf() *shelf { return &shelf{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (s *shelf) read(ctx context.Context) ([]access.Record, []access.EndedSession, error) {
	s.mu.Lock()
	s.reads++
	hold, tokens, ended, err := s.hold, slices.Clone(s.tokens), slices.Clone(s.ended), s.err
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return tokens, ended, err
}

func (s *shelf) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *shelf) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *shelf) set(err error, tokens ...access.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.tokens = err, tokens
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// add mints a token that is on the shelf.
func (s *shelf) add(seed byte, r access.Record) (token string, record access.Record) {
	var random [access.RandomBytes]byte
	for i := range random {
		random[i] = seed ^ byte(i)
	}
	token, minted := access.Mint(r.Kind, random)
	r.ID, r.Hash = minted.ID, minted.Hash
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, r)
	return token, r
}

// gate is a gate before the shelf. Change its options with o.
func (s *shelf) gate(o Options) *Gate {
	o.Tokens = s.read
	if o.Sessions == nil {
		o.Sessions = func(token string) (string, string, bool) { return "", "", token == "sealed-by-a-hub" }
	}
	g := New(o)
	g.now, g.tokens.now = s.clock, s.clock
	g.tokens.pause = func(_ context.Context, d time.Duration) { s.pass(d) }
	return g
}

// ask sends a request to a gate. It returns who was let in, or the code of the problem.
func ask(t *testing.T, g *Gate, policy access.Policy, r *http.Request) (access.Identity, string) {
	t.Helper()
	ctx, done, err := g.Admit(r, httpapi.Route{Method: r.Method, Path: r.URL.Path, Policy: policy}, nil)
	status := http.StatusOK
	code := ""
	if err != nil {
		body, ok := httpapi.Body(err)
		require.True(t, ok, "a problem, not %v", err)
		require.NotEmpty(t, body.Detail)
		code, status = body.Code, body.Status
	}
	if done != nil {
		done(status)
	}
	return access.From(ctx), code
}

func request(method, token string) *http.Request {
	r := httptest.NewRequest(method, "/x", http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestWhoIsLetIn(t *testing.T) {
	t.Parallel()
	const admin, join = "0123456789-the-first-admin-token-0123", "0123456789-the-first-join-token-0123"
	s := newShelf()
	viewer, record := s.add(1, access.Record{Name: "ci", Kind: api.TokenAPI, Role: api.RoleViewer, Tenant: "acme"})
	joins, _ := s.add(2, access.Record{Kind: api.TokenJoin, Cluster: "build"})
	over, _ := s.add(3, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin, ExpiresAt: s.now.Add(-time.Second)})
	gone, _ := newShelf().add(4, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	g := s.gate(Options{AdminToken: admin, JoinToken: join})
	changed := viewer[:len(viewer)-1] + map[bool]string{true: "1", false: "0"}[viewer[len(viewer)-1] == '0']
	for name, c := range map[string]struct {
		header string
		policy access.Policy
		code   string
		id     string
	}{
		"the first admin":        {"Bearer " + admin, access.Administer, "", "first-admin"},
		"another word's case":    {"bearer " + admin, access.Administer, "", "first-admin"},
		"viewer":                 {"Bearer " + viewer, access.View.Scoped(), "", record.ID},
		"viewer acts":            {"Bearer " + viewer, access.Operate.Scoped(), protocol.CodeForbidden, ""},
		"viewer of the fleet":    {"Bearer " + viewer, access.View, protocol.CodeForbidden, ""},
		"a secret almost right":  {"Bearer " + changed, access.View, protocol.CodeUnauthorized, ""},
		"prefix of the first":    {"Bearer " + admin[:35], access.View, protocol.CodeUnauthorized, ""},
		"the first and more":     {"Bearer " + admin + "x", access.View, protocol.CodeUnauthorized, ""},
		"no token":               {"", access.View, protocol.CodeUnauthorized, ""},
		"empty token":            {"Bearer ", access.View, protocol.CodeUnauthorized, ""},
		"another scheme":         {"Basic " + admin, access.View, protocol.CodeUnauthorized, ""},
		"unknown token":          {"Bearer " + gone, access.View, protocol.CodeUnauthorized, ""},
		"expired":                {"Bearer " + over, access.View, protocol.CodeUnauthorized, ""},
		"join token joins":       {"Bearer " + joins, access.Join, "", ""},
		"first join token joins": {"Bearer " + join, access.Join, "", "first-join"},
		"join token looks":       {"Bearer " + joins, access.View, protocol.CodeForbidden, ""},
		"admin joins":            {"Bearer " + admin, access.Join, protocol.CodeForbidden, ""},
		"wrong token at a probe": {"Bearer " + gone, access.Open, "", ""},
		"undeclared":             {"Bearer " + admin, access.Policy{}, protocol.CodeForbidden, ""},
		"a session token":        {"Bearer sealed-by-a-hub", access.Session, "", ""},
		"a forged session token": {"Bearer sealed-by-nobody", access.Session, protocol.CodeUnauthorized, ""},
		"an admin's, as session": {"Bearer " + admin, access.Session, protocol.CodeUnauthorized, ""},
		"no session token":       {"", access.Session, protocol.CodeUnauthorized, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(http.MethodGet, "")
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
			id, code := ask(t, g, c.policy, r)
			require.Equal(t, c.code, code)
			if c.id != "" {
				require.Equal(t, c.id, id.ID)
			}
			if c.code != "" {
				require.False(t, id.Known(), "who is refused is nobody further on")
			}
		})
	}
}

var errAway = errors.New("no answer from Temporal")
