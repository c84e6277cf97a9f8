package mcptool

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// A call that fails, or that its task gives up, ends no other call: tasks of all tenants share the session.
func TestACallThatFailsEndsNoOtherCall(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(tools *Tools){
		"arguments that the server refuses": func(tools *Tools) {
			payload, _ := json.Marshal(map[string]any{"server": "s", "tool": "slow", "arguments": map[string]any{"text": 7}})
			_, err := tools.Handle(context.Background(), &agent.Task{ID: "other", Payload: payload,
				RetrySafety: api.AtMostOnce})
			require.Error(t, err)
		},
		"its time is over": func(tools *Tools) {
			payload, _ := json.Marshal(map[string]any{"server": "s", "tool": "slow", "arguments": map[string]any{}})
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := tools.Handle(ctx, &agent.Task{ID: "other", Payload: payload, RetrySafety: api.AtMostOnce})
			require.Error(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, finish := make(chan struct{}, 8), make(chan struct{})
			server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
			mcp.AddTool(server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest, in words) (
				*mcp.CallToolResult, any, error) {
				began <- struct{}{}
				select {
				case <-finish:
				case <-ctx.Done():
					return nil, nil, ctx.Err()
				}
				return nil, words{"paid"}, nil
			})
			s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
			t.Cleanup(s.Close)
			tools := New(&File{Servers: map[string]*Server{"s": {URL: s.URL, Tools: []string{"slow"}}}}, "1", slog.New(slog.DiscardHandler),
				func(string, api.ProviderAccess) error { return nil })
			t.Cleanup(tools.Close)
			payload, _ := json.Marshal(map[string]any{"server": "s", "tool": "slow"})
			ended := make(chan error, 1)
			go func() {
				_, err := tools.Handle(context.Background(), &agent.Task{ID: "acme's", Payload: payload,
					RetrySafety: api.AtMostOnce})
				ended <- err
			}()
			<-began
			disturb(tools)
			close(finish)
			require.NoError(t, <-ended)
		})
	}
}

// deafServer is a server that accepts and does not answer, or answers only so long.
type deafServer struct {
	asked chan string // what it is asked and does not answer
	hears atomic.Bool
}

// deafTools are tools of such a server, whose calls do not leave a synctest bubble.
func deafTools(t *testing.T) (*Tools, *deafServer) {
	t.Helper()
	s := &deafServer{asked: make(chan string, 100)}
	tools := New(&File{Servers: map[string]*Server{"s": {URL: "http://tools.test", Tools: []string{"shout"}}}}, "1", slog.New(slog.DiscardHandler),
		func(string, api.ProviderAccess) error { return nil })
	t.Cleanup(tools.Close)
	tools.servers["s"].client.AddSendingMiddleware(func(mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, _ mcp.Request) (mcp.Result, error) {
			switch {
			case !s.hears.Load():
				s.asked <- method
				<-ctx.Done()
				return nil, ctx.Err()
			case method == "server/discover":
				return &mcp.DiscoverResult{SupportedVersions: []string{"2026-07-28"}}, nil
			}
			return &mcp.CallToolResult{}, nil
		}
	})
	return tools, s
}

func shout(ctx context.Context, tools *Tools) error {
	_, err := tools.Handle(ctx, &agent.Task{ID: "t", Payload: json.RawMessage(`{"server":"s","tool":"shout"}`),
		RetrySafety: api.AtMostOnce})
	return err
}

// Calls of a server that does not answer wait together for one session, and each only as long as its task may.
func TestCallsWaitTogetherForASession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open  bool // a session
		takes time.Duration
		first string
	}{
		"it never answered":    {takes: openLimit, first: "server/discover"},
		"it answers no longer": {open: true, takes: askLimit + openLimit, first: "ping"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tools, server := deafTools(t)
				if c.open {
					server.hears.Store(true)
					require.NoError(t, shout(t.Context(), tools))
					server.hears.Store(false)
				}
				began := time.Now()
				cancelled, cancel := context.WithCancel(t.Context())
				const calls = 20
				ended, gaveUp := make(chan error, calls), make(chan error, 1)
				go func() { gaveUp <- shout(cancelled, tools) }()
				require.Equal(t, c.first, <-server.asked)
				for range calls {
					go func() { ended <- shout(t.Context(), tools) }()
				}
				cancel()
				require.ErrorIs(t, <-gaveUp, context.Canceled)
				require.Zero(t, time.Since(began), "the call that began it does not wait for the others either")
				for range calls {
					require.ErrorIs(t, <-ended, context.DeadlineExceeded)
				}
				require.Equal(t, c.takes, time.Since(began))
				sessions := 0
				for len(server.asked) > 0 {
					if <-server.asked == "initialize" { // the last try of a connect
						sessions++
					}
				}
				require.Equal(t, 1, sessions)
				server.hears.Store(true)
				require.NoError(t, shout(t.Context(), tools))
			})
		})
	}
}

func TestCloseEndsTheWaitForASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tools, server := deafTools(t)
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- shout(t.Context(), tools) }()
		<-server.asked
		tools.Close()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Zero(t, time.Since(began))
	})
}
