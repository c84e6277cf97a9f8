package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// healingMemory is how far back earlier actions count.
	healingMemory = 24 * time.Hour
	// healingLongest bounds the wait between two equal actions.
	healingLongest = 6 * time.Hour
	// skipAgain is the least time between two records of the same thing that is not done; it doubles too.
	skipAgain = time.Hour
	// orphansPerCycle bounds the attempts that one cycle ends; what is left the next one or the backstop does.
	orphansPerCycle = 20
)

// DecideHealing says what is to be done in one cluster, the most urgent first. It never touches what an operator
// keeps out of service, an agent that the failure detector is at, or anything while the mass-loss brake is engaged; it
// never takes the last healthy agent away, nor more than half of the agents; and it does the same thing to the same
// target again only after a wait that grows.
func DecideHealing(c *HealingCase, now time.Time) []HealingDecision {
	if c.Policy.Mode == HealingOff {
		return nil
	}
	h := healer{HealingCase: c, now: now, serving: c.Serving}
	for i := range c.Agents {
		h.agent(&c.Agents[i])
	}
	for _, o := range c.Orphans {
		orphan := o
		h.add(HealReassign, o.TaskID, fmt.Sprintf("attempt %d counts as running, and no agent has it", o.Attempt),
			HealingFacts{Orphan: &orphan, Since: o.Since})
	}
	if c.Serving < c.Wanted {
		h.add(HealRebalance, c.Cluster, fmt.Sprintf("the cluster has %d of %d agents", c.Serving, c.Wanted),
			HealingFacts{Since: c.ShortSince, Wanted: c.Wanted, Scaled: c.Scaled})
	}
	for _, s := range c.Stuck {
		h.add(HealReport, s.What, s.Reason, HealingFacts{Since: s.Since})
	}
	slices.SortStableFunc(h.found, func(a, b HealingDecision) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), healthRank(b)-healthRank(a),
			strings.Compare(a.TargetID, b.TargetID))
	})
	for i := range h.found {
		h.judge(&h.found[i])
	}
	return h.found
}

func healthRank(d HealingDecision) int { return d.Facts.Level.rank() }

// healer is one decision being made.
type healer struct {
	*HealingCase
	now     time.Time
	found   []HealingDecision
	serving int // agents that are given work, after what was decided so far
	acted   int // actions decided so far, orphans left out
	orphans int
}

// agent finds the action that an agent's level of health asks for.
func (h *healer) agent(a *HealingAgent) {
	facts := HealingFacts{Status: a.Status, Level: a.Health.Level, Detail: a.Health.Why, Since: a.Health.Since,
		Epoch: a.Epoch, Running: a.Running}
	if a.Health.Level != HealthHealthy {
		score := a.Health.Score
		facts.Score = &score
	}
	why := a.Health.Why
	if why != "" {
		why = ": " + why
	}
	switch {
	case a.OutBy == outByHealing && a.Health.Fit():
		facts.Since = later(a.Since, a.Health.Since)
		h.add(HealRestore, a.AgentID, "it was taken out of service by healing and is healthy again", facts)
	case a.OutBy == outByHealing, a.Health.Fit():
	case a.Health.Level == HealthDegraded:
		h.add(HealDrain, a.AgentID, "the agent is degraded"+why, facts)
	case a.Health.Level == HealthWarning && a.Reduced:
	case a.Health.Level == HealthWarning && a.Slots <= 1:
		h.add(HealDrain, a.AgentID, "the agent shows warnings and has one slot, so its load cannot be reduced"+why,
			facts)
	case a.Health.Level == HealthWarning:
		h.add(HealReduce, a.AgentID, "the agent shows warnings"+why, facts)
	default:
		h.add(HealFailover, a.AgentID, "the agent's health is "+string(a.Health.Level)+why, facts)
	}
}

func (h *healer) add(t HealingType, target, reason string, facts HealingFacts) {
	facts.Serving, facts.Healthy = h.Serving, h.Healthy
	h.found = append(h.found, HealingDecision{Type: t, Cluster: h.Cluster, TargetID: target, Priority: priorities[t],
		Reason: reason, Facts: facts})
}

// judge says whether a decision is carried out.
func (h *healer) judge(d *HealingDecision) {
	if d.Verdict, d.Why = h.verdict(d); d.Verdict == HealWait {
		return
	}
	if d.Verdict == HealAct && d.Type != HealReport && h.Policy.Mode == HealingDryRun {
		d.Verdict = HealPlan
	}
	times, until := h.damped(d)
	if d.Facts.Times = times; h.now.Before(until) {
		done := "done"
		if d.Verdict != HealAct || d.Type == HealReport {
			done = "recorded"
		}
		// why it must not be done stays worth knowing
		d.Why = Reasons(d.Why, fmt.Sprintf("%s %s within a day; not again before %s", done, Plural(times, "once", fmt.Sprintf("%d times", times)),
			until.UTC().Format(time.RFC3339)))
		d.Verdict = HealWait
		return
	}
	switch {
	case d.Verdict == HealSkip, d.Type == HealReport:
	case d.Type == HealReassign && h.orphans >= orphansPerCycle:
		d.Verdict, d.Why = HealWait, fmt.Sprintf("%d tasks are enough for one cycle", orphansPerCycle)
	case d.Type == HealReassign:
		h.orphans++
	case h.acted >= h.Policy.MaxActions:
		d.Verdict, d.Why = HealWait, fmt.Sprintf("max_actions: %d are enough for one cycle", h.Policy.MaxActions)
	default:
		h.acted++
		if takesAway(d.Type) {
			h.serving--
		}
	}
}

