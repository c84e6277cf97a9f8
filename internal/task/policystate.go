package task

import (
	"cmp"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// sameAgentWait is how long the agent of a restart has to take it, where another agent may have the task instead.
	sameAgentWait = 5 * time.Second
	// excludedFor bounds how long an agent does not get a task that was taken from it to another agent. It ends before,
	// when another agent begins the task.
	excludedFor = time.Minute
)

// ShowPolicy is the state with what counts at a time.
func ShowPolicy(s *api.PolicyState, r *api.Recovery, now time.Time) *api.PolicyState {
	c := s.Clone()
	c.ActiveRestarts = len(r.Restart.Active(c.Restarts, now))
	c.ActiveReschedules = len(r.Reschedule.Active(c.Reschedules, now))
	return c
}

// PlacementOf is where the next attempt goes: to one agent, if there is a name, within a time, if that is above 0.
func PlacementOf(s *api.PolicyState, r *api.Recovery, now time.Time) (agent string, within time.Duration) {
	switch {
	case s == nil || s.NextAction != api.ActionRestart && s.NextAction != api.ActionAwaitAgent:
		return "", 0
	case r.Mode == api.ClusterRecover && s.NextAction == api.ActionRestart:
		return s.Agent, max(time.Millisecond, s.NextAt.Add(sameAgentWait).Sub(now))
	}
	return s.Agent, 0
}

// RecoveryStatus is how a task's recovery stands: ok, restarting, rescheduling, waiting_for_agent, blocked (no agent
// took it), review or exhausted.
func RecoveryStatus(task api.TaskStatus, s *api.PolicyState) string {
	switch {
	case task == api.TaskReview:
		return "review"
	case task == api.TaskDeadLetter || task == api.TaskFailed:
		return "exhausted"
	case task == api.TaskRetryWait && (s.NextAction == "" || s.Refunded):
		return "blocked"
	case task == api.TaskRunning || task.Final() || s.NextAction == "":
		return "ok"
	}
	return map[api.RecoveryAction]string{api.ActionRestart: "restarting", api.ActionReschedule: "rescheduling",
		api.ActionAwaitAgent: "waiting_for_agent"}[s.NextAction]
}

// recovering decides with a recovery about one end of an attempt.
type recovering struct {
	*api.Recovery
	spec   *api.TaskSpec
	tally  Tally
	end    AttemptEnd
	policy *api.PolicyState // of tally, to be changed
}

func recoveringFrom(spec *api.TaskSpec, recovery *api.Recovery, tally Tally, end AttemptEnd) *recovering {
	tally.Policy = tally.Policy.Clone()
	return &recovering{Recovery: recovery, spec: spec, tally: tally, end: end, policy: tally.Policy}
}

// returned decides after a delivery that never began; next is what follows without a recovery. A reschedule that came
// back does not count. A restart that its agent does not take in time becomes a reschedule.
func (r *recovering) returned(next Redelivery) Redelivery {
	s, now := r.policy, r.end.At
	switch until := s.ExcludedUntil; {
	case until == nil:
	case now.Before(*until):
		next.Wait = min(next.Wait, until.Sub(now))
	default:
		s.Excluded, s.ExcludedUntil = nil, nil
	}
	next.Tally.Policy = s
	switch {
	case next.Status == api.TaskDeadLetter:
		s.NextAction, s.NextAt = api.ActionNone, nil
	case s.NextAction == api.ActionRestart && r.Mode == api.ClusterRecover:
		if left := s.NextAt.Add(sameAgentWait).Sub(now); left > 0 && r.end.Outcome == api.AttemptReturned {
			next.Wait = min(next.Wait, left)
			return next
		}
		r.tally = next.Tally
		return r.reschedule("agent "+s.Agent+" did not take it in time", r.end.Outcome != api.AttemptReturned)
	case s.NextAction == api.ActionReschedule:
		if n := len(s.Reschedules); n > 0 && !s.Refunded {
			s.Reschedules, s.Refunded = s.Reschedules[:n-1], true
		}
		s.NextAt = new(now.Add(next.Wait))
	}
	return next
}

