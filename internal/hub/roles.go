package hub

import (
	"math"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// lanesOf returns the lanes that a cluster's directive lets a session serve: its own while that is open; the cluster's
// if it handles all types that wait there, or it leads; its shards'; none that is paused. A role counts only under a
// newer epoch than the session's, so a session does not inherit an earlier process's role. A cordoned session serves
// none.
func lanesOf(s *session, d contract.Directive, open bool) []string {
	if s.cordoned(d) {
		return nil
	}
	var lanes []string
	if open {
		lanes = append(lanes, task.AgentLane(s.agent))
	}
	if d.Mode == api.ActiveActive || s.leads(d) {
		if d.Mode != api.ActiveActive || cluster.TypesOf(&s.registration.AgentProfile).Covers(d.ServingTypes) {
			lanes = append(lanes, task.DefaultLane)
		}
		for _, set := range d.CapabilitySets {
			if api.HasAll(s.candidate.Capabilities, set) {
				lanes = append(lanes, task.CapabilityLane(set))
			}
		}
		for i := range d.Fits {
			if s.meetsNeeds(&d.Fits[i]) {
				lanes = append(lanes, d.Fits[i].Lane)
			}
		}
	}
	for _, shard := range s.owns(d) {
		lanes = append(lanes, task.ShardLane(shard))
	}
	queues := make([]string, 0, len(lanes))
	for _, lane := range lanes {
		if !d.Holds(lane) {
			queues = append(queues, contract.LaneQueue(s.cluster, lane))
		}
	}
	return queues
}

// lanePaused is why a task goes back to a lane that was paused.
const lanePaused = "the lane is paused"

// holds reports whether the lane of a task queue is paused.
func holds(d contract.Directive, queue string) bool {
	_, lane, ok := contract.LaneOfQueue(queue)
	return ok && d.Holds(lane)
}

func (s *session) leads(d contract.Directive) bool {
	return d.Mode == api.ActivePassive && d.Leader == s.agent && d.LeaderEpoch > max(s.epoch, s.resigned)
}

// resignLocked takes a session's roles off it until its cluster gives it new ones.
func (h *Hub) resignLocked(s *session) {
	d := h.directives[s.cluster]
	for _, shard := range s.owns(d) {
		s.resigned = max(s.resigned, d.Shards[shard].Epoch)
	}
	if s.leads(d) {
		s.resigned = d.LeaderEpoch
	}
	h.serveLocked(s)
	h.sendRoleLocked(s)
}

// vacateLocked tells the cluster that a stopping agent's roles are free: the agent has read that it has none, and has
// no fenced work under them.
func (h *Hub) vacateLocked(s *session, now time.Time) {
	d := h.directives[s.cluster]
	if !s.stopping || s.vacated || s.held || !s.toldRoleLocked() ||
		d.Mode == api.ActiveActive && len(s.targets(d)) == 0 {
		return
	}
	for _, a := range s.attempts {
		// of one that the agent brought after a restart of the hub the hub does not know what it is
		if spec := &a.input.Spec; a.lane != contract.AgentLane(s.cluster, s.agent) &&
			(spec.Type == "" || spec.Safety() == api.Fenced) {
			return
		}
	}
	s.vacated = true
	t := s.transition(api.AgentStopping, "it finishes what it has, and then leaves", now)
	t.LeaseRemaining = new(api.Duration)
	h.notices.Notify(s.cluster, t)
}

// toldRoleLocked reports whether the agent has read its newest role.
func (s *session) toldRoleLocked() bool {
	unread := func(c protocol.Command) bool { return c.Type == protocol.CommandRole }
	return !slices.ContainsFunc(s.commands, unread) && !slices.ContainsFunc(s.told, unread)
}

func (s *session) owns(d contract.Directive) []int {
	if d.Mode != api.Sharded {
		return nil
	}
	var shards []int
	for i, owner := range d.Shards {
		if owner.Owner == s.agent && owner.Epoch > max(s.epoch, s.resigned) {
			shards = append(shards, i)
		}
	}
	return shards
}

// targets are the deployment targets that a session's agent looks after.
func (s *session) targets(d contract.Directive) []string {
	shards := s.owns(d)
	var ids []string
	for _, t := range d.Targets {
		switch {
		case d.Mode == api.ActiveActive && t.Agent == s.agent,
			s.leads(d),
			len(shards) > 0 && slices.Contains(shards, task.ShardOf(t.ID, len(d.Shards))):
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// applyDirectiveLocked applies a cluster's directive, unless a newer one was applied.
func (h *Hub) applyDirectiveLocked(d contract.Directive) {
	known, ok := h.directives[d.Cluster]
	if ok && !d.Replaces(&known) {
		return
	}
	if d.Mode != known.Mode { // agents of an active_active cluster share no state
		h.states.Changed()
	}
	h.directives[d.Cluster] = d
	if !slices.Equal(d.Tenants, known.Tenants) { // what is parked is asked again whether it may begin here
		for _, l := range h.lanes {
			if cluster, _, _ := contract.LaneOfQueue(l.name); cluster == d.Cluster {
				l.returnParkedLocked("who may use the cluster has changed")
			}
		}
	}
	if d.AgentLanes > 0 && h.ownLanes.open[d.Cluster].behind(&d) {
		h.ownLanes.soon.Send()
	}
	h.events.Hint(d.Cluster)
	now := time.Now()
	for _, s := range h.sessions {
		switch {
		case s.cluster != d.Cluster:
		case d.Fenced(s.agent, s.epoch):
			h.fenceLocked(s, now)
		case d.Ended(s.token):
			h.endLocked(s, ending{reason: "its join token was revoked, and its session ended with it", revoked: true,
				lease: h.leaseLeftLocked(s, now), at: now})
		case d.Deaths.Of(s.agent, s.instance) != nil:
			e := h.givenUpLocked(s, now)
			e.evidence, e.reason, e.lease = api.EvidenceProof, d.Deaths.Of(s.agent, s.instance).Reason, 0
			h.endLocked(s, e)
		default:
			h.serveLocked(s)
			h.sendRoleLocked(s)
		}
	}
	h.obeyAwaitedLocked(&d)
}

// sendRoleLocked sends an agent its role when it changed.
func (h *Hub) sendRoleLocked(s *session) {
	d := h.directives[s.cluster]
	role := protocol.Command{Type: protocol.CommandRole, Role: api.RoleMember, Leader: d.Leader, Epoch: d.LeaderEpoch,
		Shards: s.owns(d), Targets: s.targets(d)}
	switch {
	case d.Mode == api.ActiveActive && s.role.Type == "" && len(role.Targets) == 0:
		return // an active_active cluster has no roles
	case d.Mode == api.Sharded:
		role.Epoch = d.Version
	case s.leads(d):
		role.Role = api.RoleLeader
	case d.Mode == api.ActivePassive && slices.Contains(d.Standbys, s.agent):
		role.Role = api.RoleStandby
	}
	if role.Role == s.role.Role && role.Leader == s.role.Leader &&
		(role.Epoch == s.role.Epoch || d.Mode == api.Sharded) && slices.Equal(role.Shards, s.role.Shards) &&
		slices.Equal(role.Targets, s.role.Targets) {
		return
	}
	s.role = role
	s.command(role)
}

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
