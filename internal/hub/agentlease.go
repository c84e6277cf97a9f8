package hub

import (
	"math"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// agentLease is how long an agent goes on with fenced work and roles without an answer.
type agentLease struct {
	answeredAt time.Time     // the newest answer; the lease counts from here at the latest
	length     time.Duration // the newest that the agent has certainly read; it counts with that, or with offered
	offered    time.Duration // in an answer that no poll has named yet; 0: none
	longest    time.Duration // that an answer gives to any agent
	named      bool          // the agent's polls name its lease, so it can get another
	unpolled   bool          // the agent may not know this session yet, and count on the lease of an earlier one
}

// most is how long after the hub's last answer the agent has certainly stopped, by the leases that it may have read.
func (l *agentLease) most() time.Duration {
	if l.unpolled {
		return l.longest
	}
	return max(l.length, l.offered)
}

// left is how long from now the agent may still go on with fenced work and its roles.
func (l *agentLease) left(now time.Time) time.Duration {
	return max(0, l.answeredAt.Add(l.most()).Sub(now))
}

// read takes note of the lease that the agent's poll names; 0: it does not say.
func (l *agentLease) read(named time.Duration) {
	l.named, l.unpolled = named > 0, false
	switch named {
	case 0:
		return
	case cluster.AgentLease(l.offered):
		l.length = l.offered
	case cluster.AgentLease(l.length):
	default:
		l.length = l.longest // until it names the lease of the answer
	}
	l.offered = 0
}

// longestLease is the longest lease that an answer gives to any agent.
func (h *Hub) longestLease() time.Duration { return h.config.Timing.For(math.MaxInt).FailureThreshold }

// newLeaseLocked is the lease that a session's agent gets now.
func (h *Hub) newLeaseLocked(s *session) time.Duration {
	d := h.directives[s.cluster]
	return s.timing.Lease(d.Mode, d.RoleLease.Or(api.DefaultRoleLease))
}

// offerLeaseLocked puts a new lease into an answer to a session's agent. An answer that comes late for a shorter lease
// does not change it: that would be over at once.
func (h *Hub) offerLeaseLocked(s *session, answer *protocol.Polled, now time.Time) {
	lease := h.newLeaseLocked(s)
	late := now.Sub(s.link.lastContact) > h.holdTimeLocked(s)+lease/10
	if s.lease.named && lease != s.lease.length && !late {
		s.lease.offered, answer.Lease = lease, api.Duration(cluster.AgentLease(lease))
	}
}

// holdTimeLocked is the longest that a poll of a session is held, and so the longest between two looks at the agent.
func (h *Hub) holdTimeLocked(s *session) time.Duration {
	d, lease := h.directives[s.cluster], min(s.lease.length, h.newLeaseLocked(s))
	if d.Mode == api.ActiveActive || d.ElectionInterval == 0 {
		return s.timing.Hold(lease)
	}
	return s.timing.RoleHold(lease, d.ElectionInterval.Std())
}
