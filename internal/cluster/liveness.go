package cluster

import (
	"cmp"
	"time"

	"mainstay.dev/sdk/api"
)

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
	// CrowdInterval is the longest time to hold a poll of agents that come when the hub has so many that it would
	// answer CrowdRate polls a second; at least HeartbeatInterval.
	CrowdInterval time.Duration
	// WarningThreshold and FailureThreshold bound silence.
	WarningThreshold time.Duration
	FailureThreshold time.Duration
	// DisconnectGrace bounds the time between a closed connection and the next poll; Grace may be shorter.
	DisconnectGrace time.Duration
}

const (
	// CrowdRate is how many polls a hub may answer in a second before new agents' are held for CrowdInterval.
	CrowdRate = 1000
	// graceLeast is the least time that an agent has to come back after its connection closed, and graceMargin the time
	// beside round trips.
	graceLeast  = 150 * time.Millisecond
	graceMargin = 100 * time.Millisecond
	// graceTrips are the round trips of coming back: to learn of it, to connect, to agree on TLS, and to poll.
	graceTrips = 4
	// graceDoublings bounds how often the grace is doubled.
	graceDoublings = 10
)

// DefaultTiming is the timing of a hub without settings of its own.
func DefaultTiming() Timing {
	return Timing{
		HeartbeatInterval: 2 * time.Second,
		CrowdInterval:     5 * time.Second,
		WarningThreshold:  4 * time.Second,
		FailureThreshold:  7 * time.Second,
		DisconnectGrace:   time.Second,
	}
}

// WithDefaults fills missing times: an agent's silence shows after two held polls, and it is lost after three and a
// margin.
func (t Timing) WithDefaults() Timing {
	d := DefaultTiming()
	t.HeartbeatInterval = cmp.Or(t.HeartbeatInterval, d.HeartbeatInterval)
	t.CrowdInterval = max(cmp.Or(t.CrowdInterval, d.CrowdInterval), t.HeartbeatInterval)
	t.WarningThreshold = cmp.Or(t.WarningThreshold, 2*t.HeartbeatInterval)
	t.FailureThreshold = cmp.Or(t.FailureThreshold, max(3*t.HeartbeatInterval,
		t.WarningThreshold+t.HeartbeatInterval)+time.Second)
	t.DisconnectGrace = cmp.Or(t.DisconnectGrace, d.DisconnectGrace)
	return t
}

// For is the timing of an agent that joins a hub with this number of others.
func (t Timing) For(others int) Timing {
	if float64(others) < CrowdRate*t.HeartbeatInterval.Seconds() || t.CrowdInterval <= t.HeartbeatInterval {
		return t
	}
	crowd := Timing{HeartbeatInterval: t.CrowdInterval}.WithDefaults()
	t.HeartbeatInterval = t.CrowdInterval
	t.WarningThreshold = max(t.WarningThreshold, crowd.WarningThreshold)
	t.FailureThreshold = max(t.FailureThreshold, crowd.FailureThreshold)
	return t
}

// Grace is how long an agent has to come back after its connection closed: a few of its round trips if it promises to
// reconnect at once, twice as long for each time that it was given up wrongly, and DisconnectGrace at most.
func (t Timing) Grace(promises bool, roundTrip time.Duration, mistakes int) time.Duration {
	if !promises {
		return t.DisconnectGrace
	}
	grace := max(graceLeast, graceTrips*roundTrip+graceMargin) << min(mistakes, graceDoublings)
	return min(grace, t.DisconnectGrace)
}

// Judge judges a session whose last poll came at lastContact and whose connection closed at disconnectedAt (zero: it is
// open), with grace to come back.
func (t Timing) Judge(grace time.Duration, lastContact, disconnectedAt, now time.Time) Liveness {
	silence := now.Sub(lastContact)
	switch {
	case silence > t.FailureThreshold:
		return Lost
	case !disconnectedAt.IsZero() && now.Sub(disconnectedAt) > grace:
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
func (t Timing) Lease(mode api.ReplicationMode, roleLease time.Duration) time.Duration {
	if mode == api.ActivePassive || mode == api.Sharded {
		return min(roleLease, t.FailureThreshold)
	}
	return t.FailureThreshold
}

// Hold is the longest time that a poll is held: the heartbeat interval, but at most a third of the lease, so that one
// lost answer does not end it.
func (t Timing) Hold(lease time.Duration) time.Duration { return min(t.HeartbeatInterval, lease/3) }

// RoleHold is Hold where agents have roles and the cluster has an election interval: that, at most half of the lease.
func (t Timing) RoleHold(lease, election time.Duration) time.Duration {
	return min(t.HeartbeatInterval, lease/2, election)
}
