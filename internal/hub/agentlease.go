package hub

import (
	"math"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// newLeaseLocked is the lease that a session's agent is told now.
func (h *Hub) newLeaseLocked(s *session) time.Duration {
	d := h.directives[s.cluster]
	return s.timing.Lease(d.Mode, d.RoleLease.Or(api.DefaultRoleLease))
}

// leaseOfLocked is how long after the hub's last answer a session's agent has certainly stopped, by what it was told.
// One that has not polled yet may not know this session, and count on the lease of an earlier one.
func (h *Hub) leaseOfLocked(s *session) time.Duration {
	if s.sequence == 0 {
		return h.longestLease()
	}
	return max(s.lease, s.offered)
}

// longestLease is the longest lease that an answer gives to any agent.
func (h *Hub) longestLease() time.Duration { return h.config.Timing.For(math.MaxInt).FailureThreshold }

// offerLeaseLocked puts a new lease into an answer to a session's agent. An answer that comes late for a shorter lease
// does not change it: that would be over at once.
func (h *Hub) offerLeaseLocked(s *session, answer *protocol.Polled, now time.Time) {
	lease := h.newLeaseLocked(s)
	if late := now.Sub(s.lastContact) > h.holdTimeLocked(s)+lease/10; s.namesLease && lease != s.lease && !late {
		s.offered, answer.Lease = lease, api.Duration(cluster.AgentLease(lease))
	}
}

// readLeaseLocked takes note of the lease that a session's agent counts with; 0: it does not say.
func (h *Hub) readLeaseLocked(s *session, named time.Duration) {
	s.namesLease = named > 0
	switch named {
	case 0:
		return
	case cluster.AgentLease(s.offered):
		s.lease = s.offered
	case cluster.AgentLease(s.lease):
	default:
		s.lease = h.longestLease() // until it names the one that the answer tells
	}
	s.offered = 0
}

// holdTimeLocked is the longest that a poll of a session is held, and so the longest between two looks at the agent.
func (h *Hub) holdTimeLocked(s *session) time.Duration {
	d, lease := h.directives[s.cluster], min(s.lease, h.newLeaseLocked(s))
	if d.Mode == api.ActiveActive || d.ElectionInterval == 0 {
		return s.timing.Hold(lease)
	}
	return s.timing.RoleHold(lease, d.ElectionInterval.Std())
}

// leaseLeftLocked is how long from now a session's agent may still go on with fenced work and its roles.
func (h *Hub) leaseLeftLocked(s *session, now time.Time) time.Duration {
	return max(0, s.answeredAt.Add(h.leaseOfLocked(s)).Sub(now))
}