// ended decides after an attempt that began.
func (r *recovering) ended() Redelivery {
	s := r.policy
	if s.Refunded {
		s.Reschedules = keepNewest(append(s.Reschedules, r.end.At))
	}
	*s = api.PolicyState{Restarts: r.Restart.Active(s.Restarts, r.end.At),
		Reschedules: r.Reschedule.Active(s.Reschedules, r.end.At), LastFailure: s.LastFailure,
		Agent: cmp.Or(r.end.AgentID, s.Agent)}
	planned, lost := r.end.planned(), r.end.Outcome.Gone()
	switch {
	case !planned && lost:
		r.tally.Losses = len(s.Reschedules) + 1 // those that still count
	case !planned:
		r.tally.Failures++
	}
	if !planned {
		s.LastFailure = r.end.Reason
	}
	next, stops := gate(r.spec, r.tally, r.end)
	switch {
	case stops && next.Status == api.TaskReview:
		return r.review(next.Why)
	case stops:
		return r.stop(next.Status, next.Why)
	case planned && r.Mode == api.ClusterRecover:
		return r.wait("", r.end.At, r.end.Reason)
	case planned:
		return r.wait(api.ActionAwaitAgent, r.end.At, r.end.Reason)
	case r.Mode == api.ManualRecover:
		return r.review("recovery is manual: decide how it goes on (" + r.end.Reason + ")")
	case s.Agent == "" && r.Mode == api.LocalRestart:
		return r.review("it is not known which agent had it: decide how it goes on (" + r.end.Reason + ")")
	case lost && (r.Mode == api.LocalRestart || r.spec.Agent != ""):
		return r.wait(api.ActionAwaitAgent, r.end.At, "waiting for agent "+s.Agent+": "+r.end.Reason)
	case lost:
		return r.reschedule(r.end.Reason, true)
	}
	return r.restart()
}

// restart makes the same agent begin the task again, or decides what follows when restarts are used up.
func (r *recovering) restart() Redelivery {
	s := r.policy
	if at, ok := NextRecovery(r.Restart, s.Restarts, r.end.At); ok {
		s.Restarts = keepNewest(append(s.Restarts, at))
		return r.wait(api.ActionRestart, at, "attempt failed, and begins again on its agent: "+r.end.Reason)
	}
	s.Exhausted = "restarts: " + recoveriesAllowed(r.Restart, "attempt")
	if r.Mode == api.ClusterRecover {
		return r.reschedule(r.end.Reason, true)
	}
	return r.exhausted()
}

// reschedule has another agent begin it; exclude keeps it off the last one.
func (r *recovering) reschedule(why string, exclude bool) Redelivery {
	s := r.policy
	at, ok := NextRecovery(r.Reschedule, s.Reschedules, r.end.At)
	if ok && r.end.Outcome.Gone() && len(s.Reschedules) == 0 {
		at = r.end.At // the agent was at fault, as far as is known
	}
	if !ok {
		if s.Exhausted != "" {
			s.Exhausted += "; "
		}
		s.Exhausted += "reschedules: " + recoveriesAllowed(r.Reschedule, "attempt")
		return r.exhausted()
	}
	s.Reschedules = keepNewest(append(s.Reschedules, at))
	if exclude && s.Agent != "" && s.Agent != r.spec.Agent {
		s.Excluded, s.ExcludedUntil = []string{s.Agent}, new(at.Add(excludedFor))
	}
	return r.wait(api.ActionReschedule, at, "goes to another agent: "+why)
}

// exhausted ends recovery: a person decides about work without end, other work is a dead letter.
func (r *recovering) exhausted() Redelivery {
	why := "recovery is used up (" + r.policy.Exhausted + "); last: " + r.end.Reason
	if r.spec.KeepRunning {
		return r.review(why)
	}
	return r.stop(api.TaskDeadLetter, why)
}

func (r *recovering) review(why string) Redelivery {
	r.policy.NextAction = api.ActionReview
	return Redelivery{Status: api.TaskReview, Tally: r.tally, Why: why}
}

func (r *recovering) stop(status api.TaskStatus, why string) Redelivery {
	r.policy.NextAction = api.ActionNone
	return Redelivery{Status: status, Tally: r.tally, Why: why}
}

// wait makes the next attempt begin at a time, but not before the end of a fenced attempt's lease that may go on.
func (r *recovering) wait(action api.RecoveryAction, at time.Time, why string) Redelivery {
	if leased := r.end.GoesOnUntil(r.spec); leased.After(at) {
		at = leased
	}
	r.policy.NextAction, r.policy.NextAt = action, new(at)
	next := Redelivery{Status: api.TaskQueued, Wait: at.Sub(r.end.At), Tally: r.tally, Why: why}
	if next.Wait > 0 {
		next.Status = api.TaskRetryWait
	}
	return next
}

// keepNewest bounds a history.
func keepNewest(history []time.Time) []time.Time {
	return history[max(0, len(history)-maxRecoveryAttempts):]
}
