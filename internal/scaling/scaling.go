// Package scaling decides how many agents of a cluster run, and how agents are replaced when settings of their start
// change. It works on the cluster's state.
package scaling

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// MaxScaleStep bounds the agents that one action starts or stops.
const MaxScaleStep = 50

// DecideScaling decides whether to start or stop agents. facts is nil when only the members are known. The result stays
// between min_agents and max_agents. It stops only agents of spawners: those without work first, the longest idle
// first, and never one to which work is pinned.
func DecideScaling(c *cluster.Cluster, facts *ScalingFacts, now time.Time) cluster.ScalingDecision {
	d := scaler{Cluster: c, facts: facts, now: now, policy: &c.Config.Scaling}
	d.count()
	decision := d.decide()
	decision.At, decision.Current = now, d.current
	if decision.Rule == api.RuleRollout {
		decision.Current += len(d.canaries) + d.canaryStarts
	}
	decision.Change = cmp.Or(decision.Change, api.ScaleNone)
	if decision.Change != api.ScaleUp && decision.Change != api.ScaleDown || decision.Rule == api.RuleRetire ||
		decision.Rule == api.RuleRestart {
		decision.Target = cluster.ScalingTarget(c)
	}
	return decision
}

// scaler is one decision being made.
type scaler struct {
	*cluster.Cluster
	facts   *ScalingFacts
	now     time.Time
	policy  *api.ScalingPolicy
	serving []*cluster.Member // serving members that no action is about to stop
	current int               // serving, being started, and ill
	starts  int               // being started
	ill     int               // unhealthy, and no others take their places yet
	leaving map[string]bool   // being stopped by an action
	// held is the rollout whose canaries are beside all others, and count nowhere else; nil: there is none.
	held         *api.Rollout
	canaries     []*cluster.Member // serving
	canaryStarts int               // being started
}

func (d *scaler) count() {
	d.leaving = map[string]bool{}
	starting := map[string]bool{}
	if d.Scaling != nil {
		for i := range d.Scaling.Active {
			a := &d.Scaling.Active[i]
			for _, agent := range a.Agents {
				switch {
				case !d.now.Before(a.Until):
				case a.Change == api.ScaleDown:
					d.leaving[agent] = true
				case d.Member(agent) == nil:
					starting[agent] = true
				}
			}
		}
	}
	if d.held = heldRollout(d.Cluster); d.held != nil {
		for _, agent := range d.held.Canaries {
			if starting[agent] {
				d.canaryStarts++
			}
		}
	}
	for i := range d.Members {
		m := &d.Members[i]
		switch serves := m.Serving() && !d.leaving[m.AgentID]; {
		case serves && d.isCanary(m):
			d.canaries = append(d.canaries, m)
		case serves:
			d.serving = append(d.serving, m)
		case d.keepsPlace(m):
			d.ill++
		}
	}
	d.starts = len(starting)
	d.current = len(d.serving) + d.starts - d.canaryStarts + d.ill
}

// isCanary reports whether the member has settings that are not promoted.
func (d *scaler) isCanary(m *cluster.Member) bool {
	return d.held != nil && slices.Contains(d.held.Canaries, m.AgentID)
}

// keepsPlace reports whether no agent is started in place of a member that healing took out of service, because it will
// be started again, or others will do its work.
func (d *scaler) keepsPlace(m *cluster.Member) bool {
	if !d.isIll(m) || d.isCanary(m) {
		return false
	}
	switch d.Config.SelfHealing.RecoverBy {
	case api.RecoverByRestart:
		return m.Status != api.AgentOffline || d.leaving[m.AgentID]
	case api.RecoverByReassign:
		return m.Status != api.AgentOffline && !d.leaving[m.AgentID]
	}
	return false
}

// isIll reports whether healing took a spawned member out of service.
func (d *scaler) isIll(m *cluster.Member) bool {
	cordon := d.Cordons.Of(m.AgentID)
	return d.mayStop(m) && cordon != nil && cordon.ByHealing(d.Config.Name)
}

