package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
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

// family leaves a child, a grandchild and a daemon in a session of its own, all of them deaf to SIGTERM and silent.
// Each writes its process id to a file.
const family = `exec </dev/null; trap "" TERM
sh -c 'echo $$ >child; sh -c "echo \$\$ >grandchild; while :; do sleep 1000; done"; true' >/dev/null 2>&1 &
(setsid sh -c '(sh -c "echo \$\$ >daemon; while :; do sleep 1000; done" &)' >/dev/null 2>&1 &)
for name in child grandchild daemon; do until [ -s $name ]; do sleep 0.01; done; done
trap - TERM; echo $$ >command
`

// begin runs a script in a folder with an agent and a fake hub.
func begin(t *testing.T, script string, change func(*protocol.Assignment)) (*agenttest.Hub, string) {
	t.Helper()
	dir := t.TempDir()
	payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c", script}, Dir: dir})
	require.NoError(t, err)
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	hub.WaitRegistered(1)
	a := protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload, StopGrace: new(api.Duration(time.Second))}
	if change != nil {
		change(&a)
	}
	hub.Assign(a)
	require.Eventually(t, func() bool { return exists(filepath.Join(dir, "command")) }, 20*time.Second,
		5*time.Millisecond)
	return hub, dir
}

func requireNothingLeft(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		require.True(t, gone(readPID(t, filepath.Join(dir, name))), "%s is left although the attempt has ended", name)
	}
}

func TestExecLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cancel := func(hub *agenttest.Hub) {
		hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1})
	}
	for name, c := range map[string]struct {
		script  string
		change  func(*protocol.Assignment)
		then    func(*agenttest.Hub)
		outcome api.AttemptOutcome
	}{
		"ends":      {script: "echo fine", outcome: api.AttemptCompleted},
		"fails":     {script: "exit 3", outcome: api.AttemptFailed},
		"cancelled": {script: "sleep 1000; true", then: cancel, outcome: api.AttemptCancelled},
		"timed out": {script: "sleep 1000; true", outcome: api.AttemptTimedOut,
			change: func(a *protocol.Assignment) { a.Timeout = api.Duration(2 * time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, dir := begin(t, family+c.script, c.change)
			if c.then != nil {
				c.then(hub)
			}
			result := hub.WaitResult("t1")
			requireNothingLeft(t, dir, "command", "child", "grandchild", "daemon")
			require.Equal(t, c.outcome, result.Outcome, result.Error)
		})
	}
}

// stops stops the command's guard, over and over.
const stops = `kill -STOP $PPID; (while :; do kill -STOP $PPID; sleep 0.02; done) >/dev/null 2>&1 &
`

func TestExecWhoseGuardIsStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*protocol.Assignment)
		then    func(*agenttest.Hub)
		outcome api.AttemptOutcome
	}{
		"cancelled": {outcome: api.AttemptCancelled, then: func(hub *agenttest.Hub) {
			hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1})
		}},
		"timed out": {outcome: api.AttemptTimedOut,
			change: func(a *protocol.Assignment) { a.Timeout = api.Duration(2 * time.Second) }},
		"its lease has run out": {outcome: api.AttemptCancelled,
			change: func(a *protocol.Assignment) { a.RetrySafety = api.Fenced },
			then:   func(hub *agenttest.Hub) { hub.WithholdLease(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, dir := begin(t, stops+family+"sleep 1000; true", c.change)
			if c.then != nil {
				c.then(hub)
			}
			result := hub.WaitResult("t1")
			requireNothingLeft(t, dir, "command", "child", "grandchild", "daemon")
			require.Equal(t, c.outcome, result.Outcome, result.Error)
		})
	}
}

func TestExecReadsWhatTheBackgroundStillWrites(t *testing.T) {
	t.Parallel()
	result := execute(t, `{"command":["sh","-c","(sleep 0.3; echo late) & echo early"]}`)
	require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
	var out agent.ExecResult
	require.NoError(t, json.Unmarshal(result.Output, &out))
	require.Equal(t, "early\nlate\n", out.Stdout)
}

