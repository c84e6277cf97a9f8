package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	tests := []struct {
		name         string
		silence      time.Duration
		disconnected time.Duration // how long ago; below zero: connected
		want         Liveness
	}{
		{"fresh", 0, -1, Alive},
		{"a held poll is no silence", 6 * time.Second, -1, Alive},
		{"warning", 11 * time.Second, -1, Warning},
		{"failure", 16 * time.Second, -1, Lost},
		{"just disconnected", time.Second, 200 * time.Millisecond, Suspect},
		{"disconnected for longer than the grace", time.Second, 1100 * time.Millisecond, Lost},
		{"disconnected and silent", 12 * time.Second, 500 * time.Millisecond, Warning},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var at time.Time
			if tt.disconnected >= 0 {
				at = noon.Add(-tt.disconnected)
			}
			require.Equal(t, tt.want, timing.Judge(noon.Add(-tt.silence), at, noon))
		})
	}
}

// The agent counts its lease from sending a poll, the hub from answering it: even with clocks that drift apart by the
// margin, the agent stops first.
func TestAgentLeaseEndsFirst(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	for _, mode := range []ReplicationMode{ActiveActive, ActivePassive, Sharded} {
		lease := timing.Lease(mode, DefaultRoleLease)
		for _, held := range []time.Duration{0, timing.Hold(lease)} {
			sent := noon
			answered := sent.Add(held)
			slowest := time.Duration(float64(AgentLease(lease)) * (1 + LeaseDrift))
			require.False(t, sent.Add(slowest).After(answered.Add(lease)))
			require.Less(t, 2*timing.Hold(lease), AgentLease(lease), "a lost answer does not end the lease")
		}
	}
}
