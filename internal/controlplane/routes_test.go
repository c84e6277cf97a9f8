package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/guard"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/page"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// everyRoute serves all parts, as one process may, and calls nobody.
func everyRoute(t *testing.T, o httpapi.Options) *httpapi.Server {
	t.Helper()
	temporal, err := client.NewLazyClient(client.Options{})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	server := httpapi.New(o)
	g := gateway.New(gateway.Options{Store: store.Store{Client: temporal}})
	g.Register(server.API())
	require.NoError(t, mountPage(server, "v1", page.Options{}))
	guard.RegisterSession(server.API(), nil)
	h, err := hub.New(hub.Options{ID: "h", Store: store.Store{Client: temporal}, Key: []byte("a key of at least 32 characters.")})
	require.NoError(t, err)
	h.Register(server.API())
	return server
}

// TestEveryRouteSaysWhoMayUseIt fails for a route that was registered without a policy (httpapi.Register,
// Server.Handle).
func TestEveryRouteSaysWhoMayUseIt(t *testing.T) {
	t.Parallel()
	server := everyRoute(t, httpapi.Options{})
	routes := server.Routes()
	require.Greater(t, len(routes), 50)
	documented, wide := map[string]bool{}, []string{}
	for _, r := range routes {
		require.True(t, r.Policy.Declared(), "%s %s has no policy: nobody could use it while security is on", r.Method,
			r.Path)
		if r.Policy.Role() == api.RoleViewer {
			require.Equal(t, "GET", r.Method, "%s changes something, and a viewer may do it", r.Path)
		}
		if r.Operation != "" {
			documented[r.Operation] = true
		}
		if r.Wide {
			wide = append(wide, r.Operation)
		}
	}
	for path, item := range server.API().OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				require.True(t, documented[op.OperationID], "%s %s is in the document and not among the routes",
					op.Method, path)
				require.NotNil(t, op.Security, "%s %s does not say in the document what it needs", op.Method, path)
			}
		}
	}
	require.ElementsMatch(t, []string{"get-overview", "list-agents", "list-members", "list-clusters", "list-services",
		"list-job-instances", "get-queue", "get-cluster-queue", "get-cluster-load", "get-cluster-health",
		"get-cluster-sync", "get-agent-health", "get-schedule"}, wide, "what counts as several requests, by docs/SECURITY.md")
}

// who are the identities that come to every route.
var who = []string{"nobody", "wrong", "viewer", "operator", "admin", "acme's viewer", "acme's operator",
	"joining agent", "registered agent"}

// The rules of docs/SECURITY.md in another form than the code's, so that a policy that was given by mistake is noticed.
// Only what a rule says is let in; all else must be turned away, with 401 for nobody and a wrong token, else 403.
var rules = ruleBook([][3]string{ // methods and path as regular expressions, who is let in
	{"GET", `^/(healthz|readyz|health|docs|docs/.*|openapi\.json)$`, "everybody"},
	{"POST|DELETE", `^/api/v1/session$`, "everybody"},
	{"GET", `^/api/v1/schemas(/\{name\})?$`, "everybody"},
	{"GET|HEAD", `^/$`, "everybody"},
	{"GET|HEAD", `^/page/\{version\}/\{file\}$`, "everybody"},
	{"GET", `^/api/v1/session$`, "viewer,operator,admin,acme's viewer,acme's operator"},
	{"POST", `^/api/v1/agents/register$`, "joining agent"},
	{"POST|DELETE", `^/api/v1/agents/\{id\}/(poll|session|state|tasks/\{task_id\}/(result|log|checkpoint))$`,
		"registered agent"},
	{".*", `^/api/v1/agents/tokens`, "admin"},
	{"POST|PUT|PATCH|DELETE", `^/api/v1/agents/clusters(/\{id\})?$`, "admin"},
	{"POST|PUT|PATCH|DELETE", `^/api/v1/agents/clusters/\{id\}/scaling/rollout/`, "admin"},
	{"POST", `^/api/v1/agents/(clusters/\{id\}/spawn|\{id\}/terminate)$`, "operator,admin"},
	{"POST|PUT|PATCH|DELETE", `^/api/v1/agents/targets`, "admin"},
	{"POST|PUT|PATCH|DELETE", `^/api/v1/agents/clusters/\{id\}/targets$`, "admin"},
	{"GET", `^/api/v1/agents/(tasks|schedules|jobs|runs|arrays|services|events|inbound|quarantine|search)(/|$)`,
		"viewer,operator,admin,acme's viewer,acme's operator"},
	{"POST|PUT|PATCH|DELETE", `^/api/v1/agents/(tasks|schedules|jobs|runs|arrays|events|quarantine)(/|$)`,
		"operator,admin,acme's operator"},
	{"GET", `.*`, "viewer,operator,admin"},
	{".*", `.*`, "operator,admin"},
})

