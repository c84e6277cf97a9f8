package fleet

import (
	"cmp"
	"slices"
	"time"
)

// RoleOf returns an agent's role. Only an active_passive cluster has a leader and standbys; everyone else, also
// an agent that is not known, is a member.
func (c *Cluster) RoleOf(agentID string) Role {
	switch {
	case c.Config.ReplicationMode != ActivePassive || agentID == "":
		return RoleMember
	case agentID == c.Leader && c.holds(agentID, c.LeaderEpoch):
		return RoleLeader
	case slices.Contains(c.Standbys, agentID):
		return RoleStandby
	}
	return RoleMember
}

// LeaderLost reports that the leader no longer serves, or that another process runs under its id. Call VacateLeader
// then: only the caller knows how long the leader's lease may still run.
func (c *Cluster) LeaderLost() bool { return c.Leader != "" && !c.holds(c.Leader, c.LeaderEpoch) }

// RefreshStandbys makes the standbys the online members that do not lead: those that already were keep their order, new
// ones follow by id. Call it after joins and changes of status.
func (c *Cluster) RefreshStandbys() {
	if c.Config.ReplicationMode != ActivePassive {
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
	return m != nil && m.Status == AgentOnline && m.AgentID != c.Leader
}

// SwitchMode changes between active_active and active_passive. On the way to active_passive every member may
// still be serving, so the first leader waits for roleLease: the longest that a member may go on before it heard.
func (c *Cluster) SwitchMode(mode ReplicationMode, roleLease time.Duration, now time.Time) {
	if mode == c.Config.ReplicationMode {
		return
	}
	c.VacateLeader(roleLease, now)
	c.Config.ReplicationMode, c.LastLeader = mode, ""
	if mode == ActivePassive {
		c.LeaderFreeAt = later(c.LeaderFreeAt, now.Add(max(roleLease, 0)))
	}
	c.RefreshStandbys()
}

// holds reports whether the process that was granted a role at the given epoch still serves under that agent id. All
// epochs come from one counter, so a process that joined later has the higher one.
func (c *Cluster) holds(agentID string, epoch int64) bool {
	m := c.Member(agentID)
	return m != nil && m.Serving() && m.Epoch < epoch
}

// compareLoad orders members by the share of their slots in use. A member without slots counts as having one.
func compareLoad(a, b *Member, loads map[string]int) int {
	return cmp.Compare(int64(loads[a.AgentID])*int64(max(b.MaxTasks, 1)),
		int64(loads[b.AgentID])*int64(max(a.MaxTasks, 1)))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
