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

// DefaultTiming is the timing of DESIGN §11.
func DefaultTiming() Timing {
	return Timing{HeartbeatInterval: 5 * time.Second, WarningThreshold: 10 * time.Second, FailureThreshold: 15 * time.Second, DisconnectGrace: time.Second}
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

// AgentLease is how long after sending an answered poll an agent may go on with fenced work.
func (t Timing) AgentLease() time.Duration {
	return t.FailureThreshold - time.Duration(float64(t.FailureThreshold)*LeaseDrift)
}

// LeaseEnd is when an agent whose last poll was answered at answeredAt has certainly stopped fenced work.
func (t Timing) LeaseEnd(answeredAt time.Time) time.Time { return answeredAt.Add(t.FailureThreshold) }
