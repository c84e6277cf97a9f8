package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// retireAfter is how long a lost agent that a spawner started may come back before it is stopped for good.
const retireAfter = time.Minute

// shrink stops agents that have been idle for long enough.
func (d *scaler) shrink(depth int64, what string) ScalingDecision {
	down := &d.policy.ScaleDown
	switch {
	case depth >= int64(*down.QueueThreshold):
		return ScalingDecision{Reason: what + ", neither too many nor few enough"}
	case d.current <= d.Config.MinAgents:
		return ScalingDecision{Reason: fmt.Sprintf("%s, and %s may not become fewer: min_agents is %d", what,
			Count(d.current, "agent"), d.Config.MinAgents)}
	}
	var idle []string
	var next time.Time
	for _, a := range d.stoppable() {
		if a.Running > 0 || a.IdleSince.IsZero() || d.Leader == a.AgentID {
			continue
		}
		if ready := a.IdleSince.Add(down.IdleTimeout.Std()); d.now.Before(ready) {
			if next.IsZero() || ready.Before(next) {
				next = ready
			}
			continue
		}
		idle = append(idle, a.AgentID)
	}
	if len(idle) == 0 {
		return ScalingDecision{NextAt: next,
			Reason: what + fmt.Sprintf("; no agent that a spawner started was idle for %s", down.IdleTimeout)}
	}
	count := min(down.Decrement, len(idle), d.current-d.Config.MinAgents, MaxScaleStep)
	for count > 0 && d.tooFew(idle[:count]) {
		count--
	}
	if count == 0 {
		return ScalingDecision{Reason: what + "; with one agent fewer it would be too much"}
	}
	why := fmt.Sprintf("%s, and %s had nothing to do for %s", what, strings.Join(idle[:count], ", "), down.IdleTimeout)
	if ready := d.lastChange().Add(down.Cooldown.Std()); d.now.Before(ready) {
		return ScalingDecision{Rule: RuleIdle, NextAt: ready, Reason: why + "; the cooldown of scale_down is not over"}
	}
	return ScalingDecision{Change: ScaleDown, Count: count, Agents: idle[:count:count], Target: d.current - count,
		Rule: RuleIdle, Reason: why}
}

// tooFew reports whether without some agents the rules would start agents at once.
func (d *scaler) tooFew(without []string) bool {
	depth, _ := d.depth(d.current - len(without))
	cpu, busy := d.cpu(without)
	return depth > int64(*d.policy.ScaleUp.QueueThreshold) || busy && cpu > d.policy.ScaleUp.CPUThreshold
}

// lastChange is when agents were last started or stopped.
func (d *scaler) lastChange() time.Time {
	if d.Scaling == nil {
		return time.Time{}
	}
	if d.Scaling.LastUp.After(d.Scaling.LastDown) {
		return d.Scaling.LastUp
	}
	return d.Scaling.LastDown
}

// stoppable are the agents that may be stopped and of which the load is known, those to be stopped first in front.
func (d *scaler) stoppable() []AgentActivity {
	var list []AgentActivity
	for _, m := range d.serving {
		if a := d.activity(m.AgentID); a != nil && !a.Pinned && d.mayStop(m) {
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(a, b AgentActivity) int {
		return cmp.Or(
			cmp.Compare(a.Running, b.Running),
			compareBool(d.Leader != a.AgentID, d.Leader != b.AgentID),
			a.IdleSince.Compare(b.IdleSince),
			strings.Compare(a.AgentID, b.AgentID))
	})
	return list
}

// mayStop reports whether a spawner started the agent, which is then its to stop.
func (d *scaler) mayStop(m *Member) bool {
	_, spawned := m.SpawnedBy()
	return spawned
}

// down stops what is too much, even if it has work: the work is finished first, or moves.
func (d *scaler) down(rule ScalingRule, target int, why string) ScalingDecision {
	excess := d.current - target
	if !slices.ContainsFunc(d.serving, d.mayStop) {
		return ScalingDecision{Rule: rule, Reason: why +
			"; but none of them was started by a spawner, which could stop it"}
	}
	if d.facts == nil {
		return ScalingDecision{Rule: rule, NeedFacts: true, Reason: why +
			"; which ones to stop depends on what they do"}
	}
	candidates := d.stoppable()
	if len(candidates) == 0 {
		return ScalingDecision{Rule: rule, Reason: why +
			"; but work is pinned to those that a spawner could stop, or nobody knows what they do"}
	}
	count := min(excess, len(candidates), MaxScaleStep)
	chosen := make([]string, count)
	for i := range chosen {
		chosen[i] = candidates[i].AgentID
	}
	return ScalingDecision{Change: ScaleDown, Count: count, Agents: chosen, Target: target, Rule: rule, Reason: why}
}

// toRetire are agents of spawners that do nothing any more: lost for a while, or left behind by a stop that was not
// finished.
func (d *scaler) toRetire() (gone []string, why string) {
	if d.Scaling != nil && d.Scaling.Stuck != nil && d.now.Before(d.Scaling.Stuck.NextAt) {
		return nil, ""
	}
	for i := range d.Members {
		m := &d.Members[i]
		if !d.mayStop(m) || d.leaving[m.AgentID] || len(gone) == MaxScaleStep {
			continue
		}
		cordon := d.Cordons.Of(m.AgentID)
		switch {
		case m.Status == AgentOffline && cordon == nil && d.now.Sub(m.StatusSince) >= retireAfter:
		case m.Status == AgentMaintenance && cordon != nil && IsScalingDrain(cordon.Drain) &&
			d.now.Sub(cordon.Since) >= retireAfter:
		default:
			continue
		}
		gone = append(gone, m.AgentID)
	}
	if len(gone) == 0 {
		return nil, ""
	}
	return gone, strings.Join(gone, ", ") + ": lost, or left behind by a stop that was not finished"
}

// scalingDrain begins the names of the drains that scaling makes.
const scalingDrain = "scaling-"

// ScalingDrainName is the name of the drain of an action's agents.
func ScalingDrainName(action int64) string { return fmt.Sprintf("%s%d", scalingDrain, action) }

// IsScalingDrain reports whether a drain, by its id, is one that scaling made.
func IsScalingDrain(id string) bool {
	_, name, _ := strings.Cut(id, ":")
	return strings.HasPrefix(name, scalingDrain)
}
