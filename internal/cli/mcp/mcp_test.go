package mcp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/client"
)

// fakeAPI answers as the REST API does, and tells what it was asked.
type fakeAPI struct {
	*httptest.Server
	asked []string // method, path, token and body of each request
}

func newAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		f.asked = append(f.asked, strings.Join([]string{r.Method, r.URL.RequestURI(), token, string(body)}, " "))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case token == "" || token == "revoked":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"title":"Unauthorized","status":401,"code":"invalid_token","detail":"this needs a token"}`)
		case token == "reader" && r.Method == http.MethodPost:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"title":"Forbidden","status":403,"code":"forbidden","detail":"this needs the role operator"}`)
		case strings.HasSuffix(r.URL.Path, "/tasks") && r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"tasks":[{"id":"t-1","status":"queued","why":"no agent is online"}]}`)
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `{"id":"t-2","status":"queued"}`)
		default:
			_, _ = io.WriteString(w, `{"problems":[],"clusters":[]}`)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAPI) client(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: f.URL, Token: token, Patience: -1})
	require.NoError(t, err)
	return c
}

// connect opens a session of an assistant with a server.
func connect(t *testing.T, transport sdk.Transport) *sdk.ClientSession {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func inMemory(t *testing.T, c *client.Client, readOnly bool) *sdk.ClientSession {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	server, err := newServer(c, "v1", readOnly).Connect(t.Context(), there, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return connect(t, here)
}

func TestToolsThatChangeSomethingAreMarked(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	for _, readOnly := range []bool{true, false} {
		changing := map[string]bool{}
		tools, err := inMemory(t, api.client(t, ""), readOnly).ListTools(t.Context(), nil)
		require.NoError(t, err)
		for _, tool := range tools.Tools {
			require.NotEmpty(t, tool.Description, tool.Name)
			if !tool.Annotations.ReadOnlyHint {
				changing[tool.Name] = *tool.Annotations.DestructiveHint
			}
		}
		want := map[string]bool{}
		if !readOnly {
			want = map[string]bool{"submit_task": false, "cancel_task": true, "retry_task": false, "rerun_task": false, "drain_agent": true,
				"dispatch_job": false, "cancel_run": true, "retry_run": false}
		}
		require.Equal(t, want, changing)
	}
}

func TestToolsCallTheAPI(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	session := inMemory(t, api.client(t, "operator"), false)
	call := func(name string, arguments map[string]any) string {
		result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
		require.NoError(t, err)
		require.False(t, result.IsError, "%v", result.Content)
		answer, err := json.Marshal(result.StructuredContent)
		require.NoError(t, err)
		return string(answer)
	}
	require.Contains(t, call("list_tasks", map[string]any{"status": "queued", "limit": 5}), "no agent is online")
	require.Contains(t, call("submit_task", map[string]any{"type": "echo", "payload": map[string]any{"n": json.RawMessage(`[1,9007199254740993,1.10]`)},
		"idempotency_key": "k1"}), "t-2")
	call("drain_agent", map[string]any{"id": "a-1", "reason": "disk is old", "dry_run": true})
	require.Equal(t, []string{
		"GET /api/v1/agents/tasks?page_size=5&status=queued operator ",
		`POST /api/v1/agents/tasks operator {"idempotency_key":"k1","type":"echo","cluster":"default","payload":{"n":[1,9007199254740993,1.10]}}`,
		`POST /api/v1/agents/a-1/drain operator {"reason":"disk is old","dry_run":true}`,
	}, api.asked)
}

// TestPayloadsOfAssistants hands on what was written, digit for digit, reads JSON that is in quotes, and says what is
// wrong with the rest before anything is asked.
func TestPayloadsOfAssistants(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	session := inMemory(t, api.client(t, "operator"), false)
	for _, c := range []struct{ name, arguments, sent, wrong string }{
		{"submit_task", `"type":"echo","payload":{"id":9007199254740993}`, `{"id":9007199254740993}`, ""},
		{"submit_task", `"type":"echo","payload":"{\"id\": 9007199254740993}"`, `{"id":9007199254740993}`, ""},
		{"submit_task", `"type":"echo","payload":"[1.10]"`, `[1.10]`, ""},
		{"submit_task", `"type":"echo","payload":"hello"`, `"hello"`, ""},
		{"submit_task", `"type":"exec","payload":{"command":["sleep",1.10]}`, `{"command":["sleep","1.10"]}`, ""},
		{"submit_task", `"type":"exec","payload":"{\"command\": [\"true\"]}"`, `{"command":["true"]}`, ""},
		{"submit_task", `"type":"exec","payload":"make test"`, "", "payload: must be like {command: [make, test]}, and is text"},
		{"submit_task", `"type":"exec","payload":{"command":"make test"}`, "", "payload.command: a command is a list of words"},
		{"submit_task", `"type":"exec"`, "", "payload: is missing"},
		{"dispatch_job", `"job":"j","inputs":{"n":9007199254740993}`, `{"n":9007199254740993}`, ""},
		{"dispatch_job", `"job":"j","inputs":"{\"n\":1.10}"`, `{"n":1.10}`, ""},
		{"submit_task", `"type":"echo","payload":{"n":1e400}`, "", "the number 1e400 is too large: send the payload, or the inputs, as a text"},
		{"submit_task", `"type":"echo","payload":"{\"n\":1e400}"`, `{"n":1e400}`, ""},
		{"dispatch_job", `"job":"j","inputs":"n=1"`, "", "inputs must be an object"},
		{"submit_task", `"type":"echo","retrySafety":"at_most_once"`, "", "retrySafety"},
	} {
		before := len(api.asked)
		result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: c.name,
			Arguments: json.RawMessage(`{"idempotency_key":"k",` + c.arguments + `}`)})
		require.NoError(t, err)
		if c.wrong != "" {
			require.True(t, result.IsError, c.arguments)
			require.Contains(t, result.Content[0].(*sdk.TextContent).Text, c.wrong)
			require.Len(t, api.asked, before)
			continue
		}
		require.False(t, result.IsError, "%v", result.Content)
		require.Contains(t, api.asked[before], c.sent)
	}
	for tool, err := range session.Tools(t.Context(), nil) {
		require.NoError(t, err)
		if text, _ := json.Marshal(tool.InputSchema); tool.Name == "submit_task" {
			require.Contains(t, string(text), "The program and its arguments, each a word.")
		}
	}
}

func TestRefusalsReachTheAssistant(t *testing.T) {
	t.Parallel()
	session := inMemory(t, newAPI(t).client(t, "reader"), false)
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "cancel_task",
		Arguments: map[string]any{"id": "t-1", "reason": "no longer needed"}})
	require.NoError(t, err)
	require.True(t, result.IsError)
	require.Contains(t, result.Content[0].(*sdk.TextContent).Text, "this needs the role operator")
}

// bearer sends an API token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP serves MCP over HTTP.
func overHTTP(t *testing.T, api *fakeAPI) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler(func(token string) *client.Client { return api.client(t, "").As(token) },
		func(c *client.Client) *sdk.Server { return newServer(c, "v1", false) }))
	t.Cleanup(server.Close)
	return server
}

// TestStrangersLearnNothingOverHTTP sends what needs no call of the API to be answered.
func TestStrangersLearnNothingOverHTTP(t *testing.T) {
	t.Parallel()
	server := overHTTP(t, newAPI(t))
	for token, want := range map[string]int{"": http.StatusUnauthorized, "revoked": http.StatusUnauthorized,
		"reader": http.StatusOK} {
		for _, method := range []string{"tools/list", "initialize", "ping"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(
				`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			_ = answer.Body.Close()
			require.Equal(t, want, answer.StatusCode, "%s of %q: %s", method, token, text)
			require.Equal(t, want == http.StatusUnauthorized, answer.Header.Get("WWW-Authenticate") != "")
			require.Equal(t, want == http.StatusOK && method == "tools/list", strings.Contains(string(text), "cancel_task"))
		}
	}
}