func (d *scaler) decide() cluster.ScalingDecision {
	least, most, target := d.Config.MinAgents, d.Config.MaxAgents, d.goal()
	switch {
	case !d.policy.On():
		return cluster.ScalingDecision{Reason: "scaling is off"}
	case len(d.BrakeHolds) > 0:
		return cluster.ScalingDecision{Blocked: true,
			Reason: "the mass-loss brake is engaged: so many agents vanished at once that the network is the likelier culprit"}
	case d.current < least:
		return d.up(api.RuleMinimum, target, fmt.Sprintf("%s, and min_agents is %d", api.Count(d.current, "agent"),
			least))
	case d.current < target:
		return d.up(api.RuleDesired, target, fmt.Sprintf("%s, and %d are wanted", api.Count(d.current, "agent"),
			target))
	case d.current > most:
		return d.down(api.RuleMaximum, most, fmt.Sprintf("%s, and max_agents is %d", api.Count(d.current, "agent"),
			most))
	case d.current > target && (d.policy.Mode == api.ScalingManual || d.Scaling != nil && d.Scaling.ByHand):
		return d.down(api.RuleDesired, target, fmt.Sprintf("%s, and %d are wanted", api.Count(d.current, "agent"),
			target))
	}
	if decision := d.rollOut(); decision.Rule != "" {
		return decision
	}
	decision := d.byRules()
	if decision.Change != "" || d.Scaling != nil && d.Scaling.Stuck != nil && d.now.Before(d.Scaling.Stuck.NextAt) {
		return decision
	}
	gone, ill := d.toRetire()
	if len(gone) > 0 {
		return cluster.ScalingDecision{Change: api.ScaleDown, Count: len(gone), Agents: gone, Rule: api.RuleRetire,
			Reason: strings.Join(gone, ", ") + ": lost, left behind by a stop that was not finished, or" + tooLong}
	}
	if len(ill) > 0 {
		rule := api.RuleRestart
		if d.Config.SelfHealing.RecoverBy == api.RecoverByReassign {
			rule = api.RuleReassign
		}
		return cluster.ScalingDecision{Change: api.ScaleDown, Count: len(ill), Agents: ill, Rule: rule,
			Target: max(1, least, target-len(ill)), Reason: strings.Join(ill, ", ") + ":" + tooLong}
	}
	return decision
}

// byRules decides by queue, load and idleness.
func (d *scaler) byRules() cluster.ScalingDecision {
	switch {
	case d.policy.Mode == api.ScalingManual:
		return cluster.ScalingDecision{Reason: fmt.Sprintf("%s, as many as are wanted", api.Count(d.current, "agent"))}
	case d.facts == nil:
		return cluster.ScalingDecision{Reason: "enough agents; queue and load were not looked at"}
	}
	if whole, _ := d.Pauses.Lanes(); whole {
		return cluster.ScalingDecision{Reason: "the cluster is paused: what waits says nothing about its agents"}
	}
	up := &d.policy.ScaleUp
	depth, what := d.depth(d.current)
	switch {
	case depth > int64(*up.QueueThreshold):
		return d.grow(api.RuleQueue, fmt.Sprintf("%s, more than %d", what, *up.QueueThreshold))
	case d.needsFirst(depth, d.current):
		return d.grow(api.RuleQueue, what+", and there is no agent")
	}
	if cpu, busy := d.cpu(nil); busy && cpu > up.CPUThreshold {
		return d.grow(api.RuleCPU, fmt.Sprintf("every agent is busy and the machines' cpu is at %.0f %%, more than %.0f %%",
			cpu, up.CPUThreshold))
	}
	return d.shrink(depth, what)
}

// needsFirst reports whether something waits although there would be no agent: then no threshold counts.
func (d *scaler) needsFirst(depth int64, agents int) bool { return agents == 0 && depth > 0 }

// depth is the number that queue thresholds are compared with, for this number of agents.
func (d *scaler) depth(count int) (int64, string) {
	if d.policy.QueueMeasure == api.QueuePerAgent {
		each := int64(max(1, count))
		depth := (d.facts.Queue + each - 1) / each
		return depth, waiting(depth) + " for each agent"
	}
	return d.facts.Queue, waiting(d.facts.Queue)
}

// cpu is the average load of the serving agents' machines as far as it is known, without some agents; busy is false
// when one of the agents is idle or unknown, or no load is known.
func (d *scaler) cpu(without []string) (percent float64, busy bool) {
	n := 0
	for _, m := range d.serving {
		if slices.Contains(without, m.AgentID) {
			continue
		}
		a := d.activity(m.AgentID)
		if a == nil || a.Running == 0 {
			return 0, false
		}
		if a.CPUPercent != nil {
			percent += *a.CPUPercent
			n++
		}
	}
	return percent / float64(max(1, n)), n > 0
}

