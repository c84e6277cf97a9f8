package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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

// MaxPauses bounds how many lanes of a cluster are paused one by one.
const MaxPauses = 256

// Pause says that nothing is taken from a lane, or from any lane of a cluster. What runs goes on.
type Pause struct {
	// Lane is the lane's name; empty: the whole cluster, with the work pinned to its agents.
	Lane   string    `json:"lane,omitempty"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// Pauses are the lanes of a cluster that nothing is taken from, sorted by lane.
type Pauses []Pause

// Pause holds a lane back, or the whole cluster when lane is empty. It reports whether lanes are served otherwise than
// before; pausing again only changes the reason. lane has the form that ParseLane returns.
func (c *Cluster) Pause(lane, reason string, now time.Time) (changed bool, err error) {
	if err := c.MayPause(lane); err != nil {
		return false, err
	}
	i, paused := c.Pauses.search(lane)
	if paused {
		if reason != "" {
			c.Pauses[i].Reason = reason
		}
		return false, nil
	}
	c.Pauses = slices.Insert(c.Pauses, i, Pause{Lane: lane, Since: now, Reason: reason})
	return true, nil
}

// Resume takes a pause back: that of a lane, or that of the whole cluster when lane is empty. Lanes that were paused
// one by one stay so. It reports whether there was one.
func (p *Pauses) Resume(lane string) bool {
	i, paused := p.search(lane)
	if paused {
		*p = slices.Delete(*p, i, i+1)
	}
	return paused
}

// Of returns the pause that holds a lane back, or nil. A pause of the whole cluster holds back every lane.
func (p Pauses) Of(lane string) *Pause {
	for _, name := range []string{"", lane} {
		if i, paused := p.search(name); paused {
			return &p[i]
		}
	}
	return nil
}

// Lanes says whether the whole cluster is paused, and names the lanes that are paused one by one.
func (p Pauses) Lanes() (all bool, lanes []string) {
	for i := range p {
		if p[i].Lane == "" {
			all = true
		} else {
			lanes = append(lanes, p[i].Lane)
		}
	}
	return all, lanes
}

func (p Pauses) search(lane string) (int, bool) {
	return slices.BinarySearchFunc(p, lane, func(p Pause, name string) int { return strings.Compare(p.Lane, name) })
}

// MayPause refuses lanes that a cluster of this kind never has, and more pauses than the state can hold. The whole
// cluster can always be paused.
func (c *Cluster) MayPause(lane string) error {
	if lane == "" {
		return nil
	}
	shard, isShard := ShardOfLane(lane)
	_, isAgent := AgentOfLane(lane)
	_, paused := c.Pauses.search(lane)
	switch sharded := c.Config.ReplicationMode == Sharded; {
	case !sharded && isShard:
		return fmt.Errorf("only a sharded cluster has lanes of shards")
	case sharded && !isAgent && (!isShard || shard >= c.Config.Shards):
		return fmt.Errorf(
			"the cluster has no such lane: it is sharded, and its tasks wait in shard/0 to shard/%d, or in agent/<id>", c.Config.Shards-1)
	case !paused && len(c.Pauses) >= MaxPauses:
		return fmt.Errorf("%d lanes are paused already: pause the whole cluster instead, or resume some", MaxPauses)
	}
	return nil
}
