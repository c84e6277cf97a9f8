package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestMain lets the test's own program be a server of tools over its input and output.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "serve-tools" {
		_ = (&toolServer{}).server().Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "serve-tools-and-talk" {
		fmt.Fprint(os.Stdout, "\ufeffWelcome\n\xff\n{\"level\":\"info\"}\nLoading… ")
		_ = (&toolServer{cut: func() { fmt.Fprintln(os.Stdout, "working") }}).server().Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	os.Exit(m.Run())
}

// toolServer counts the calls of its tools.
type toolServer struct {
	calls atomic.Int64
	key   atomic.Value
	cut   func() // called in the middle of the tool "cut"
}

type words struct {
	Text string `json:"text,omitempty"`
}

func (s *toolServer) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	add := func(name string, tool func(words) (any, error)) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(_ context.Context, r *mcp.CallToolRequest, in words) (
			*mcp.CallToolResult, any, error,
		) {
			s.calls.Add(1)
			s.key.Store(r.Params.Meta[keyName])
			answer, err := tool(in)
			return nil, answer, err
		})
	}
	add("shout", func(in words) (any, error) { return words{strings.ToUpper(in.Text)}, nil })
	add("refuse", func(words) (any, error) { return nil, errors.New("no such customer") })
	add("fill", func(words) (any, error) { return words{strings.Repeat("x", maxResult)}, nil })
	server.AddTool(&mcp.Tool{Name: "mirror", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{StructuredContent: r.Params.Arguments,
				Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	add("cut", func(words) (any, error) { s.cut(); return words{}, nil })
	return server
}

// serve starts a server over HTTP; it forgets its sessions when forget is called.
func serve(t *testing.T, s *toolServer) (url string, forget func()) {
	t.Helper()
	var current atomic.Pointer[mcp.StreamableHTTPHandler]
	forget = func() {
		current.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server() }, nil))
	}
	forget()
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current.Load().ServeHTTP(w, r)
	}))
	s.cut = listening.CloseClientConnections
	t.Cleanup(listening.Close)
	return listening.URL, forget
}

func tools(t *testing.T, server *Server) *Tools {
	t.Helper()
	server.Tools, server.Idempotent = []string{"shout", "refuse", "fill", "cut", "gone", "mirror"},
		[]string{"shout", "refuse", "fill", "mirror"}
	tools := New(&File{Servers: map[string]*Server{"s": server}}, "1", slog.New(slog.DiscardHandler),
		func(string, api.ProviderAccess) error { return nil })
	t.Cleanup(tools.Close)
	return tools
}

func do(t *testing.T, tools *Tools, safety api.RetrySafety, tool, text string) (string, error) {
	t.Helper()
	payload, err := json.Marshal(map[string]any{"server": "s", "tool": tool, "arguments": map[string]any{"text": text}})
	require.NoError(t, err)
	result, err := tools.Handle(t.Context(), &agent.Task{ID: "t-1", Payload: payload, RetrySafety: safety})
	data, marshalErr := json.Marshal(result)
	require.NoError(t, marshalErr)
	return string(data), err
}

// Programs print banners and log to their standard output.
func TestWhatIsNoMessageIsSkipped(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	tools := tools(t, &Server{Command: []string{program, "serve-tools-and-talk"}})
	for range 2 {
		_, err = do(t, tools, api.AtMostOnce, "cut", "")
		require.NoError(t, err)
		result, err := do(t, tools, api.Idempotent, "shout", "hello")
		require.NoError(t, err)
		require.Contains(t, result, `"structured":{"text":"HELLO"}`)
	}
}

func TestHowAProgramEndedIsSaid(t *testing.T) {
	t.Parallel()
	tools := tools(t, &Server{Command: []string{"sh", "-c", "echo starting; echo 'no API key' >&2; exit 3"}})
	for range 2 {
		_, err := do(t, tools, api.Idempotent, "shout", "hello")
		require.ErrorContains(t, err, "the server of tools ended with exit status 3; its standard error ended with: no API key")
	}
}

func TestToolsAreCalled(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	s := &toolServer{}
	url, _ := serve(t, s)
	for name, server := range map[string]*Server{"HTTP": {URL: url}, "a command": {Command: []string{program, "serve-tools"}}} {
		t.Run(name, func(t *testing.T) {
			tools := tools(t, server)
			result, err := do(t, tools, api.Idempotent, "shout", "hello")
			require.NoError(t, err)
			require.Contains(t, result, `"structured":{"text":"HELLO"}`)
			_, err = do(t, tools, api.Idempotent, "refuse", "")
			require.EqualError(t, err, "no such customer")
			_, err = do(t, tools, api.AtMostOnce, "gone", "")
			var typed interface{ ErrorType() string }
			require.ErrorAs(t, err, &typed, "the server knows no such tool")
			require.Equal(t, ErrorTypeTool, typed.ErrorType())
			_, err = do(t, tools, api.Idempotent, "fill", "")
			require.ErrorContains(t, err, "more than 256 KiB")
		})
	}
	require.Equal(t, "t-1", s.key.Load(), "the server can tell a repeated call by it")
	_, err = tools(t, &Server{URL: url}).Handle(t.Context(), &agent.Task{ID: "t-1", Attempt: 2,
		RetrySafety: api.Idempotent, Payload: json.RawMessage(`{"server":"s","tool":"shout","feedback":[{}]}`)})
	require.NoError(t, err)
	require.Equal(t, "t-1.c2", s.key.Load(), "a correction is another call")
}

