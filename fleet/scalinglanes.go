package fleet

// ScalingLanes are the lanes whose work the agents that scaling starts could do. More of them would not help what waits
// in a paused lane, or for capabilities that they do not have.
func (c *Cluster) ScalingLanes() []string {
	var lanes []string
	add := func(lane string) {
		if c.Pauses.Of(lane) == nil {
			lanes = append(lanes, lane)
		}
	}
	if c.Config.ReplicationMode == Sharded {
		for shard := range c.Config.Shards {
			add(ShardLane(shard))
		}
		return lanes
	}
	add(DefaultLane)
	have := SortedSet(c.Config.Scaling.Spawn.Capabilities)
	for _, set := range c.CapabilitySets {
		if HasAll(have, set) {
			add(CapabilityLane(set))
		}
	}
	return lanes
}
