//go:build unix

// Package examples_test runs the example agents against a fake hub.
package examples_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// payload has what a careless reader of JSON stumbles over.
const payload = `{"text":"he said \"hi\", ünïcode \\ and {braces}","token":"not the token","list":[1,2.5,null,true,{"a":{}}]}`

func TestExamples(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(*testing.T) []string{
		"go":     buildGo,
		"node":   func(t *testing.T) []string { return []string{need(t, "node"), "javascript/agent.mjs"} },
		"python": func(t *testing.T) []string { return []string{need(t, "python3"), "python/agent.py"} },
		"small":  func(t *testing.T) []string { return []string{need(t, "python3"), "python/small.py"} },
		"shell":  func(t *testing.T) []string { need(t, "curl"); return []string{need(t, "sh"), "shell/agent.sh"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			argv := command(t)
			hub := agenttest.NewHub(t, agenttest.Options{})
			run(t, hub, argv)
			first := hub.WaitRegistered(1)
			require.Equal(t, "demo", first.Cluster)
			require.Equal(t, name+"-1", first.AgentID)
			require.Contains(t, first.TaskTypes, "echo")

			// Assigned, acknowledged, done.
			hub.Assign(protocol.Assignment{TaskID: "t1", Type: "echo", Payload: json.RawMessage(payload),
				Labels: map[string]string{"a": "b"}})
			result := hub.WaitResult("t1")
			require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
			require.JSONEq(t, payload, string(result.Output))

			// While the result of the next finds no ear, the hub forgets the session: the agent registers again, as the
			// same process, with what it runs.
			hub.Fail(agenttest.OpResult, unavailable, unavailable, unavailable)
			hub.Assign(protocol.Assignment{TaskID: "t2", Type: "echo", Attempt: 3, Payload: json.RawMessage(`"two"`)})
			require.Equal(t, 3, hub.WaitRunning("t2").Attempt)
			hub.ForgetSession()
			again := hub.WaitRegistered(2)
			require.Equal(t, first.InstanceID, again.InstanceID)
			runs := slices.DeleteFunc(again.Running, func(r protocol.RunningAttempt) bool {
				return r.TaskID == "t1" // the agent may not have read yet that its result was taken
			})
			require.Len(t, runs, 1)
			require.Equal(t, "t2", runs[0].TaskID)
			require.Equal(t, 3, runs[0].Attempt)
			require.JSONEq(t, `"two"`, string(hub.WaitResult("t2").Output))

			// The hub goes away and comes back.
			hub.Stop()
			hub.ForgetSession()
			hub.Start()
			hub.WaitRegistered(3)
			hub.Assign(protocol.Assignment{TaskID: "t3", Type: "echo", Payload: json.RawMessage(`3`)})
			require.JSONEq(t, `3`, string(hub.WaitResult("t3").Output))
		})
	}
}

// numbers have digits that readers of JSON like to round.
const numbers = `{"a":[1.10,-0,12e4,1e400,9007199254740993,12345678901234567890,0.1234567890123456789012],"b":"1.10","c":{"1.10":-1.50}}`

// handlers are some that go wrong, in the languages of the examples, by their types.
var handlers = map[string]string{
	"python/agent.py": `HANDLERS = {"nan": lambda p, s: float("nan"), "object": lambda p, s: {"x": object()}, "raises": lambda p, s: 1 / 0,
    "exits": lambda p, s: sys.exit("enough"), `,
	"javascript/agent.mjs": `const handlers = {
  nan: () => [NaN], object: () => { const o = {}; o.o = o; return o; }, raises: () => { throw new Error("division"); },
  exits: () => { throw Object.create(null); },
`,
}

