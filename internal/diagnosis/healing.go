package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

const (
	// leastPatience is the least time that healing is given before an unhealthy agent is a problem.
	leastPatience = 2 * time.Minute
	// outLong is how long an agent that healing took out of service may stay unhealthy before a person should look.
	outLong = 15 * time.Minute
)

// ScheduleRun says whether a Temporal schedule of Mainstay's own runs. The zero value means that it does, or that it is
// not known.
type ScheduleRun struct {
	Missing, Paused bool
	Note            string    // what a person wrote when pausing it
	Last            time.Time // when the schedule last started it
}

func (r ScheduleRun) runs() bool { return !r.Missing && !r.Paused }

// OfHealing is about agents of the clusters that are unhealthy for longer than healing needs, and about what keeps
// healing from acting on them. It asks the same decision as a healing cycle does.
func OfHealing(clusters []healing.ClusterFacts, run ScheduleRun, now time.Time) []api.Problem {
	var problems []api.Problem
	wanted, said := 0, false
	for i := range clusters {
		f := &clusters[i]
		if f.Config.SelfHealing.WithDefaults().Mode != api.HealingOff {
			wanted++
		}
		unhealthy := unhealthyAgents(f, run, now)
		said = said || slices.ContainsFunc(unhealthy, func(p api.Problem) bool {
			return p.Kind == api.ProblemHealingPaused || p.Kind == api.ProblemHealing && run.Missing
		})
		problems = append(problems, unhealthy...)
		if p, found := outByHealing(f, run, now); found {
			problems = append(problems, p)
		}
	}
	if wanted == 0 || said || run.runs() {
		return problems
	}
	p := api.Problem{
		Severity: api.SeverityNotice,
		Kind:     api.ProblemHealingPaused,
		Since:    since(run.Last),
		What:     "healing is paused",
		Why:      run.Note,
		Do:       "Resume it when the reason is gone. Until then unhealthy agents keep their work.",
	}
	if run.Missing {
		p.Severity, p.Kind, p.Why = api.SeverityWarning, api.ProblemHealing, ""
		p.What = "healing does not run: its schedule is missing in Temporal"
		p.Do = "A worker makes it when it starts: mainstay serve --roles worker."
	}
	return append(problems, p)
}

// unhealthyGroup are unhealthy agents of one cluster that get the same text.
type unhealthyGroup struct {
	kind      api.ProblemKind
	obstacle  string // what keeps healing from acting on them; empty: nothing does
	why, todo string
	found     []api.HealingDecision
}

// unhealthyAgents is about agents that are given work although they should not be. While the brake holds, its own
// problem covers them.
func unhealthyAgents(f *healing.ClusterFacts, run ScheduleRun, now time.Time) []api.Problem {
	c, interesting := healing.ExamineForHealing(f, now)
	if !interesting || c.Braked {
		return nil
	}
	mode := c.Policy.Mode
	// Ask for all that healing would do if it were on, apart from how often it may act.
	c.Policy.Mode, c.Policy.MaxActions, c.Wanted = api.HealingOn, len(c.Agents)+1, 0
	patience := max(leastPatience, c.Policy.Patience.Std()+2*c.Policy.CycleInterval.Std())
	var groups []unhealthyGroup
	for _, d := range healing.DecideHealing(&c, now) {
		onAgent := d.Type == api.HealFailover || d.Type == api.HealDrain || d.Type == api.HealReduce
		if !onAgent || d.Verdict == api.HealWait {
			continue
		}
		g := groupOf(&d, mode, run)
		if g.obstacle == "" && now.Sub(d.Facts.Since) < patience {
			continue
		}
		same := slices.IndexFunc(groups, func(o unhealthyGroup) bool {
			return o.kind == g.kind && o.obstacle == g.obstacle && o.why == g.why
		})
		if same < 0 {
			same = len(groups)
			groups = append(groups, g)
		}
		groups[same].found = append(groups[same].found, d)
	}
	problems := make([]api.Problem, 0, len(groups))
	for i := range groups {
		problems = append(problems, groups[i].problem(f))
	}
	return problems
}

// groupOf says why healing has not acted on an agent yet, given the cluster's mode and whether cycles run.
func groupOf(d *api.HealingDecision, mode api.HealingMode, run ScheduleRun) unhealthyGroup {
	switch {
	case mode == api.HealingOff:
		return unhealthyGroup{
			kind: api.ProblemHealth,
			why:  "healing is off in this cluster",
			todo: "Look at their hosts and logs. Drain them, or fail their work over.",
		}
	case run.Paused:
		return unhealthyGroup{
			kind:     api.ProblemHealingPaused,
			obstacle: "healing is paused",
			why:      run.Note,
			todo:     "Resume healing, or drain them by hand.",
		}
	case run.Missing:
		return unhealthyGroup{
			kind:     api.ProblemHealing,
			obstacle: "healing does not run",
			why:      "its schedule is missing in Temporal; a worker makes it when it starts",
			todo:     "Start a worker (mainstay serve --roles worker), or drain them by hand.",
		}
	case mode == api.HealingDryRun:
		return unhealthyGroup{
			kind:     api.ProblemHealing,
			obstacle: "healing is in dry run here",
			todo:     "Drain them by hand, or let healing act: mainstay cluster update " + d.Cluster + " --healing on.",
		}
	case d.Verdict == api.HealSkip:
		return unhealthyGroup{
			kind:     api.ProblemHealing,
			obstacle: "healing must not act",
			why:      d.Why,
			todo:     "Repair them, or start healthy agents: healing then goes on by itself.",
		}
	}
	return unhealthyGroup{
		kind: api.ProblemHealth,
		why:  "healing has not cured it",
		todo: "See what healing did, and look at their hosts and logs.",
	}
}

