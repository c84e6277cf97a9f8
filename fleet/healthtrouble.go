package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// unwellLeast is the least time that healing is given before an agent that is unwell is a problem.
	unwellLeast = 2 * time.Minute
	// outLong is how long an agent that healing took out of service may stay unwell before a person should look.
	outLong = 15 * time.Minute
)

// ScheduleRun is whether what a schedule starts again and again runs by itself. The zero value says that it does, or that
// nobody knows.
type ScheduleRun struct {
	Missing, Paused bool
	Note            string    // what was said when it was paused
	Last            time.Time // when it last began by itself
}

// HealingTroubles are about agents of the clusters that are unwell for longer than healing needs, and about what keeps
// healing from mending that. It decides as a healing cycle would, from what the clusters know.
func HealingTroubles(clusters []ClusterFacts, run ScheduleRun, now time.Time) []Trouble {
	var problems []Trouble
	wanted, told := 0, false
	for i := range clusters {
		f := &clusters[i]
		if f.Config.SelfHealing.WithDefaults().Mode != HealingOff {
			wanted++
		}
		unwell := f.unwell(run, now)
		told = told || slices.ContainsFunc(unwell, func(p Trouble) bool { return p.Kind == TroublePausedHeal || p.Kind == TroubleHealing && run.Missing })
		problems = append(problems, unwell...)
		if p, there := f.outByHealing(run, now); there {
			problems = append(problems, p)
		}
	}
	switch p := (Trouble{Severity: SeverityNotice, Kind: TroubleHealing, Since: since(run.Last)}); {
	case wanted == 0 || told || run.runs():
	case run.Missing:
		p.Severity, p.What = SeverityWarning, "healing does not run: its schedule is missing in Temporal"
		p.Do = "A worker makes it when it starts: mainstay serve --roles worker."
		problems = append(problems, p)
	default:
		p.Kind, p.What, p.Why = TroublePausedHeal, "healing is paused", run.Note
		p.Do = "Resume it when the reason is gone. Until then agents that fall ill keep their work."
		problems = append(problems, p)
	}
	return problems
}

func (r ScheduleRun) runs() bool { return !r.Missing && !r.Paused }

// unwellGroup are agents that are unwell and of which the same is to be said.
type unwellGroup struct {
	kind      TroubleKind
	but       string // what keeps healing from mending them, after "and"; empty: nothing does
	why, todo string
	found     []HealingDecision
}

// unwell are the agents that are given work although they should not be. While the brake holds, its problem says all.
func (f *ClusterFacts) unwell(run ScheduleRun, now time.Time) []Trouble {
	c, interesting := ExamineForHealing(f, now)
	if !interesting || c.Braked {
		return nil
	}
	mode := c.Policy.Mode
	c.Policy.Mode, c.Policy.MaxActions, c.Wanted = HealingOn, len(c.Agents)+1, 0 // what is there to be healed, apart from how often
	patience := max(unwellLeast, c.Policy.Patience.Std()+2*c.Policy.CycleInterval.Std())
	var groups []unwellGroup
	for _, d := range DecideHealing(&c, now) {
		long := now.Sub(d.Facts.Since) >= patience
		if d.Type != HealFailover && d.Type != HealDrain && d.Type != HealReduce || d.Verdict == HealWait {
			continue
		}
		g := unwellGroup{kind: TroubleHealing}
		switch {
		case mode == HealingOff:
			g.kind, g.why, g.todo = TroubleHealth, "healing is off in this cluster", "Look at their hosts and logs. Drain them, or fail their work over."
		case run.Paused:
			g.kind, g.but, g.why, g.todo = TroublePausedHeal, "healing is paused", run.Note, "Resume healing, or drain them by hand."
		case run.Missing:
			g.but, g.why, g.todo = "healing does not run", "its schedule is missing in Temporal; a worker makes it when it starts", "Start a worker (mainstay serve --roles worker), or drain them by hand."
		case mode == HealingDryRun:
			g.but, g.todo = "healing is in dry run here", "Drain them by hand, or let healing act: mainstay cluster update "+c.Cluster+" --healing on."
		case d.Verdict == HealSkip:
			g.but, g.why, g.todo = "healing must not act", d.Why, "Mend them, or start healthy agents: healing then goes on by itself."
		default:
			g.kind, g.why, g.todo = TroubleHealth, "healing has not mended it", "See what healing did, and look at their hosts and logs."
		}
		if g.but == "" && !long {
			continue
		}
		same := slices.IndexFunc(groups, func(o unwellGroup) bool { return o.kind == g.kind && o.but == g.but && o.why == g.why })
		if same < 0 {
			same = len(groups)
			groups = append(groups, g)
		}
		groups[same].found = append(groups[same].found, d)
	}
	problems := make([]Trouble, 0, len(groups))
	for i := range groups {
		problems = append(problems, groups[i].trouble(f))
	}
	return problems
}

