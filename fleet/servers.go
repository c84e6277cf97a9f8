package fleet

// ServersOf are the members that serve a lane, if it is not paused: those that may take its tasks when they have a free
// slot and a handler.
func (c *Cluster) ServersOf(lane string, capabilities []string) []*Member {
	var servers []*Member
	for i := range c.Members {
		if m := &c.Members[i]; m.Serving() && c.serves(m, lane) && HasAll(m.Capabilities, capabilities) {
			servers = append(servers, m)
		}
	}
	return servers
}

func (c *Cluster) serves(m *Member, lane string) bool {
	if agent, pinned := AgentOfLane(lane); pinned {
		return m.AgentID == agent
	}
	if shard, ok := ShardOfLane(lane); ok {
		return c.Config.ReplicationMode == Sharded && shard < len(c.Shards) &&
			c.Shards[shard].Owner == m.AgentID && c.holds(m.AgentID, c.Shards[shard].Epoch)
	}
	switch c.Config.ReplicationMode {
	case Sharded:
		return false
	case ActivePassive:
		return c.RoleOf(m.AgentID) == RoleLeader
	}
	return true
}

// LaneOf is the lane of an unsharded cluster where a task waits.
func LaneOf(spec *TaskSpec) string {
	switch {
	case spec.Agent != "":
		return AgentLane(spec.Agent)
	case len(spec.RequiredCapabilities) > 0:
		return CapabilityLane(spec.RequiredCapabilities)
	}
	return DefaultLane
}
