package scaling

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// endRollout ends the newest rollout.
func endRollout(c *cluster.Cluster, status api.RolloutStatus, event api.EventType, reason string, now time.Time) {
	r := c.Scaling.Rollout
	r.Status, r.EndedAt = status, now
	r.Reason = cmp.Or(reason, r.Reason)
	publishRollout(c, event, reason, now)
}

// publishRollout has Changes return an event about the newest rollout.
func publishRollout(c *cluster.Cluster, event api.EventType, reason string, now time.Time) {
	c.Scaling.Events = append(c.Scaling.Events, cluster.Event{Type: event, Time: now.UTC(), EventData: api.EventData{
		Cluster: c.Config.Name, ID: fmt.Sprintf("%s:%d", c.Config.Name, c.Scaling.Rollout.Number), Reason: reason}})
}

// startsAlike reports whether agents started with either settings are the same.
func startsAlike(a, b api.SpawnPolicy) bool {
	for _, s := range []*api.SpawnPolicy{&a, &b} {
		s.JoinTimeout, s.DrainTimeout, s.Backoff = 0, 0, api.SpawnBackoff{}
	}
	//workflowcheck:ignore
	x, errX := json.Marshal(a) // maps are written in the order of their keys
	//workflowcheck:ignore
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// RollOut begins a rollout if agents were started with other settings than those now in force.
func RollOut(c *cluster.Cluster, before api.SpawnPolicy, now time.Time) {
	p := &c.Config.Scaling
	if p.Rollout == nil || !p.On() || startsAlike(before, p.Spawn) {
		return
	}
	beginRollout(c, before, "", now)
}

// beginRollout begins a rollout to the settings in force. With why it reverts the newest one.
func beginRollout(c *cluster.Cluster, before api.SpawnPolicy, why string, now time.Time) {
	s := scalingOf(c)
	spawned := spawnedOf(c)
	next := api.Rollout{Number: 1, Status: api.RolloutRunning, Reason: why, Former: before, Stable: spawned,
		Old:       spawned,
		StartedAt: now, ProgressAt: now}
	if last := s.Rollout; last != nil {
		next.Number = last.Number + 1
		if RollsOut(c) {
			endRollout(c, api.RolloutCancelled, api.EventRolloutCancelled, cmp.Or(why,
				"other settings take its place"), now)
		}
		next.Revert = (last.Status != api.RolloutSuccessful || why != "") &&
			startsAlike(last.Former, c.Config.Scaling.Spawn)
		if last.Status != api.RolloutSuccessful && len(last.Stable) > 0 { // the last settings that were known to do
			next.Former, next.Stable = last.Former, last.Stable
		}
		if next.Revert {
			next.Old, next.Canaries = without(spawned, last.Stable), last.Canaries
		}
	}
	if !next.Revert && len(spawned) > 0 {
		next.Canary = c.Config.Scaling.Rollout.Canary
	}
	next.Left = len(next.Old)
	s.Rollout, s.Blocked = &next, nil
	event := api.EventRolloutStarted
	if next.Revert {
		event = api.EventRolloutReverted
	}
	publishRollout(c, event, why, now)
}

// revert puts the settings before the newest rollout in force again.
func revert(c *cluster.Cluster, why string, now time.Time) {
	before := c.Config.Scaling.Spawn
	c.Config.Scaling.Spawn = c.Scaling.Rollout.Former
	beginRollout(c, before, why, now)
}

// MayRevertRollout is why a person cannot revert the newest rollout now; empty: that is possible.
func MayRevertRollout(c *cluster.Cluster) string {
	switch p := &c.Config.Scaling; {
	case p.Rollout == nil || !p.On():
		return "the cluster's settings ask for no rollouts"
	case c.Scaling == nil || c.Scaling.Rollout == nil:
		return "the cluster had no rollout"
	case c.Scaling.Rollout.Revert:
		return "the newest rollout is a revert itself: change the settings instead"
	}
	return ""
}

// RevertRollout puts the settings before the newest rollout in force again, by a person's decision. MayRevertRollout
// must have allowed it.
func RevertRollout(c *cluster.Cluster, by, reason string, now time.Time) {
	revert(c, decided("reverted", by, reason), now)
}

// MayPromoteRollout is why a person cannot promote the canaries now; empty: that is possible.
func MayPromoteRollout(c *cluster.Cluster) string {
	switch r := rolling(c); {
	case r == nil:
		return "no rollout of the cluster is under way"
	case heldRollout(c) == nil:
		return "the rollout has no canaries, or was promoted already"
	case r.Status != api.RolloutWaiting:
		return "the canaries are not healthy yet: promote them when the rollout is waiting"
	}
	return ""
}

// PromoteRollout has the other agents follow the canaries, by a person's decision. MayPromoteRollout must have allowed
// it.
func PromoteRollout(c *cluster.Cluster, by, reason string, now time.Time) {
	promote(c, decided("promoted", by, reason), now)
}

func promote(c *cluster.Cluster, why string, now time.Time) {
	r := c.Scaling.Rollout
	r.Old = without(spawnedOf(c), r.Canaries)
	r.Status, r.Left, r.Blocked, r.PromotedAt, r.ProgressAt = api.RolloutRunning, len(r.Old), nil, now, now
	r.Reason = why
	publishRollout(c, api.EventRolloutPromoted, why, now)
}

// decided says who decided what, and why.
func decided(what, by, reason string) string {
	return strings.TrimSuffix(what+" by "+cmp.Or(by, "a person")+": "+reason, ": ")
}

// heldRollout is the rollout whose canaries alone may have the new settings, also after it has failed; nil: there is
// none.
func heldRollout(c *cluster.Cluster) *api.Rollout {
	if c.Scaling == nil || c.Config.Scaling.Rollout == nil {
		return nil
	}
	if r := c.Scaling.Rollout; r != nil && r.Canary > 0 && r.PromotedAt.IsZero() && r.Status != api.RolloutCancelled {
		return r
	}
	return nil
}

// SpawnBy are the settings of an action by a rule. While canaries are not promoted, other agents have the former ones.
func SpawnBy(c *cluster.Cluster, rule api.ScalingRule) *api.SpawnPolicy {
	if r := heldRollout(c); r != nil && rule != api.RuleRollout {
		return &r.Former
	}
	return &c.Config.Scaling.Spawn
}

// recordStarts records which agents are started with which settings while canaries are not promoted.
func recordStarts(c *cluster.Cluster, agents []string, rule api.ScalingRule) {
	r := heldRollout(c)
	if r == nil {
		return
	}
	list := &r.Stable
	if rule == api.RuleRollout {
		list = &r.Canaries
	}
	spawned := spawnedOf(c)
	*list = append(slices.DeleteFunc(slices.Clone(*list),
		func(agent string) bool { return !slices.Contains(spawned, agent) }), agents...)
}

func without(agents, others []string) []string {
	return slices.DeleteFunc(slices.Clone(agents), func(a string) bool { return slices.Contains(others, a) })
}

// spawnedOf are the agents that spawners have started, or are about to.
func spawnedOf(c *cluster.Cluster) []string {
	var list []string
	for i := range c.Members {
		if _, spawned := c.Members[i].SpawnedBy(); spawned {
			list = append(list, c.Members[i].AgentID)
		}
	}
	for _, a := range c.Scaling.Active {
		if a.Change == api.ScaleUp {
			list = append(list, a.Agents...)
		}
	}
	return api.SortedSet(list)
}

// rolling is the rollout under way, or nil.
func rolling(c *cluster.Cluster) *api.Rollout {
	if c.Scaling == nil || c.Scaling.Rollout == nil {
		return nil
	}
	if r := c.Scaling.Rollout; r.Status == api.RolloutRunning || r.Status == api.RolloutWaiting {
		return r
	}
	return nil
}

// RollsOut reports whether a rollout is under way.
func RollsOut(c *cluster.Cluster) bool { return rolling(c) != nil }

// AdvanceRollout promotes healthy canaries, and ends a rollout that is done or late. It reports whether agents may have
// to be stopped now, or the former settings are in force again.
func AdvanceRollout(c *cluster.Cluster, now time.Time) (changed bool) {
	r, p := rolling(c), &c.Config.Scaling
	switch {
	case r == nil:
		return false
	case p.Rollout == nil || !p.On():
		endRollout(c, api.RolloutCancelled, api.EventRolloutCancelled, "the cluster's settings ask for no rollouts any more", now)
		return false
	case len(c.BrakeHolds) > 0:
		r.ProgressAt = now // nothing is started or stopped meanwhile
		return false
	}
	d := scaler{Cluster: c, now: now, policy: p}
	d.count()
	held := d.held != nil
	if held {
		r.Old = without(spawnedOf(c), r.Canaries)
	}
	left := len(d.outdated(r))
	healthy, _ := d.healthy(r)
	done := healthy >= r.Canary
	r.Healthy = healthy
	if !held {
		done = left == 0 && healthy >= d.goal()
		r.Healthy -= left
	}
	if left < r.Left && !held || r.Healthy > r.Best {
		r.ProgressAt = now
	}
	r.Left, r.Best = left, max(r.Best, r.Healthy)
	switch {
	case done && !held:
		endRollout(c, api.RolloutSuccessful, api.EventRolloutSucceeded, "", now)
		r.Old, r.Stable, r.Canaries = nil, nil, nil
		return false
	case done && p.Rollout.AutoPromote:
		promote(c, decided("promoted", "auto_promote", ""), now)
		return true
	case done:
		if r.Status != api.RolloutWaiting {
			r.Status = api.RolloutWaiting
			publishRollout(c, api.EventRolloutWaiting, "", now)
		}
		return false
	case r.Status == api.RolloutWaiting:
		r.Status, r.ProgressAt = api.RolloutRunning, now
	}
	if now.Before(r.ProgressAt.Add(p.Rollout.Deadline.Std())) {
		return false
	}
	why := fmt.Sprintf("it did not get on for %s: %s of the former settings left, and %d of the others healthy",
		p.Rollout.Deadline, api.Count(left, "agent"), r.Healthy)
	blocked := c.Scaling.Blocked
	if held {
		why = fmt.Sprintf("it did not get on for %s: %d of %d %s healthy", p.Rollout.Deadline, r.Healthy, r.Canary,
			api.Plural(r.Canary, "canary", "canaries"))
		if blocked = r.Blocked; blocked == nil && len(d.canaries) < r.Canary && d.room() <= 0 {
			why += fmt.Sprintf("; max_agents of %d leaves no room for them", c.Config.MaxAgents)
		}
	}
	if blocked != nil {
		why += "; " + blocked.Reason
	}
	endRollout(c, api.RolloutFailed, api.EventRolloutFailed, why, now)
	if !p.Rollout.AutoRevert || r.Revert {
		return held
	}
	revert(c, fmt.Sprintf("rollout %d failed: %s", r.Number, why), now)
	return true
}

// NextRollout is when the rollout under way continues or fails if no news comes; zero: never.
func NextRollout(c *cluster.Cluster, now time.Time) time.Time {
	r, p := rolling(c), &c.Config.Scaling
	if r == nil || p.Rollout == nil || len(c.BrakeHolds) > 0 {
		return time.Time{}
	}
	d := scaler{Cluster: c, now: now, policy: p}
	d.count()
	_, next := d.healthy(r)
	if r.Blocked != nil && now.Before(r.Blocked.NextAt) {
		next = cluster.Sooner(next, r.Blocked.NextAt)
	}
	if r.Status == api.RolloutWaiting {
		return next
	}
	return cluster.Sooner(next, r.ProgressAt.Add(p.Rollout.Deadline.Std()))
}

// goal is how many agents are wanted.
func (d *scaler) goal() int {
	return min(max(cluster.ScalingTarget(d.Cluster), d.Config.MinAgents), d.Config.MaxAgents)
}

func (d *scaler) outdated(r *api.Rollout) []string {
	var old []string
	for _, m := range d.serving {
		if slices.Contains(r.Old, m.AgentID) {
			old = append(old, m.AgentID)
		}
	}
	return old
}

// healthy counts the serving agents that are not new or have been online for long enough; next is when the next new one
// will be. While canaries are not promoted, it counts these alone.
func (d *scaler) healthy(r *api.Rollout) (count int, next time.Time) {
	members := d.serving
	if d.held != nil {
		members = d.canaries
	}
	for _, m := range members {
		at := m.StatusSince.Add(d.policy.Rollout.HealthyTime.Std())
		if slices.Contains(r.Old, m.AgentID) || !d.mayStop(m) || !d.now.Before(at) {
			count++
		} else {
			next = cluster.Sooner(next, at)
		}
	}
	return count, next
}

// rollOut stops old agents, as many as may be missing; the cluster then starts new ones in their place.
func (d *scaler) rollOut() cluster.ScalingDecision {
	if d.held != nil {
		return d.keepCanaries(d.held)
	}
	r := rolling(d.Cluster)
	if r == nil || d.policy.Rollout == nil {
		return cluster.ScalingDecision{}
	}
	old, most := d.outdated(r), d.policy.Rollout.MaxUnavailable
	healthy, _ := d.healthy(r)
	return d.stopFor(fmt.Sprintf("rollout %d replaces agents that were started with other settings", r.Number), old,
		min(len(old), most, healthy-(d.goal()-most)))
}

// keepCanaries starts canaries beside the other agents, and stops them when the rollout has failed.
func (d *scaler) keepCanaries(r *api.Rollout) cluster.ScalingDecision {
	if r.Status == api.RolloutFailed {
		canaries := *d
		canaries.serving = d.canaries
		return canaries.stopFor(fmt.Sprintf("rollout %d has failed, and its canaries are stopped", r.Number),
			r.Canaries, len(d.canaries))
	}
	count := min(r.Canary-len(d.canaries)-d.canaryStarts, d.room(), MaxScaleStep)
	if count <= 0 || r.Blocked != nil && d.now.Before(r.Blocked.NextAt) {
		return cluster.ScalingDecision{}
	}
	return cluster.ScalingDecision{Change: api.ScaleUp, Count: count, Target: cluster.ScalingTarget(d.Cluster),
		Rule:   api.RuleRollout,
		Reason: fmt.Sprintf("rollout %d tries other settings with %s first", r.Number, api.Count(r.Canary, "agent"))}
}

// stopFor stops some of the agents for a rollout.
func (d *scaler) stopFor(why string, old []string, count int) cluster.ScalingDecision {
	if count <= 0 {
		return cluster.ScalingDecision{}
	}
	if d.facts == nil {
		return cluster.ScalingDecision{Rule: api.RuleRollout, NeedFacts: true, Reason: why + "; which ones first depends on what they do"}
	}
	var agents []string
	for _, a := range d.stoppable() {
		if slices.Contains(old, a.AgentID) && len(agents) < count {
			agents = append(agents, a.AgentID)
		}
	}
	if len(agents) == 0 {
		return cluster.ScalingDecision{}
	}
	return cluster.ScalingDecision{Change: api.ScaleDown, Count: len(agents), Agents: agents,
		Target: cluster.ScalingTarget(d.Cluster),
		Rule:   api.RuleRollout, Reason: why + ": " + strings.Join(agents, ", ")}
}