// TestNumbersAndHandlersThatGoWrong: what a handler passes on keeps its digits; one that goes wrong fails once, with
// the reason, and the agent goes on.
func TestNumbersAndHandlersThatGoWrong(t *testing.T) {
	t.Parallel()
	for example, program := range map[string]string{"python/agent.py": "python3", "javascript/agent.mjs": "node"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(example)
			require.NoError(t, err)
			head := map[string]string{"python3": "HANDLERS = {", "node": "const handlers = {\n"}[program]
			require.Contains(t, string(text), head)
			changed := strings.Replace(string(text), head, handlers[example], 1)
			file := filepath.Join(t.TempDir(), filepath.Base(example))
			require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
			hub := agenttest.NewHub(t, agenttest.Options{})
			run(t, hub, []string{need(t, program), file})
			hub.WaitRegistered(1)
			do := func(kind, payload string) protocol.Result {
				hub.Assign(protocol.Assignment{TaskID: kind, Type: kind, Payload: json.RawMessage(payload)})
				return hub.WaitResult(kind)
			}
			result := do("echo", numbers)
			require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
			require.Equal(t, numbers, flat(t, result.Output))
			for kind, want := range map[string]string{"nan": "is no JSON", "object": "is no JSON", "raises": "division", "exits": ""} {
				result := do(kind, "null")
				require.Equal(t, api.AttemptFailed, result.Outcome, kind)
				require.Contains(t, result.Error, want)
				require.NotEmpty(t, result.Error)
				require.Equal(t, want == "is no JSON", result.NonRetryable, kind)
			}
			hub.Until("nothing runs", func() bool {
				polls := hub.Polls()
				return len(polls[len(polls)-1].Running) == 0
			})
		})
	}
}

func flat(t *testing.T, text []byte) string {
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, text))
	return b.String()
}

// TestExamplesSayGoodbye: an agent that gets SIGTERM leaves nothing to be lost.
func TestExamplesSayGoodbye(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(*testing.T) []string{
		"go":     buildGo,
		"node":   func(t *testing.T) []string { return []string{need(t, "node"), "javascript/agent.mjs"} },
		"python": func(t *testing.T) []string { return []string{need(t, "python3"), "python/agent.py"} },
		"shell":  func(t *testing.T) []string { need(t, "curl"); return []string{need(t, "sh"), "shell/agent.sh"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{})
			ended, stop := run(t, hub, command(t))
			hub.WaitRegistered(1)
			hub.WaitPoll("polls", func(protocol.Poll) bool { return true })
			stop()
			hub.WaitGoodbye()
			t.Log(<-ended)
		})
	}
}

// TestCompleteExampleKnowsBundles: the complete example runs the elements of a bundle one after another, each with the
// timeout, and reports after a while what is done.
func TestCompleteExampleKnowsBundles(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		hub := agenttest.NewHub(t, agenttest.Options{})
		run(t, hub, []string{need(t, "python3"), "python/agent.py"})
		require.True(t, hub.WaitRegistered(1).Bundles)
		bundle := func(id, kind string, change func(*protocol.Assignment), payloads ...string) []api.ElementResult {
			a := protocol.Assignment{TaskID: id, Type: kind}
			for n, payload := range payloads {
				a.Elements = append(a.Elements, api.Element{Number: 7 + n, ID: "a~.7", Attempt: 1,
					Payload: json.RawMessage(payload)})
			}
			change(&a)
			hub.Assign(a)
			result := hub.WaitResult(id)
			require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
			return result.Elements
		}
		as := func(*protocol.Assignment) {}
		done := bundle("a~.b1", "echo", as, `"x"`, payload, `null`)
		require.Len(t, done, 3)
		require.Equal(t, 8, done[1].Number)
		require.JSONEq(t, payload, string(done[1].Output))
		done = bundle("a~.b2", "sleep", func(a *protocol.Assignment) { a.Timeout = api.Duration(500 * time.Millisecond) },
			`{"seconds": 0.01}`, `{"seconds": 60}`, `{}`, `{"seconds": 0.01}`)
		require.Equal(t, []api.AttemptOutcome{api.AttemptCompleted, api.AttemptTimedOut, api.AttemptFailed,
			api.AttemptCompleted},
			[]api.AttemptOutcome{done[0].Outcome, done[1].Outcome, done[2].Outcome, done[3].Outcome})
		require.Contains(t, done[2].Error, "seconds")
		require.Len(t, bundle("a~.b3", "sleep", as, `{"seconds": 1.2}`, `{"seconds": 1.2}`, `{"seconds": 1.2}`), 2,
			"it reports after 2 s")
	})
}

