package agent

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/agent/proctree"
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
	g := &guarded{socket: os.NewFile(uintptr(ends[0]), "guard")}
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
