package process

import (
	"encoding/json"
	"os/exec"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// An assistant starts `mainstay mcp`, submits a task that no agent can do, and asks why it waits.
func TestAssistantAsksWhyATaskWaits(t *testing.T) {
	t.Parallel()
	_, dev := startDev(t, t.TempDir(), freeAddress(t))
	path, err := binary()
	require.NoError(t, err)
	command := exec.Command(path, "mcp", "--server", dev.URL)
	command.Env = plainEnvironment()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.CommandTransport{Command: command}, nil)
	require.NoError(t, err)
	call := func(into any, tool string, arguments map[string]any) {
		result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
		require.NoError(t, err)
		require.False(t, result.IsError, "%s: %v", tool, result.Content)
		answer, err := json.Marshal(result.StructuredContent)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(answer, into))
	}
	var submitted, found struct{ ID, Status, Why string }
	order := map[string]any{"type": "render", "payload": map[string]any{"scene": 7}, "idempotency_key": "scene-7"}
	call(&submitted, "submit_task", order)
	call(&found, "submit_task", order)
	require.Equal(t, submitted.ID, found.ID, "one key, one task")
	call(&found, "get_task", map[string]any{"id": submitted.ID})
	require.Contains(t, found.Why, "no agent")
	var overview struct{ Agents struct{ Online int } }
	call(&overview, "overview", nil)
	require.Positive(t, overview.Agents.Online)
	call(&found, "cancel_task", map[string]any{"id": submitted.ID, "reason": "only a test"})
	require.NoError(t, session.Close())
	require.True(t, command.ProcessState.Success(), "it ends when the assistant goes")
}
