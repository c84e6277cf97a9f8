package scaling

import (
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// scalingMargin is how much longer than its timeouts an action may take before it counts as ended.
const scalingMargin = 2 * time.Minute

// BeginScaling records that a decision is carried out, and returns the action. created is when the cluster was created.
func BeginScaling(c *cluster.Cluster, d cluster.ScalingDecision, created, now time.Time) cluster.ScalingAction {
	s := scalingOf(c)
	s.Actions++
	s.Last, s.Target = &d, new(d.Target)
	action := cluster.ScalingAction{Number: s.Actions, Change: d.Change, Agents: d.Agents, Since: now}
	spawn := SpawnBy(c, d.Rule)
	if d.Change == api.ScaleUp {
		for n := range d.Count {
			action.Agents = append(action.Agents, cluster.SpawnID(c.Config.Name, created, s.Actions, n))
		}
		recordStarts(c, action.Agents, d.Rule)
		action.Until = now.Add(spawn.JoinTimeout.Std() + scalingMargin)
		s.LastUp = now
	} else {
		action.Until = now.Add(spawn.DrainTimeout.Std() + scalingMargin)
		if !d.Rule.Retires() && d.Rule != api.RuleRollout {
			s.LastDown = now
		}
	}
	if d.Rule == api.RuleRestart {
		action.Until = action.Until.Add(spawn.JoinTimeout.Std())
		for _, agent := range d.Agents {
			if s.Restarted == nil {
				s.Restarted = map[string]time.Time{}
			}
			s.Restarted[agent] = now
		}
	}
	if d.Rule == api.RuleQueue || d.Rule == api.RuleCPU || d.Rule == api.RuleIdle {
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
func EndScaling(c *cluster.Cluster, r ScalingResult, now time.Time) bool {
	s := scalingOf(c)
	i := slices.IndexFunc(s.Active, func(a cluster.ScalingAction) bool { return a.Number == r.Number })
	if i < 0 {
		return false
	}
	up, agents := s.Active[i].Change == api.ScaleUp, s.Active[i].Agents
	s.Active = slices.Delete(s.Active, i, i+1)
	blocked, ends := &s.Stuck, &s.Downs
	if up {
		blocked, ends = &s.Blocked, &s.Ups
		if r := heldRollout(c); r != nil && slices.Contains(r.Canaries, agents[0]) { // others are started all the same
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
		*blocked = &api.ScalingBlocked{Since: now}
	}
	b := *blocked
	b.Reason = r.Failed
	b.Failures++
	b.NextAt = now.Add(SpawnWait(c.Config.Scaling.Spawn.Backoff, b.Failures))
	return true
}

// SpawnerBack records that a spawner has started: blocked changes are tried at once.
func SpawnerBack(c *cluster.Cluster, spawner string) {
	if c.Scaling == nil {
		return
	}
	if wanted := SpawnBy(c, "").Spawner; wanted == "" || wanted == spawner {
		c.Scaling.Blocked = nil
	}
	if r := heldRollout(c); r != nil {
		r.Blocked = nil
	}
	c.Scaling.Stuck = nil
}

// ScaleTo sets how many agents to keep, for a person.
func ScaleTo(c *cluster.Cluster, target int) {
	s := scalingOf(c)
	s.Target, s.ByHand, s.Blocked = &target, true, nil
}

// Reconfigure applies a new configuration with its defaults. A new desired number becomes the target.
func Reconfigure(c *cluster.Cluster, next api.ClusterConfig) {
	before := c.Config
	c.Config = next
	switch {
	case next.Scaling.On() && next.DesiredAgents != before.DesiredAgents:
		ScaleTo(c, next.DesiredAgents)
	case next.Scaling.Mode != before.Scaling.Mode && c.Scaling != nil:
		c.Scaling.Target, c.Scaling.ByHand, c.Scaling.Blocked, c.Scaling.Stuck = nil, false, nil, nil
	}
}

func scalingOf(c *cluster.Cluster) *cluster.ScalingState {
	if c.Scaling == nil {
		c.Scaling = &cluster.ScalingState{}
	}
	return c.Scaling
}

// Retire forgets a member whose process has been stopped for good, with its cordon. A connected member stays.
func Retire(c *cluster.Cluster, agentID string) bool {
	i, known := cluster.SearchMember(c.Members, agentID)
	if known && c.Members[i].Connected() {
		return false
	}
	if known {
		c.Members = slices.Delete(c.Members, i, i+1)
	}
	if c.Scaling != nil {
		delete(c.Scaling.Restarted, agentID)
	}
	if k, cordoned := c.Cordons.Search(agentID); cordoned {
		c.Cordons = slices.Delete(c.Cordons, k, k+1)
	}
	return known
}
