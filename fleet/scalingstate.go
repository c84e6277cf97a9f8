package fleet

import (
	"slices"
	"time"
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
	Blocked *Blocked `json:"blocked,omitempty"`
	// Stuck is set while surplus agents could not be stopped.
	Stuck *Blocked `json:"stuck,omitempty"`
	// Rollout is the newest replacement of agents because of other settings of spawn.
	Rollout *Rollout `json:"rollout,omitempty"`
	// events are those of rollouts that Changes has not returned yet.
	events []Event
}

// ScalingEnds counts actions by how they ended.
type ScalingEnds struct {
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
}

// ScalingAction is a change of the number of agents that is under way.
type ScalingAction struct {
	Number int64       `json:"number"`
	Change ScaleChange `json:"change"`
	Agents []string    `json:"agents"`
	Since  time.Time   `json:"since"`
	// Until is when it has certainly ended, even without a report.
	Until time.Time `json:"until"`
}

// scalingMargin is how much longer than its timeouts an action may take before it counts as ended.
const scalingMargin = 2 * time.Minute

// BeginScaling records that a decision is carried out, and returns the action. created is when the cluster was created.
func (c *Cluster) BeginScaling(d ScalingDecision, created, now time.Time) ScalingAction {
	s := c.scaling()
	s.Actions++
	s.Last, s.Target = &d, new(d.Target)
	action := ScalingAction{Number: s.Actions, Change: d.Change, Agents: d.Agents, Since: now}
	spawn := c.SpawnBy(d.Rule)
	if d.Change == ScaleUp {
		for n := range d.Count {
			action.Agents = append(action.Agents, SpawnID(c.Config.Name, created, s.Actions, n))
		}
		c.recordStarts(action.Agents, d.Rule)
		action.Until = now.Add(spawn.JoinTimeout.Std() + scalingMargin)
		s.LastUp = now
	} else {
		action.Until = now.Add(spawn.DrainTimeout.Std() + scalingMargin)
		if !d.Rule.Retires() && d.Rule != RuleRollout {
			s.LastDown = now
		}
	}
	if d.Rule == RuleRestart {
		action.Until = action.Until.Add(spawn.JoinTimeout.Std())
		for _, agent := range d.Agents {
			if s.Restarted == nil {
				s.Restarted = map[string]time.Time{}
			}
			s.Restarted[agent] = now
		}
	}
	if d.Rule == RuleQueue || d.Rule == RuleCPU || d.Rule == RuleIdle {
		s.ByHand = false
	}
	s.Active = append(s.Active, action)
	return action
}

// ScalingResult is the outcome of an action.
type ScalingResult struct {
	Number int64 `json:"number"`
	// Failed is why agents could not be started; empty: all are there.
	Failed string `json:"failed,omitempty"`
}

// EndScaling records the end of an action. When agents could not be started, the next try waits. It returns false for
// an action that is not under way.
func (c *Cluster) EndScaling(r ScalingResult, now time.Time) bool {
	s := c.scaling()
	i := slices.IndexFunc(s.Active, func(a ScalingAction) bool { return a.Number == r.Number })
	if i < 0 {
		return false
	}
	up, agents := s.Active[i].Change == ScaleUp, s.Active[i].Agents
	s.Active = slices.Delete(s.Active, i, i+1)
	blocked, ends := &s.Stuck, &s.Downs
	if up {
		blocked, ends = &s.Blocked, &s.Ups
		if r := c.holding(); r != nil && slices.Contains(r.Canaries, agents[0]) { // others are started all the same
			blocked = &r.Blocked
		}
	}
	if r.Failed == "" {
		ends.Succeeded++
		*blocked = nil
		return true
	}
	ends.Failed++
	if *blocked == nil {
		*blocked = &Blocked{Since: now}
	}
	b := *blocked
	b.Reason = r.Failed
	b.Failures++
	b.NextAt = now.Add(SpawnWait(c.Config.Scaling.Spawn.Backoff, b.Failures))
	return true
}

// SpawnerBack records that a spawner has started: blocked changes are tried at once.
func (c *Cluster) SpawnerBack(spawner string) {
	if c.Scaling == nil {
		return
	}
	if wanted := c.SpawnBy("").Spawner; wanted == "" || wanted == spawner {
		c.Scaling.Blocked = nil
	}
	if r := c.holding(); r != nil {
		r.Blocked = nil
	}
	c.Scaling.Stuck = nil
}

// ScaleTo sets how many agents to keep, for a person.
func (c *Cluster) ScaleTo(target int) {
	s := c.scaling()
	s.Target, s.ByHand, s.Blocked = &target, true, nil
}

// Reconfigure applies a new configuration with its defaults. A new desired number becomes the target.
func (c *Cluster) Reconfigure(next ClusterConfig) {
	before := c.Config
	c.Config = next
	switch {
	case next.Scaling.On() && next.DesiredAgents != before.DesiredAgents:
		c.ScaleTo(next.DesiredAgents)
	case next.Scaling.Mode != before.Scaling.Mode && c.Scaling != nil:
		c.Scaling.Target, c.Scaling.ByHand, c.Scaling.Blocked, c.Scaling.Stuck = nil, false, nil, nil
	}
}

// Wanted is how many agents the cluster should have, by scaling or its settings; 0: no number was set.
func (c *Cluster) Wanted() int {
	if c.Config.Scaling.On() {
		return max(c.Config.MinAgents, c.scalingTarget())
	}
	return max(c.Config.MinAgents, c.Config.DesiredAgents)
}

func (c *Cluster) scalingTarget() int {
	target := c.Config.DesiredAgents
	if c.Scaling != nil && c.Scaling.Target != nil {
		target = *c.Scaling.Target
	}
	return min(target, c.Config.MaxAgents)
}

func (c *Cluster) scaling() *ScalingState {
	if c.Scaling == nil {
		c.Scaling = &ScalingState{}
	}
	return c.Scaling
}

// Retire forgets a member whose process has been stopped for good, with its cordon. A connected member stays.
func (c *Cluster) Retire(agentID string) bool {
	i, known := searchMember(c.Members, agentID)
	if known && c.Members[i].Connected() {
		return false
	}
	if known {
		c.Members = slices.Delete(c.Members, i, i+1)
	}
	if c.Scaling != nil {
		delete(c.Scaling.Restarted, agentID)
	}
	if k, cordoned := c.Cordons.search(agentID); cordoned {
		c.Cordons = slices.Delete(c.Cordons, k, k+1)
	}
	return known
}

// Settle drops the actions that have certainly ended without a report. A nil state has none.
func (s *ScalingState) Settle(now time.Time) {
	if s != nil {
		s.Active = slices.DeleteFunc(s.Active, func(a ScalingAction) bool { return !now.Before(a.Until) })
	}
}