type rule struct {
	method, path *regexp.Regexp
	in           []string
}

func ruleBook(lines [][3]string) (book []rule) {
	for _, line := range lines {
		book = append(book, rule{regexp.MustCompile("^(" + line[0] + ")$"), regexp.MustCompile(line[1]),
			strings.Split(line[2], ",")})
	}
	return book
}

// letIn answers 501 to whoever the gate lets in, before any handler.
type letIn struct{ gate httpapi.Gate }

func (l letIn) Admit(
	r *http.Request, route httpapi.Route, params map[string]string,
) (context.Context, func(int), error) {
	ctx, done, err := l.gate.Admit(r, route, params)
	if err == nil {
		err = httpapi.Problem(protocol.CodeNotSupported, "let in")
	}
	return ctx, done, err
}

// testTokens are one of each kind, and a gate that knows them.
func testTokens() (tokens map[string]string, gate *guard.Gate) {
	tokens = map[string]string{"nobody": "", "wrong": "wrong", "registered agent": "sealed-by-a-hub"}
	var records []access.Record
	for i, name := range []string{"viewer", "operator", "admin", "acme's viewer", "acme's operator", "joining agent"} {
		record := access.Record{Kind: api.TokenAPI}
		switch {
		case name == "joining agent":
			record.Kind = api.TokenJoin
		case strings.HasPrefix(name, "acme's "):
			record.Tenant, record.Role = "acme", api.AccessRole(strings.TrimPrefix(name, "acme's "))
		default:
			record.Role = api.AccessRole(name)
		}
		token, minted := access.Mint(record.Kind, [access.RandomBytes]byte{byte(i + 1)})
		record.ID, record.Hash = minted.ID, minted.Hash
		tokens[name], records = token, append(records, record)
	}
	return tokens, guard.New(guard.Options{
		Tokens:   func(context.Context) ([]access.Record, []access.EndedSession, error) { return records, nil, nil },
		Sessions: func(token string) (string, string, bool) { return "x", "c", token == tokens["registered agent"] },
	})
}

// TestEveryRouteTurnsAwayWhoMustNotUseIt sends each identity to each route with each method.
func TestEveryRouteTurnsAwayWhoMustNotUseIt(t *testing.T) {
	t.Parallel()
	tokens, gate := testTokens()
	server := everyRoute(t, httpapi.Options{Gate: letIn{gate}})
	paths := map[string]bool{}
	for _, r := range server.Routes() {
		paths[r.Path] = true
	}
	routes := server.Routes()
	for path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
			http.MethodPatch, http.MethodDelete, http.MethodOptions} {
			as := method
			// HEAD is GET without a body, but not of a stream
			if method == http.MethodHead && path != "/api/v1/agents/events" {
				as = http.MethodGet
			}
			taker, taken := takerOf(routes, as, path)
			for _, name := range who {
				want := http.StatusMethodNotAllowed
				if taken {
					want = ruled(t, as, taker, name)
				}
				require.Equal(t, want, knock(server, method, path, tokens[name]), "%s %s by %s", method, path, name)
			}
		}
	}
}

// takerOf is the path of the route that takes a request for path: its own, or one with a parameter where path has a
// word.
func takerOf(routes []httpapi.Route, method, path string) (taker string, taken bool) {
	for _, r := range routes {
		if r.Method != method {
			continue
		}
		if r.Path == path {
			return path, true
		}
		if has, words := strings.Split(r.Path, "/"), strings.Split(path, "/"); len(has) == len(words) &&
			!slices.ContainsFunc(has, func(s string) bool {
				w := words[0]
				words = words[1:]
				return s != w &&
					!strings.HasPrefix(s, "{")
			}) {
			taker, taken = r.Path, true
		}
	}
	return taker, taken
}

