package fleet

import "time"

// Liveness is a hub's judgement of a session.
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

// DefaultTiming is the timing of a hub without settings of its own.
func DefaultTiming() Timing {
	return Timing{
		HeartbeatInterval: 5 * time.Second,
		WarningThreshold:  10 * time.Second,
		FailureThreshold:  15 * time.Second,
		DisconnectGrace:   time.Second,
	}
}

// Judge judges a session whose last poll came at lastContact and whose connection closed at disconnectedAt (zero: it is
// open).
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

// LeaseDrift is the share of a lease by which the clocks of agent and hub may differ: the agent's lease is shorter by
// this than the hub's wait.
const LeaseDrift = 0.05

// AgentLease is how long after sending an answered poll an agent may go on with fenced work and roles, if the hub gives
// them to another agent lease after its answer.
func AgentLease(lease time.Duration) time.Duration {
	return lease - time.Duration(float64(lease)*LeaseDrift)
}

// Lease is how long after a hub's last answer an agent has certainly stopped: the failure threshold where every member
// serves, else the shorter role lease.
func (t Timing) Lease(mode ReplicationMode, roleLease time.Duration) time.Duration {
	if mode == ActivePassive || mode == Sharded {
		return min(roleLease, t.FailureThreshold)
	}
	return t.FailureThreshold
}

// Hold is the longest time that a poll is held: the heartbeat interval, but at most a third of the lease, so that one
// lost answer does not end it.
func (t Timing) Hold(lease time.Duration) time.Duration { return min(t.HeartbeatInterval, lease/3) }