func (d *scaler) activity(agent string) *AgentActivity {
	if d.facts == nil {
		return nil
	}
	for i := range d.facts.Agents {
		if d.facts.Agents[i].AgentID == agent {
			return &d.facts.Agents[i]
		}
	}
	return nil
}

// grow starts agents by a rule.
func (d *scaler) grow(rule api.ScalingRule, why string) cluster.ScalingDecision {
	if d.Config.ReplicationMode == api.ActivePassive && d.current > 0 {
		return cluster.ScalingDecision{Rule: rule, Blocked: true,
			Reason: why + "; but only the leader takes tasks, and more agents would be standbys"}
	}
	if most := d.Config.MaxAgents; d.current >= most {
		return cluster.ScalingDecision{Rule: rule, Blocked: true,
			Reason: fmt.Sprintf("%s; but the cluster has its max_agents of %d", why, most)}
	}
	if d.Scaling != nil && !d.Scaling.LastUp.IsZero() {
		if ready := d.Scaling.LastUp.Add(d.policy.ScaleUp.Cooldown.Std()); d.now.Before(ready) {
			return cluster.ScalingDecision{Rule: rule, NextAt: ready,
				Reason: why + "; the cooldown of scale_up is not over"}
		}
	}
	return d.up(rule, min(d.current+d.policy.ScaleUp.Increment, d.Config.MaxAgents), why)
}

// up starts the missing agents, unless starting is blocked.
func (d *scaler) up(rule api.ScalingRule, target int, why string) cluster.ScalingDecision {
	if b := d.blocked(); b != nil {
		return cluster.ScalingDecision{Rule: rule, Blocked: true, NextAt: b.NextAt,
			Reason: why + "; blocked: " + b.Reason}
	}
	count := min(target-d.current, MaxScaleStep)
	if room := d.room(); room < count {
		if room <= 0 {
			return cluster.ScalingDecision{Rule: rule, Blocked: true,
				Reason: fmt.Sprintf("%s; but the cluster is full: of its max_agents of %d, some are in maintenance or "+
					"being drained", why, d.Config.MaxAgents)}
		}
		count = room
	}
	return cluster.ScalingDecision{Change: api.ScaleUp, Count: count, Target: target, Rule: rule, Reason: why}
}

// blocked returns why agents cannot be started yet; nil when they can.
func (d *scaler) blocked() *api.ScalingBlocked {
	if d.Scaling != nil && d.Scaling.Blocked != nil && d.now.Before(d.Scaling.Blocked.NextAt) {
		return d.Scaling.Blocked
	}
	return nil
}

// room is how many more members the cluster admits; an offline member gives way to a new one.
func (d *scaler) room() int {
	places := d.Config.MaxAgents - d.starts
	for i := range d.Members {
		if d.Members[i].Status != api.AgentOffline {
			places--
		}
	}
	return places
}

func waiting(n int64) string {
	if n == 0 {
		return "nothing waits"
	}
	return api.Count(n, "task") + api.Plural(n, " waits", " wait")
}

// ScalingLanes returns the lanes that spawned agents could serve. More agents would not help paused lanes, or lanes for
// capabilities or resources that no spawned agent has.
func ScalingLanes(c *cluster.Cluster) []string {
	var lanes []string
	add := func(lane string) {
		if c.Pauses.Of(lane) == nil {
			lanes = append(lanes, lane)
		}
	}
	if c.Config.ReplicationMode == api.Sharded {
		for shard := range c.Config.Shards {
			add(task.ShardLane(shard))
		}
		return lanes
	}
	add(task.DefaultLane)
	have := api.SortedSet(SpawnBy(c, "").Capabilities)
	for _, set := range c.CapabilitySets {
		if api.HasAll(have, set) {
			add(task.CapabilityLane(set))
		}
	}
	for i := range c.Fits {
		if fit := &c.Fits[i]; api.HasAll(have, fit.Capabilities) && spawnsFor(c, fit) {
			add(fit.Lane)
		}
	}
	return lanes
}

// spawnsFor reports whether a spawned agent could serve a lane. While there is none, that is not known, and one is
// tried.
func spawnsFor(c *cluster.Cluster, fit *task.Fit) bool {
	tried := false
	for i := range c.Members {
		m := &c.Members[i]
		if _, spawned := m.SpawnedBy(); !spawned {
			continue
		}
		if tried = true; task.FitsOn(&fit.Place, m.Resources) && (fit.Type == "" || m.Handles(fit.Type)) {
			return true
		}
	}
	return !tried
}

