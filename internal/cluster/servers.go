package cluster

import (
	"slices"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// ServersOf returns the members that serve a lane when it is not paused: those that may take its tasks when they have a
// free slot and a handler.
func (c *Cluster) ServersOf(lane string, capabilities []string) []*Member {
	var servers []*Member
	for i := range c.Members {
		if m := &c.Members[i]; m.Serving() && c.serves(m, lane) && api.HasAll(m.Capabilities, capabilities) {
			servers = append(servers, m)
		}
	}
	return servers
}

func (c *Cluster) serves(m *Member, lane string) bool {
	if fit := c.FitOf(lane); fit != nil && !task.MeetsNeeds(fit, &m.AgentProfile) {
		return false
	}
	if agent, pinned := task.AgentOfLane(lane); pinned {
		return m.AgentID == agent
	}
	if shard, ok := task.ShardOfLane(lane); ok {
		return c.Config.ReplicationMode == api.Sharded && shard < len(c.Shards) &&
			c.Shards[shard].Owner == m.AgentID && c.holds(m.AgentID, c.Shards[shard].Epoch)
	}
	switch c.Config.ReplicationMode {
	case api.Sharded:
		return false
	case api.ActivePassive:
		return c.RoleOf(m.AgentID) == api.RoleLeader
	}
	return lane != task.DefaultLane || TypesOf(&m.AgentProfile).Covers(c.ServingTypes)
}

// Lanes returns the lanes of a cluster: its own, those of the agents in pinned, and paused ones.
func (c *Cluster) Lanes(pinned []string) []string {
	var lanes []string
	add := func(lane string) { lanes = append(lanes, lane) }
	if c.Config.ReplicationMode == api.Sharded {
		for shard := range c.Config.Shards {
			add(task.ShardLane(shard))
		}
	} else {
		add(task.DefaultLane)
		for _, set := range c.CapabilitySets {
			add(task.CapabilityLane(set))
		}
		for i := range c.Fits {
			add(c.Fits[i].Lane)
		}
	}
	for i := range c.Pauses {
		if agent, ok := task.AgentOfLane(c.Pauses[i].Lane); ok {
			pinned = append(pinned, agent)
		}
	}
	slices.Sort(pinned)
	for _, agent := range slices.Compact(pinned) {
		add(task.AgentLane(agent))
	}
	return lanes
}
