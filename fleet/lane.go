package fleet

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// DefaultLane is the lane of a cluster's work that any serving member may do.
const DefaultLane = "default"

// The kinds of the other lanes, as their names begin.
const (
	capLanes   = "cap/"
	shardLanes = "shard/"
	agentLanes = "agent/"
)

// CapabilityLane is the lane of work that needs a set of capabilities. Order and repetition do not matter.
func CapabilityLane(capabilities []string) string {
	return capLanes + strings.Join(SortedSet(capabilities), "+")
}

// CapabilitiesOfLane is the inverse of CapabilityLane; none of another lane.
func CapabilitiesOfLane(lane string) []string {
	if list, ok := strings.CutPrefix(lane, capLanes); ok {
		return strings.Split(list, "+")
	}
	return nil
}

// ShardLane is the lane of one shard of a sharded cluster.
func ShardLane(shard int) string { return shardLanes + strconv.Itoa(shard) }

// AgentLane is the lane of the work that is pinned to one agent.
func AgentLane(agent string) string { return agentLanes + agent }

// ErrLane is what ParseLane says of anything that names no lane.
var ErrLane = errors.New("must be default, cap/<capability>+<capability>, shard/<number> or agent/<id>")

// ParseLane reads the name of a lane within a cluster, as people write it, and returns its one form.
func ParseLane(name string) (string, error) {
	if name == DefaultLane {
		return name, nil
	}
	if capabilities := CapabilitiesOfLane(name); capabilities != nil {
		for _, c := range capabilities {
			if ValidateID("capability", c) != nil {
				return "", ErrLane
			}
		}
		return CapabilityLane(capabilities), nil
	}
	if shard, ok := ShardOfLane(name); ok {
		return ShardLane(shard), nil
	}
	if agent, ok := AgentOfLane(name); ok {
		return AgentLane(agent), nil
	}
	return "", ErrLane
}

// ShardOfLane is the inverse of ShardLane.
func ShardOfLane(lane string) (int, bool) {
	number, ok := strings.CutPrefix(lane, shardLanes)
	if !ok {
		return 0, false
	}
	shard, err := strconv.Atoi(number)
	return shard, err == nil && shard >= 0 && strconv.Itoa(shard) == number
}

// AgentOfLane is the inverse of AgentLane.
func AgentOfLane(lane string) (string, bool) {
	agent, ok := strings.CutPrefix(lane, agentLanes)
	return agent, ok && ValidateID("agent", agent) == nil
}

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

// Lanes are the lanes of a cluster; those of agents are the ones named, and those that are paused.
func (c *Cluster) Lanes(pinned []string) []string {
	var lanes []string
	add := func(lane string) { lanes = append(lanes, lane) }
	if c.Config.ReplicationMode == Sharded {
		for shard := range c.Config.Shards {
			add(ShardLane(shard))
		}
	} else {
		add(DefaultLane)
		for _, set := range c.CapabilitySets {
			add(CapabilityLane(set))
		}
	}
	for i := range c.Pauses {
		if agent, ok := AgentOfLane(c.Pauses[i].Lane); ok {
			pinned = append(pinned, agent)
		}
	}
	slices.Sort(pinned)
	for _, agent := range slices.Compact(pinned) {
		add(AgentLane(agent))
	}
	return lanes
}
