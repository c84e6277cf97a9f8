package diagnosis

import (
	"fmt"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/sdk/api"
)

// OfScaling is about agents that scaling cannot start or stop, and about work that waits because the cluster may have
// no more agents. facts are nil when they are not known; oldest is how long the first task has waited.
func OfScaling(c *cluster.Cluster, facts *scaling.ScalingFacts, oldest time.Duration, now time.Time) []api.Problem {
	if !c.Config.Scaling.On() || len(c.BrakeHolds) > 0 {
		return nil
	}
	var problems []api.Problem
	name := c.Config.Name
	add := func(what, why, todo string, from time.Time) {
		problems = append(problems, api.Problem{
			Severity: api.SeverityWarning,
			Kind:     api.ProblemScaling,
			Cluster:  name,
			Since:    since(from),
			What:     what,
			Why:      why,
			Do:       todo,
		})
	}
	decision := scaling.DecideScaling(c, facts, now)
	var state cluster.ScalingState
	if c.Scaling != nil {
		state = *c.Scaling
	}
	missing := c.Wanted() - c.OnlineCount()
	switch b := state.Blocked; {
	case b != nil && (missing > 0 || decision.Blocked || decision.Change == api.ScaleUp): // else they came otherwise
		what := "scaling cannot start agents of cluster " + name
		if missing > 0 {
			what += fmt.Sprintf(": %d of %d are missing", missing, c.Wanted())
		}
		add(what, tries(b, now), "Remove the cause: it is tried again by itself, and at once when a spawner comes up. "+
			"Or start agents by hand: mainstay agent run --cluster "+name+".", b.Since)
	case !decision.Blocked:
	case decision.Rule != api.RuleQueue && decision.Rule != api.RuleCPU: // it is full
		add("scaling cannot start agents of cluster "+name, decision.Reason,
			"End the drains and maintenances, or raise max_agents.", time.Time{})
	case decision.Rule == api.RuleQueue && oldest >= OldWork && c.Config.ReplicationMode == api.ActivePassive:
		add("work waits in cluster "+name+", and scaling cannot help", decision.Reason,
			"Give the leader more slots, or have all agents work: mainstay cluster update "+name+
				" --replication-mode active_active.",
			now.Add(-oldest))
	case decision.Rule == api.RuleQueue && oldest >= OldWork:
		more := min(2*c.Config.MaxAgents, api.MaxMembers)
		add("cluster "+name+" has as many agents as it may, and work waits", decision.Reason,
			fmt.Sprintf("Let it have more: mainstay cluster scale %s --max %d.", name, more), now.Add(-oldest))
	}
	if b := state.Stuck; b != nil {
		add("scaling cannot stop agents of cluster "+name, tries(b, now),
			"They are given no work and stay in maintenance. "+
				"Start their spawner again: the stop is tried again by itself.", b.Since)
	}
	correct := "Correct the settings of spawn. How it stands: mainstay cluster scaling " + name
	switch r := state.Rollout; {
	case r == nil:
	case r.Status == api.RolloutFailed:
		add(fmt.Sprintf("rollout %d of the agents of cluster %s has failed", r.Number, name),
			api.Reasons(r.Reason, "agents that were not replaced keep the former settings"), correct, r.EndedAt)
	case r.Status == api.RolloutWaiting:
		add(fmt.Sprintf("rollout %d of the agents of cluster %s waits for a person", r.Number, name),
			"its canaries are healthy", "Let the others follow: mainstay scaling rollout promote "+name+
				". Or take it back: mainstay scaling rollout revert "+name, r.ProgressAt)
	case r.Revert && r.Reason != "" && (r.Status == api.RolloutRunning || now.Sub(r.EndedAt) < recentFailover):
		add("a rollout of the agents of cluster "+name+" was reverted",
			api.Reasons(r.Reason, "the former settings are in force again"), correct, r.StartedAt)
	}
	return problems
}

// tries says why starting or stopping agents is blocked and when it is tried again.
func tries(b *api.ScalingBlocked, now time.Time) string {
	next := "the next try is under way"
	if b.NextAt.After(now) {
		next = "the next try is at " + clockTime(b.NextAt)
	}
	often := "once"
	if b.Failures != 1 {
		often = api.Count(b.Failures, "time")
	}
	return b.Reason + "; tried " + often + ", " + next
}

// OfScalingRun is about the rules of scaling while their schedule is paused. ruled is how many clusters use them.
func OfScalingRun(run ScheduleRun, ruled int) (api.Problem, bool) {
	if !run.Paused || ruled == 0 {
		return api.Problem{}, false
	}
	return api.Problem{
		Severity: api.SeverityNotice,
		Kind:     api.ProblemScaling,
		Since:    since(run.Last),
		What:     "the rules of scaling are paused",
		Why:      run.Note,
		Do:       "Resume the schedule \"scaling\" in Temporal. Until then only lost agents are replaced.",
	}, true
}
