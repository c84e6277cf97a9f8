// Package task decides about one task: what follows the end of an attempt, who may run it, and in which lane it waits.
// Decisions are pure functions of (state, facts, now), so that workflows can call them and tests can table them.
package task

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// UnknownLease bounds how long a lost agent may go on with fenced work when the end of its lease is unknown.
const UnknownLease = api.AttemptBackstop

// Tally counts what happened to a task so far, since its start or its last retry by hand.
type Tally struct {
	Failures int `json:"failures,omitempty"` // attempts whose handler reported a failure or ran out of time
	Losses   int `json:"losses,omitempty"`   // attempts lost with their agent after they may have begun
	Returns  int `json:"returns,omitempty"`  // deliveries in a row that never began
	// NotReceived counts deliveries, since the last one that began, that reached a living agent which did not receive
	// them.
	NotReceived int `json:"not_received,omitempty"`
	// Retried: a person had the task run again, and the counts are of the attempts since then.
	Retried bool `json:"retried,omitempty"`
	// Policy is of a task with a recovery.
	Policy *api.PolicyState `json:"policy,omitempty"`
}

// failed says how many of the attempts that a task has have failed.
func (t Tally) failed(limit int) string {
	since := ""
	if t.Retried {
		since = " since it was retried"
	}
	return fmt.Sprintf("%d of %d attempts failed%s", t.Failures, limit, since)
}

// maxNotReceived is how many deliveries may reach agents without being received before the task is a dead letter:
// agents probably cannot read it.
const maxNotReceived = 5

// AttemptEnd has the facts about an attempt that ended without a result.
type AttemptEnd struct {
	Outcome api.AttemptOutcome
	Begun   bool // false: the agent certainly never began it
	Final   bool // the handler reported that trying again is useless
	// LeaseRemaining is how long after now the lost agent may go on with fenced work; nil: unknown. It is a duration,
	// so that no two clocks need to agree.
	LeaseRemaining *api.Duration
	Reason         string
	// Planned: a person, a drain or the agent's graceful stop took it off the agent, which does not count as a loss.
	Planned   bool
	ErrorType string // the type of the failure, if the handler gave one
	// NotReceived, after a return: the delivery reached a living agent, which could not read it or did not list it.
	NotReceived bool
	// Unhandled, after a return: no agent of that hub could run the task at all, busy or not.
	Unhandled bool
	// RetryAfter, after a return, is the time until any agent of that hub could take the task, or until the task's turn
	// among many that none takes; 0: unknown.
	RetryAfter api.Duration
	// At is when the end is decided about, AgentID the agent that had the attempt. Only a recovery needs them.
	At      time.Time
	AgentID string
	Paused  bool // a person had paused the work before the attempt ended
	// CheckpointLost: the attempt had a newer checkpoint than the next one would begin with.
	CheckpointLost bool
}

// mayGoOn reports whether the handler may still run.
func (e *AttemptEnd) mayGoOn() bool { return e.Outcome.Gone() || e.Outcome == api.AttemptTimedOut }

// planned reports whether the attempt was taken off its agent on purpose.
func (e *AttemptEnd) planned() bool { return e.Planned || e.Outcome == api.AttemptMoved }

// GoesOnUntil is when the agent has certainly stopped fenced work; the zero time: it has already.
func (e *AttemptEnd) GoesOnUntil(spec *api.TaskSpec) (until time.Time) {
	if spec.Safety() == api.Fenced && e.mayGoOn() {
		until = e.At.Add(e.Lease())
	}
	return until
}

// Lease is how long the agent may go on with fenced work.
func (e *AttemptEnd) Lease() time.Duration {
	if e.LeaseRemaining == nil {
		return UnknownLease
	}
	return e.LeaseRemaining.Std()
}

// LastUnreceived reports whether the delivery was one too many that no agent received.
func (e *AttemptEnd) LastUnreceived(tally Tally) bool {
	return e.NotReceived && tally.NotReceived+1 >= maxNotReceived
}

// Kind names the cause of the end, for people who look for all of a kind: the type of the failure, if it has one.
func (e *AttemptEnd) Kind() string {
	switch {
	case e.NotReceived:
		return "not_received"
	case e.Outcome.Gone():
		return string(api.AttemptLost)
	}
	return cmp.Or(e.ErrorType, string(e.Outcome))
}

// Redelivery is what to do with a task after an attempt ended without a result.
type Redelivery struct {
	// Status is TaskQueued (deliver again now), TaskRetryWait (deliver again after Wait), TaskReview, TaskDeadLetter or
	// TaskFailed.
	Status api.TaskStatus
	Wait   time.Duration
	Why    string
	Tally  Tally
	// Unhandled: no agent could run the task, more than once or as one of many.
	Unhandled bool
}

