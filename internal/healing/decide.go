// Package healing decides what is done about agents that are ill and work that is stuck.
package healing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

const (
	// healingMemory is how far back earlier actions count.
	healingMemory = 24 * time.Hour
	// healingLongest bounds the wait between two equal actions.
	healingLongest = 6 * time.Hour
	// skipAgain is the least time between two records of the same skipped decision; it doubles too.
	skipAgain = time.Hour
	// orphansPerCycle bounds the attempts that one cycle ends; the next cycle or the backstop ends the others.
	orphansPerCycle = 20
	// mostRecords bounds the decisions of one cluster that get a record in one cycle.
	mostRecords = 100
	// mostListed is the number of decisions above which a cycle's record leaves out the waiting ones.
	mostListed = 1000
)

// DecideHealing returns the decisions for one cluster, the most urgent first. It never touches an agent that an
// operator keeps out of service, a suspect agent, or any agent while the mass-loss brake is engaged. It never takes the
// last healthy agent, nor more than half of the agents. It repeats an action on a target only after a growing wait.
func DecideHealing(c *HealingCase, now time.Time) []api.HealingDecision {
	if c.Policy.Mode == api.HealingOff {
		return nil
	}
	h := newHealer(c, now)
	for i := range c.Agents {
		h.agent(&c.Agents[i])
	}
	for _, o := range c.Orphans {
		orphan := o
		h.add(api.HealReassign, o.TaskID, fmt.Sprintf("attempt %d counts as running, and no agent has it", o.Attempt),
			api.HealingFacts{Orphan: &orphan, Since: o.Since})
	}
	if c.Serving < c.Wanted {
		action, why := api.HealRebalance, fmt.Sprintf("the cluster has %d of %d agents", c.Serving, c.Wanted)
		if c.Alone {
			action, why = api.HealReport, why+", and nobody starts agents here: start them, or turn scaling on"
		}
		h.add(action, c.Cluster, why, api.HealingFacts{Since: c.ShortSince, Wanted: c.Wanted, Scaled: c.Scaled})
	}
	for _, s := range c.Stuck {
		h.add(api.HealReport, s.What, s.Reason, api.HealingFacts{Since: s.Since})
	}
	slices.SortStableFunc(h.found, func(a, b api.HealingDecision) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), healthRank(b)-healthRank(a),
			strings.Compare(a.TargetID, b.TargetID))
	})
	for i := range h.found {
		h.judge(&h.found[i])
	}
	return h.found
}

func healthRank(d api.HealingDecision) int { return d.Facts.Level.Rank() }

// Recorded counts the decisions that get a record of their own: all but those that wait.
func Recorded(decisions []api.HealingDecision) (n int) {
	for i := range decisions {
		if decisions[i].Verdict != api.HealWait {
			n++
		}
	}
	return n
}

// BoundHealing keeps at most min(most, mostRecords) of a cluster's decisions; the rest wait. Actions go before skips,
// and the most urgent first.
func BoundHealing(decisions []api.HealingDecision, most int) []api.HealingDecision {
	decisions, most = slices.Clone(decisions), max(0, min(most, mostRecords))
	n := 0
	for _, skipped := range []bool{false, true} {
		for i := range decisions {
			d := &decisions[i]
			if d.Verdict == api.HealWait || (d.Verdict == api.HealSkip) != skipped {
				continue
			}
			if n++; n > most {
				d.Verdict, d.Why = api.HealWait, api.Reasons(d.Why,
					fmt.Sprintf("%d decisions are enough for one cycle", most))
			}
		}
	}
	return decisions
}

// AddToCycle adds a cluster's decisions to the record.
func AddToCycle(r *api.HealingCycleRecord, decisions []api.HealingDecision) {
	for i := range decisions {
		if decisions[i].Verdict == api.HealWait && len(r.Decisions) >= mostListed {
			r.LeftOut++
			continue
		}
		r.Decisions = append(r.Decisions, decisions[i])
	}
}

// healer is one decision being made.
type healer struct {
	*HealingCase
	agents  map[string]*HealingAgent
	past    map[string][]*HealingPast // by target
	now     time.Time
	found   []api.HealingDecision
	able    int // agents that get work and are fit for more
	serving int // agents that get work, after the decisions so far
	acted   int // actions decided so far, orphans left out
	orphans int
}

