package cluster

import (
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// ScalingState is a cluster's state of scaling.
type ScalingState struct {
	// Target is how many agents to keep: the desired number, or what rules have made of it. nil: none was set.
	Target *int `json:"target,omitempty"`
	// ByHand: a person set the target, so surplus agents are stopped even if they are not idle.
	ByHand bool `json:"by_hand,omitempty"`
	// LastUp and LastDown are when agents were last started or stopped.
	LastUp   time.Time `json:"last_up,omitzero"`
	LastDown time.Time `json:"last_down,omitzero"`
	// Actions counts the actions; it numbers the records.
	Actions int64 `json:"actions,omitempty"`
	// Ups and Downs count the actions that have ended.
	Ups   ScalingEnds `json:"ups,omitzero"`
	Downs ScalingEnds `json:"downs,omitzero"`
	// Active are the actions under way, oldest first.
	Active []ScalingAction `json:"active,omitempty"`
	// Last is the newest decision to act.
	Last *ScalingDecision `json:"last,omitempty"`
	// Restarted is when agents were last started anew because they stayed unhealthy.
	Restarted map[string]time.Time `json:"restarted,omitempty"`
	// Blocked is set while wanted agents could not be started.
	Blocked *api.ScalingBlocked `json:"blocked,omitempty"`
	// Stuck is set while surplus agents could not be stopped.
	Stuck *api.ScalingBlocked `json:"stuck,omitempty"`
	// Rollout is the newest replacement of agents because of other settings of spawn.
	Rollout *api.Rollout `json:"rollout,omitempty"`
	// events are rollout events that Changes has not returned yet.
	Events []Event `json:"-"`
}

// ScalingEnds counts actions by how they ended.
type ScalingEnds struct {
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
}

// ScalingAction is a change of the number of agents that is under way.
type ScalingAction struct {
	Number int64           `json:"number"`
	Change api.ScaleChange `json:"change"`
	Agents []string        `json:"agents"`
	Since  time.Time       `json:"since"`
	// Until is when it has certainly ended, even without a report.
	Until time.Time `json:"until"`
}

// Wanted is how many agents the cluster should have, by scaling or its settings; 0: no number was set.
func (c *Cluster) Wanted() int {
	if c.Config.Scaling.On() {
		return max(c.Config.MinAgents, ScalingTarget(c))
	}
	return max(c.Config.MinAgents, c.Config.DesiredAgents)
}

// Settle drops the actions that have certainly ended without a report. A nil state has none.
func (s *ScalingState) Settle(now time.Time) {
	if s != nil {
		s.Active = slices.DeleteFunc(s.Active, func(a ScalingAction) bool { return !now.Before(a.Until) })
	}
}

// ScalingTarget is how many agents the cluster keeps: what a person or a rule has set, else desired_agents, and at most
// max_agents.
func ScalingTarget(c *Cluster) int {
	target := c.Config.DesiredAgents
	if c.Scaling != nil && c.Scaling.Target != nil {
		target = *c.Scaling.Target
	}
	return min(target, c.Config.MaxAgents)
}

// ScalingDecision is a decision about the number of a cluster's agents.
type ScalingDecision struct {
	At     time.Time       `json:"at"`
	Change api.ScaleChange `json:"change"`
	Count  int             `json:"count,omitempty"`
	// Agents are the agents to stop.
	Agents []string `json:"agents,omitempty"`
	// Current is the number of agents, with those being started; Target is the number to keep.
	Current int             `json:"current"`
	Target  int             `json:"target"`
	Rule    api.ScalingRule `json:"rule,omitempty"`
	Reason  string          `json:"reason"`
	// Blocked: more agents are wanted than can be started now.
	Blocked bool `json:"blocked,omitempty"`
	// NextAt is when the reason against acting ends by itself; zero: unknown.
	NextAt time.Time `json:"next_at,omitzero"`
	// NeedFacts: choosing the agents to stop needs ScalingFacts.
	NeedFacts bool `json:"need_facts,omitempty"`
}
