package fleet

import (
	"fmt"
	"time"
)

// ScalingTroubles are about agents that scaling cannot start or stop, and about work that waits because there may be no
// more agents. facts are nil when they are not known; oldest is how long the first task has waited.
func (c *Cluster) ScalingTroubles(facts *ScalingFacts, oldest time.Duration, now time.Time) []Trouble {
	if !c.Config.Scaling.On() || len(c.BrakeHolds) > 0 {
		return nil
	}
	var problems []Trouble
	add := func(what, why, todo string, from time.Time) {
		problems = append(problems, Trouble{Severity: SeverityWarning, Kind: TroubleScaling, Cluster: c.Config.Name, Since: since(from), What: what, Why: why, Do: todo})
	}
	name, decision := c.Config.Name, c.DecideScaling(facts, now)
	var state ScalingState
	if c.Scaling != nil {
		state = *c.Scaling
	}
	switch b := state.Blocked; {
	case b != nil:
		what := "scaling cannot start agents of cluster " + name
		if missing := c.Wanted() - c.HealthyCount(); missing > 0 {
			what += fmt.Sprintf(": %d of %d are missing", missing, c.Wanted())
		}
		add(what, b.tries(now), "Mend that: it is tried again by itself, and at once when a spawner comes up. Or start agents by hand: mainstay agent run --cluster "+name+".", b.Since)
	case !decision.Blocked:
	case decision.Rule != RuleQueue && decision.Rule != RuleCPU: // it is full
		add("scaling cannot start agents of cluster "+name, decision.Reason, "End the drains and maintenances, or raise max_agents.", time.Time{})
	case decision.Rule == RuleQueue && oldest >= OldWork:
		add("cluster "+name+" has as many agents as it may, and work waits", decision.Reason,
			fmt.Sprintf("Let it have more: mainstay cluster scale %s --max %d.", name, min(2*c.Config.MaxAgents, MaxMembers)), now.Add(-oldest))
	}
	if b := state.Stuck; b != nil {
		add("scaling cannot stop agents of cluster "+name, b.tries(now), "They are given no work and stay in maintenance. Start their spawner again: the stop is tried again by itself.", b.Since)
	}
	return problems
}

// tries says why something is blocked and when it is tried again.
func (b *Blocked) tries(now time.Time) string {
	next := "the next try is under way"
	if b.NextAt.After(now) {
		next = "the next try is at " + clockTime(b.NextAt)
	}
	if b.Failures == 1 {
		return b.Reason + "; tried once, " + next
	}
	return fmt.Sprintf("%s; tried %d times, %s", b.Reason, b.Failures, next)
}

// ScalingRunTrouble is about the rules of scaling while their schedule is paused. ruled is how many clusters go by them.
func ScalingRunTrouble(run ScheduleRun, ruled int) (Trouble, bool) {
	if !run.Paused || ruled == 0 {
		return Trouble{}, false
	}
	return Trouble{Severity: SeverityNotice, Kind: TroubleScaling, Since: since(run.Last), What: "the rules of scaling are paused", Why: run.Note,
		Do: "Resume the schedule \"scaling\" in Temporal. Until then only lost agents are replaced."}, true
}
