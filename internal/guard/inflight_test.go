package guard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// crowd sends requests to a gate that are not answered before the test says so.
type crowd struct {
	t    *testing.T
	gate httpapi.Gate
	done []func(int)
}

// send returns the code of the problem that answers a request, "" if it is let in.
func (c *crowd) send(r *http.Request, route httpapi.Route, agent string) string {
	c.t.Helper()
	_, done, err := c.gate.Admit(r, route, map[string]string{"id": agent})
	if err != nil {
		body, ok := httpapi.Body(err)
		require.True(c.t, ok)
		if body.Code == protocol.CodeRateLimited {
			require.NotEmpty(c.t, err.(interface{ GetHeaders() http.Header }).GetHeaders().Get("Retry-After"))
		}
		return body.Code
	}
	c.done = append(c.done, done)
	return ""
}

// answer ends the oldest request.
func (c *crowd) answer() {
	c.done[0](http.StatusOK)
	c.done[0](http.StatusOK) // once more counts nothing
	c.done = c.done[1:]
}

func TestWaitsAndStreamsAreBounded(t *testing.T) {
	t.Parallel()
	s := newShelf()
	one, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	two, _ := s.add(2, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	c := crowd{t: t, gate: s.gate(Options{})}
	wait := func(token string) string {
		r := request(http.MethodGet, token)
		r.URL.RawQuery = "include=payload&wait=60s"
		return c.send(r, httpapi.Route{Policy: access.View}, "")
	}
	stream := func(token string) string {
		return c.send(request(http.MethodGet, token), httpapi.Route{Policy: access.View, Held: true}, "")
	}
	for range maxHeld / 2 {
		require.Empty(t, wait(one))
		require.Empty(t, stream(one))
	}
	require.Equal(t, protocol.CodeRateLimited, wait(one))
	require.Equal(t, protocol.CodeRateLimited, stream(one))
	require.Empty(t, c.send(request(http.MethodGet, one), httpapi.Route{Policy: access.View}, ""), "others are quick")
	require.Empty(t, wait(two), "another token's count is its own")
	c.answer()
	require.Empty(t, wait(one))
	require.Equal(t, protocol.CodeRateLimited, wait(one))
}

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBytesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	s := newShelf()
	var tokens []string
	for i, tenant := range []string{"acme", "acme", "beta", "gamma"} {
		token, _ := s.add(byte(i), access.Record{Kind: api.TokenAPI, Role: api.RoleOperator, Tenant: tenant})
		tokens = append(tokens, token)
	}
	sessions := func(token string) (agent, cluster string, good bool) {
		agent, good = strings.CutPrefix(token, "of-")
		return agent, "cluster of " + agent[:1], good
	}
	const batch, poll = 32 << 20, 8 << 20
	send := func(c *crowd, policy access.Policy, token, agent string, most, announced, sent int64) string {
		r := httptest.NewRequest(http.MethodPost, "/x", io.LimitReader(zeros{}, sent))
		r.ContentLength = announced
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		code := c.send(r, httpapi.Route{Policy: policy, MaxBody: most}, agent)
		if code != "" {
			return code
		}
		_, err := io.Copy(io.Discard, io.LimitReader(r.Body, most))
		code, _ = httpapi.Code(err)
		return code
	}
	t.Run("of a token", func(t *testing.T) {
		t.Parallel()
		c := &crowd{t: t, gate: s.gate(Options{Sessions: sessions})}
		sends := func(token int, most, announced, sent int64) string {
			return send(c, access.Operate.Scoped(), tokens[token], "", most, announced, sent)
		}
		require.Empty(t, sends(0, batch, batch, batch))
		require.Equal(t, protocol.CodeRateLimited, sends(0, batch, batch, 0), "announced")
		require.Equal(t, protocol.CodeRateLimited, sends(0, batch, -1, batch), "of unknown length")
		c.done[1](http.StatusTooManyRequests)
		require.Empty(t, sends(0, batch, 2, 2), "a small one beside it")
		require.Empty(t, sends(0, 4, batch, batch), "more than a route takes is not read")
		require.Empty(t, sends(1, batch, batch, batch-smallBody))
		require.Equal(t, protocol.CodeRateLimited, sends(1, batch, 1<<20, 1<<20), "a tenant's tokens together")
		require.Empty(t, sends(1, batch, smallBody, smallBody), "small ones are read however much there is")
		require.Empty(t, sends(2, batch, batch, batch))
		require.Empty(t, send(c, access.Session, "of-a", "a", poll, poll, poll), "agents are not held back by clients")
		require.Empty(t, sends(3, batch, batch, batch))
		require.Equal(t, protocol.CodeRateLimited, sends(3, batch, 1<<20, 1<<20), "all together")
		for len(c.done) > 0 {
			c.answer()
		}
		require.Empty(t, sends(3, batch, batch, batch))
	})
	t.Run("of an agent", func(t *testing.T) {
		t.Parallel()
		c := &crowd{t: t, gate: NewUnlocked(sessions)}
		require.Empty(t, send(c, access.Session, "of-a", "a", poll, poll, poll))
		require.Empty(t, send(c, access.Session, "of-a", "a", poll, poll, poll))
		require.Equal(t, protocol.CodeRateLimited, send(c, access.Session, "of-a", "a", poll, poll, poll))
		require.Empty(t, send(c, access.Session, "of-b", "b", poll, poll, poll))
		require.Equal(t, protocol.CodeUnauthorized, send(c, access.Session, "of-b", "c", poll, poll, poll))
	})
	t.Run("of an agent, one after another", func(t *testing.T) {
		t.Parallel()
		gate := s.gate(Options{Sessions: sessions, Rate: 100, Burst: 100})
		at := time.Now()
		gate.now = func() time.Time { return at }
		c := &crowd{t: t, gate: gate}
		sends := func(agent string, bytes int64) (n int) {
			for n < 10_000 && send(c, access.Session, "of-"+agent, agent, poll, bytes, bytes) == "" {
				c.answer()
				n++
			}
			return n
		}
		const counts = 1 + 2<<20/agentPart
		require.Equal(t, agentBurst/counts+1, sends("a1", 2<<20))
		at = at.Add(4 * time.Second)
		require.InDelta(t, 4*agentRate/counts, sends("a1", 2<<20), 1)
		require.Equal(t, agentBurst, sends("a2", 1000))
		for n := range 20 * runtime.GOMAXPROCS(0) {
			sends(fmt.Sprint("a1", n), 2<<20)
		}
		require.Zero(t, sends("a3", 1000), "the cluster's agents together")
		require.Equal(t, agentBurst, sends("b", 1000), "another cluster's are not held back")
	})
	t.Run("of agents that announce and do not send", func(t *testing.T) {
		t.Parallel()
		c := &crowd{t: t, gate: NewUnlocked(sessions)}
		for _, agent := range strings.Split("abcdefghij", "") {
			for range 16 {
				require.Empty(t, send(c, access.Session, "of-"+agent, agent, poll, poll, 13))
			}
		}
		require.Empty(t, send(c, access.Session, "of-x", "x", poll, poll, poll))
	})
	t.Run("of a cluster's agents", func(t *testing.T) {
		t.Parallel()
		c := &crowd{t: t, gate: NewUnlocked(sessions)}
		for _, agent := range []string{"a1", "a2", "a3", "a4"} {
			require.Empty(t, send(c, access.Session, "of-"+agent, agent, poll, poll, poll))
			require.Empty(t, send(c, access.Session, "of-"+agent, agent, poll, poll, poll))
		}
		require.Equal(t, protocol.CodeRateLimited, send(c, access.Session, "of-a5", "a5", poll, -1, 1<<20))
		require.Empty(t, send(c, access.Session, "of-a6", "a6", poll, 300, 300), "polls go on")
		require.Empty(t, send(c, access.Session, "of-b", "b", poll, poll, poll), "as do those of other clusters")
	})
	t.Run("of a stranger", func(t *testing.T) {
		t.Parallel()
		c := &crowd{t: t, gate: s.gate(Options{})}
		for range maxStrangerBytes / maxSignIn {
			require.Empty(t, send(c, access.Open, "", "", maxSignIn, -1, maxSignIn))
		}
		require.Equal(t, protocol.CodeRateLimited, send(c, access.Open, "", "", maxSignIn, -1, maxSignIn))
	})
}

