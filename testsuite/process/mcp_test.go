package process

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// fromNPM is the path of a program of npm's; the test is skipped where it is not installed.
func fromNPM(t *testing.T, program, from string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed: npm install --global %s", program, from)
	}
	return path
}

// TestInspectorUsesTheServer drives `mainstay mcp` with the protocol's reference inspector, in both of its forms.
func TestInspectorUsesTheServer(t *testing.T) {
	t.Parallel()
	inspector := fromNPM(t, "mcp-inspector", "@modelcontextprotocol/inspector")
	_, dev := startDev(t, t.TempDir(), freeAddress(t))
	path, err := binary()
	require.NoError(t, err)
	listening := start(t, nil, "mcp", "--server", dev.URL, "--listen", "127.0.0.1:0")
	address := regexp.MustCompile(`http://[0-9.:]+`)
	require.Eventually(t, func() bool { return address.MatchString(listening.stdout.String()) }, patience,
		10*time.Millisecond)
	for name, target := range map[string][]string{
		"its input and output": {path, "mcp"}, // the inspector has a flag --server of its own
		"HTTP":                 {address.FindString(listening.stdout.String()) + "/mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inspect := func(into any, more ...string) {
				p := launch(t, []string{"MAINSTAY_SERVER=" + dev.URL}, inspector, slices.Concat([]string{"--cli"}, target, more)...)
				defer p.end(t)
				require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
				require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), into), "%s", &p.stdout)
			}
			var list struct{ Tools []struct{ Name string } }
			inspect(&list, "--method", "tools/list")
			require.Contains(t, fmt.Sprint(list.Tools), "submit_task")
			require.Contains(t, fmt.Sprint(list.Tools), "overview")
			var answer struct {
				IsError           bool
				StructuredContent struct{ Agents struct{ Online int } }
			}
			inspect(&answer, "--method", "tools/call", "--tool-name", "overview")
			require.False(t, answer.IsError)
			require.Positive(t, answer.StructuredContent.Agents.Online)
			t.Logf("the inspector sees %d tools, and %d agents online", len(list.Tools),
				answer.StructuredContent.Agents.Online)
		})
	}
}

// TestToolsOfAServerFromNPM has an agent call the tools of the protocol's reference server.
func TestToolsOfAServerFromNPM(t *testing.T) {
	t.Parallel()
	everything := fromNPM(t, "mcp-server-everything", "@modelcontextprotocol/server-everything")
	tools := filepath.Join(t.TempDir(), "tools.yaml")
	require.NoError(t, os.WriteFile(tools, fmt.Appendf(nil,
		"servers: {all: {command: [%q], tools: [echo, get-sum], idempotent: [get-sum]}}\n", everything), 0o600))
	_, dev := startDev(t, t.TempDir(), freeAddress(t), "--agents", "0")
	a := start(t, nil, "agent", "run", "--hub", dev.URL, "--id", "tools", "--mcp", tools, "--health", "")
	online(t, dev.URL, "tools")
	use := func(tool string, safety api.RetrySafety, arguments map[string]any) (ended task) {
		id := submit(t, dev.URL, map[string]any{"type": "mcp-tool", "cluster": "default", "retry_safety": safety,
			"required_capabilities": []string{"mcp.all"},
			"payload":               map[string]any{"server": "all", "tool": tool, "arguments": arguments}})
		for deadline := time.Now().Add(patience); !ended.Status.Final(); {
			require.True(t, time.Now().Before(deadline), "%+v", ended)
			call(t, http.StatusOK, http.MethodGet, dev.URL+"/api/v1/agents/tasks/"+id+"?wait=20s", nil, &ended)
		}
		return ended
	}
	sum := use("get-sum", api.Idempotent, map[string]any{"a": 2, "b": 40})
	require.Contains(t, string(sum.Result), "The sum of 2 and 40 is 42.")
	once := use("echo", api.AtMostOnce, map[string]any{"message": "hello"})
	require.Contains(t, string(once.Result), "Echo: hello")
	begun := slices.DeleteFunc(once.Attempts, func(a api.Attempt) bool { return a.Outcome == api.AttemptReturned })
	require.Len(t, begun, 1)
	wrong := use("get-sum", api.Idempotent, map[string]any{"a": "two"})
	require.Equal(t, api.TaskFailed, wrong.Status, "%+v", wrong)
	require.Equal(t, "tool_error", wrong.Attempts[len(wrong.Attempts)-1].ErrorType)
	t.Logf("%s; %s; %s", sum.Result, once.Result, wrong.Why)
	a.signal(t, syscall.SIGINT)
	require.Equal(t, 0, a.exit(t))
}

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