// takesAway reports whether the cluster has one agent less to work with.
func takesAway(action HealingType) bool { return action == HealFailover || action == HealDrain }

// verdict says whether a decision may be carried out, apart from how often it was.
func (h *healer) verdict(d *HealingDecision) (HealingVerdict, string) {
	if d.Type == HealReport {
		return HealAct, ""
	}
	for i := range h.Past {
		if p := &h.Past[i]; p.Running && p.TargetID == d.TargetID && p.Verdict == HealAct {
			return HealWait, "an action on it is under way: " + string(p.Type)
		}
	}
	onAgent := takesAway(d.Type) || d.Type == HealReduce || d.Type == HealRestore
	if onAgent {
		for i := range h.Agents {
			if a := &h.Agents[i]; a.AgentID == d.TargetID {
				if why := leftAlone(a.OutBy, a.Status); why != "" {
					return HealWait, why
				}
			}
		}
	}
	if h.Braked && d.Type != HealReassign {
		return HealSkip, brakedWhy
	}
	if wait := h.patience(d) - h.now.Sub(d.Facts.Since); wait > 0 && d.Type != HealReassign {
		return HealWait, fmt.Sprintf("only since %s; it is given %s", d.Facts.Since.UTC().Format(time.RFC3339),
			h.patience(d))
	}
	if why := h.needed(d.Type); why != "" {
		return HealSkip, why
	}
	return HealAct, ""
}

// needed says why the cluster cannot do without the agent that an action takes away; empty: it can, or keeps it.
func (h *healer) needed(action HealingType) string {
	half := (h.Members + 1) / 2
	switch rest := h.serving - 1; {
	case !takesAway(action):
	case action == HealFailover && h.able() == 0:
		return "no other agent is fit to take over"
	case action == HealDrain && h.Healthy == 0:
		return "no healthy agent would be left to do its work: every agent of the cluster is unhealthy"
	case rest < 1:
		return "it is the last agent that serves the cluster"
	case action == HealDrain && rest < h.Minimum:
		return fmt.Sprintf("%d agents would be left, and min_agents is %d", rest, h.Minimum)
	case rest < half:
		return fmt.Sprintf("%d of %d agents would be left: when so many are unhealthy, the cause is likelier elsewhere",
			rest, h.Members)
	}
	return ""
}

// able is how many agents are given work and fit to do more.
func (h *healer) able() int {
	n := h.Serving
	for i := range h.Agents {
		if a := &h.Agents[i]; a.Status == AgentOnline && a.Health.Level.WorseThan(HealthWarning) {
			n--
		}
	}
	return n
}

// patience is how long something must have been so.
func (h *healer) patience(d *HealingDecision) time.Duration {
	if d.Type != HealRestore {
		return h.Policy.Patience.Std()
	}
	times := 0
	for i := range h.Past {
		if p := &h.Past[i]; p.TargetID == d.TargetID && p.Verdict == HealAct &&
			(p.Type == HealDrain || p.Type == HealFailover) && h.recent(p) {
			times++
		}
	}
	return grown(h.Policy.RestoreAfter.Std(), times-1)
}

// damped says how often the same was done, and until when it is not done again.
func (h *healer) damped(d *HealingDecision) (times int, until time.Time) {
	var last time.Time
	for i := range h.Past {
		if p := &h.Past[i]; p.Type == d.Type && p.TargetID == d.TargetID && p.Verdict == d.Verdict && h.recent(p) {
			times++
			last = later(last, p.At)
		}
	}
	first := h.Policy.Damping.Std()
	switch {
	case times == 0:
		return 0, time.Time{}
	case d.Verdict != HealAct || d.Type == HealReport:
		first = skipAgain
	case d.Type == HealRestore:
		first = 0 // its patience grows
	}
	return times, last.Add(grown(first, times-1))
}

func (h *healer) recent(p *HealingPast) bool { return h.now.Sub(p.At) < healingMemory }

// grown doubles a wait so many times, up to healingLongest or itself.
func grown(wait time.Duration, times int) time.Duration {
	return doubled(wait, times, max(wait, healingLongest))
}

// HealingDrainPrefix begins the names of the drains that healing makes, so that what it took out of service is told
// from what a person did.
const HealingDrainPrefix = "healing-"

const (
	outByHealing  = "healing"
	outByOperator = "operator"
)