// Redeliver decides what happens after an attempt ended without a result. It is the one gate of every redelivery:
// at_most_once never begins twice, fenced waits out the old lease, and attempts and losses are bounded, by the task's
// recovery or else by its retry policy.
func Redeliver(spec *api.TaskSpec, taskID string, tally Tally, end AttemptEnd) Redelivery {
	recovery := spec.EffectiveRecovery()
	if end.Outcome == api.AttemptReturned || !end.Begun && end.Outcome.Gone() {
		next := afterReturn(taskID, tally, end)
		if recovery != nil {
			return recoveringFrom(spec, recovery, tally, end).returned(next)
		}
		return next
	}
	tally.Returns, tally.NotReceived = 0, 0
	if recovery != nil {
		return recoveringFrom(spec, recovery, tally, end).ended()
	}
	lost := end.Outcome != api.AttemptFailed && end.Outcome != api.AttemptTimedOut
	switch {
	case !lost:
		tally.Failures++
	case !end.Planned:
		tally.Losses++
	}
	if next, stops := gate(spec, tally, end); stops {
		return next
	}
	if lost {
		return afterLoss(spec, tally, end)
	}
	return afterFailure(spec, taskID, tally, end)
}

// afterReturn decides after a delivery that no agent began.
func afterReturn(taskID string, tally Tally, end AttemptEnd) Redelivery {
	tally.Returns++
	if end.LastUnreceived(tally) {
		tally.NotReceived++
		return Redelivery{Status: api.TaskDeadLetter, Tally: tally, Why: fmt.Sprintf(
			"%d deliveries reached agents and none of them received the task, so it may be one that they cannot read; last: %s",
			tally.NotReceived,
			end.Reason,
		)}
	}
	if end.NotReceived {
		tally.NotReceived++
	}
	if wait := returnWait(taskID, tally.Returns, end); wait > 0 {
		return Redelivery{Status: api.TaskRetryWait, Wait: wait, Tally: tally,
			Why:       "no agent took the task: " + end.Reason,
			Unhandled: end.Unhandled && (tally.Returns >= unhandledNoted || end.RetryAfter > 0)}
	}
	return Redelivery{Status: api.TaskQueued, Tally: tally, Why: end.Reason}
}

// gate decides about ends after which the task must not run again by itself, whatever its policies allow.
func gate(spec *api.TaskSpec, tally Tally, end AttemptEnd) (next Redelivery, stops bool) {
	safety := spec.Safety()
	status, why := api.TaskReview, ""
	switch failed := end.Outcome == api.AttemptFailed || end.Outcome == api.AttemptCompleted; {
	case end.Outcome == api.AttemptTimedOut && safety.NeedsPerson():
		why = fmt.Sprintf("an attempt of this %s task was ended before it was done: decide whether it was done (%s)",
			safety, end.Reason)
	case !failed && safety.NeedsPerson():
		gone := "the agent was lost"
		if end.planned() {
			gone = "the task was taken off its agent"
		}
		why = fmt.Sprintf("%s and may have begun this %s task: decide whether it was done (%s)", gone, safety, end.Reason)
	case end.CheckpointLost:
		why = "its newest checkpoint was lost with its agent and its hub: decide whether it runs again from an earlier one"
	case end.Paused && end.Outcome.Gone() && !end.planned():
		why = "its work was paused when its agent was lost: decide whether it goes on (" + end.Reason + ")"
	case !failed && end.Outcome != api.AttemptTimedOut:
		return next, false
	case end.ErrorType == api.ErrorTypeCheckpoint:
		why = "its checkpoint is damaged: decide whether it runs again from its beginning (" + end.Reason + ")"
	case end.Final:
		status, why = api.TaskFailed, "the agent reported a failure that must not be tried again: "+end.Reason
	case end.ErrorType != "" && slices.Contains(spec.Retry.NonRetryable, end.ErrorType):
		status, why = api.TaskFailed, fmt.Sprintf("the attempt ended with %s, which this task does not try again: %s",
			end.ErrorType, end.Reason)
	case failed && safety == api.AtMostOnce:
		why = "the attempt failed and an at_most_once task is not tried again: " + end.Reason
		if spec.EffectiveRecovery() == nil {
			status = api.TaskFailed
		}
	default:
		return next, false
	}
	return Redelivery{Status: status, Tally: tally, Why: why}, true
}

func afterLoss(spec *api.TaskSpec, tally Tally, end AttemptEnd) Redelivery {
	limit := cmp.Or(spec.Retry.MaxTransfers, api.DefaultMaxTransfers)
	if tally.Losses > limit {
		return Redelivery{Status: api.TaskDeadLetter, Tally: tally,
			Why: fmt.Sprintf("lost with its agent %d times, %d are allowed; last: %s", tally.Losses, limit, end.Reason)}
	}
	if wait := end.Lease(); spec.Safety() == api.Fenced && wait > 0 {
		return Redelivery{Status: api.TaskRetryWait, Wait: wait, Tally: tally,
			Why: "waiting until the lost agent's lease has certainly run out: " + end.Reason}
	}
	return Redelivery{Status: api.TaskQueued, Tally: tally, Why: end.Reason}
}

