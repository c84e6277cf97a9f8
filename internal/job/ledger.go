package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// SetPolicy notes what is in force for the attempts of a step's task.
func SetPolicy(e *api.StepEntry, task *api.TaskSpec, s *PlannedStep) {
	e.Policy = &api.StepPolicy{Timeout: api.Duration(task.AttemptTimeout()), BeaconTimeout: task.BeaconTimeout,
		Retry: task.EffectiveRetry(), Recovery: task.EffectiveRecovery(), OnFailure: s.OnFailure}
}

// Show adds what follows from the rest at a time: until when attempts may run, and the state of recovery.
func (l *Ledger) Show(now time.Time) {
	for i := range l.Steps {
		e := &l.Steps[i]
		if e.Policy != nil && e.Counts == nil {
			showWork(&e.StepWork, e.Policy, now)
		}
		for n := range e.Elements {
			if e.Policy != nil {
				showWork(&e.Elements[n], e.Policy, now)
			}
		}
	}
}

func showWork(w *api.StepWork, p *api.StepPolicy, now time.Time) {
	for i := range w.Attempts {
		if a := &w.Attempts[i]; a.StartedAt != nil && a.DeadlineAt == nil {
			a.DeadlineAt = new(a.StartedAt.Add(p.Timeout.Std()))
		}
	}
	if p.Recovery != nil {
		w.PolicyState = task.ShowPolicy(w.PolicyState, p.Recovery, now)
		w.RecoveryStatus = task.RecoveryStatus(w.Status.Task(), w.PolicyState)
		w.RecoveryRequiresReview = w.Status == api.StepBlocked
	}
}

// Ledger is what a run has done and what comes next.
type Ledger api.Ledger

// Forget leaves out how tasks came to their ends: the newest attempt of each is left, and says nothing.
func (l *Ledger) Forget() {
	brief := func(w *api.StepWork) {
		w.Why, w.PolicyState = api.Shorten(w.Why, 100), nil
		if n := len(w.Attempts); n > 0 {
			a := w.Attempts[n-1]
			w.Attempts = []api.Attempt{{Number: a.Number, AgentID: a.AgentID, StartedAt: a.StartedAt,
				EndedAt: a.EndedAt, Outcome: a.Outcome}}
		}
	}
	for i := range l.Steps {
		e := &l.Steps[i]
		brief(&e.StepWork)
		for n := range e.Elements {
			brief(&e.Elements[n])
		}
	}
}

// NewLedger is the ledger of a run that begins now. runID names the run.
func NewLedger(p *Plan, runID string, inputs json.RawMessage, origin api.RunOrigin, now time.Time) *Ledger {
	l := &Ledger{Job: p.Job, JobVersion: p.JobVersion, Status: api.RunRunning, Inputs: inputs, Origin: origin,
		StartedAt: now, Steps: make([]api.StepEntry, len(p.Steps))}
	if p.Deadline > 0 {
		l.DeadlineAt = new(now.Add(p.Deadline.Std()))
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		l.Steps[i] = api.StepEntry{Step: s.ID, StepWork: api.StepWork{Status: api.StepPending}, Safety: s.Safety}
		if s.Task != nil {
			l.Steps[i].TaskID = TaskID(runID, s.ID)
			l.Steps[i].IdempotencyKey = IdempotencyKey(runID, s.ID)
		}
	}
	return l
}

// Delay has the deadline of a new run count from a time, if that is later than now.
func (l *Ledger) Delay(startAt time.Time) {
	if l.DeadlineAt != nil && startAt.After(l.StartedAt) {
		l.DeadlineAt = new(l.DeadlineAt.Add(startAt.Sub(l.StartedAt)))
	}
}

// budgets is how often the models' usage has used up the job's budget.
func (l *Ledger) budgets(p *Plan) (n int) {
	if b := p.Budget; b != nil && b.Tokens > 0 {
		n = l.Tokens / b.Tokens
	}
	if b := p.Budget; b != nil && b.MicroUSD() > 0 {
		n = max(n, l.MicroUSD/b.MicroUSD())
	}
	return n
}

// OverBudget reports whether models have used up the job's budget, and what resumes have added to it.
func (l *Ledger) OverBudget(p *Plan) bool { return l.budgets(p) > l.Budgets }

// RenewBudget gives models their budget again if they have used it up.
func (l *Ledger) RenewBudget(p *Plan) { l.Budgets = max(l.Budgets, l.budgets(p)) }

// Entry returns the entry of a step, nil for none.
func (l *Ledger) Entry(step string) *api.StepEntry { return (*api.Ledger)(l).Entry(step) }

