package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Decide notes what a person decided; the newest 50 are kept.
func (l *Ledger) Decide(d Decision) {
	if len(l.Decisions) == decisionsKept {
		l.Decisions = slices.Delete(l.Decisions, 0, 1)
	}
	l.Decisions = append(l.Decisions, d)
}

const decisionsKept = 50

// Refuse says why a person cannot do this to a step now; "" if it is possible.
func (l *Ledger) Refuse(step string, action StepAction) string {
	e := l.Entry(step)
	switch {
	case e == nil:
		return "the run has no step " + step
	case l.Status.Final():
		return "the run has ended: it is " + string(l.Status)
	case l.Cancel != nil:
		return "the run is being cancelled"
	}
	asks := e.Status == StepBlocked && e.Approval
	failed := e.Status == StepFailed || IsHeld(e)
	possible, needs := false, ""
	switch action {
	case ApproveStep, RejectStep:
		possible, needs = asks, "that waits for approval"
	case RetryStep:
		possible, needs = failed, "that has failed"
	case SkipStep, CompleteStep:
		possible, needs = failed || !e.Status.Final() && !underWay(e), "that has failed or has not begun"
	case FailStep:
		possible, needs = IsHeld(e) ||
			!e.Status.Final() && !underWay(e), "that has failed and is held, or has not begun"
	default:
		return "the action must be retry, skip, complete, fail, approve or reject"
	}
	if possible {
		return ""
	}
	return fmt.Sprintf("only a step %s can take %s; step %s is %s", needs, action, step, e.Status)
}

// Act carries out what a person decided about a step that Refuse does not refuse. Steps that failed because of it are
// open again.
func (l *Ledger) Act(p *Plan, step string, action StepAction, reason string, output json.RawMessage, now time.Time) {
	e := l.Entry(step)
	said := "by a person"
	if reason != "" {
		said += ": " + reason
	}
	switch action {
	case ApproveStep:
		EndWork(&e.Work, StepCompleted, "approved "+said, now)
	case RejectStep:
		FailEntry(e, p.Step(step).OnFailure, "rejected "+said, now)
	case RetryStep:
		runAgain(e)
		e.Turns = 0
		if e.Forgiven = len(e.Corrections); e.Forgiven > 0 {
			e.Note, e.DeadlineAt = reason, nil
		}
	case SkipStep:
		EndWork(&e.Work, StepSkipped, "skipped "+said, now)
	case CompleteStep:
		EndWork(&e.Work, StepCompleted, "completed "+said, now)
		e.Output = output
	case FailStep:
		EndWork(&e.Work, StepFailed, "failed "+said, now)
	}
	if action != FailStep && action != RejectStep {
		for i := range l.Steps {
			if after := &l.Steps[i]; after.Status == StepFailed && !after.Begun && after.Step != step {
				after.Work = Work{Status: StepPending, TaskID: after.TaskID}
			}
		}
	}
}
