package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// Decide notes what a person decided; the newest 50 are kept.
func (l *Ledger) Decide(d api.Decision) {
	if len(l.Decisions) == decisionsKept {
		l.Decisions = slices.Delete(l.Decisions, 0, 1)
	}
	l.Decisions = append(l.Decisions, d)
}

const decisionsKept = 50

// Refuse says why a person cannot do this to a step now; "" if it is possible.
func (l *Ledger) Refuse(step string, action api.StepAction) string {
	e := l.Entry(step)
	switch {
	case e == nil:
		return "the run has no step " + step
	case l.Status.Final():
		return "the run has ended: it is " + string(l.Status)
	case l.Cancel != nil:
		return "the run is being cancelled"
	}
	asks := e.Status == api.StepBlocked && e.Approval
	failed := e.Status == api.StepFailed || IsHeld(e)
	possible, needs := false, ""
	switch action {
	case api.ApproveStep, api.RejectStep:
		possible, needs = asks, "that waits for approval"
	case api.RetryStep:
		possible, needs = failed, "that has failed"
	case api.SkipStep, api.CompleteStep:
		possible, needs = failed || !e.Status.Final() && !underWay(e), "that has failed or has not begun"
	case api.FailStep:
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
func (l *Ledger) Act(p *Plan, step string, action api.StepAction, reason string, output json.RawMessage,
	now time.Time) {
	e := l.Entry(step)
	said := "by a person"
	if reason != "" {
		said += ": " + reason
	}
	switch action {
	case api.ApproveStep:
		EndWork(&e.StepWork, api.StepCompleted, "approved "+said, now)
	case api.RejectStep:
		FailEntry(e, p.Step(step).OnFailure, "rejected "+said, now)
	case api.RetryStep:
		runAgain(e)
		e.Turns = 0
		if e.Forgiven = len(e.Corrections); e.Forgiven > 0 {
			e.Note, e.DeadlineAt = reason, nil
		}
	case api.SkipStep:
		EndWork(&e.StepWork, api.StepSkipped, "skipped "+said, now)
	case api.CompleteStep:
		EndWork(&e.StepWork, api.StepCompleted, "completed "+said, now)
		e.Output = output
	case api.FailStep:
		EndWork(&e.StepWork, api.StepFailed, "failed "+said, now)
	}
	if action != api.FailStep && action != api.RejectStep {
		for i := range l.Steps {
			if after := &l.Steps[i]; after.Status == api.StepFailed && !after.Begun && after.Step != step {
				after.StepWork = api.StepWork{Status: api.StepPending, TaskID: after.TaskID}
			}
		}
	}
}

// Actions are what a person can do to the run now.
func (l *Ledger) Actions() []api.RunAction {
	switch {
	case l.Status.Final():
		return []api.RunAction{api.RetryRun}
	case l.Cancel != nil:
		return nil
	case l.Paused != nil:
		return []api.RunAction{api.ResumeRun, api.CancelRun}
	}
	return []api.RunAction{api.PauseRun, api.CancelRun}
}

// StepActions are what a person can do to the run's steps now, by step: what Refuse does not refuse.
func (l *Ledger) StepActions() map[string][]api.StepAction {
	all := map[string][]api.StepAction{}
	for i := range l.Steps {
		step := l.Steps[i].Step
		for _, action := range []api.StepAction{api.ApproveStep, api.RejectStep, api.RetryStep, api.SkipStep,
			api.CompleteStep, api.FailStep} {
			if l.Refuse(step, action) == "" {
				all[step] = append(all[step], action)
			}
		}
	}
	return all
}

// Reopen forgets what a step has done, and all steps that come after it, so that a run that takes the ledger over runs
// them again. It reports whether there is the step.
func (l *Ledger) Reopen(p *Plan, step string) bool {
	again := []string{step}
	for i := range p.Steps { // by level: a step stands behind those that it comes after
		s := &p.Steps[i]
		if slices.ContainsFunc(s.After, func(id string) bool { return slices.Contains(again, id) }) {
			again = append(again, s.ID)
		}
	}
	for _, id := range again {
		if e := l.Entry(id); e != nil {
			e.Status = api.StepPending
		}
	}
	return l.Entry(step) != nil
}

// TakeOver puts in the steps that are through in the ledger of a run that this one repeats.
func (l *Ledger) TakeOver(done *Ledger) {
	for i := range done.Steps {
		d := &done.Steps[i]
		if e := l.Entry(d.Step); e != nil && d.Status.Through() && !strings.HasPrefix(d.Why, runEnded) {
			*e = *d
		}
	}
}