// retireAfter is how long a lost spawned agent may take to come back before it is stopped for good.
const retireAfter = time.Minute

// shrink stops agents that have been idle for long enough.
func (d *scaler) shrink(depth int64, what string) cluster.ScalingDecision {
	down := &d.policy.ScaleDown
	switch {
	case depth >= int64(*down.QueueThreshold):
		return cluster.ScalingDecision{Reason: what + ", neither too many nor few enough"}
	case d.current <= d.Config.MinAgents:
		return cluster.ScalingDecision{Reason: fmt.Sprintf("%s, and %s may not become fewer: min_agents is %d", what,
			api.Count(d.current, "agent"), d.Config.MinAgents)}
	}
	var idle []string
	var next time.Time
	for _, a := range d.stoppable() {
		if a.Running > 0 || a.IdleSince.IsZero() || d.Leader == a.AgentID {
			continue
		}
		if ready := a.IdleSince.Add(down.IdleTimeout.Std()); d.now.Before(ready) {
			next = cluster.Sooner(next, ready)
			continue
		}
		idle = append(idle, a.AgentID)
	}
	if len(idle) == 0 {
		return cluster.ScalingDecision{NextAt: next,
			Reason: what + fmt.Sprintf("; no agent that a spawner started was idle for %s", down.IdleTimeout)}
	}
	count := min(down.Decrement, len(idle), d.current-d.Config.MinAgents, MaxScaleStep)
	for count > 0 && d.tooFew(idle[:count]) {
		count--
	}
	if count == 0 {
		return cluster.ScalingDecision{Reason: what + "; with one agent fewer it would be too much"}
	}
	why := fmt.Sprintf("%s, and %s had nothing to do for %s", what, strings.Join(idle[:count], ", "), down.IdleTimeout)
	if ready := d.lastChange().Add(down.Cooldown.Std()); d.now.Before(ready) {
		return cluster.ScalingDecision{Rule: api.RuleIdle, NextAt: ready, Reason: why + "; the cooldown of scale_down is not over"}
	}
	return cluster.ScalingDecision{Change: api.ScaleDown, Count: count, Agents: idle[:count:count],
		Target: d.current - count,
		Rule:   api.RuleIdle, Reason: why}
}

// tooFew reports whether, without some agents, the rules would start agents at once.
func (d *scaler) tooFew(without []string) bool {
	left := d.current - len(without)
	depth, _ := d.depth(left)
	cpu, busy := d.cpu(without)
	return depth > int64(*d.policy.ScaleUp.QueueThreshold) || d.needsFirst(depth, left) ||
		busy && cpu > d.policy.ScaleUp.CPUThreshold
}

// lastChange is when agents were last started or stopped.
func (d *scaler) lastChange() time.Time {
	if d.Scaling == nil {
		return time.Time{}
	}
	return cluster.Later(d.Scaling.LastUp, d.Scaling.LastDown)
}

// stoppable returns the agents that may be stopped and whose load is known, the first to stop first.
func (d *scaler) stoppable() []AgentActivity {
	var list []AgentActivity
	for _, m := range d.serving {
		if a := d.activity(m.AgentID); a != nil && !a.Pinned && d.mayStop(m) {
			list = append(list, *a)
		}
	}
	var replaced []string // in a rollout with canaries: what it stops is stopped first
	if r := rolling(d.Cluster); d.held != nil {
		replaced = without(d.held.Old, d.held.Stable)
	} else if r != nil && len(r.Canaries) > 0 {
		replaced = r.Old
	}
	slices.SortFunc(list, func(a, b AgentActivity) int {
		return cmp.Or(
			cluster.CompareBool(slices.Contains(replaced, a.AgentID), slices.Contains(replaced, b.AgentID)),
			cmp.Compare(a.Running, b.Running),
			cluster.CompareBool(d.Leader != a.AgentID, d.Leader != b.AgentID),
			a.IdleSince.Compare(b.IdleSince),
			strings.Compare(a.AgentID, b.AgentID))
	})
	return list
}

// mayStop reports whether a spawner started the agent.
func (d *scaler) mayStop(m *cluster.Member) bool {
	_, spawned := m.SpawnedBy()
	return spawned
}

