package guard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/connlimit"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestEachClientHasItsOwnBudget(t *testing.T) {
	t.Parallel()
	s := newShelf()
	one, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	two, _ := s.add(2, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	join, _ := s.add(3, access.Record{Kind: api.TokenJoin, Cluster: "c"})
	g := s.gate(Options{Rate: 2, Burst: 5})
	code := func(token string, policy access.Policy) string {
		_, code := ask(t, g, policy, request(http.MethodGet, token))
		return code
	}
	for range 5 {
		require.Empty(t, code(one, access.View))
	}
	require.Equal(t, protocol.CodeRateLimited, code(one, access.View))
	require.Empty(t, code(two, access.View), "another token's budget is untouched")
	s.pass(500 * time.Millisecond)
	require.Empty(t, code(one, access.View), "half a second is worth one request")
	require.Equal(t, protocol.CodeRateLimited, code(one, access.View), "what was refused has cost nothing")
	for range 100 {
		require.Empty(t, code(join, access.Join), "all agents of a cluster may register at once")
		require.Empty(t, code("sealed-by-a-hub", access.Session), "nor their polls")
		_, _, err := g.Admit(request(http.MethodGet, ""), httpapi.Route{Path: protocol.ReadyPath, Policy: access.Open}, nil)
		require.NoError(t, err, "nor probes")
	}
	for range 5 {
		require.Empty(t, code("", access.Open))
	}
	require.Equal(t, protocol.CodeRateLimited, code("", access.Open), "what is open to everybody costs something too")
}

// All agents of a hub that has restarted register again at once, with one join token: who proves a session counts as
// its agent. Who has none, another agent's, or none that is good counts for the token (05_join_rate).
func TestRegisteringAgainCountsForTheAgent(t *testing.T) {
	t.Parallel()
	s := newShelf()
	join, _ := s.add(1, access.Record{Kind: api.TokenJoin, Cluster: "c"})
	g := s.gate(Options{Rate: 1, Burst: 1, Sessions: func(token string) (string, string, bool) {
		agent, good := strings.CutPrefix(token, "session of ")
		return agent, "c", good
	}})
	registers := func(session string) string {
		r := request(http.MethodPost, join)
		r.Header.Set(protocol.SessionHeader, session)
		_, code := ask(t, g, access.Join, r)
		return code
	}
	for range joinBurst {
		require.Empty(t, registers(""))
	}
	for n := range 2 * joinBurst {
		require.Empty(t, registers("session of a"+strconv.Itoa(n)))
	}
	for _, none := range []string{"", "forged"} {
		require.Equal(t, protocol.CodeRateLimited, registers(none))
	}
	for range agentBurst {
		require.Empty(t, registers("session of b"))
	}
	require.Equal(t, protocol.CodeRateLimited, registers("session of b"), "one agent has its own limit")
	require.Empty(t, registers("session of c"))
	_, code := ask(t, g, access.Join, func() *http.Request {
		r := request(http.MethodPost, "guess")
		r.Header.Set(protocol.SessionHeader, "session of c")
		return r
	}())
	require.Equal(t, protocol.CodeUnauthorized, code, "a session is no join token")
}

// What asks many clusters, hubs or queues counts as several requests.
func TestWideRequestsCountAsSeveral(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	g := s.gate(Options{Rate: 1, Burst: 2*wideCounts + 1})
	admit := func(wide bool) error {
		_, _, err := g.Admit(request(http.MethodGet, token), httpapi.Route{Policy: access.View, Wide: wide}, nil)
		return err
	}
	require.NoError(t, admit(true))
	require.NoError(t, admit(true))
	require.Error(t, admit(true))
	require.NoError(t, admit(false))
	require.Error(t, admit(false))
}

func TestRetryAfterSaysWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	s := newShelf()
	g := s.gate(Options{AdminToken: "0123456789-the-first-admin-token-0123", Rate: 0.25, Burst: 1})
	r := request(http.MethodGet, "0123456789-the-first-admin-token-0123")
	_, code := ask(t, g, access.View, r)
	require.Empty(t, code)
	_, _, err := g.Admit(r, httpapi.Route{Policy: access.View}, nil)
	header := err.(interface{ GetHeaders() http.Header }).GetHeaders().Get("Retry-After")
	seconds, convErr := strconv.Atoi(header)
	require.NoError(t, convErr)
	require.Equal(t, 4, seconds)
	s.pass(time.Duration(seconds) * time.Second)
	_, code = ask(t, g, access.View, r)
	require.Empty(t, code, "who comes back then is let in")
}

func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	s := newShelf()
	good, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	g := s.gate(Options{Rate: DefaultRate, Burst: DefaultBurst})
	limited := 0
	for range failedBurst + 50 {
		if _, code := ask(t, g, access.View, request(http.MethodGet, "guess")); code == protocol.CodeRateLimited {
			limited++
		}
	}
	require.Equal(t, 50, limited)
	_, code := ask(t, g, access.Session, request(http.MethodPost, "guess"))
	require.Equal(t, protocol.CodeRateLimited, code, "nor are sessions guessed")
	_, code = ask(t, g, access.Session, request(http.MethodPost, "sealed-by-a-hub"))
	require.Empty(t, code, "agents behind the address go on")
	_, code = ask(t, g, access.View, request(http.MethodGet, good))
	require.Empty(t, code, "who has a token is not punished for neighbours behind one address")
}

// TestStrangersMakeRoom has one request on each of some connections, which then stay open: of those beyond the bound,
// the oldest without a token is closed.
func TestStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Name: "ci", Kind: api.TokenAPI, Role: api.RoleViewer})
	server := httptest.NewUnstartedServer(httpapi.New(httpapi.Options{Gate: s.gate(Options{})}).Handler())
	hooks := make(chan http.ConnState, 100)
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return ctx }
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) { hooks <- state }
	connlimit.New(2, zap.NewNop()).Apply(server.Config)
	server.Start()
	t.Cleanup(server.Close)
	ask := func(token string) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+token+"\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		return conn
	}
	open := func(conn net.Conn) bool {
		_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		return err == nil
	}
	known := ask(token)
	first, second := ask("wrong"), ask("wrong")
	ask(token)
	require.False(t, open(first), "nobody knew yet whose the newest was")
	require.True(t, open(second))
	require.True(t, open(known), "who is known does not count")
	require.NotEmpty(t, hooks, "the hooks of others are called too")
}
