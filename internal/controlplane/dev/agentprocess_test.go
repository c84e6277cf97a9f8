package dev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
)

// sleepNumber makes command lines that no other process has.
var sleepNumber atomic.Int64

// sleepers launches `sleep` in place of agents. Each call of the returned function makes another launcher on the same
// folder, as another `dev` would.
func sleepers(t *testing.T) (dir string, relaunch func() *agentLauncher) {
	t.Helper()
	program, err := exec.LookPath("sleep")
	require.NoError(t, err)
	dir = t.TempDir()
	unique := fmt.Sprintf("%d.%d", 600+sleepNumber.Add(1), os.Getpid())
	return dir, func() *agentLauncher {
		l, err := newAgentLauncher(program, dir, func(id string) []string {
			return []string{unique,
				id[len("agent-"):]}
		})
		require.NoError(t, err)
		return l
	}
}

// launch starts an agent that is ended with the test, and waits for it as its parent must.
func launch(t *testing.T, l *agentLauncher, id string) (process, <-chan ending) {
	t.Helper()
	p, err := l.Launch(id)
	require.NoError(t, err)
	end := make(chan ending, 1)
	go func() { end <- p.Wait() }()
	t.Cleanup(p.Kill)
	require.Eventually(t, func() bool { return runsAs(p.PID(), l.args(id)) }, 10*time.Second, time.Millisecond)
	return p, end
}

func TestAgentsSurviveAndAreAdopted(t *testing.T) {
	t.Parallel()
	dir, relaunch := sleepers(t)
	first := relaunch()
	p, end := launch(t, first, "agent-1")
	group, err := syscall.Getpgid(p.PID())
	require.NoError(t, err)
	require.Equal(t, p.PID(), group, "a Ctrl-C in the terminal must not reach it")

	second := relaunch()
	second.endLeftovers([]string{"agent-1"})
	_, ok := second.Adopt("agent-2")
	require.False(t, ok)
	adopted, ok := second.Adopt("agent-1")
	require.True(t, ok)
	require.Equal(t, p.PID(), adopted.PID())
	adopted.Terminate()
	require.Equal(t, ending{-1, "was ended by SIGTERM"}, next(t, end))
	require.Equal(t, ending{-1, "has ended"}, adopted.Wait())
	adopted.Kill() // nobody has this id, or somebody else: nothing may happen

	third := relaunch()
	_, ok = third.Adopt("agent-1")
	require.False(t, ok, "it has ended")
	third.forget()
	_, err = os.Stat(filepath.Join(dir, agentsFile))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAgentsThatAreNotWantedAreEnded(t *testing.T) {
	t.Parallel()
	_, relaunch := sleepers(t)
	first := relaunch()
	_, firstEnd := launch(t, first, "agent-1")
	_, secondEnd := launch(t, first, "agent-2")

	second := relaunch()
	second.endLeftovers([]string{"agent-2"})
	next(t, firstEnd)
	require.Empty(t, secondEnd)

	args := second.args
	changed, err := newAgentLauncher(second.program, second.dir,
		func(id string) []string { return append(args(id), "0.1") })
	require.NoError(t, err)
	changed.endLeftovers([]string{"agent-2"})
	next(t, secondEnd)
	_, ok := changed.Adopt("agent-2")
	require.False(t, ok, "it was started in another way")
}

func TestOtherProcessesAreNotAdopted(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("needs /proc")
	}
	dir, relaunch := sleepers(t)
	record := `{"agent-1": {"pid": ` + strconv.Itoa(os.Getpid()) + `, "args": ["1", "1"]}}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, agentsFile), []byte(record), 0o600))
	l := relaunch()
	_, ok := l.Adopt("agent-1")
	require.False(t, ok, "the pid belongs to somebody else now")
	l.endLeftovers(nil)
}

func TestAgentsFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, agentsFile), []byte("{"), 0o600))
	_, err := newAgentLauncher("x", dir, nil)
	require.ErrorContains(t, err, "agents.json cannot be read")
}

func TestExitCodeOfAChild(t *testing.T) {
	t.Parallel()
	l, err := newAgentLauncher("/bin/sh", t.TempDir(), func(string) []string {
		return []string{"-c",
			"echo said; exit 5"}
	})
	require.NoError(t, err)
	p, err := l.Launch("agent-1")
	require.NoError(t, err)
	require.Equal(t, ending{app.ExitConflict, "ended with exit code 5"}, p.Wait())
	log, err := os.ReadFile(l.logPath("agent-1"))
	require.NoError(t, err)
	require.Equal(t, "said\n", string(log))
}
