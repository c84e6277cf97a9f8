package devserver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A port that a connection of somebody takes before Temporal listens on it ends the process.
func TestFreePortsAreNotThoseOfConnections(t *testing.T) {
	t.Parallel()
	o := Options{Host: "127.0.0.1"}
	ports, err := choosePorts(&o)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range []int{o.Port, ports.history, ports.matching, ports.worker, ports.internal} {
		require.GreaterOrEqual(t, port, lowPorts)
		require.Less(t, port, lowPortsEnd)
		require.False(t, seen[port])
		seen[port] = true
	}
}