// ruled is the status that the rules want.
func ruled(t *testing.T, method, path, name string) int {
	t.Helper()
	for _, r := range rules {
		if r.method.MatchString(method) && r.path.MatchString(path) {
			switch {
			case r.in[0] == "everybody", slices.Contains(r.in, name):
				return http.StatusNotImplemented
			case name == "nobody", name == "wrong", name == "registered agent", // a session token is none of ours
				r.in[0] == "registered agent": // and there, nothing else proves anything
				return http.StatusUnauthorized
			}
			return http.StatusForbidden
		}
	}
	t.Fatal("no rule")
	return 0
}

var parameter = regexp.MustCompile(`\{[a-z_]+\}`)

func knock(server *httpapi.Server, method, path, token string) int {
	target := parameter.ReplaceAllString(path, "x")
	if at := strings.Index(target, "*"); at >= 0 {
		target = target[:at] + "x"
	}
	r := httptest.NewRequest(method, target, http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, r)
	return w.Code
}

// hostile is a body without end, of a large array or of one that is nested without end. It counts what is read of it.
type hostile struct {
	piece string
	read  int
}

func (h *hostile) Read(p []byte) (int, error) {
	n := copy(p, h.piece)
	h.read += n
	return n, nil
}

// TestWithoutProofNoBodyIsRead sends endless bodies to each route: by who must not use it, not a byte is read, so it
// costs nothing however slow or large it is; signing in reads as much as it takes.
func TestWithoutProofNoBodyIsRead(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	tokens, gate := testTokens()
	server := everyRoute(t, httpapi.Options{Gate: gate})
	refused := 0
	for _, route := range server.Routes() {
		if route.Method == http.MethodGet || route.Method == http.MethodHead {
			continue
		}
		for _, name := range who {
			if ruled(t, route.Method, route.Path, name) == http.StatusNotImplemented &&
				(!route.Policy.IsOpen() || name != "nobody") {
				continue
			}
			for kind, piece := range map[string]string{"large": strings.Repeat("{},", 1000),
				"deep": strings.Repeat("[", 1000)} {
				body := &hostile{piece: piece}
				r := httptest.NewRequest(route.Method, parameter.ReplaceAllString(route.Path, "x"), body)
				r.ContentLength = -1
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+tokens[name])
				if name == "nobody" {
					r.Header.Del("Authorization")
				}
				w := httptest.NewRecorder()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				server.Handler().ServeHTTP(w, r)
				runtime.ReadMemStats(&after)
				at := fmt.Sprintf("%s %s by %s, %s: %s", route.Method, route.Path, name, kind, w.Body)
				if route.Policy.IsOpen() {
					require.LessOrEqual(t, body.read, 16<<10, at)
				} else {
					require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, w.Code, at)
					require.Zero(t, body.read, at)
					refused++
				}
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<10), at)
			}
		}
	}
	require.Greater(t, refused, 400, "the walk finds them")
}

// TestHubsTurnAwayForgedSessions sends every identity to the routes of registered agents, with bodies that are valid:
// the hub itself must refuse all of them.
func TestHubsTurnAwayForgedSessions(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"poll-agent": `{"sequence":1}`,
		"report-result": `{"token":"x","attempt":1,"outcome":"completed",` +
			`"started_at":"2026-11-21T12:00:00Z","ended_at":"2026-11-21T12:00:01Z"}`,
		"send-log": `{"attempt":1,"lines":[]}`,
		"send-state": `{"request":"x","state":{"digest":"","entries":0,"version":{"number":0}},` +
			`"captured_at":"2026-11-21T12:00:00Z"}`,
		"resume-session": `{"agent_id":"a-1","instance_id":"12345678","cluster":"c","max_tasks":1}`,
		"end-session":    ``,
	}
	tokens, _ := testTokens()
	server := everyRoute(t, httpapi.Options{})
	seen := 0
	for _, route := range server.Routes() {
		if !route.Policy.IsSession() {
			continue
		}
		seen++
		body, known := bodies[route.Operation]
		require.True(t, known, "give %s a valid body here, so that it is known to refuse strangers", route.Operation)
		for _, name := range who {
			r := httptest.NewRequest(route.Method, strings.NewReplacer("{id}", "a-1", "{task_id}",
				"t-1").Replace(route.Path), strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+tokens[name])
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s by %s: %s", route.Operation, name, w.Body)
		}
	}
	require.Equal(t, len(bodies), seen)
}
