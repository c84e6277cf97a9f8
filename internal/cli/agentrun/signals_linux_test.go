package agentrun_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/agentrun"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestMain(m *testing.M) {
	clitest.Main(m, clitest.Root(func(a *app.App) *cobra.Command {
		group := &cobra.Command{Use: "agent"}
		group.AddCommand(agentrun.Command(a))
		return group
	}))
}

// program runs `agent run` as a process, with a task that ends once the file go is there.
func program(t *testing.T, stderr *os.File, args ...string) (hub *agenttest.Hub, process *exec.Cmd, proceed func()) {
	t.Helper()
	hub = agenttest.NewHub(t, agenttest.Options{})
	dir := t.TempDir()
	process = exec.Command(os.Args[0], append([]string{"agent", "run", "--hub", hub.URL(), "--cluster", "demo", "--id",
		"worker-1", "--health", "", "--allow-exec"}, args...)...)
	process.Stdout, process.Stderr = stderr, stderr
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	payload, err := json.Marshal(agent.ExecPayload{Dir: dir,
		Command: []string{"sh", "-c", "touch begun; until [ -e go ]; do sleep 0.02; done"}})
	require.NoError(t, err)
	hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload})
	hub.WaitRunning("t1")
	require.Eventually(t, func() bool { // a command that has not begun yet gets the signals of the agent's group
		_, err := os.Stat(filepath.Join(dir, "begun"))
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	return hub, process, func() { require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600)) }
}

// One wish to stop reaches an agent more than once: its group gets it, and its parent passes it on.
func TestAStopDeliveredTwiceIsOne(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"an agent": nil, "a supervised agent": {"--supervise"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, process, proceed := program(t, nil, args...)
			require.NoError(t, process.Process.Signal(syscall.SIGTERM))
			require.NoError(t, syscall.Kill(-process.Process.Pid, syscall.SIGINT))
			hub.WaitPoll("the stop", func(p protocol.Poll) bool { return p.Stopping })
			proceed()
			require.Equal(t, api.AttemptCompleted, hub.WaitResult("t1").Outcome)
			require.NoError(t, process.Wait(), "it ends by itself")
		})
	}
}

// The reader of an agent's log goes away, as with `| head -1`.
func TestAnAgentOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"an agent": nil, "a supervised agent": {"--supervise"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write, err := os.Pipe()
			require.NoError(t, err)
			require.NoError(t, read.Close())
			hub, process, proceed := program(t, write, args...)
			require.NoError(t, write.Close())
			proceed()
			require.Equal(t, api.AttemptCompleted, hub.WaitResult("t1").Outcome)
			require.NoError(t, process.Process.Signal(syscall.SIGTERM))
			require.NoError(t, process.Wait())
		})
	}
}
