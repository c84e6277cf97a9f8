package cluster

import (
	"cmp"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// RoleOf returns an agent's role. Only an active_passive cluster has a leader and standbys; every other agent, also an
// unknown one, is a member.
func (c *Cluster) RoleOf(agentID string) api.Role {
	switch {
	case c.Config.ReplicationMode != api.ActivePassive || agentID == "":
		return api.RoleMember
	case agentID == c.Leader && c.holds(agentID, c.LeaderEpoch):
		return api.RoleLeader
	case slices.Contains(c.Standbys, agentID):
		return api.RoleStandby
	}
	return api.RoleMember
}

// LeaderLost reports that the leader no longer serves, or that another process runs under its id. Call VacateLeader
// then; the caller knows how long the leader's lease may still run.
func (c *Cluster) LeaderLost() bool { return c.Leader != "" && !c.holds(c.Leader, c.LeaderEpoch) }

// RefreshStandbys makes the online members that do not lead the standbys: present ones keep their order, new ones
// follow by id. Call it after joins and changes of status.
func (c *Cluster) RefreshStandbys() {
	if c.Config.ReplicationMode != api.ActivePassive {
		c.Standbys = nil
		return
	}
	var standbys []string
	known := make(map[string]bool, len(c.Standbys))
	for _, id := range c.Standbys {
		if !known[id] && mayStandBy(c, c.Member(id)) {
			standbys = append(standbys, id)
		}
		known[id] = true
	}
	for i := range c.Members {
		if m := &c.Members[i]; !known[m.AgentID] && mayStandBy(c, m) {
			standbys = append(standbys, m.AgentID)
		}
	}
	c.Standbys = standbys
}

func mayStandBy(c *Cluster, m *Member) bool {
	return m != nil && m.MayHold() && m.AgentID != c.Leader
}

// SwitchMode changes between active_active and active_passive. On the way to active_passive every member may still
// serve, so the first leader waits for roleLease: the longest that a member may go on before it hears of the change.
func (c *Cluster) SwitchMode(mode api.ReplicationMode, roleLease time.Duration, now time.Time) {
	if mode == c.Config.ReplicationMode {
		return
	}
	c.VacateLeader(roleLease, now)
	c.Config.ReplicationMode, c.LastLeader, c.Successor = mode, "", ""
	if mode == api.ActivePassive {
		c.LeaderFreeAt = Later(c.LeaderFreeAt, now.Add(max(roleLease, 0)))
	}
	c.RefreshStandbys()
}

// FormerHolders are the agents that had a role which nobody has now. After a switch of the mode these are all members.
func (c *Cluster) FormerHolders() (agents []string) {
	switch {
	case c.Config.ReplicationMode != api.ActivePassive:
	case c.Leader == "" && c.LastLeader != "":
		agents = append(agents, c.LastLeader)
	case c.Leader == "" && !c.LeaderFreeAt.IsZero():
		for i := range c.Members {
			agents = append(agents, c.Members[i].AgentID)
		}
	}
	for i := range c.Shards {
		if s := &c.Shards[i]; s.Owner == "" && s.From != "" {
			agents = append(agents, s.From)
		}
	}
	return agents
}

// holds reports whether the process that got a role at the given epoch still serves under that agent id. All epochs
// come from one counter, so a later process has the higher one.
func (c *Cluster) holds(agentID string, epoch int64) bool {
	m := c.Member(agentID)
	return m != nil && m.Serving() && m.Epoch < epoch
}

// compareLoad orders members by the share of their slots in use. A member without slots counts as having one.
func compareLoad(a, b *Member, loads map[string]int) int {
	return cmp.Compare(int64(loads[a.AgentID])*int64(max(b.MaxTasks, 1)),
		int64(loads[b.AgentID])*int64(max(a.MaxTasks, 1)))
}

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Election is the outcome of one election. When no leader may be granted yet, only WaitUntil is set.
type Election struct {
	Leader string `json:"leader,omitempty"`
	// Previous is the previous leader. It may be Leader itself, when no other member was there.
	Previous  string    `json:"previous,omitempty"`
	Epoch     int64     `json:"epoch,omitempty"`
	At        time.Time `json:"at,omitzero"`
	WaitUntil time.Time `json:"wait_until,omitzero"`
}

// Elect gives an active_passive cluster without a leader a new one: its Successor if that is online, else whom the
// strategy picks. The previous leader is chosen only when it is alone, so that a failover by hand moves the leadership.
// loads are running tasks by agent id. It does nothing while there is a leader; vacate a LeaderLost one first.
func (c *Cluster) Elect(strategy api.SelectionStrategy, loads map[string]int, now time.Time) (Election, bool) {
	if wait, open := c.seatOpen(now); !open {
		return wait, false
	}
	c.RefreshStandbys()
	if next, ok := c.nextLeader(strategy, loads); ok {
		return c.lead(next, now), true
	}
	return Election{}, false
}

// nextLeader picks the next leader. With manual election it is the previous one, or anybody as the first.
func (c *Cluster) nextLeader(strategy api.SelectionStrategy, loads map[string]int) (string, bool) {
	if !c.Config.ManualElection || c.LastLeader == "" {
		if m := c.Member(c.Successor); m != nil && m.MayHold() {
			return c.Successor, true
		}
		if next, ok := c.SelectTarget(strategy, FailoverNeed{FailedAgent: c.LastLeader}, loads); ok {
			return next, true
		}
	}
	m := c.Member(c.LastLeader)
	return c.LastLeader, m != nil && m.MayHold()
}

// ChooseSuccessor picks the agent that Elect makes the leader once the last leader's lease has run out, and false when
// nobody can be.
func (c *Cluster) ChooseSuccessor(strategy api.SelectionStrategy, loads map[string]int) (string, bool) {
	c.RefreshStandbys()
	next, ok := c.nextLeader(strategy, loads)
	if ok {
		c.Successor = next
	}
	return next, ok
}

// Contested reports whether Elect would choose between several members now, so that their loads matter.
func (c *Cluster) Contested(now time.Time) bool {
	_, open := c.seatOpen(now)
	return open && !(c.Config.ManualElection && c.LastLeader != "") && c.OnlineCount() > 1
}

// Promote makes the given online member the leader, as the target of a failover, by the rules of Elect.
func (c *Cluster) Promote(agentID string, now time.Time) (Election, bool) {
	if wait, open := c.seatOpen(now); !open {
		return wait, false
	}
	if m := c.Member(agentID); m == nil || !m.MayHold() {
		return Election{}, false
	}
	c.RefreshStandbys()
	return c.lead(agentID, now), true
}

// VacateLeader takes the leadership away and returns the former leader, or "". leaseRemaining is how long that agent
// may still act as leader, counting renewals by a hub without the change; zero after a goodbye.
func (c *Cluster) VacateLeader(leaseRemaining time.Duration, now time.Time) (previous string) {
	if c.Leader == "" {
		return ""
	}
	previous = c.Leader
	c.LastLeader, c.Leader, c.LeaderSince = previous, "", time.Time{}
	c.LeaderFreeAt = Later(c.LeaderFreeAt, now.Add(max(leaseRemaining, 0)))
	return previous
}

// seatOpen reports whether a leader may be granted, or else, if it is only too early, until when to wait.
func (c *Cluster) seatOpen(now time.Time) (Election, bool) {
	switch {
	case c.Config.ReplicationMode != api.ActivePassive || c.Leader != "":
		return Election{}, false
	case now.Before(c.LeaderFreeAt):
		return Election{WaitUntil: c.LeaderFreeAt}, false
	}
	return Election{}, true
}

// lead grants the leadership under a new epoch. The previous leader becomes a standby if it is online.
func (c *Cluster) lead(agentID string, now time.Time) Election {
	c.LastEpoch++
	won := Election{Leader: agentID, Previous: c.LastLeader, Epoch: c.LastEpoch, At: now}
	c.Handovers = handedOver(c.Handovers, c.LastLeader, agentID)
	c.Leader, c.LeaderEpoch, c.LeaderSince = agentID, c.LastEpoch, now
	c.LeaderFreeAt, c.LastLeader, c.Successor = time.Time{}, "", ""
	c.RefreshStandbys()
	return won
}

// CompareBool puts true first.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