func TestWhatTheOperatorDoesNotAllowIsNotCalled(t *testing.T) {
	t.Parallel()
	s := &toolServer{}
	url, _ := serve(t, s)
	tools := tools(t, &Server{URL: url})
	_, err := do(t, tools, api.Idempotent, "cut", "")
	require.ErrorContains(t, err, "submit the task with retry_safety at_most_once")
	_, err = do(t, tools, api.Idempotent, "erase", "")
	require.ErrorContains(t, err, "does not allow this tool")
	_, err = tools.Handle(t.Context(), &agent.Task{Payload: json.RawMessage(`{"server":"other","tool":"shout"}`)})
	require.ErrorContains(t, err, "require the capability mcp.other")
	require.Zero(t, s.calls.Load())
}

// A connection that breaks in the middle of a call of a tool that is not idempotent: it was called once, and the
// failure is final.
func TestACallIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := &toolServer{}
	url, _ := serve(t, s)
	tools := tools(t, &Server{URL: url})
	_, err := do(t, tools, api.AtMostOnce, "cut", "")
	require.ErrorContains(t, err, "nobody knows whether the tool has done its work")
	var typed interface{ ErrorType() string }
	require.ErrorAs(t, err, &typed)
	require.Equal(t, ErrorTypeUnknown, typed.ErrorType())
	require.EqualValues(t, 1, s.calls.Load())
	_, err = do(t, tools, api.Idempotent, "shout", "again")
	require.NoError(t, err, "with a new session")
}

func TestALostSessionIsOpenedBeforeTheCall(t *testing.T) {
	t.Parallel()
	s := &toolServer{}
	url, forget := serve(t, s)
	var open atomic.Bool
	tools := New(&File{Servers: map[string]*Server{"s": {URL: url, Tools: []string{"shout"}, Idempotent: []string{"shout"}}}},
		"1", slog.New(slog.DiscardHandler), func(provider string, access api.ProviderAccess) error {
			require.Equal(t, "mcp.s", provider)
			open.Store(access.Available)
			return nil
		})
	_, err := do(t, tools, api.Idempotent, "shout", "one")
	require.NoError(t, err)
	forget()
	_, err = do(t, tools, api.Idempotent, "shout", "two")
	require.NoError(t, err)
	require.EqualValues(t, 2, s.calls.Load())
	require.True(t, open.Load(), "such agents are preferred")
	tools.Close()
	require.False(t, open.Load())
}

func TestFilesAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no server":      {"servers: {}", "must name at least one server"},
		"both":           {"servers: {s: {command: [x], url: 'http://h/mcp', tools: [a]}}", "must have either command or url"},
		"no tools":       {"servers: {s: {command: [x]}}", "must list the tools"},
		"idempotent":     {"servers: {s: {command: [x], tools: [a], idempotent: [b]}}", "b is not among the tools"},
		"a secret":       {"servers: {s: {url: 'https://me:pw@h/mcp', tools: [a]}}", "a token belongs into token_env"},
		"a key in a URL": {"servers: {s: {url: 'https://h/mcp?key=1', tools: [a]}}", "a token belongs into token_env"},
		"no variable":    {"servers: {s: {url: 'https://h', token_env: NOT_THERE, tools: [a]}}", "no variable NOT_THERE"},
		"unknown field":  {"servers: {s: {comand: [x]}}", "comand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "tools.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := Read(path)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "tools.yaml")
		})
	}
}

// A server that sends the agent elsewhere gets it to other paths of its own, and nothing to another host.
func TestRedirectsStayOnTheHost(t *testing.T) {
	t.Setenv("TOOL_TEST_TOKEN", "secret")
	var elsewhere atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Store(true) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		case "/again":
			http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string]int{"/away": http.StatusTemporaryRedirect, "/moved": http.StatusOK,
		"/again": http.StatusTemporaryRedirect} {
		c := &connection{Server: &Server{URL: server.URL + path, TokenEnv: "TOOL_TEST_TOKEN"}}
		answer, err := c.web().Post(c.URL, "application/json", strings.NewReader(`{"for":"the server"}`))
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, want, answer.StatusCode, path)
	}
	require.False(t, elsewhere.Load())
}

// A server that answers without end does not fill the agent's memory.
func TestAnswersHaveABound(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	answer, err := (&http.Client{Transport: bounded{http.DefaultTransport}}).Get(server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	read, err := io.Copy(io.Discard, answer.Body)
	require.ErrorAs(t, err, new(*http.MaxBytesError))
	require.EqualValues(t, maxHTTPAnswer, read)
}