func newHealer(c *HealingCase, now time.Time) *healer {
	h := &healer{HealingCase: c, now: now, serving: c.Serving, able: c.Serving - c.Unable,
		agents: map[string]*HealingAgent{}, past: map[string][]*HealingPast{}}
	for i := range c.Agents {
		a := &c.Agents[i]
		if h.agents[a.AgentID] = a; a.unable() {
			h.able--
		}
	}
	for i := range c.Past {
		h.past[c.Past[i].TargetID] = append(h.past[c.Past[i].TargetID], &c.Past[i])
	}
	return h
}

// unable reports whether the agent gets work and is not fit for more.
func (a *HealingAgent) unable() bool {
	return a.Status == api.AgentOnline && a.Health.Level.WorseThan(api.HealthWarning)
}

// Keep cuts each of the case's lists to the given number of entries, of its agents the ones with the worst health, and
// each note about an agent to the given number of bytes.
func (c *HealingCase) Keep(entries, note int) {
	slices.SortStableFunc(c.Agents, func(a, b HealingAgent) int {
		return b.Health.Level.Rank() - a.Health.Level.Rank()
	})
	for i := range c.Agents {
		a := &c.Agents[i]
		if a.Health.Why = api.Shorten(a.Health.Why, note); i >= entries && a.unable() {
			c.Unable++
		}
	}
	c.PastFull = c.PastFull || len(c.Past) > entries
	c.Agents, c.Suspects = c.Agents[:min(len(c.Agents), entries)], c.Suspects[:min(len(c.Suspects), entries)]
	c.Stuck, c.Past = c.Stuck[:min(len(c.Stuck), entries)], c.Past[:min(len(c.Past), entries)]
}

// agent finds the action for an agent's level of health.
func (h *healer) agent(a *HealingAgent) {
	facts := api.HealingFacts{Status: a.Status, Level: a.Health.Level, Detail: a.Health.Why, Since: a.Health.Since,
		Epoch: a.Epoch, Running: a.Running}
	if a.Health.Level != api.HealthHealthy {
		facts.Score = new(a.Health.Score)
	}
	why := a.Health.Why
	if why != "" {
		why = ": " + why
	}
	switch {
	case a.OutBy == outByHealing && a.Health.Fit():
		facts.Since = cluster.Later(a.Since, a.Health.Since)
		h.add(api.HealRestore, a.AgentID, "it was taken out of service by healing and is healthy again", facts)
	case a.OutBy == outByHealing, a.Health.Fit():
	case a.Health.Level == api.HealthDegraded:
		h.add(api.HealDrain, a.AgentID, "the agent is degraded"+why, facts)
	case a.Health.Level == api.HealthWarning && a.Reduced:
	case a.Health.Level == api.HealthWarning && a.Slots <= 1:
		h.add(api.HealDrain, a.AgentID, "the agent shows warnings and has one slot, so its load cannot be reduced"+why,
			facts)
	case a.Health.Level == api.HealthWarning:
		h.add(api.HealReduce, a.AgentID, "the agent shows warnings"+why, facts)
	default:
		h.add(api.HealFailover, a.AgentID, "the agent's health is "+string(a.Health.Level)+why, facts)
	}
}

func (h *healer) add(t api.HealingType, target, reason string, facts api.HealingFacts) {
	facts.Serving, facts.Healthy = h.Serving, h.Healthy
	h.found = append(h.found, api.HealingDecision{Type: t, Cluster: h.Cluster, TargetID: target,
		Priority: priorities[t],
		Reason:   reason, Facts: facts})
}

