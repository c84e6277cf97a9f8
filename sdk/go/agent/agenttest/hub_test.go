package agenttest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStartWaitsForThePort has another listener on a stopped hub's port for a moment.
func TestStartWaitsForThePort(t *testing.T) {
	t.Parallel()
	h := NewHub(t, Options{})
	url := h.URL()
	h.Stop()
	other, err := net.Listen("tcp", h.address)
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, func() { _ = other.Close() })
	h.Start()
	require.Equal(t, url, h.URL())
}