// trouble puts a group into words.
func (g *unwellGroup) trouble(f *ClusterFacts) Trouble {
	worst, from, n := g.found[0].Facts, g.found[0].Facts.Since, len(g.found)
	p := Trouble{Severity: SeverityWarning, Kind: g.kind, Cluster: f.Config.Name, Count: int64(n), Do: g.todo}
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
	if worst.Level.WorseThan(HealthWarning) && f.noneWorks() {
		p.Severity = SeverityCritical
	}
	p.What = fmt.Sprintf("agent %s of cluster %s %s", p.Agents[0], f.Config.Name, levelWords(worst.Level))
	if n > 1 {
		p.What = fmt.Sprintf("%d agents of cluster %s are unwell, the worst %s", n, f.Config.Name, strings.TrimPrefix(levelWords(worst.Level), "is "))
	}
	if g.but != "" {
		p.What += ", and " + g.but
	}
	p.Why = joined(worst.Detail, g.why)
	if n == 1 {
		p.Do = strings.NewReplacer("their hosts and logs", "its host and log", "Drain them", "Drain it", "drain them", "drain it", "their work", "its work", "Mend them", "Mend it").Replace(p.Do)
	}
	return p
}

// noneWorks reports whether every agent that is given work does it badly or not at all.
func (f *ClusterFacts) noneWorks() bool {
	return !slices.ContainsFunc(f.Members, func(m Member) bool {
		return m.Status == AgentOnline && (m.Health == nil || !m.Health.Level.WorseThan(HealthWarning))
	})
}

func levelWords(l HealthLevel) string {
	if l == HealthWarning {
		return "shows warnings"
	}
	return "is " + string(l)
}

// outByHealing is about agents that healing took out of service: nobody but it gives them back.
func (f *ClusterFacts) outByHealing(run ScheduleRun, now time.Time) (Trouble, bool) {
	p := Trouble{Severity: SeverityNotice, Kind: TroubleHealth, Cluster: f.Config.Name}
	ill := 0
	for i := range f.Cordons {
		k := &f.Cordons[i]
		m := f.Member(k.AgentID)
		if m == nil || f.outBy(k.AgentID) != outByHealing {
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
			p.Severity = SeverityWarning
		}
	}
	if p.Count == 0 {
		return p, false
	}
	stays := f.Config.SelfHealing.WithDefaults().Mode != HealingOn || !run.runs()
	p.What = fmt.Sprintf("healing took agent %s of cluster %s out of service", p.Agents[0], f.Config.Name)
	if p.Count > 1 {
		p.What = fmt.Sprintf("healing took %d agents of cluster %s out of service", p.Count, f.Config.Name)
	}
	switch {
	case stays:
		p.Why, p.Do = joined(p.Why, "healing does not act now, so nothing is given back"), "End the maintenance by hand, or let healing act."
	case ill == 0:
		p.Why = "healthy again; after a while of that it is given work again"
	case p.Severity == SeverityWarning:
		p.Do = "It does not get well by itself: look at its host. Healthy again it is given work; if it is gone for good, end its process."
	}
	return p, true
}

// joined puts what there is of two reasons into one.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
