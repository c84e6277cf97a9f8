package process

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// TestVerdictsThroughKills kills the control plane and its Temporal after each result, before and while an agent checks
// it. Each result is made once and checked once, and each correction is counted once.
func TestVerdictsThroughKills(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	dir, work, address := t.TempDir(), t.TempDir(), freeAddress(t)
	plane, dev := startDev(t, dir, address, "--agents", "0")
	runAgent(t, dev.URL, "default", "judge")
	online(t, dev.URL, "judge")
	c, err := client.New(client.Options{URL: dev.URL})
	require.NoError(t, err)
	_, err = c.Jobs.Apply(t.Context(), "judged", []byte(`
job: judged
cluster: default
safety: idempotent
inputs: {type: object, properties: {dir: {type: string}}}
steps:
  a:
    task: {type: exec, payload: {command: [sh, -c, 'echo write >> "$0/ledger"; n=$(grep -c write "$0/ledger"); case "$n:$MAINSTAY_FEEDBACK" in 1:|*"not $((n-1))"*) echo "{\"complete_step\": {\"n\": $n}}";; *) exit 1; esac', "${inputs.dir}"]}}
    check:
      task: {type: exec, payload: {command: [sh, -c, 'echo check-$1 >> "$0/ledger"; until [ -e "$0/go-$1" ]; do sleep 0.05; done; echo "{\"complete_step\": {\"valid\": $2, \"errors\": [\"not $1\"]}}"', "${inputs.dir}", "${string(result.n)}", "${result.n > 2 ? 'true' : 'false'}"]}}
      correct: {attempts: 3}
  b:
    after: [a]
    task: {type: exec, payload: {command: [sh, -c, 'echo after-$1 >> "$0/ledger"', "${inputs.dir}", "${string(steps.a.output.n)}"]}}
`), "")
	require.NoError(t, err)
	inputs, err := json.Marshal(map[string]string{"dir": work})
	require.NoError(t, err)
	run, err := c.Jobs.Dispatch(t.Context(), "judged", api.DispatchRequest{Inputs: inputs})
	require.NoError(t, err)
	ledger := work + "/ledger"
	die := func() {
		plane.signal(t, syscall.SIGKILL)
		plane.exit(t)
	}
	for n := 1; n <= 3; n++ {
		require.Eventually(t, func() bool { return count(lines(ledger), "write") == n }, patience, tick)
		die() // between the result and its check
		plane, _ = startDev(t, dir, address, "--agents", "0")
		require.Eventually(t, func() bool { return count(lines(ledger), "check-"+strconv.Itoa(n)) == 1 }, patience, tick)
		die() // the verdict finds nobody
		require.NoError(t, touch(fmt.Sprintf("%s/go-%d", work, n)))
		plane, _ = startDev(t, dir, address, "--agents", "0")
	}
	var ended *api.Run
	require.Eventually(t, func() bool {
		ended, err = c.Runs.Get(t.Context(), run.ID, 0)
		return err == nil && (ended.Status.Final() || ended.Status == api.RunBlocked)
	}, patience, tick)
	require.Equal(t, api.RunCompleted, ended.Status, ended.Why)
	require.Equal(t, []string{"write", "check-1", "write", "check-2", "write", "check-3", "after-3"}, lines(ledger))
	a := ended.Entry("a")
	require.Len(t, a.Corrections, 2)
	for n, correction := range a.Corrections {
		require.Equal(t, []string{fmt.Sprintf("not %d", n+1)}, correction.Errors)
	}
	// A check that died with its hub before an agent had it is an attempt too; the ledger shows that it did nothing.
	had := slices.DeleteFunc(a.Verdict.Attempts, func(a api.Attempt) bool { return a.AgentID == "" })
	require.Len(t, had, 3)
	check, err := c.Tasks.Get(t.Context(), job.TaskID(run.ID, job.CheckKey("a")))
	require.NoError(t, err)
	require.Equal(t, api.TaskCompleted, check.Status)
	require.Equal(t, "exec", check.Type)
}