func TestExecWhoseGuardIsKilled(t *testing.T) {
	t.Parallel()
	hub, dir := begin(t, family+"sleep 1000; true", nil)
	require.NoError(t, syscall.Kill(parentOf(t, readPID(t, filepath.Join(dir, "command"))), syscall.SIGKILL))
	result := hub.WaitResult("t1")
	requireNothingLeft(t, dir, "command", "child", "grandchild")
	require.Equal(t, api.AttemptFailed, result.Outcome)
	require.Contains(t, result.Error, "the command's guard process was ended by something else (signal: killed)")
	daemon := readPID(t, filepath.Join(dir, "daemon")) // without a cgroup nobody finds it
	if group, err := syscall.Getpgid(daemon); err == nil {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

// TestExecEndsWithItsLeaseWhateverTheAgentDoes: the grace of a cancelled command does not go beyond the lease.
func TestExecEndsWithItsLeaseWhateverTheAgentDoes(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"the guard ends it": "", "its guard is stopped": stops} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{HeartbeatInterval: 500 * time.Millisecond, Lease: 2 * time.Second})
			dir := t.TempDir()
			payload, err := json.Marshal(agent.ExecPayload{Dir: dir,
				Command: []string{"sh", "-c", before + family + "sleep 1000; true"}})
			require.NoError(t, err)
			cancelled := make(chan error, 1)
			handler := func(ctx context.Context, task *agent.Task) (any, error) {
				context.AfterFunc(ctx, func() { cancelled <- context.Cause(ctx) })
				return agent.ExecHandler()(ctx, task)
			}
			start(t, hub, nil, map[string]agent.Handler{agent.ExecType: handler})
			hub.WaitRegistered(1)
			hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload, RetrySafety: api.Fenced,
				Instance: &api.InstanceOf{Job: "j", Name: "0", StopGrace: api.Duration(time.Hour)}})
			require.Eventually(t, func() bool { return exists(filepath.Join(dir, "command")) }, 20*time.Second,
				5*time.Millisecond)
			hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1})
			require.ErrorIs(t, <-cancelled, agent.ErrCancelled)
			hub.Stop()
			requireEnds(t, dir)
			hub.Start() // so that the agent can say goodbye
		})
	}
}

// requireEnds waits until the deaf family has ended.
func requireEnds(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"child", "grandchild", "daemon"} {
		pid := readPID(t, filepath.Join(dir, name))
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		require.Eventually(t, func() bool { return gone(pid) }, 20*time.Second, 5*time.Millisecond, "%s lives on", name)
	}
}

// execIn has this test run a command in a folder, in a process of its own.
const execIn = "MAINSTAY_TEST_EXEC_IN"

// TestExecWhoseAgentIsKilled runs an agent's handler in a process that is killed while the guard is stopped.
func TestExecWhoseAgentIsKilled(t *testing.T) {
	if dir := os.Getenv(execIn); dir != "" {
		payload, err := json.Marshal(agent.ExecPayload{Dir: dir,
			Command: []string{"sh", "-c", "kill -STOP $PPID\n" + family + "sleep 1000; true"}})
		require.NoError(t, err)
		_, err = agent.ExecHandler()(t.Context(), &agent.Task{Payload: payload})
		require.NoError(t, err)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	child := exec.Command("/proc/self/exe", "-test.run=^TestExecWhoseAgentIsKilled$")
	child.Env = append(os.Environ(), execIn+"="+dir, api.EnvSpawnID+"=spawned-1")
	require.NoError(t, child.Start())
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	require.Eventually(t, func() bool { return exists(filepath.Join(dir, "command")) }, 20*time.Second,
		5*time.Millisecond)
	guard := parentOf(t, readPID(t, filepath.Join(dir, "command")))
	environment, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(guard), "environ"))
	require.NoError(t, err, "a spawner of the same user must see the guard: see agent/proctree")
	require.Contains(t, string(environment), api.EnvSpawnID+"=spawned-1")
	require.NoError(t, child.Process.Kill())
	requireEnds(t, dir)
}

// unkillableIn has this test run commands in a folder, as a user that may not kill all that they start.
const unkillableIn = "MAINSTAY_TEST_UNKILLABLE_IN"

// TestExecThatLeavesWhatCannotBeKilled: an attempt has not ended while a process of it that only root may kill lives.
func TestExecThatLeavesWhatCannotBeKilled(t *testing.T) {
	if dir := os.Getenv(unkillableIn); dir != "" {
		leaveUnkillable(t, dir)
		return
	}
	t.Parallel()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Getuid() != 0 {
		t.Skip("it takes root and setpriv to start what the agent's user may not kill")
	}
	program, err := os.ReadFile(setpriv)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "unkillable") //nolint:usetesting // others may not enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "as"), program, 0o700))
	require.NoError(t, os.Chmod(filepath.Join(dir, "as"), 0o755|os.ModeSetuid))
	const nobody = 65534
	child := exec.Command("/proc/self/exe", "-test.run=^TestExecThatLeavesWhatCannotBeKilled$", "-test.v")
	child.Env = append(os.Environ(), unkillableIn+"="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := child.CombinedOutput()
	for _, path := range []string{"killed", "left"} {
		if exists(filepath.Join(dir, path, "root")) {
			_ = syscall.Kill(readPID(t, filepath.Join(dir, path, "root")), syscall.SIGKILL)
		}
	}
	require.NoError(t, err, "%s", out)
}

