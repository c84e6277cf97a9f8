package fleet

import "time"

// Liveness is what a hub thinks of a session.
type Liveness string

// The liveness states, from best to worst.
const (
	Alive   Liveness = "online"
	Suspect Liveness = "suspect" // its connection closed without a goodbye
	Warning Liveness = "warning" // it has been silent for longer than the warning threshold
	Lost    Liveness = "lost"
)

// Timing holds the failure detector's thresholds.
type Timing struct {
	// HeartbeatInterval is the longest a poll is held.
	HeartbeatInterval time.Duration
	// WarningThreshold and FailureThreshold bound silence.
	WarningThreshold time.Duration
	FailureThreshold time.Duration
	// DisconnectGrace bounds the time between a closed connection and the next poll.
	DisconnectGrace time.Duration
}

// DefaultTiming is the timing of a hub whose configuration names none.
func DefaultTiming() Timing {
	return Timing{
		HeartbeatInterval: 5 * time.Second,
		WarningThreshold:  10 * time.Second,
		FailureThreshold:  15 * time.Second,
		DisconnectGrace:   time.Second,
	}
}

// Judge says what to think of a session that was last heard of at lastContact and whose connection closed at
// disconnectedAt (zero: it is open).
func (t Timing) Judge(lastContact, disconnectedAt, now time.Time) Liveness {
	silence := now.Sub(lastContact)
	switch {
	case silence > t.FailureThreshold:
		return Lost
	case !disconnectedAt.IsZero() && now.Sub(disconnectedAt) > t.DisconnectGrace:
		return Lost
	case silence > t.WarningThreshold:
		return Warning
	case !disconnectedAt.IsZero():
		return Suspect
	}
	return Alive
}

// LeaseDrift is the share of a lease by which agent and hub clocks may run apart: the agent's lease is that much
// shorter than what the hub waits.
const LeaseDrift = 0.05

// AgentLease is how long after sending an answered poll an agent may go on with fenced work and roles, when the hub
// waits for lease after answering before it gives them to another.
func AgentLease(lease time.Duration) time.Duration {
	return lease - time.Duration(float64(lease)*LeaseDrift)
}

// Lease is how long a hub waits after its last answer before an agent has certainly stopped: the failure threshold
// where every member serves, the shorter role lease where one alone does.
func (t Timing) Lease(mode ReplicationMode, roleLease time.Duration) time.Duration {
	if mode == ActivePassive || mode == Sharded {
		return min(roleLease, t.FailureThreshold)
	}
	return t.FailureThreshold
}

// Hold is the longest a poll is held: the heartbeat interval, but a third of the lease at most, so that one lost answer
// does not end it.
func (t Timing) Hold(lease time.Duration) time.Duration { return min(t.HeartbeatInterval, lease/3) }
