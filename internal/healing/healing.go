package healing

import (
	"maps"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// priorities order the actions of a cycle; the highest goes first.
var priorities = map[api.HealingType]int{
	api.HealFailover:  100,
	api.HealReassign:  80,
	api.HealRebalance: 60,
	api.HealDrain:     50,
	api.HealReduce:    40,
	api.HealRestore:   20,
	api.HealReport:    10,
}

// HealingTypes are the types of all actions, in no order.
func HealingTypes() []api.HealingType { return slices.Collect(maps.Keys(priorities)) }

// Values of Stuck.What: StuckReviews, or StuckLane and the lane's name.
const (
	StuckReviews = "reviews"
	StuckLane    = "lane:"
)

// Stuck is something that has waited for too long.
type Stuck struct {
	What   string    `json:"what"` // StuckReviews, or StuckLane and the lane's name
	Count  int64     `json:"count"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason"`
}

// HealingPast is an earlier action or recorded skip.
type HealingPast struct {
	Type     api.HealingType    `json:"type"`
	TargetID string             `json:"target_id"`
	Verdict  api.HealingVerdict `json:"verdict"`
	At       time.Time          `json:"at"`
	Running  bool               `json:"running,omitempty"`
}

// HealingCase has the facts about one cluster for a healing decision.
type HealingCase struct {
	Cluster string            `json:"cluster"`
	Policy  api.HealingPolicy `json:"policy"`
	// Agents are the members that may need an action: unhealthy ones, and those that healing took out of service.
	Agents []HealingAgent `json:"agents,omitempty"`
	// Members counts the connected members that no person keeps out of service, Serving the online ones among them, and
	// Healthy the healthy ones among these.
	Members int `json:"members"`
	Serving int `json:"serving"`
	Healthy int `json:"healthy"`
	// Minimum and Wanted are the numbers of agents that it should have. ShortSince is since when it may have fewer.
	Minimum    int       `json:"minimum,omitempty"`
	Wanted     int       `json:"wanted,omitempty"`
	ShortSince time.Time `json:"short_since,omitzero"`
	Scaled     bool      `json:"scaled,omitempty"` // scaling may start agents
	// Alone: scaling is off and there are no shards and targets, so only people can help when agents are missing.
	Alone  bool `json:"alone,omitempty"`
	Braked bool `json:"braked,omitempty"`
	// Suspects may be orphans; no hub was asked yet. LastUpset is when attempts may have been left behind.
	LastUpset time.Time     `json:"last_upset,omitzero"`
	Suspects  []api.Orphan  `json:"suspects,omitempty"`
	Hubs      []string      `json:"hubs,omitempty"` // hubs with agents of the cluster
	Orphans   []api.Orphan  `json:"orphans,omitempty"`
	Stuck     []Stuck       `json:"stuck,omitempty"`
	Past      []HealingPast `json:"past,omitempty"`
	// PastFull: there are earlier actions and skips of the last day that are not in Past. Only what acts gets a record.
	PastFull bool `json:"past_full,omitempty"`
	// Unable counts the agents that are online and critical or failed, and not in Agents, which was too long.
	Unable int `json:"unable,omitempty"`
}

// HealingAgent has the facts about a member that healing uses.
type HealingAgent struct {
	AgentID string               `json:"agent_id"`
	Status  api.AgentStatus      `json:"status"`
	Since   time.Time            `json:"since"` // of the status
	Epoch   int64                `json:"epoch"`
	Health  cluster.MemberHealth `json:"health"`
	Running int                  `json:"running,omitempty"`
	Slots   int                  `json:"slots,omitempty"`
	Reduced bool                 `json:"reduced,omitempty"` // its load is reduced already
	// OutBy is the one that keeps it out of service: "" (none), "healing" or "operator".
	OutBy string `json:"out_by,omitempty"`
	// Alone is what tasks need that no better agent in service has; empty: nothing.
	Alone string `json:"alone,omitempty"`
}