// judge sets the verdict of a decision.
func (h *healer) judge(d *api.HealingDecision) {
	if d.Verdict, d.Why = h.verdict(d); d.Verdict == api.HealWait {
		return
	}
	if d.Verdict == api.HealAct && d.Type != api.HealReport && h.Policy.Mode == api.HealingDryRun {
		d.Verdict = api.HealPlan
	}
	times, until := h.damped(d)
	if d.Facts.Times = times; h.now.Before(until) {
		done := "done"
		if d.Verdict != api.HealAct || d.Type == api.HealReport {
			done = "recorded"
		}
		often := api.Plural(times, "once", fmt.Sprintf("%d times", times))
		// Keep the reason against the action too.
		d.Why = api.Reasons(d.Why, fmt.Sprintf("%s %s within a day; next in %s at the earliest", done, often,
			until.Sub(h.now).Round(time.Minute)))
		d.Verdict = api.HealWait
		return
	}
	if h.PastFull && (d.Verdict == api.HealSkip || d.Verdict == api.HealPlan) {
		d.Verdict, d.Why = api.HealWait, api.Reasons(d.Why, "the cluster has enough records of the last day")
		return
	}
	switch {
	case d.Verdict == api.HealSkip, d.Type == api.HealReport:
	case d.Type == api.HealReassign && h.orphans >= orphansPerCycle:
		d.Verdict, d.Why = api.HealWait, fmt.Sprintf("%d tasks are enough for one cycle", orphansPerCycle)
	case d.Type == api.HealReassign:
		h.orphans++
	case h.acted >= h.Policy.MaxActions:
		d.Verdict, d.Why = api.HealWait, fmt.Sprintf("max_actions: %d are enough for one cycle", h.Policy.MaxActions)
	default:
		h.acted++
		if takesAway(d.Type) {
			h.serving--
		}
	}
}

// takesAway reports whether the action takes an agent out of service.
func takesAway(action api.HealingType) bool {
	return action == api.HealFailover || action == api.HealDrain
}

// verdict decides whether to act, apart from how often healing did the same.
func (h *healer) verdict(d *api.HealingDecision) (api.HealingVerdict, string) {
	if d.Type == api.HealReport && d.Facts.Wanted == 0 { // but missing agents may come back, as for other actions
		return api.HealAct, ""
	}
	for _, p := range h.past[d.TargetID] {
		if p.Running && p.Verdict == api.HealAct {
			return api.HealWait, "an action on it is under way: " + string(p.Type)
		}
	}
	onAgent := takesAway(d.Type) || d.Type == api.HealReduce || d.Type == api.HealRestore
	if a := h.agents[d.TargetID]; onAgent && a != nil {
		if why := leftAlone(a.OutBy, a.Status); why != "" {
			return api.HealWait, why
		}
	}
	if h.Braked && d.Type != api.HealReassign {
		return api.HealSkip, brakedWhy
	}
	if wait := h.patience(d) - h.now.Sub(d.Facts.Since); wait > 0 && d.Type != api.HealReassign {
		return api.HealWait, fmt.Sprintf("only since %s; it is given %s", d.Facts.Since.UTC().Format(time.RFC3339),
			h.patience(d))
	}
	if why := h.needed(d.Type, h.agents[d.TargetID]); why != "" {
		return api.HealSkip, why
	}
	return api.HealAct, ""
}

// needed returns why the cluster needs the agent that an action takes away; empty: it does not, or the action takes
// none.
func (h *healer) needed(action api.HealingType, a *HealingAgent) string {
	half := (h.Members + 1) / 2
	switch rest := h.serving - 1; {
	case !takesAway(action):
	case action == api.HealFailover && h.able == 0:
		return "no other agent is fit to take over"
	case action == api.HealDrain && h.Healthy == 0:
		return "no healthy agent would be left to do its work: every agent of the cluster is unhealthy"
	case a != nil && a.Alone != "":
		return "no better agent in service can run the tasks that need " + a.Alone
	case rest < 1:
		return "it is the last agent that serves the cluster"
	case action == api.HealDrain && rest < h.Minimum:
		return fmt.Sprintf("%d agents would be left, and min_agents is %d", rest, h.Minimum)
	case rest < half:
		return fmt.Sprintf("%d of %d agents would be left: when so many are unhealthy, the cause is likelier elsewhere",
			rest, h.Members)
	}
	return ""
}

// patience is how long the problem must have lasted.
func (h *healer) patience(d *api.HealingDecision) time.Duration {
	if d.Type != api.HealRestore {
		return h.Policy.Patience.Std()
	}
	times := 0
	for _, p := range h.past[d.TargetID] {
		if p.Verdict == api.HealAct && (p.Type == api.HealDrain || p.Type == api.HealFailover) && h.recent(p) {
			times++
		}
	}
	return grown(h.Policy.RestoreAfter.Std(), times-1)
}