// afterFailure tries again until attempts are used up. The handler of an attempt that ran too long, or gave no sign of
// life, may still run: fenced waits until it has certainly stopped.
func afterFailure(spec *api.TaskSpec, taskID string, tally Tally, end AttemptEnd) Redelivery {
	limit := cmp.Or(spec.Retry.MaxAttempts, api.DefaultMaxAttempts)
	if tally.Failures >= limit {
		return Redelivery{Status: api.TaskDeadLetter, Tally: tally, Why: tally.failed(limit) + "; last: " + end.Reason}
	}
	wait, what := Backoff(spec.Retry, taskID, tally.Failures), "failed"
	if end.Outcome == api.AttemptTimedOut {
		what = "timed out"
		if spec.Safety() == api.Fenced {
			wait = max(wait, end.Lease())
		}
	}
	return Redelivery{Status: api.TaskRetryWait, Wait: wait, Tally: tally,
		Why: fmt.Sprintf("attempt %s (%d of %d): %s", what, tally.Failures, limit, end.Reason)}
}

// Bounds of the wait between deliveries that no agent takes.
const (
	returnsFree    = 3 // these go back at once
	returnFirst    = 100 * time.Millisecond
	returnLimit    = 5 * time.Second
	unhandledFirst = 500 * time.Millisecond
	unhandledLimit = 30 * time.Second
	// returns in a row, about two seconds: a restarting agent is back by then, and another hub may have an agent for
	// the task
	unhandledNoted = 3
	// crowdLimit bounds the wait that a hub asks for.
	crowdLimit = 10 * time.Minute
)

// returnWait is the wait after a delivery that no agent took. If every able agent was busy, the first tasks go back at
// once, later ones up to 5 s apart; if no agent was able, they are soon 30 s apart. If the hub asks for a longer wait,
// such as for the end of a rate limit or for the task's turn among many, it lasts as asked, at most ten minutes.
func returnWait(taskID string, returns int, end AttemptEnd) time.Duration {
	asked := min(end.RetryAfter.Std(), crowdLimit)
	switch {
	case end.Unhandled:
		return max(asked, spaced(taskID, returns, 1, unhandledFirst, unhandledLimit))
	case asked > 0 || returns <= returnsFree:
		return asked
	}
	return spaced(taskID, returns, returnsFree+1, returnFirst, returnLimit)
}

// spaced is first at the nth return and doubles with each later one, up to limit, plus jitter.
func spaced(taskID string, returns, nth int, first, limit time.Duration) time.Duration {
	wait := Doubled(first, returns-nth, limit)
	return min(wait+jitter(taskID, returns, wait/2), limit)
}

// TurnWait is the wait of a run or an event after the nth time that it was not its tenant's turn: soon half a minute to
// a minute, so that waiting ones do not keep the workers busy.
func TurnWait(id string, n int) time.Duration {
	wait := Doubled(500*time.Millisecond, n-1, 30*time.Second)
	return wait + jitter(id, n, wait)
}

// Backoff bounds between the attempts of a task.
const (
	maxJitter = time.Second
)

// Backoff is the wait after the nth failed attempt: initial·2^(n-1) plus jitter, at most max. The jitter (up to one
// second, and never more than the wait itself) comes from the task's id, so that replay finds the same value.
func Backoff(policy api.RetryPolicy, taskID string, failures int) time.Duration {
	limit := policy.MaxInterval.Or(api.DefaultMaxInterval)
	wait := Doubled(policy.InitialInterval.Or(api.DefaultInitialInterval), failures-1, limit)
	return min(wait+jitter(taskID, failures, min(maxJitter, wait)), limit)
}

// Doubled is first, doubled the given number of times, at most limit.
func Doubled(first time.Duration, times int, limit time.Duration) time.Duration {
	wait := min(first, limit)
	for ; times > 0 && wait < limit; times-- {
		wait = min(2*wait, limit)
	}
	return wait
}

// jitter is a fixed value in [0, bound) for a task and a count.
func jitter(taskID string, n int, bound time.Duration) time.Duration {
	if bound <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(taskID))
	_, _ = h.Write([]byte{byte(n), byte(n >> 8)})
	return time.Duration(h.Sum64() % uint64(bound))
}

// poisonLosses is how many agents a task was lost with before it, and not the network, is the likelier cause of the
// next loss.
const poisonLosses = 2

// Poisonous reports whether a task was lost with several agents already, so that losing another agent that runs it is
// no sign of a broken network. The brake leaves that agent out.
func (t Tally) Poisonous() bool { return t.Losses >= poisonLosses }