// Advance moves every step that can move by itself at this moment: pending ones become ready, or fail with what they
// need. It returns the ids of the steps that may begin now, in the order of the plan. Applied twice it changes nothing
// more.
func (l *Ledger) Advance(p *Plan, now time.Time) (begin []string) {
	if l.Status.Final() || l.Cancel != nil || l.Late(now) {
		return nil
	}
	failing := l.failing(p)
	for i := range p.Steps {
		e := &l.Steps[i]
		if e.Begun || e.Status != api.StepPending && e.Status != api.StepReady {
			continue
		}
		need := p.Steps[i].Join.Need(len(p.Steps[i].After))
		switch through, open := l.dependencies(p.Steps[i].After); {
		case through >= need:
			e.Status = api.StepReady
		case through+open >= need:
			e.Status = api.StepPending
		default:
			EndWork(&e.StepWork, api.StepFailed, "it comes after "+l.failed(p.Steps[i].After)+", which failed", now)
			failing = failing || !p.Steps[i].Optional
		}
	}
	for i := range l.Steps {
		if e := &l.Steps[i]; e.Status == api.StepReady && !e.Begun && !failing && l.Paused == nil {
			begin = append(begin, e.Step)
		}
	}
	return begin
}

// whyBytes bounds a step's words about the one that it waits for: a ledger may have many waiting steps.
const whyBytes = 200

// Explain says, in a ledger that is to be shown, why steps have not begun.
func (l *Ledger) Explain(p *Plan) {
	failing := l.failing(p)
	for i := range p.Steps {
		switch e := &l.Steps[i]; {
		case e.Begun || e.Why != "" || l.Status.Final():
		case e.Status == api.StepPending:
			e.Why = l.behind(p.Steps[i].After)
		case e.Status != api.StepReady:
		case l.Paused != nil:
			e.Why = "the run is paused"
		case failing:
			e.Why = "the run fails, and begins no other step"
		default:
			e.Why = "it begins when it is its turn"
		}
	}
}

// behind says which of the steps that one comes after have not ended, and what holds the first that cannot go on by
// itself.
func (l *Ledger) behind(after []string) string {
	var open []string
	for _, id := range after {
		switch e := l.Entry(id); {
		case e.Status == api.StepBlocked:
			return api.Shorten("it comes after "+id+", which is blocked: "+e.Why, whyBytes)
		case !e.Status.Final():
			open = append(open, id)
		}
	}
	return api.Shorten("it comes after "+strings.Join(open, ", "), whyBytes)
}

// dependencies counts the steps of a list that are through, and those that have not ended.
func (l *Ledger) dependencies(after []string) (through, open int) {
	for _, id := range after {
		switch e := l.Entry(id); {
		case e.Status.Through():
			through++
		case !e.Status.Final():
			open++
		}
	}
	return through, open
}

func (l *Ledger) failed(after []string) string {
	var names []string
	for _, id := range after {
		if l.Entry(id).Status == api.StepFailed {
			names = append(names, id)
		}
	}
	return strings.Join(names, ", ")
}

// failing reports whether the run will fail: a step that it needs has failed.
func (l *Ledger) failing(p *Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s PlannedStep) bool {
		return !s.Optional && l.Entry(s.ID).Status == api.StepFailed
	})
}

// Late reports whether the run's deadline has passed.
func (l *Ledger) Late(now time.Time) bool { return l.DeadlineAt != nil && !now.Before(*l.DeadlineAt) }

// End says how the run ends now, if it does: when it is cancelled, when its deadline has passed, and when the steps
// that it needs have ended. Tasks that are open then are to be cancelled.
func (l *Ledger) End(p *Plan, now time.Time) (status api.RunStatus, why string, ended bool) {
	switch {
	case l.Cancel != nil:
		return api.RunCancelled, l.Cancel.Reason, true
	case l.Late(now):
		return api.RunFailed, "the run's deadline of " + p.Deadline.Std().String() + " passed", true
	}
	var failed, partial []string
	for i := range p.Steps {
		s, e := &p.Steps[i], &l.Steps[i]
		switch {
		case s.Optional:
		case e.Status == api.StepFailed:
			failed = append(failed, s.ID)
		case e.Status == api.StepPartial:
			partial = append(partial, s.ID)
		case e.Status.Final():
		case l.failing(p) && !underWay(e):
			// It will not begin.
		default:
			return "", "", false
		}
	}
	switch {
	case len(failed) > 0:
		first := l.Entry(failed[0])
		return api.RunFailed, fmt.Sprintf("step %s failed: %s", first.Step, first.Why), true
	case l.Output == nil && l.optionalOpen(p):
		return "", "", false // without complete_run, the run ends when every step has
	case len(partial) > 0:
		return api.RunPartial, "partial: " + strings.Join(partial, ", "), true
	}
	return api.RunCompleted, "", true
}

func (l *Ledger) optionalOpen(p *Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s PlannedStep) bool {
		return s.Optional && !l.Entry(s.ID).Status.Final()
	})
}

