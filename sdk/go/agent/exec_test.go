//go:build unix

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// execute runs one exec task through an agent and a fake hub.
func execute(t *testing.T, payload string) protocol.Result {
	t.Helper()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	hub.WaitRegistered(1)
	hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: json.RawMessage(payload)})
	return hub.WaitResult("t1")
}

func TestExecSucceeds(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	payload, err := json.Marshal(agent.ExecPayload{
		Command: []string{"sh", "-c", `echo "$GREETING from $PWD"; echo oops >&2`},
		Env:     map[string]string{"GREETING": "hello"},
		Dir:     dir,
	})
	require.NoError(t, err)
	result := execute(t, string(payload))
	require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
	var out agent.ExecResult
	require.NoError(t, json.Unmarshal(result.Output, &out))
	require.Equal(t, agent.ExecResult{ExitCode: 0, Stdout: "hello from " + dir + "\n", Stderr: "oops\n"}, out)
}

// TestCommandsInheritLittle sets a variable that is no plain one and has not been named.
func TestCommandsInheritLittle(t *testing.T) {
	t.Setenv("LC_TIME", "C")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "canary")
	t.Setenv("NAMED", "yes")
	payload := json.RawMessage(`{"command":["env"],"env":{"OF_TASK":"1"}}`)
	out, err := agent.ExecHandler("NAMED", "ABSENT")(t.Context(), &agent.Task{Payload: payload})
	require.NoError(t, err)
	names := []string{}
	for line := range strings.Lines(out.(agent.ExecResult).Stdout) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	require.Subset(t, names, []string{"PATH", "LC_TIME", "NAMED", "OF_TASK"})
	require.NotContains(t, names, "AWS_SECRET_ACCESS_KEY")
	require.NotContains(t, names, "ABSENT")
}

func TestExecFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload string
		error   string
		final   bool
		kind    string
	}{
		"non-zero": {`{"command":["sh","-c","echo out; echo the disk is full >&2; exit 3"]}`,
			"exec: exit status 3: the disk is full", false, "exit_3"},
		"killed":          {`{"command":["sh","-c","kill -9 $$"]}`, "exec: signal: killed", false, "signal"},
		"not found":       {`{"command":["no-such-program-anywhere"]}`, "cannot be run on this agent", true, ""},
		"no such dir":     {`{"command":["true"],"dir":"/no/such/dir"}`, "cannot be run on this agent", true, ""},
		"not executable":  {`{"command":["/etc/passwd"]}`, "cannot be run on this agent", true, ""},
		"empty command":   {`{"command":[]}`, "payload.command: is empty", true, ""},
		"unknown field":   {`{"command":["true"],"cwd":"/"}`, "payload.cwd: there is no such field; did you mean dir?", true, ""},
		"command is text": {`{"command":"true"}`, "a command is a list of words", true, ""},
		"bad env":         {`{"command":["true"],"env":{"A=B":"c"}}`, "a name of a variable", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := execute(t, c.payload)
			require.Equal(t, api.AttemptFailed, result.Outcome)
			require.Contains(t, result.Error, c.error)
			require.Equal(t, c.final, result.NonRetryable)
			require.Equal(t, c.kind, result.ErrorType)
		})
	}
}

// A command that writes nothing is no handler that hangs: as long as it lives, the agent gives signs of life for it.
func TestQuietCommandOutlivesItsBeaconTimeout(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	hub.WaitRegistered(1)
	quiet := watched("t1", agent.ExecType, time.Second)
	quiet.Payload = json.RawMessage(`{"command":["sleep","2"]}`)
	hub.Assign(quiet)
	result := hub.WaitResult("t1")
	require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
}

func TestExecBoundsOutput(t *testing.T) {
	t.Parallel()
	result := execute(t,
		`{"command":["sh","-c","echo first; yes 0123456789 | head -c 300000; echo last; head -c 70000 /dev/zero >&2"]}`)
	require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
	var out agent.ExecResult
	require.NoError(t, json.Unmarshal(result.Output, &out))
	require.LessOrEqual(t, len(out.Stdout), 64<<10)
	require.Greater(t, len(out.Stdout), 60<<10)
	require.True(t, strings.HasPrefix(out.Stdout, "first\n0123456789\n"))
	require.True(t, strings.HasSuffix(out.Stdout, "last\n"))
	require.Regexp(t, `\n\[… 23\d{4} bytes cut …\]\n`, out.Stdout)
	require.LessOrEqual(t, len(out.Stderr), 64<<10)
}

func TestExecCancelKillsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"on SIGTERM":                            `sleep 1000 & echo $! >child; echo ready >ready; wait`,
		"a child that ignores it and is silent": `(trap "" TERM; exec >/dev/null 2>&1; sleep 1000) & echo $! >child; echo ready >ready; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c", script}, Dir: dir})
			require.NoError(t, err)
			hub := agenttest.NewHub(t, agenttest.Options{})
			start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
			hub.WaitRegistered(1)
			hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload,
				StopGrace: new(api.Duration(time.Second))})
			require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil },
				10*time.Second, 5*time.Millisecond)
			hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1})
			require.Equal(t, api.AttemptCancelled, hub.WaitResult("t1").Outcome)
			child := readPID(t, filepath.Join(dir, "child"))
			require.Eventually(t, func() bool { return gone(child) }, 10*time.Second, 5*time.Millisecond,
				"the command's child outlived it")
		})
	}
}

func TestExecIsKilledAtOnceWhenTheLeaseEnds(t *testing.T) {
	t.Parallel()
	requireKilled(t, &agent.Task{}, agent.ErrLeaseExpired)
}

// TestAJobSaysHowLongACommandHasToEnd: without its job's word it would have 5 s.
func TestAJobSaysHowLongACommandHasToEnd(t *testing.T) {
	t.Parallel()
	requireKilled(t, &agent.Task{Instance: &api.InstanceOf{StopGrace: api.Duration(100 * time.Millisecond)}},
		agent.ErrCancelled)
}

// TestATaskSaysHowLongACommandHasToEnd: without its task's word it would have 30 s.
func TestATaskSaysHowLongACommandHasToEnd(t *testing.T) {
	t.Parallel()
	for _, grace := range []api.Duration{0, api.Duration(100 * time.Millisecond)} {
		requireKilled(t, &agent.Task{Type: agent.ExecType, StopGrace: &grace}, agent.ErrCancelled)
	}
}

// requireKilled runs a command that ignores SIGTERM, and stops it. It must be killed before the default grace is over.
func requireKilled(t *testing.T, task *agent.Task, cause error) {
	t.Helper()
	dir := t.TempDir()
	payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c",
		`trap "" TERM; echo $$ >pid; while :; do sleep 0.05; done`}, Dir: dir})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for !exists(filepath.Join(dir, "pid")) {
			<-time.After(5 * time.Millisecond)
		}
		cancel(cause)
	}()
	begun := time.Now()
	task.Payload = payload
	_, err = agent.ExecHandler()(ctx, task)
	require.ErrorIs(t, err, cause)
	require.Less(t, time.Since(begun), 4*time.Second)
	require.True(t, gone(readPID(t, filepath.Join(dir, "pid"))))
}

func exists(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && len(data) > 0
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var pid int
	require.NoError(t, json.Unmarshal(data, &pid))
	return pid
}

// gone reports whether a process has ended. An unreaped zombie, as in a container without init, has.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