// down stops the surplus, even agents with work: their work is finished first, or moves.
func (d *scaler) down(rule api.ScalingRule, target int, why string) cluster.ScalingDecision {
	excess := d.current - target
	if !slices.ContainsFunc(d.serving, d.mayStop) {
		return cluster.ScalingDecision{Rule: rule, Reason: why +
			"; but none of them was started by a spawner, which could stop it"}
	}
	if d.facts == nil {
		return cluster.ScalingDecision{Rule: rule, NeedFacts: true, Reason: why +
			"; which ones to stop depends on what they do"}
	}
	candidates := d.stoppable()
	if len(candidates) == 0 {
		return cluster.ScalingDecision{Rule: rule, Reason: why +
			"; but work is pinned to those that a spawner could stop, or nobody knows what they do"}
	}
	count := min(excess, len(candidates), MaxScaleStep)
	chosen := make([]string, count)
	for i := range chosen {
		chosen[i] = candidates[i].AgentID
	}
	return cluster.ScalingDecision{Change: api.ScaleDown, Count: count, Agents: chosen, Target: target, Rule: rule,
		Reason: why}
}

// tooLong is why unhealthy agents are stopped or started anew.
const tooLong = " unhealthy for too long after healing took them out of service"

// toRetire returns spawned agents that are lost for a while, left behind by an unfinished stop, or still unhealthy long
// after healing took them out of service: others serve in their place already. ill are the unhealthy ones that are to
// be started anew, or whose work others are to do.
func (d *scaler) toRetire() (gone, ill []string) {
	for i := range d.Members {
		m := &d.Members[i]
		if !d.mayStop(m) || d.leaving[m.AgentID] || max(len(gone), len(ill)) == MaxScaleStep {
			continue
		}
		cordon, policy := d.Cordons.Of(m.AgentID), d.Config.SelfHealing.WithDefaults()
		switch {
		case m.Status == api.AgentOffline && (cordon == nil || policy.RecoverBy != api.RecoverByReplace &&
			d.isIll(m)) &&
			d.now.Sub(m.StatusSince) >= retireAfter:
		case m.Status == api.AgentMaintenance && cordon != nil && IsScalingDrain(cordon.Drain) &&
			d.now.Sub(cordon.Since) >= retireAfter:
		case d.facts != nil && m.Status == api.AgentMaintenance && d.isIll(m) && !m.Health.Fit():
			since := cordon.Since
			if d.Scaling != nil {
				since = cluster.Later(since, d.Scaling.Restarted[m.AgentID])
			}
			if d.now.Sub(since) < policy.ReplaceAfter.Std() {
				continue
			}
			if by := policy.RecoverBy; !d.isCanary(m) &&
				(by == api.RecoverByReassign || by == api.RecoverByRestart && since.Equal(cordon.Since)) {
				ill = append(ill, m.AgentID)
				continue
			}
		default:
			continue
		}
		gone = append(gone, m.AgentID)
	}
	return gone, ill
}

// scalingDrain begins the names of the drains that scaling makes.
const scalingDrain = "scaling-"

// ScalingDrainName is the name of the drain of an action's agents.
func ScalingDrainName(action int64) string { return fmt.Sprintf("%s%d", scalingDrain, action) }

// NoticeDrainName is the name of the drain that a spawner starts when its platform is about to end an agent. Scaling
// takes an agent with such a drain for one that it stops itself: it replaces the agent, and retires it (toRetire). The
// id is hashed because scalingDrain before an id could be too long for a name.
func NoticeDrainName(agentID string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(agentID))
	return fmt.Sprintf("%snotice-%016x", scalingDrain, h.Sum64())
}

// IsScalingDrain reports whether scaling made the drain with this id.
func IsScalingDrain(id string) bool {
	_, name, _ := strings.Cut(id, ":")
	return strings.HasPrefix(name, scalingDrain)
}

// SettleScaling sets the status of an action by its agents'.
func SettleScaling(r *api.ScalingRecord) {
	good, why := 0, ""
	for i := range r.Agents {
		switch a := &r.Agents[i]; a.Status {
		case api.ScaledOnline, api.ScaledStopped:
			good++
		default:
			why = cmp.Or(why, a.AgentID+": "+a.Error)
		}
	}
	switch {
	case good == len(r.Agents):
		r.Status = api.ScalingSucceeded
	case good > 0:
		r.Status = api.ScalingPartial
	default:
		r.Status = api.ScalingFailed
	}
	r.Error = cmp.Or(r.Error, why)
}
