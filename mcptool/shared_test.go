package mcptool

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/fleet"
)

// A call that fails, or that its task gives up, ends no other call: tasks of all tenants share the session.
func TestACallThatFailsEndsNoOtherCall(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(tools *Tools){
		"arguments that the server refuses": func(tools *Tools) {
			payload, _ := json.Marshal(Call{Server: "s", Tool: "slow", Arguments: map[string]any{"text": 7}})
			_, err := tools.Handle(context.Background(), &agent.Task{ID: "other", Payload: payload,
				RetrySafety: fleet.AtMostOnce})
			require.Error(t, err)
		},
		"its time is over": func(tools *Tools) {
			payload, _ := json.Marshal(Call{Server: "s", Tool: "slow", Arguments: map[string]any{}})
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := tools.Handle(ctx, &agent.Task{ID: "other", Payload: payload, RetrySafety: fleet.AtMostOnce})
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
			tools := New(&File{Servers: map[string]*Server{"s": {URL: s.URL, Tools: []string{"slow"}}}}, "1",
				func(string, fleet.ProviderAccess) error { return nil })
			t.Cleanup(tools.Close)
			payload, _ := json.Marshal(Call{Server: "s", Tool: "slow"})
			ended := make(chan error, 1)
			go func() {
				_, err := tools.Handle(context.Background(), &agent.Task{ID: "acme's", Payload: payload,
					RetrySafety: fleet.AtMostOnce})
				ended <- err
			}()
			<-began
			disturb(tools)
			close(finish)
			require.NoError(t, <-ended)
		})
	}
}
