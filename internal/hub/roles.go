package hub

import (
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func (s *session) leads(d contract.Directive) bool {
	return d.Mode == api.ActivePassive && d.Leader == s.agent && d.LeaderEpoch > max(s.epoch, s.leaving.resigned)
}

// resignLocked takes a session's roles off it until its cluster gives it new ones.
func (h *Hub) resignLocked(s *session) {
	d := h.directives[s.cluster]
	for _, shard := range s.owns(d) {
		s.leaving.resigned = max(s.leaving.resigned, d.Shards[shard].Epoch)
	}
	if s.leads(d) {
		s.leaving.resigned = d.LeaderEpoch
	}
	h.serveLocked(s)
	h.sendRoleLocked(s)
}

// vacateLocked reports to the cluster that a stopping agent's roles are free: the agent has read that it has none, and
// has no fenced work under them.
func (h *Hub) vacateLocked(s *session, now time.Time) {
	d := h.directives[s.cluster]
	if !s.leaving.stopping || s.leaving.vacated || s.loss.held || !s.orders.toldRole() ||
		d.Mode == api.ActiveActive && len(s.targets(d)) == 0 {
		return
	}
	for _, a := range s.work.attempts {
		// after a restart the hub does not know the type of an attempt that the agent brought
		if spec := &a.input.Spec; a.Lane != contract.AgentLane(s.cluster, s.agent) &&
			(spec.Type == "" || spec.Safety() == api.Fenced) {
			return
		}
	}
	s.leaving.vacated = true
	t := s.transition(api.AgentStopping, "it finishes what it has, and then leaves", now)
	t.LeaseRemaining = new(api.Duration)
	h.notices.Notify(s.cluster, t)
}

func (s *session) owns(d contract.Directive) []int {
	if d.Mode != api.Sharded {
		return nil
	}
	var shards []int
	for i, owner := range d.Shards {
		if owner.Owner == s.agent && owner.Epoch > max(s.epoch, s.leaving.resigned) {
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
				l.returnParked("who may use the cluster has changed")
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
				lease: s.lease.left(now), at: now})
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
	case d.Mode == api.ActiveActive && s.orders.role.Type == "" && len(role.Targets) == 0:
		return // an active_active cluster has no roles
	case d.Mode == api.Sharded:
		role.Epoch = d.Version
	case s.leads(d):
		role.Role = api.RoleLeader
	case d.Mode == api.ActivePassive && slices.Contains(d.Standbys, s.agent):
		role.Role = api.RoleStandby
	}
	if last := &s.orders.role; role.Role == last.Role && role.Leader == last.Leader &&
		(role.Epoch == last.Epoch || d.Mode == api.Sharded) && slices.Equal(role.Shards, last.Shards) &&
		slices.Equal(role.Targets, last.Targets) {
		return
	}
	s.orders.role = role
	s.command(role)
}