// TestToolsOfAgentsThatDie kills an agent before, during and after its call of a tool. A tool that is not idempotent is
// called once at most; another one again, with the same key.
func TestToolsOfAgentsThatDie(t *testing.T) {
	t.Parallel()
	calls := newCalls(t)
	_, dev := startDev(t, t.TempDir(), freeAddress(t), "--agents", "0")
	tools := filepath.Join(t.TempDir(), "tools.yaml")
	require.NoError(t, os.WriteFile(tools, fmt.Appendf(nil,
		"servers: {calls: {url: %q, tools: [pay, look], idempotent: [look]}}\n", calls.URL), 0o600))
	serve := func(id string) *program {
		p := start(t, nil, "agent", "run", "--hub", dev.URL, "--id", id, "--mcp", tools, "--slots", "4",
			"--health", "")
		online(t, dev.URL, id)
		return p
	}
	ask := func(tool, how string, safety api.RetrySafety) string {
		return submit(t, dev.URL, map[string]any{"type": "mcp-tool", "cluster": "default", "retry_safety": safety,
			"required_capabilities": []string{"mcp.calls"}, "payload": map[string]any{"server": "calls", "tool": tool,
				"arguments": map[string]any{"how": how}}})
	}
	ended := func(id string, status api.TaskStatus) (got task) {
		require.Eventually(t, func() bool {
			call(t, http.StatusOK, http.MethodGet, dev.URL+"/api/v1/agents/tasks/"+id, nil, &got)
			return got.Status == status
		}, patience, tick, "%s is to be %s", id, status)
		return got
	}
	first := serve("first")
	after := ask("pay", "quick", api.AtMostOnce)
	ended(after, api.TaskCompleted)
	pay, look := ask("pay", "hang", api.AtMostOnce), ask("look", "hang", api.Idempotent)
	require.Eventually(t, func() bool { return calls.all()[pay] == 1 && calls.all()[look] == 1 }, patience, tick)
	first.signal(t, syscall.SIGKILL)
	first.exit(t)
	before := ask("pay", "quick", api.AtMostOnce)
	second := serve("second")
	require.Eventually(t, func() bool { return calls.all()[look] == 2 }, patience, tick)
	ended(before, api.TaskCompleted) // the second agent may have it
	second.signal(t, syscall.SIGKILL)
	second.exit(t)
	close(calls.free)
	serve("third")
	found := ended(look, api.TaskCompleted)
	review := ended(pay, api.TaskReview)
	require.Len(t, found.Attempts, 3)
	require.Len(t, review.Attempts, 1)
	require.Equal(t, map[string]int{after: 1, before: 1, pay: 1, look: 3}, calls.all(), "by their keys")
}

// calls is a server of tools that counts the calls by their keys.
type calls struct {
	*httptest.Server
	mu   sync.Mutex
	keys []string
	free chan struct{} // closed: calls that hang answer
}

func newCalls(t *testing.T) *calls {
	t.Helper()
	c := &calls{free: make(chan struct{})}
	server := sdk.NewServer(&sdk.Implementation{Name: "calls", Version: "1"}, nil)
	for _, name := range []string{"pay", "look"} {
		sdk.AddTool(server, &sdk.Tool{Name: name}, func(ctx context.Context, r *sdk.CallToolRequest, in struct {
			How string `json:"how"`
		}) (*sdk.CallToolResult, any, error) {
			c.mu.Lock()
			c.keys = append(c.keys, fmt.Sprint(r.Params.Meta["dev.mainstay/idempotency-key"]))
			c.mu.Unlock()
			if in.How == "hang" {
				select {
				case <-c.free:
				case <-ctx.Done():
				}
			}
			return nil, in, nil
		})
	}
	c.Server = httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

func (c *calls) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[string]int{}
	for _, k := range c.keys {
		by[k]++
	}
	return by
}
