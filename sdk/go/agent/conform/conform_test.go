//go:build unix

package conform_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/conform"
)

const goAgent = "CONFORM_GO_AGENT"

// TestMain is an agent of the Go library where a test starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv(goAgent) == "" {
		os.Exit(m.Run())
	}
	a, err := agent.New(agent.Options{HubURLs: []string{os.Getenv("HUB")}, Cluster: os.Getenv("CLUSTER"),
		ID: os.Getenv("ID")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	a.Handle("echo", func(_ context.Context, t *agent.Task) (any, error) { return t.Payload, nil })
	a.Handle("sleep", func(ctx context.Context, _ *agent.Task) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := a.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// python is the interpreter itself, and not a slow script that finds one.
var python = sync.OnceValue(func() string {
	path, _ := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(path))
})

func needsPython(t *testing.T) {
	t.Helper()
	if python() == "" {
		t.Skip("python3 is not installed")
	}
}

func run(t *testing.T, patience time.Duration, only []string, command ...string) map[string]conform.Result {
	t.Helper()
	results := map[string]conform.Result{}
	conform.Run(t.Context(), conform.Program{Command: command, Patience: patience,
		Quick: conform.Work{Type: "echo", Payload: json.RawMessage(`{"a": 1}`)},
		Long:  conform.Work{Type: "sleep", Payload: json.RawMessage(`{"seconds": 600}`)}}, only,
		func(r conform.Result) { results[r.Check] = r })
	return results
}

// TestAgents: the agents that claim to be complete pass every check; the small examples fail what they leave out.
func TestAgents(t *testing.T) {
	t.Parallel()
	needsPython(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	long := []string{"twice", "errors", "cancel", "drop", "timeout", "lease", "revoked"}
	for name, c := range map[string]struct {
		command       []string
		skipped, fail []string
	}{
		"go":     {command: []string{"env", goAgent + "=1", exe}},
		"node":   {command: []string{"node", "../../../../examples/javascript/agent.mjs"}},
		"python": {command: []string{python(), "../../../../examples/python/agent.py"}},
		"small":  {command: []string{python(), "../../../../examples/python/small.py"}, skipped: long, fail: []string{"goodbye"}},
		"shell":  {command: []string{"sh", "../../../../examples/shell/agent.sh"}, skipped: long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{c.command[0], "curl"} { // the shell's needs that
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("%s is not installed", program)
				}
			}
			// The shell's agent keeps its state in a directory there, and is killed before it can remove it.
			results := run(t, time.Minute, nil, append([]string{"env", "TMPDIR=" + t.TempDir()}, c.command...)...)
			require.Len(t, results, len(conform.Names()))
			want := map[string]conform.Outcome{}
			for _, check := range conform.Names() {
				want[check] = conform.Passed
			}
			for _, check := range c.skipped {
				want[check] = conform.Skipped
			}
			for _, check := range c.fail {
				want[check] = conform.Failed
			}
			for check, r := range results {
				require.Equal(t, want[check], r.Outcome, "%+v", r)
			}
		})
	}
}

// TestBrokenAgents: each check fails for an agent that breaks its rule.
func TestBrokenAgents(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for agents that never do what they must")
	}
	needsPython(t)
	text, err := os.ReadFile("../../../../examples/python/agent.py")
	require.NoError(t, err)
	const listed = `"running": [a.listed for a in list(running.values())], "lease"`
	plants := map[string]struct{ before, after, problem string }{
		"register":    {`"max_tasks": SLOTS, `, ``, "needs an instance_id"},
		"acknowledge": {listed, strings.Replace(listed, "a.listed for", `{**a.listed, "token": ""} for`, 1), "must have its token"},
		"result":      {`(401, 408, 429):`, `(401, 408, 429) and False:`, "no longer lists"},
		"twice":       {listed, strings.Replace(listed, "values())]", "values())] * 2", 1), "listed twice"},
		"errors":      {`print("no use of`, `running.clear(); print("no use of`, "gave its work up"},
		"unknown_session": {`dict(me, running=`, `dict(me, instance_id=uuid.uuid4().hex, running=`,
			"another instance_id"},
		"restart":         {`connection.close()  # the`, `os._exit(3)  # the`, "ended by itself: exit status 3"},
		"unknown_command": {`if attempt and command`, `assert attempt or command["type"] == "role"` + "\n        if attempt and command", "ended by itself"},
		"cancel":          {`in ("cancel", "drop")`, `in ("drop",)`, "the result of t1"},
		"drop":            {`while attempt.why != "drop" and refused`, `while refused`, "after the drop"},
		"timeout":         {`if now > attempt.deadline`, `if False`, "the result of t1"},
		"lease":           {`attempt.end("lease")`, `pass`, "the result of t1"},
		"fenced":          {`os._exit(1)`, `session = ""`, "still runs"},
		"revoked":         {`os._exit(1)`, `session = ""`, "still runs"},
		"goodbye":         {`poll(connect(timeout=0.5), stopping=True)`, `pass`, "its last poll"},
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	found := map[string]conform.Result{}
	for check, c := range plants { // at once, because many do nothing until patience ends
		require.Contains(t, string(text), c.before)
		broken := filepath.Join(t.TempDir(), "agent.py")
		require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(text), c.before, c.after, 1)), 0o600))
		all.Go(func() {
			r := run(t, 15*time.Second, []string{check}, python(), broken)[check]
			mu.Lock()
			defer mu.Unlock()
			found[check] = r
		})
	}
	all.Wait()
	for check, c := range plants {
		require.Equal(t, conform.Failed, found[check].Outcome, check)
		require.Contains(t, strings.Join(found[check].Problems, "\n"), c.problem, "%s: %+v", check, found[check])
	}
	require.Len(t, plants, len(conform.Names()))
}

// TestRunEndsEarly: an interrupted run leaves no process and makes no more checks.
func TestRunEndsEarly(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pid := filepath.Join(t.TempDir(), "pid")
	var results []conform.Result
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conform.Run(ctx, conform.Program{Command: []string{"sh", "-c", "echo $$ > " + pid + "; exec sleep 600"}}, nil,
			func(r conform.Result) { results = append(results, r) })
	}()
	var id int
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(pid)
		id, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return id > 0
	}, 10*time.Second, 10*time.Millisecond)
	cancel()
	<-ended
	require.Len(t, results, 1)
	require.Contains(t, results[0].Problems, "interrupted")
	require.Eventually(t, func() bool { return syscall.Kill(-id, 0) != nil }, 10*time.Second, 10*time.Millisecond)
}
