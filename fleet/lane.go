package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultLane is the lane of tasks that any serving member may run.
const DefaultLane = "default"

// The prefixes of the other lanes' names.
const (
	capLanes   = "cap/"
	shardLanes = "shard/"
	agentLanes = "agent/"
	fitLanes   = "fit/"
	typeLanes  = "type/"
)

// CapabilityLane is the lane of tasks that need a set of capabilities, in any order.
func CapabilityLane(capabilities []string) string {
	return capLanes + strings.Join(SortedSet(capabilities), "+")
}

// CapabilitiesOfLane are the capabilities that a lane's name has; nil: none.
func CapabilitiesOfLane(lane string) []string {
	if taskType := TypeOfLane(lane); taskType != "" {
		lane = strings.TrimPrefix(lane, typeLanes+taskType+"/")
	}
	if list, ok := strings.CutPrefix(lane, capLanes); ok {
		return strings.Split(list, "+")
	}
	return nil
}

// ShardLane is the lane of one shard of a sharded cluster.
func ShardLane(shard int) string { return shardLanes + strconv.Itoa(shard) }

// AgentLane is the lane of tasks that are pinned to one agent.
func AgentLane(agent string) string { return agentLanes + agent }

// ErrLane is ParseLane's error for text that names no lane.
var ErrLane = errors.New("must be default, cap/<capability>+<capability>, type/<type>, type/<type>/cap/<capability>, fit/<class>, shard/<number> or agent/<id>")

// ParseLane reads a user's name of a lane within a cluster, and returns its normal form.
func ParseLane(name string) (string, error) {
	if name == DefaultLane {
		return name, nil
	}
	if taskType := TypeOfLane(name); taskType != "" {
		rest, more := strings.CutPrefix(name, typeLanes+taskType+"/")
		if ValidateID("type", taskType) != nil || more && !strings.HasPrefix(rest, capLanes) {
			return "", ErrLane
		}
		if !more {
			return name, nil
		}
		normal, err := ParseLane(rest)
		return typeLanes + taskType + "/" + normal, err
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
	if class, ok := strings.CutPrefix(name, fitLanes); ok && ValidateID("class", class) == nil {
		return name, nil
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

// ServersOf returns the members that serve a lane when it is not paused: those that may take its tasks when they have a
// free slot and a handler.
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
	if fit := c.FitOf(lane); fit != nil && !MeetsNeeds(fit, &m.AgentProfile) {
		return false
	}
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
	return lane != DefaultLane || TypesOf(&m.AgentProfile).Covers(c.ServingTypes)
}

// LaneOf is the lane where a task waits. Pinning to an agent wins over a shard, a shard over what the task needs.
// shards is the cluster's number of shards, 0 when it is not sharded; ownType: tasks of its type have their own lanes.
func LaneOf(spec *TaskSpec, shards int, ownType bool) string {
	switch {
	case spec.Agent != "":
		return AgentLane(spec.Agent)
	case shards > 0:
		return ShardLane(ShardOf(spec.ShardKey, shards))
	}
	needs := LaneNeedsOf(spec, ownType)
	return LaneFor(&needs[0])
}

// Lanes returns the lanes of a cluster: its own, those of the agents in pinned, and paused ones.
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
		for i := range c.Fits {
			add(c.Fits[i].Lane)
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

// Pause stops hubs from taking tasks from a lane, or from any lane of a cluster. What runs goes on.
type Pause struct {
	// Lane is the lane's name; empty: the whole cluster, with the work pinned to its agents.
	Lane   string    `json:"lane,omitempty"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// Pauses are the paused lanes of a cluster, sorted by lane.
type Pauses []Pause

// Pause pauses a lane, or the whole cluster when lane is empty. It reports whether this changes which lanes are served;
// a repeated pause only changes the reason. lane has the form that ParseLane returns.
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

// Resume ends the pause of a lane, or of the whole cluster when lane is empty; single lanes then stay paused. It
// reports whether there was a pause.
func (p *Pauses) Resume(lane string) bool {
	i, paused := p.search(lane)
	if paused {
		*p = slices.Delete(*p, i, i+1)
	}
	return paused
}

// Of returns the pause that applies to a lane, or nil. A pause of the whole cluster applies to every lane.
func (p Pauses) Of(lane string) *Pause {
	for _, name := range []string{"", lane} {
		if i, paused := p.search(name); paused {
			return &p[i]
		}
	}
	return nil
}

// Lanes reports whether the whole cluster is paused, and returns the lanes that are paused individually.
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
	return search(p, lane, func(p Pause) string { return p.Lane })
}

// MayPause refuses lanes that such a cluster never has, and pauses beyond MaxPauses. The whole cluster can always be
// paused.
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