// TestRegisteringIsLimited has every kind of identity at the route where agents register.
func TestRegisteringIsLimited(t *testing.T) {
	t.Parallel()
	s := newShelf()
	viewer, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	joins, _ := s.add(2, access.Record{Kind: api.TokenJoin, Cluster: "build"})
	for name, c := range map[string]struct {
		token, refused string
		burst          int
	}{
		"a viewer":     {viewer, protocol.CodeForbidden, DefaultBurst},
		"a join token": {joins, "", joinBurst},
		"nobody":       {"", protocol.CodeUnauthorized, failedBurst},
	} {
		g := s.gate(Options{Rate: DefaultRate, Burst: DefaultBurst})
		for range c.burst {
			_, code := ask(t, g, access.Join, request(http.MethodPost, c.token))
			require.Equal(t, c.refused, code, name)
		}
		_, code := ask(t, g, access.Join, request(http.MethodPost, c.token))
		require.Equal(t, protocol.CodeRateLimited, code, name)
	}
}

// Whoever reads answers slowly keeps them in memory, though none of the requests waits or streams.
func TestRequestsAtATimeAreBounded(t *testing.T) {
	t.Parallel()
	s := newShelf()
	one, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	two, _ := s.add(2, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	c := crowd{t: t, gate: s.gate(Options{})}
	read := func(token string) string {
		return c.send(request(http.MethodGet, token), httpapi.Route{Policy: access.View}, "")
	}
	for range 4 * maxHeld {
		require.Empty(t, read(one))
	}
	require.Equal(t, protocol.CodeRateLimited, read(one))
	require.Empty(t, read(two))
	joins, _ := s.add(3, access.Record{Kind: api.TokenJoin})
	for range 5 * maxHeld { // all agents of a cluster may come at once
		require.Empty(t, c.send(request(http.MethodPost, joins), httpapi.Route{Policy: access.Join}, ""))
	}
	c.answer()
	require.Empty(t, read(one))
}

// What is read for an answer, and the answer itself, stay in memory until the client has read it.
func TestLargeAnswersAtATimeAreBounded(t *testing.T) {
	t.Parallel()
	s := newShelf()
	gate := s.gate(Options{})
	var tokens []string
	for i := range byte(5) {
		token, _ := s.add(i, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
		tokens = append(tokens, token)
	}
	read := func(token string, bytes int64) (done func(int), err error) {
		ctx, done, err := gate.Admit(request(http.MethodGet, token), httpapi.Route{Policy: access.View}, nil)
		require.NoError(t, err)
		return done, httpapi.Reserve(ctx, bytes)
	}
	refused := func(token string, bytes int64) {
		t.Helper()
		done, err := read(token, bytes)
		done(http.StatusTooManyRequests)
		code, _ := httpapi.Code(err)
		require.Equal(t, protocol.CodeRateLimited, code)
	}
	const large = maxAnswers / 2
	var open []func(int)
	for _, token := range tokens[:4] {
		for range 2 {
			done, err := read(token, large)
			require.NoError(t, err)
			open = append(open, done)
		}
		refused(token, 1)
	}
	refused(tokens[4], large) // all together
	ctx, done, err := gate.Admit(request(http.MethodPost, tokens[0]), httpapi.Route{Policy: access.View}, nil)
	require.NoError(t, err)
	require.NoError(t, httpapi.Reserve(ctx, large), "what was changed is told")
	done(http.StatusOK)
	open[0](http.StatusOK)
	done, err = read(tokens[4], large)
	require.NoError(t, err)
	done(http.StatusOK)
	for _, done := range open[1:] {
		done(http.StatusOK)
	}
	ctx, done, err = gate.Admit(request(http.MethodGet, tokens[0]), httpapi.Route{Policy: access.View}, nil)
	require.NoError(t, err)
	defer done(http.StatusOK)
	require.NoError(t, httpapi.Reserve(ctx, 2*maxAnswers), "the only one is always let in")
	require.NoError(t, httpapi.Reserve(ctx, maxAnswers), "that is a part of it")
}

// TestLargeAnswersOfATenantLeaveRoom has the tokens of one tenant read no answers: before, others' were refused.
func TestLargeAnswersOfATenantLeaveRoom(t *testing.T) {
	t.Parallel()
	s := newShelf()
	gate := s.gate(Options{})
	read := func(n byte, tenant string) error {
		token, _ := s.add(n, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer, Tenant: tenant})
		ctx, done, err := gate.Admit(request(http.MethodGet, token), httpapi.Route{Policy: access.View.Scoped()}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { done(http.StatusOK) })
		return httpapi.Reserve(ctx, maxAnswers)
	}
	for n := range byte(maxGroupAnswers / maxAnswers) {
		require.NoError(t, read(n, "acme"))
	}
	require.Error(t, read(100, "acme"), "the tenant's share")
	require.NoError(t, read(101, "beta"))
	require.NoError(t, read(102, ""))
}

// The name of a parameter may be written in other ways.
func TestAnEncodedWaitIsAWait(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	c := crowd{t: t, gate: s.gate(Options{})}
	wait := func() string {
		r := request(http.MethodGet, token)
		r.URL.RawQuery = "%77ait=60s"
		return c.send(r, httpapi.Route{Policy: access.View}, "")
	}
	for range maxHeld {
		require.Empty(t, wait())
	}
	require.Equal(t, protocol.CodeRateLimited, wait())
}

func TestATenantSharesNoConnectionsWithTheClusterOfItsName(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, holderOf(access.Session, "acme", "agent a"), holderOf(access.View, "acme", "api token"))
	require.Equal(t, holderOf(access.View, "acme", "api one"), holderOf(access.View, "acme", "api two"))
	require.NotEqual(t, holderOf(access.View, "", "api one"), holderOf(access.View, "", "api two"))
}

// TestProbesAreAnswered has one address keep as many requests from being answered as it may: probes from there still are.
func TestProbesAreAnswered(t *testing.T) {
	t.Parallel()
	s := newShelf()
	c := &crowd{t: t, gate: s.gate(Options{AdminToken: "0123456789-the-first-admin-token-0123"})}
	ask := func(path string) string {
		return c.send(request(http.MethodGet, ""), httpapi.Route{Policy: access.Open, Path: path}, "")
	}
	for range 4 * maxHeld {
		require.Empty(t, ask("/openapi.json"))
	}
	require.Equal(t, protocol.CodeRateLimited, ask("/openapi.json"))
	for path := range probes {
		require.Empty(t, ask(path))
	}
	for len(c.done) > 0 {
		c.answer()
	}
}