// aboutOne turns advice about several agents into advice about one.
var aboutOne = strings.NewReplacer("their hosts and logs", "its host and log", "Drain them", "Drain it",
	"drain them", "drain it", "their work", "its work", "Repair them", "Repair it")

// problem puts a group into words.
func (g *unhealthyGroup) problem(f *healing.ClusterFacts) api.Problem {
	worst, from, n := g.found[0].Facts, g.found[0].Facts.Since, len(g.found)
	p := api.Problem{Severity: api.SeverityWarning, Kind: g.kind, Cluster: f.Config.Name, Count: int64(n), Do: g.todo}
	for i := range g.found {
		d := &g.found[i]
		if d.Facts.Since.Before(from) {
			from = d.Facts.Since
		}
		if d.Facts.Level.WorseThan(worst.Level) {
			worst = d.Facts
		}
		if len(p.Agents) < namedInProblem {
			p.Agents = append(p.Agents, d.TargetID)
		}
	}
	p.Since = since(from)
	if worst.Level.WorseThan(api.HealthWarning) && noneWorks(f) {
		p.Severity = api.SeverityCritical
	}
	level := levelWords(worst.Level)
	if n == 1 {
		p.What = fmt.Sprintf("agent %s of cluster %s %s", p.Agents[0], f.Config.Name, level)
		p.Do = aboutOne.Replace(p.Do)
	} else {
		p.What = fmt.Sprintf("%d agents of cluster %s are unwell, the worst %s", n, f.Config.Name,
			strings.TrimPrefix(level, "is "))
	}
	if g.obstacle != "" {
		p.What += ", and " + g.obstacle
	}
	p.Why = api.Reasons(worst.Detail, g.why)
	return p
}

// noneWorks reports whether every agent that is given work does it badly or not at all.
func noneWorks(f *healing.ClusterFacts) bool {
	return !slices.ContainsFunc(f.Members, func(m cluster.Member) bool {
		return m.Status == api.AgentOnline && !m.HealthLevel().WorseThan(api.HealthWarning)
	})
}

func levelWords(l api.HealthLevel) string {
	if l == api.HealthWarning {
		return "shows warnings"
	}
	return "is " + string(l)
}

// outByHealing is about agents that healing took out of service: only healing gives them work again by itself.
func outByHealing(f *healing.ClusterFacts, run ScheduleRun, now time.Time) (api.Problem, bool) {
	p := api.Problem{Severity: api.SeverityNotice, Kind: api.ProblemHealth, Cluster: f.Config.Name}
	ill := 0
	for i := range f.Cordons {
		k := &f.Cordons[i]
		m := f.Member(k.AgentID)
		if m == nil || !k.ByHealing(f.Config.Name) {
			continue
		}
		if p.Count++; len(p.Agents) < namedInProblem {
			p.Agents = append(p.Agents, k.AgentID)
		}
		if p.Since == nil || k.Since.Before(*p.Since) {
			p.Since = since(k.Since)
		}
		if m.Connected() && m.Health.Fit() {
			continue
		}
		if ill++; p.Why == "" {
			p.Why = m.StatusReason
			if m.Health != nil {
				p.Why = m.Health.Why
			}
		}
		if now.Sub(k.Since) >= outLong {
			p.Severity = api.SeverityWarning
		}
	}
	if p.Count == 0 {
		return p, false
	}
	p.What = fmt.Sprintf("healing took agent %s of cluster %s out of service", p.Agents[0], f.Config.Name)
	if p.Count > 1 {
		p.What = fmt.Sprintf("healing took %d agents of cluster %s out of service", p.Count, f.Config.Name)
	}
	switch {
	case f.Config.SelfHealing.WithDefaults().Mode != api.HealingOn || !run.runs():
		p.Why = api.Reasons(p.Why, "healing does not act now, so nothing is given back")
		p.Do = "End the maintenance by hand, or let healing act."
	case ill == 0:
		p.Why = "healthy again; after a while of that it is given work again"
	case p.Severity == api.SeverityWarning:
		p.Do = "It does not get well by itself: look at its host. Once it is healthy it is given work again; " +
			"if it is gone for good, end its process."
	}
	return p, true
}