// ExamineForHealing reduces a cluster's facts to what a healing decision needs, and reports whether anything is wrong
// or out of service because of healing. Nothing else needs to be looked at then.
func ExamineForHealing(f *ClusterFacts, now time.Time) (HealingCase, bool) {
	policy := f.Config.SelfHealing.WithDefaults()
	c := HealingCase{
		Cluster: f.Config.Name,
		Policy:  policy,
		Minimum: f.Config.MinAgents,
		Wanted:  f.Wanted(),
		Scaled:  f.Config.Scaling.On(),
		Braked:  len(f.BrakeHolds) > 0, Hubs: f.Hubs(),
	}
	if upset := f.LastUpset(); now.Sub(upset) < AttemptBackstop+policy.CycleInterval.Std() {
		c.LastUpset = upset // what was left behind before that, the backstop has ended
	}
	for i := range f.Members {
		m := &f.Members[i]
		agent := HealingAgent{AgentID: m.AgentID, Status: m.Status, Since: m.StatusSince, Epoch: m.Epoch,
			Slots:  m.MaxTasks,
			Health: MemberHealth{Level: HealthHealthy}, Running: f.Live[m.AgentID].Running, Reduced: f.Reductions.Of(
				m.AgentID) != nil, OutBy: outBy(&f.Cluster, m.AgentID)}
		if m.Health != nil {
			agent.Health = *m.Health
		}
		if m.Connected() && agent.OutBy != outByOperator {
			c.Members++
		}
		if m.Status == AgentOnline {
			c.Serving++
			if agent.Health.Fit() {
				c.Healthy++
			}
		} else if !m.Connected() {
			c.ShortSince = later(c.ShortSince, m.StatusSince)
		}
		if m.Connected() && (!agent.Health.Fit() || agent.OutBy == outByHealing) {
			c.Agents = append(c.Agents, agent)
		}
	}
	for i := range f.Departures {
		c.ShortSince = later(c.ShortSince, f.Departures[i].At)
	}
	c.ShortSince = later(c.ShortSince, f.CreatedAt)
	return c, len(c.Agents) > 0 || c.Serving < c.Wanted || !c.LastUpset.IsZero()
}

// outBy says who keeps an agent out of service.
func outBy(c *Cluster, agentID string) string {
	k := c.Cordons.Of(agentID)
	switch {
	case k == nil:
		return ""
	case k.ByHealing(c.Config.Name):
		return outByHealing
	}
	return outByOperator
}

// ByHealing reports whether healing took the agent out of service, in the cluster with this name.
func (k *Cordon) ByHealing(cluster string) bool {
	return strings.HasPrefix(k.Drain, cluster+":"+HealingDrainPrefix)
}

// DueForHealing reports whether a cycle that begins at a time is to look at a cluster with this interval, when cycles
// begin every so often. It needs no memory: time is divided into the cluster's intervals, and the first cycle in each
// looks.
func DueForHealing(interval, every time.Duration, at time.Time) bool {
	if interval <= every || every <= 0 {
		return true
	}
	return at.UnixNano()/int64(interval) != at.Add(-every).UnixNano()/int64(interval)
}

// brakedWhy is why healing does nothing to agents while a hub's brake is engaged.
const brakedWhy = "the mass-loss brake is engaged: the network is the likelier culprit"

// HealingCheck is what healing decided about an agent. The facts of a decision are seconds old when it is carried out,
// or minutes after a restart of Temporal. So the cluster, which alone knows how the agent stands, checks it once more.
type HealingCheck struct {
	Type HealingType `json:"type"`
	// Epoch is of the session that was judged.
	Epoch int64 `json:"epoch"`
}

// CheckHealing refuses an action of healing whose reasons do not hold any more, with what changed. drain is the id of
// the drain that asks, if one does: a drain that has begun goes on whatever comes.
func (c *Cluster) CheckHealing(agentID, drain string, h HealingCheck) error {
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
	switch ill, restore := !m.Health.Fit(), h.Type == HealRestore; {
	case restore && outBy != outByHealing:
		return errors.New("the agent is in service")
	case restore && ill:
		return fmt.Errorf("the agent is %s again", m.Health.Level)
	case !restore && outBy == outByHealing:
		return errors.New("healing has taken the agent out of service already")
	case !restore && !ill:
		return errors.New("the agent is healthy again")
	case h.Type == HealReduce && c.Reductions.Of(agentID) != nil:
		return errors.New("the agent's load is reduced already")
	}
	now, _ := ExamineForHealing(&ClusterFacts{Cluster: *c}, time.Time{})
	if why := (&healer{HealingCase: &now, serving: now.Serving}).needed(h.Type); why != "" {
		return errors.New(why)
	}
	return nil
}

// leftAlone says why an agent is none of healing's business; empty: it is.
func leftAlone(outBy string, status AgentStatus) string {
	switch {
	case outBy == outByOperator:
		return "an operator keeps it out of service (" + string(status) + ")"
	case status == AgentDraining:
		return "it is being drained"
	case status == AgentSuspect:
		return "the failure detector is at it"
	}
	return ""
}