// damped counts earlier actions of the same kind, and returns until when not to repeat them.
func (h *healer) damped(d *api.HealingDecision) (times int, until time.Time) {
	var last time.Time
	for _, p := range h.past[d.TargetID] {
		if p.Type == d.Type && p.Verdict == d.Verdict && h.recent(p) {
			times++
			last = cluster.Later(last, p.At)
		}
	}
	first := h.Policy.Damping.Std()
	switch {
	case times == 0:
		return 0, time.Time{}
	case d.Verdict != api.HealAct || d.Type == api.HealReport:
		first = skipAgain
	case d.Type == api.HealRestore:
		first = 0 // its patience grows instead
	}
	return times, last.Add(grown(first, times-1))
}

func (h *healer) recent(p *HealingPast) bool { return h.now.Sub(p.At) < healingMemory }

// grown doubles a wait several times, up to healingLongest, or the wait itself if that is longer.
func grown(wait time.Duration, times int) time.Duration {
	return task.Doubled(wait, times, max(wait, healingLongest))
}

const (
	outByHealing  = "healing"
	outByOperator = "operator"
)

// ExamineForHealing reduces a cluster's facts to those that a healing decision needs. It reports whether anything is
// wrong, or out of service because of healing; otherwise there is nothing to decide.
func ExamineForHealing(f *ClusterFacts, now time.Time) (HealingCase, bool) {
	policy := f.Config.SelfHealing.WithDefaults()
	c := HealingCase{
		Cluster: f.Config.Name,
		Policy:  policy,
		Minimum: f.Config.MinAgents,
		Wanted:  f.Wanted(),
		Scaled:  f.Config.Scaling.On(),
		Alone:   !f.Config.Scaling.On() && len(f.Shards) == 0 && len(f.Targets) == 0,
		Braked:  len(f.BrakeHolds) > 0, Hubs: f.Hubs(),
	}
	if upset := f.LastUpset(); now.Sub(upset) < api.AttemptBackstop+policy.CycleInterval.Std() {
		c.LastUpset = upset // the backstop has ended what was left behind before that
	}
	for i := range f.Members {
		m := &f.Members[i]
		agent := HealingAgent{AgentID: m.AgentID, Status: m.Status, Since: m.StatusSince, Epoch: m.Epoch,
			Slots:  m.MaxTasks,
			Health: cluster.MemberHealth{Level: api.HealthHealthy}, Running: f.Live[m.AgentID].Running,
			Reduced: f.Reductions.Of(
				m.AgentID) != nil, OutBy: outBy(&f.Cluster, m.AgentID)}
		if m.Health != nil {
			agent.Health = *m.Health
		}
		if m.Connected() && agent.OutBy != outByOperator {
			c.Members++
		}
		if m.Status == api.AgentOnline {
			c.Serving++
			if agent.Health.Fit() {
				c.Healthy++
			}
		} else if !m.Connected() {
			c.ShortSince = cluster.Later(c.ShortSince, m.StatusSince)
		}
		if m.Connected() && (!agent.Health.Fit() || agent.OutBy == outByHealing) {
			c.Agents = append(c.Agents, agent)
		}
	}
	c.findAlone(&f.Cluster)
	for i := range f.Departures {
		c.ShortSince = cluster.Later(c.ShortSince, f.Departures[i].At)
	}
	c.ShortSince = cluster.Later(c.ShortSince, f.CreatedAt)
	return c, len(c.Agents) > 0 || c.Serving < c.Wanted || !c.LastUpset.IsZero()
}