func leaveUnkillable(t *testing.T, in string) {
	t.Helper()
	const asRoot = `../as --reuid 0 sh -c 'echo $$ >root; until [ -e release ]; do sleep 0.05; done' >/dev/null 2>&1 &
until [ -s root ]; do sleep 0.01; done; echo $$ >command
`
	for name, c := range map[string]struct{ script, folder string }{
		"its guard is killed":               {asRoot + "kill -KILL $PPID; sleep 1000", "killed"},
		"its guard lives, in a new session": {"setsid " + asRoot, "left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(in, c.folder)
			require.NoError(t, os.Mkdir(dir, 0o777))
			payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c", c.script}, Dir: dir})
			require.NoError(t, err)
			hub := agenttest.NewHub(t, agenttest.Options{Patience: time.Minute})
			start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
			hub.WaitRegistered(1)
			hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload,
				Instance: &api.InstanceOf{Job: "j", Name: "0", StopGrace: api.Duration(time.Millisecond)}})
			result := hub.WaitResult("t1")
			require.False(t, gone(readPID(t, filepath.Join(dir, "root"))))
			require.Equal(t, api.AttemptTimedOut, result.Outcome, result.Error)
			require.True(t, result.Stuck)
			require.Contains(t, result.Error, "cannot be killed, and lives on")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "release"), nil, 0o600))
			hub.WaitPoll("with a free slot", func(p protocol.Poll) bool {
				return len(p.Running) == 0 && gone(readPID(t, filepath.Join(dir, "root")))
			})
		})
	}
}

func TestAgentSaysThatItEndsProcessTrees(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	require.True(t, hub.WaitRegistered(1).EndsProcessTrees)
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "PPid:")
	var parent int
	require.NoError(t, json.Unmarshal([]byte(strings.Fields(rest)[0]), &parent))
	return parent
}

// What a check by command leaves running ends with the check: there is a check every few seconds.
func TestAHealthCheckLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sleep", "1000"}, Dir: dir})
	require.NoError(t, err)
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	hub.WaitRegistered(1)
	left := filepath.Join(dir, "left")
	hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload,
		Instance: &api.InstanceOf{Job: "j", Name: "0", Health: &api.ServiceCheck{
			Command:  []string{"sh", "-c", "setsid sh -c 'echo $$ >" + left + "; exec sleep 1000' & until [ -s " + left + " ]; do sleep 0.01; done"},
			Interval: api.Duration(time.Hour), Timeout: api.Duration(30 * time.Second)}}})
	require.Eventually(t, func() bool { return exists(left) && gone(readPID(t, left)) }, 30*time.Second,
		10*time.Millisecond)
	hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1})
	hub.WaitResult("t1")
}

// One guard has one command after the other, whatever became of the command before. A guard that was stopped or killed
// while it had none harms no command. This test runs alone: others would take guards.
func TestCommandsHaveOneGuardAfterTheOther(t *testing.T) { //nolint:paralleltest // see above
	dir := t.TempDir()
	parent := func(then string) int {
		payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c", "echo $PPID >parent; " + then}, Dir: dir})
		require.NoError(t, err)
		_, err = agent.ExecHandler()(t.Context(), &agent.Task{Payload: payload})
		require.Equal(t, then == "true", err == nil, "%s: %v", then, err)
		return readPID(t, filepath.Join(dir, "parent"))
	}
	guard := parent("true")
	for _, then := range []string{"exit 3", "(setsid sleep 1000 >/dev/null 2>&1 &) ; exit 4", "kill -KILL $$"} {
		require.Equal(t, guard, parent(then), "after %s", then)
	}
	require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
	require.Equal(t, guard, parent("true"))
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	require.Eventually(t, func() bool { // its last thread closes its socket
		threads, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(guard), "task"))
		return gone(guard) && len(threads) <= 1
	}, 20*time.Second, time.Millisecond)
	require.NotEqual(t, guard, parent("true"))
}

// A command may be longer than what the guard's socket holds.
func TestALongCommandIsSent(t *testing.T) {
	t.Parallel()
	command := []string{"sh", "-c", `echo $# ${#15}`, "sh"}
	for range 15 {
		command = append(command, strings.Repeat("x", 100_000))
	}
	payload, err := json.Marshal(agent.ExecPayload{Command: command})
	require.NoError(t, err)
	result, err := agent.ExecHandler()(t.Context(), &agent.Task{Payload: payload})
	require.NoError(t, err)
	output, err := json.Marshal(result)
	require.NoError(t, err)
	require.Contains(t, string(output), `"stdout":"15 100000\n"`)
}