// Close ends the run. Steps that have not ended are skipped.
func (l *Ledger) Close(status api.RunStatus, why string, now time.Time) {
	for i := range l.Steps {
		if e := &l.Steps[i]; !e.Status.Final() {
			EndWork(&e.StepWork, api.StepSkipped, runEnded+string(status), now)
		}
	}
	l.Status, l.Why, l.EndedAt = status, why, &now
}

// underWay reports whether tasks of the step have begun and have not ended.
func underWay(e *api.StepEntry) bool {
	return e.Begun && e.TaskID != "" && !e.Status.Final() && !IsHeld(e)
}

// EndWork ends a piece of work.
func EndWork(w *api.StepWork, status api.StepStatus, why string, now time.Time) {
	w.Status, w.Why, w.NextAt, w.EndedAt = status, why, nil, &now
}

// FailEntry ends a step whose work has failed, as its policy says.
func FailEntry(e *api.StepEntry, policy api.OnFailure, why string, now time.Time) {
	switch policy {
	case api.FailPartial:
		EndWork(&e.StepWork, api.StepPartial, "it failed, which counts as partial: "+why, now)
	case api.FailSkip:
		EndWork(&e.StepWork, api.StepSkipped, "it failed, which counts as skipped: "+why, now)
	case api.FailHold:
		EndWork(&e.StepWork, api.StepBlocked, held+why, now)
		e.EndedAt = nil
	default:
		EndWork(&e.StepWork, api.StepFailed, why, now)
	}
}

const held = "it failed, and a person decides how to go on: "

// IsHeld reports whether the step has failed and waits for a person.
func IsHeld(e *api.StepEntry) bool {
	return e.Status == api.StepBlocked && strings.HasPrefix(e.Why, held)
}

// Standing is the run's status while it has not ended; open says whether tasks are under way.
func (l *Ledger) Standing(open bool) (api.RunStatus, string) {
	switch {
	case l.Paused != nil && open:
		return api.RunPausing, "what runs is let finish or being stopped"
	case l.Paused != nil:
		return api.RunPaused, l.Paused.Reason
	case open:
		return api.RunRunning, ""
	}
	for i := range l.Steps {
		if e := &l.Steps[i]; e.Status == api.StepBlocked {
			return api.RunBlocked, "step " + e.Step + ": " + e.Why
		}
	}
	return api.RunRunning, ""
}

// EndElements counts the elements of a step, and ends the step when all of them have ended.
func EndElements(e *api.StepEntry, s *PlannedStep, now time.Time) {
	c := api.StepCounts{Total: len(e.Elements)}
	why := ""
	for i := range e.Elements {
		switch w := &e.Elements[i]; {
		case w.Status == api.StepFailed:
			c.Failed++
			if why == "" {
				why = fmt.Sprintf("element %d: %s", i, w.Why)
			}
		case w.Status.Final():
			c.Done++
		case w.Status != api.StepReady:
			c.Running++
		}
	}
	EndCounted(e, s, c, why, now)
}

// EndCounted ends the step when all of its elements have ended. why is the reason of a failure among them.
func EndCounted(e *api.StepEntry, s *PlannedStep, c api.StepCounts, why string, now time.Time) {
	e.Counts = &c
	switch {
	case c.Done+c.Failed < c.Total:
	case c.Failed == 0:
		EndWork(&e.StepWork, api.StepCompleted, "", now)
	case c.Failed <= s.Tolerate.Of(c.Total):
		EndWork(&e.StepWork, api.StepPartial, fmt.Sprintf("%d of %d elements failed, no more than are tolerated; %s", c.Failed, c.Total,
			why), now)
	default:
		FailEntry(e, s.OnFailure, fmt.Sprintf("%d of %d elements failed; %s", c.Failed, c.Total, why), now)
	}
}

// FailedElements are the indices of the elements that failed.
func FailedElements(e *api.StepEntry) []int {
	failed := []int{}
	for i := range e.Elements {
		if e.Elements[i].Status == api.StepFailed {
			failed = append(failed, i)
		}
	}
	return failed
}

// Clone is a copy whose steps and elements can be changed.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.Steps = slices.Clone(l.Steps)
	for i := range c.Steps {
		c.Steps[i].Elements = slices.Clone(c.Steps[i].Elements)
		if v := c.Steps[i].Verdict; v != nil {
			verdict := *v
			c.Steps[i].Verdict = &verdict
		}
	}
	c.Decisions = slices.Clone(l.Decisions)
	return &c
}

// OutputBytes is how much the run keeps of the results of its steps.
func (l *Ledger) OutputBytes() int {
	bytes := 0
	for i := range l.Steps {
		bytes += len(l.Steps[i].Output)
		for _, c := range l.Steps[i].Corrections {
			bytes += len(c.Output)
		}
	}
	return bytes
}

// runEnded begins why a step was skipped that had not ended when its run did.
const runEnded = "the run has ended: it is "
