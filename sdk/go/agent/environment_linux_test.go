package agent_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mainstay.dev/sdk/agent"
)

// hiding has this test run in a process of its own, which waits for its standard input to close.
const hiding = "MAINSTAY_TEST_HIDING"

// TestEnvironmentIsHidden reads the environment of a process from outside, before and after it hides that.
func TestEnvironmentIsHidden(t *testing.T) {
	if os.Getenv(hiding) != "" {
		agent.HideEnvironment()
		flags, err := unix.FcntlInt(3, unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC, "commands inherit a file that the agent was started with")
		_, _ = os.Stdout.WriteString(os.Getenv(hiding))
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	t.Parallel()
	const secret = "canary-0123456789"
	child := exec.Command("/proc/self/exe", "-test.run=^TestEnvironmentIsHidden$")
	child.Env = []string{"PATH=/bin", hiding + "=" + secret, "LANG=C", "MAINSTAY_SPAWN_ID=a-1"}
	given, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, given.Close()) }()
	child.ExtraFiles = []*os.File{given}
	input, err := child.StdinPipe()
	require.NoError(t, err)
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	own := make([]byte, len(secret))
	_, err = output.Read(own)
	require.NoError(t, err)
	require.Equal(t, secret, string(own), "the process itself sees it")
	seen, err := os.ReadFile("/proc/" + strconv.Itoa(child.Process.Pid) + "/environ")
	if os.Geteuid() == 0 {
		require.NoError(t, err)
		require.Equal(t, "PATH=/bin\x00"+hiding+"="+strings.Repeat("\x00", len(secret))+"\x00LANG=C\x00"+
			"MAINSTAY_SPAWN_ID=a-1\x00", string(seen))
	} else {
		require.ErrorIs(t, err, os.ErrPermission)
	}
	require.NoError(t, input.Close())
	require.NoError(t, child.Wait())
}