// TestCompleteExampleStopsItsWork: the complete example obeys cancel, drop and timeout, hands fenced work back when its
// lease runs out, and the rest when it stops.
func TestCompleteExampleStopsItsWork(t *testing.T) {
	t.Parallel()
	for name, example := range map[string]string{"python3": "python/agent.py", "node": "javascript/agent.mjs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopsItsWork(t, []string{need(t, name), example})
		})
	}
}

func stopsItsWork(t *testing.T, argv []string) {
	hub := agenttest.NewHub(t, agenttest.Options{HeartbeatInterval: 200 * time.Millisecond, Lease: 2 * time.Second})
	ended, stop := run(t, hub, argv)
	hub.WaitRegistered(1)
	sleeps := func(id string, change func(*protocol.Assignment)) {
		a := protocol.Assignment{TaskID: id, Type: "sleep", Payload: json.RawMessage(`{"seconds":600}`)}
		change(&a)
		hub.Assign(a)
		hub.WaitRunning(id)
	}
	as := func(*protocol.Assignment) {}
	sleeps("cancelled", as)
	hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "cancelled", Attempt: 1})
	require.Equal(t, api.AttemptCancelled, hub.WaitResult("cancelled").Outcome)

	sleeps("late", func(a *protocol.Assignment) { a.Timeout = api.Duration(1500 * time.Millisecond) })
	late := hub.WaitResult("late")
	require.Equal(t, api.AttemptTimedOut, late.Outcome)
	require.Equal(t, "timeout", late.ErrorType)

	sleeps("dropped", as)
	hub.Command(protocol.Command{Type: protocol.CommandDrop, TaskID: "dropped", Attempt: 1})
	hub.Until("the dropped attempt is no longer listed", func() bool {
		polls := hub.Polls()
		return len(polls[len(polls)-1].Running) == 0
	})
	require.Len(t, hub.Results(), 2)

	sleeps("fenced", func(a *protocol.Assignment) { a.RetrySafety = api.Fenced })
	sleeps("last", as)
	for range 40 { // answers that renew no lease, until it has run out
		hub.Fail(agenttest.OpPoll, unavailable)
	}
	require.Equal(t, api.AttemptCancelled, hub.WaitResult("fenced").Outcome)
	stop()
	require.Equal(t, api.AttemptCancelled, hub.WaitResult("last").Outcome)
	hub.WaitGoodbye()
	t.Log(<-ended)
}

func TestExamplesStopWhenFenced(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(*testing.T) []string{
		"node":   func(t *testing.T) []string { return []string{need(t, "node"), "javascript/agent.mjs"} },
		"python": func(t *testing.T) []string { return []string{need(t, "python3"), "python/agent.py"} },
		"small":  func(t *testing.T) []string { return []string{need(t, "python3"), "python/small.py"} },
		"shell":  func(t *testing.T) []string { need(t, "curl"); return []string{need(t, "sh"), "shell/agent.sh"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			argv := command(t)
			hub := agenttest.NewHub(t, agenttest.Options{})
			ended, _ := run(t, hub, argv)
			hub.WaitRegistered(1)
			hub.Fence()
			require.ErrorContains(t, <-ended, "exit status 1")
		})
	}
}

var unavailable = agenttest.Fault{Status: http.StatusServiceUnavailable, Code: protocol.CodeUnavailable}

// run starts an example agent; it is stopped when the test ends, or with stop. The channel has how it ended.
func run(t *testing.T, hub *agenttest.Hub, argv []string) (_ <-chan error, stop func()) {
	t.Helper()
	var output build.Output
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HUB="+hub.URL(), "CLUSTER=demo",
		"ID="+filepath.Base(filepath.Dir(t.Name()+"/x"))+"-1")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	ended, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		ended <- cmd.Wait()
	}()
	stop = func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	t.Cleanup(func() {
		stop()
		<-done
		if t.Failed() {
			t.Logf("the agent said:\n%s", output.String())
		}
	})
	return ended, stop
}

// need finds a program, or skips the test.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed: its example is not tested", program)
	}
	return path
}

func buildGo(t *testing.T) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "go-agent")
	out, err := exec.Command("go", "build", "-o", binary, "./go-agent").CombinedOutput()
	require.NoError(t, err, string(out))
	return []string{binary}
}
