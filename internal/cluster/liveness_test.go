package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
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
		{"a held poll is no silence", 3 * time.Second, -1, Alive},
		{"warning", 5 * time.Second, -1, Warning},
		{"failure", 8 * time.Second, -1, Lost},
		{"just disconnected", time.Second, 200 * time.Millisecond, Suspect},
		{"disconnected for longer than the grace", time.Second, 1100 * time.Millisecond, Lost},
		{"disconnected and silent", 6 * time.Second, 500 * time.Millisecond, Warning},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var at time.Time
			if tt.disconnected >= 0 {
				at = noon.Add(-tt.disconnected)
			}
			require.Equal(t, tt.want, timing.Judge(timing.DisconnectGrace, noon.Add(-tt.silence), at, noon))
		})
	}
}

func TestGrace(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	for _, c := range []struct {
		name      string
		promises  bool
		roundTrip time.Duration
		mistakes  int
		want      time.Duration
	}{
		{"no promise", false, time.Millisecond, 0, time.Second},
		{"near", true, time.Millisecond, 0, 150 * time.Millisecond},
		{"30 ms away", true, 30 * time.Millisecond, 0, 220 * time.Millisecond},
		{"given up wrongly", true, 30 * time.Millisecond, 1, 440 * time.Millisecond},
		{"never longer than the grace", true, 30 * time.Millisecond, 1000, time.Second},
		{"not even far away", true, time.Minute, 0, time.Second},
	} {
		require.Equal(t, c.want, timing.Grace(c.promises, c.roundTrip, c.mistakes), c.name)
	}
}

func TestTimingOfACrowd(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	require.Equal(t, timing, Timing{}.WithDefaults())
	require.Equal(t, timing, timing.For(1999))
	require.Equal(t, Timing{HeartbeatInterval: 5 * time.Second, CrowdInterval: 5 * time.Second,
		WarningThreshold: 10 * time.Second, FailureThreshold: 16 * time.Second, DisconnectGrace: time.Second},
		timing.For(2000))
	slow := Timing{HeartbeatInterval: 30 * time.Second}.WithDefaults()
	require.Equal(t, 91*time.Second, slow.FailureThreshold)
	require.Equal(t, slow, slow.For(1_000_000), "they are held longer than that anyway")
}

// The agent counts its lease from sending a poll, the hub from answering it: even with clocks that drift apart by the
// margin, the agent stops first.
func TestAgentLeaseEndsFirst(t *testing.T) {
	t.Parallel()
	for _, timing := range []Timing{DefaultTiming(), DefaultTiming().For(1_000_000)} {
		for _, mode := range []api.ReplicationMode{api.ActiveActive, api.ActivePassive, api.Sharded} {
			lease := timing.Lease(mode, api.DefaultRoleLease)
			for _, held := range []time.Duration{0, timing.Hold(lease)} {
				sent := noon
				answered := sent.Add(held)
				slowest := time.Duration(float64(AgentLease(lease)) * (1 + LeaseDrift))
				require.False(t, sent.Add(slowest).After(answered.Add(lease)))
				require.Less(t, 2*timing.Hold(lease), AgentLease(lease), "a lost answer does not end the lease")
			}
		}
	}
}