// While security is off everybody may do everything, so nobody may come by a proxy.
func TestProxiesAreRefusedWhileSecurityIsOff(t *testing.T) {
	t.Parallel()
	for security, want := range map[bool]int{true: http.StatusOK, false: http.StatusForbidden} {
		api := &fakeAPI{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"security": security, "kind": "token", "role": "viewer"})
		}))}
		t.Cleanup(api.Close)
		server := overHTTP(t, api)
		for _, header := range []string{"X-Forwarded-For", "Via", "X-Real-Ip", ""} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL,
				strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			status := http.StatusOK
			if header != "" {
				r.Header.Set(header, "192.0.2.1")
				status = want
			}
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			_ = answer.Body.Close()
			require.Equal(t, status, answer.StatusCode, "%q, security %t", header, security)
		}
	}
}

func TestEachHTTPRequestBringsItsToken(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	server := overHTTP(t, api)
	for _, token := range []string{"alice", "bob"} {
		session := connect(t, &sdk.StreamableClientTransport{Endpoint: server.URL,
			HTTPClient: &http.Client{Transport: bearer(token)}})
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "overview"})
		require.NoError(t, err)
	}
	asked := slices.DeleteFunc(slices.Clone(api.asked), func(s string) bool {
		return strings.HasPrefix(s, "GET /api/v1/session ")
	})
	require.Equal(t, []string{"GET /api/v1/agents/overview alice ", "GET /api/v1/agents/overview bob "}, asked)

	for name, change := range map[string]func(*http.Request){
		"a page of another origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"another host name":        func(r *http.Request) { r.Host = "evil.example" },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer alice")
		change(r)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, http.StatusForbidden, answer.StatusCode, name)
	}
}

// With a certificate of its own the server would lend its rights to everybody who reaches it.
func TestNoCredentialIsSharedOverHTTP(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"a token":       {"MAINSTAY_TOKEN": "mst_0123456789ab_x"},
		"a certificate": {"MAINSTAY_CERT": "cert.pem", "MAINSTAY_KEY": "key.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			a := app.New("dev")
			command := Command(a)
			command.SetArgs([]string{"--listen", "127.0.0.1:0"})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorContains(t, command.ExecuteContext(ctx), "every request brings its own API token")
		})
	}
}