// findAlone names for each ill agent what recent tasks needed that no healthy agent has; for a critical or failed one,
// that no degraded one has either.
func (c *HealingCase) findAlone(of *cluster.Cluster) {
	if len(c.Agents) == 0 {
		return
	}
	needs := make([]api.LaneNeeds, 0, len(of.Fits)+len(of.CapabilitySets))
	for i := range of.Fits {
		needs = append(needs, of.Fits[i].LaneNeeds)
	}
	for _, set := range of.CapabilitySets {
		needs = append(needs, api.LaneNeeds{Capabilities: set})
	}
	for i := range needs {
		ill, able, fit := map[string]bool{}, false, false
		for j := range of.Members {
			m := &of.Members[j]
			if fit || m.Status != api.AgentOnline || !task.MeetsNeeds(&needs[i], &m.AgentProfile) {
				continue
			}
			ill[m.AgentID], fit = true, m.Health.Fit()
			able = able || fit || !m.Health.Level.WorseThan(api.HealthWarning)
		}
		for j := range c.Agents {
			if a := &c.Agents[j]; ill[a.AgentID] && !fit && (!a.unable() || !able) && a.Alone == "" {
				a.Alone = needs[i].String()
			}
		}
	}
}

// outBy returns what keeps an agent out of service: see HealingAgent.OutBy.
func outBy(c *cluster.Cluster, agentID string) string {
	k := c.Cordons.Of(agentID)
	switch {
	case k == nil:
		return ""
	case k.ByHealing(c.Config.Name):
		return outByHealing
	}
	return outByOperator
}

// DueForHealing reports whether a cycle that begins at a time looks at a cluster with this interval, when cycles begin
// every so often. It needs no memory: time is divided into the cluster's intervals, and the first cycle in each looks.
func DueForHealing(interval, every time.Duration, at time.Time) bool {
	if interval <= every || every <= 0 {
		return true
	}
	return at.UnixNano()/int64(interval) != at.Add(-every).UnixNano()/int64(interval)
}

// brakedWhy is why healing does nothing to agents while a hub's brake is engaged.
const brakedWhy = "the mass-loss brake is engaged: the network is the likelier culprit"

// HealingCheck has the facts of healing's decision about an agent. They are seconds old when the action begins, or
// minutes after a restart of Temporal, so the cluster checks them again.
type HealingCheck struct {
	Type api.HealingType `json:"type"`
	// Epoch is the epoch of the judged session.
	Epoch int64 `json:"epoch"`
}

// CheckHealing refuses an action of healing whose reasons no longer hold, with what changed. drain is the id of the
// drain that asks, if any: a drain that has begun goes on in any case.
func CheckHealing(c *cluster.Cluster, agentID, drain string, h HealingCheck) error {
	m, outBy := c.Member(agentID), outBy(c, agentID)
	if k := c.Cordons.Of(agentID); k != nil && drain != "" && k.Drain == drain {
		return nil
	}
	if m == nil || !m.Connected() {
		return errors.New("the agent is not connected any more")
	}
	if m.Epoch != h.Epoch {
		return errors.New("another process has the agent's id now")
	}
	if why := leftAlone(outBy, m.Status); why != "" {
		return fmt.Errorf("healing leaves the agent alone: %s", why)
	}
	if len(c.BrakeHolds) > 0 {
		return errors.New(brakedWhy)
	}
	switch ill, restore := !m.Health.Fit(), h.Type == api.HealRestore; {
	case restore && outBy != outByHealing:
		return errors.New("the agent is in service")
	case restore && ill:
		return fmt.Errorf("the agent is %s again", m.Health.Level)
	case !restore && outBy == outByHealing:
		return errors.New("healing has taken the agent out of service already")
	case !restore && !ill:
		return errors.New("the agent is healthy again")
	case h.Type == api.HealReduce && c.Reductions.Of(agentID) != nil:
		return errors.New("the agent's load is reduced already")
	}
	now, _ := ExamineForHealing(&ClusterFacts{Cluster: *c}, time.Time{})
	healer := newHealer(&now, time.Time{})
	if why := healer.needed(h.Type, healer.agents[agentID]); why != "" {
		return errors.New(why)
	}
	return nil
}

// leftAlone returns why healing must not touch an agent; empty: it may.
func leftAlone(outBy string, status api.AgentStatus) string {
	switch {
	case outBy == outByOperator:
		return "an operator keeps it out of service (" + string(status) + ")"
	case status == api.AgentDraining:
		return "it is being drained"
	case status == api.AgentSuspect:
		return "the failure detector is at it"
	}
	return ""
}
