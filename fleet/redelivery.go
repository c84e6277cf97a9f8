package fleet

import (
	"fmt"
	"slices"
	"time"
)

// UnknownLease bounds how long a lost agent may go on with fenced work when nobody knows when its lease ends.
const UnknownLease = AttemptBackstop

// Tally counts what happened to a task so far, since its start or its last retry by hand.
type Tally struct {
	Failures int `json:"failures,omitempty"` // attempts whose handler reported a failure
	Losses   int `json:"losses,omitempty"`   // attempts lost with their agent after they may have begun
	Returns  int `json:"returns,omitempty"`  // deliveries in a row that never began
}

// AttemptEnd is what is known about an attempt that ended without a result.
type AttemptEnd struct {
	Outcome AttemptOutcome
	Begun   bool // false: the agent certainly never began it
	Final   bool // the handler said that trying again is useless
	// LeaseRemaining is how long after now the lost agent may go on with fenced work; nil: unknown. It is a duration and
	// not an instant, so that no two clocks need to agree.
	LeaseRemaining *Duration
	Reason         string
	// Planned says that a person or a drain took it off the agent: it does not count as a loss.
	Planned   bool
	ErrorType string // what kind of failure it was, if the handler named it
}

// Redelivery is what to do with a task after an attempt ended without a result.
type Redelivery struct {
	// Status is TaskQueued (deliver again now), TaskRetryWait (deliver again after Wait), TaskReview, TaskDeadLetter or
	// TaskFailed.
	Status TaskStatus
	Wait   time.Duration
	Why    string
	Tally  Tally
}

// Redeliver decides what happens after an attempt ended without a result. It is the one gate of every redelivery:
// at_most_once never begins twice, fenced waits out the old lease, and attempts and losses are bounded.
func Redeliver(spec *TaskSpec, taskID string, tally Tally, end AttemptEnd) Redelivery {
	if end.Outcome == AttemptReturned || !end.Begun && end.Outcome == AttemptLost {
		tally.Returns++
		if wait := returnWait(taskID, tally.Returns); wait > 0 {
			return Redelivery{Status: TaskRetryWait, Wait: wait, Tally: tally, Why: "no agent took the task: " + end.Reason}
		}
		return Redelivery{Status: TaskQueued, Tally: tally, Why: end.Reason}
	}
	tally.Returns = 0
	if end.Outcome == AttemptFailed {
		return afterFailure(spec, taskID, tally, end)
	}
	return afterLoss(spec, tally, end)
}

func afterFailure(spec *TaskSpec, taskID string, tally Tally, end AttemptEnd) Redelivery {
	tally.Failures++
	limit := spec.Retry.MaxAttempts
	if limit == 0 {
		limit = DefaultMaxAttempts
	}
	switch {
	case end.Final:
		return Redelivery{Status: TaskFailed, Tally: tally, Why: "the agent reported a failure that must not be tried again: " + end.Reason}
	case end.ErrorType != "" && slices.Contains(spec.Retry.NonRetryable, end.ErrorType):
		return Redelivery{Status: TaskFailed, Tally: tally, Why: fmt.Sprintf("the attempt failed with %s, which this task does not try again: %s", end.ErrorType, end.Reason)}
	case spec.Safety() == AtMostOnce:
		return Redelivery{Status: TaskFailed, Tally: tally, Why: "the attempt failed and an at_most_once task is not tried again: " + end.Reason}
	case tally.Failures >= limit:
		return Redelivery{Status: TaskDeadLetter, Tally: tally, Why: fmt.Sprintf("%d of %d attempts failed; last: %s", tally.Failures, limit, end.Reason)}
	}
	return Redelivery{Status: TaskRetryWait, Wait: Backoff(spec.Retry, taskID, tally.Failures), Tally: tally,
		Why: fmt.Sprintf("attempt failed (%d of %d): %s", tally.Failures, limit, end.Reason)}
}

func afterLoss(spec *TaskSpec, tally Tally, end AttemptEnd) Redelivery {
	if !end.Planned {
		tally.Losses++
	}
	limit := spec.Retry.MaxTransfers
	if limit == 0 {
		limit = DefaultMaxTransfers
	}
	if spec.Safety() == AtMostOnce {
		gone := "the agent was lost"
		if end.Planned {
			gone = "the task was taken off its agent"
		}
		return Redelivery{Status: TaskReview, Tally: tally,
			Why: gone + " and may have begun this at_most_once task: decide whether it was done (" + end.Reason + ")"}
	}
	if tally.Losses > limit {
		return Redelivery{Status: TaskDeadLetter, Tally: tally,
			Why: fmt.Sprintf("lost with its agent %d times, %d are allowed; last: %s", tally.Losses, limit, end.Reason)}
	}
	if spec.Safety() == Fenced {
		wait := UnknownLease
		if end.LeaseRemaining != nil {
			wait = end.LeaseRemaining.Std()
		}
		if wait > 0 {
			return Redelivery{Status: TaskRetryWait, Wait: wait, Tally: tally,
				Why: "waiting until the lost agent's lease has certainly run out: " + end.Reason}
		}
	}
	return Redelivery{Status: TaskQueued, Tally: tally, Why: end.Reason}
}

// returnWait spaces deliveries that no agent takes: the first ones go back at once, then up to 5 s apart.
func returnWait(taskID string, returns int) time.Duration {
	const free, limit = 3, 5 * time.Second
	if returns <= free {
		return 0
	}
	wait := 100 * time.Millisecond
	for i := free + 1; i < returns && wait < limit; i++ {
		wait *= 2
	}
	return min(wait+jitter(taskID, returns, wait/2), limit)
}
