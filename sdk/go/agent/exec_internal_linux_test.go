package agent

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent/proctree"
)

// TestOrderToAGuardThatDoesNotRead: a stopped guard must not hold up the agent, which has renewed its lease many times.
func TestOrderToAGuardThatDoesNotRead(t *testing.T) {
	t.Parallel()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = syscall.Close(ends[1]) }()
	require.NoError(t, syscall.SetNonblock(ends[0], true))
	for err == nil {
		_, err = syscall.Write(ends[0], proctree.Lease(time.Hour))
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	g := &guardProcess{socket: os.NewFile(uintptr(ends[0]), "guard")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.order(proctree.Kill())
	}()
	defer func() { _ = g.socket.Close() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the agent waits for a guard that does not read")
	}
}

// Lines that two pipes had at once are taken in turn.
func TestOutputsAreTakenInTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stdout, stderr, want string }{
		"one by one":      {"a\nb\nc\n", "A\nB\nC\n", "a\nA\nb\nB\nc\nC\n"},
		"an error at end": {"a\nb\nc\n", "A\n", "a\nb\nc\nA\n"},
		"a result at end": {"a\n", "A\nB\nC\n", "A\nB\na\nC\n"},
		"one":             {"a\nb", "", "a\nb"},
		"neither ends":    {"a", "A", "aA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var both strings.Builder
			inTurn([2][]byte{[]byte(c.stdout), []byte(c.stderr)}, [2]io.Writer{&both, &both})
			require.Equal(t, c.want, both.String())
		})
	}
}
