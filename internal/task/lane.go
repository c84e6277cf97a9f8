package task

import (
	"errors"
	"hash/fnv"
	"strconv"
	"strings"

	"mainstay.dev/sdk/api"
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
	return capLanes + strings.Join(api.SortedSet(capabilities), "+")
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
		if api.ValidateID("type", taskType) != nil || more && !strings.HasPrefix(rest, capLanes) {
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
			if api.ValidateID("capability", c) != nil {
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
	if class, ok := strings.CutPrefix(name, fitLanes); ok && api.ValidateID("class", class) == nil {
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
	return agent, ok && api.ValidateID("agent", agent) == nil
}

// LaneOf is the lane where a task waits. Pinning to an agent wins over a shard, a shard over what the task needs.
// shards is the cluster's number of shards, 0 when it is not sharded; ownType: tasks of its type have their own lanes.
func LaneOf(spec *api.TaskSpec, shards int, ownType bool) string {
	switch {
	case spec.Agent != "":
		return AgentLane(spec.Agent)
	case shards > 0:
		return ShardLane(ShardOf(spec.ShardKey, shards))
	}
	needs := LaneNeedsOf(spec, ownType)
	return LaneFor(&needs[0])
}

// ShardOf hashes a key to one of n shards with FNV-1a (32 bit). It must never change: keys would move.
func ShardOf(key string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(n))
}
