package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/delivery"
	"mainstay.dev/sdk/api"
)

// work is one task of a step: the step's own, or that of an element.
type work struct {
	run      *run
	key      string // step, or step.element
	step     string
	element  int // -1: the step's own; job.OfCheck: the one that checks its result
	task     contract.TaskInput
	delivery *delivery.Delivery // nil until it has begun
	over     bool               // the delivery has ended, or stopped so that the run can continue as new
	late     string             // why it is stopped, if its step may not go on
	launched bool               // launch has counted its first attempt
}

// work is where the ledger has the task.
func (w *work) work(l *job.Ledger) *api.StepWork {
	e := l.Entry(w.step)
	switch {
	case w.element == job.OfCheck:
		return e.Verdict
	case w.element < 0:
		return &e.StepWork
	}
	return &e.Elements[w.element]
}

// make makes the tasks of a step that begins. They begin when there is room.
func (r *run) make(e *api.StepEntry, tasks []contract.PlacedTask, each bool) {
	if len(tasks) > 0 {
		job.SetPolicy(e, &tasks[0].Spec, r.in.Plan.Step(e.Step)) // of elements, that of the first
	}
	for i, t := range tasks {
		w := &work{run: r, key: e.Step, step: e.Step, element: -1}
		if each {
			w.key, w.element = job.ElementKey(e.Step, i), i
		}
		w.task = contract.TaskInput{TaskID: r.id + job.StepMark + w.key, Spec: t.Spec, Lane: t.Lane}
		if n := len(e.Attempts); n > 0 && !each { // a person has it run again: attempts count on
			w.task.Carried = &contract.TaskCarried{Attempts: e.Attempts, Deliveries: e.Attempts[n-1].Number}
			if len(e.Corrections) == e.Forgiven && e.Turns == 0 {
				w.task.Carried.RoutesSince = w.task.Carried.Deliveries // not for a correction, nor for another turn
			}
		}
		if len(r.in.Plan.Step(e.Step).Tools) == 0 { // else its conversation has it
			w.task.Spec.Payload = job.WithFeedback(e, t.Spec.Payload)
		}
		if each {
			e.Elements = append(e.Elements, api.StepWork{Status: api.StepReady, TaskID: w.task.TaskID})
		}
		r.open = append(r.open, w)
	}
	if each {
		e.Counts = &api.StepCounts{Total: len(tasks)}
	}
}

// check makes the task that checks the result of a step, which is open again.
func (r *run) check(ctx workflow.Context, e *api.StepEntry, t *contract.PlacedTask) {
	w := &work{run: r, key: job.CheckKey(e.Step), step: e.Step, element: job.OfCheck}
	w.task = contract.TaskInput{TaskID: job.TaskID(r.id, w.key), Spec: t.Spec, Lane: t.Lane}
	verdict := &api.StepWork{Status: api.StepReady, TaskID: w.task.TaskID}
	if e.Verdict != nil && len(e.Verdict.Attempts) > 0 { // attempts count on; each verdict is a new call
		verdict.Attempts = e.Verdict.Attempts
		last := verdict.Attempts[len(verdict.Attempts)-1].Number
		w.task.Carried = &contract.TaskCarried{Attempts: verdict.Attempts, Deliveries: last, RoutesSince: last}
	}
	e.Verdict = verdict
	e.Status, e.Why, e.EndedAt = api.StepQueued, checked, nil
	r.open = append(r.open, w)
	r.timer(ctx, e)
}

// checked is why a step goes on whose result is there.
const checked = "its result is being checked"

// restore makes the open tasks of the run before, in the order of the plan.
func (r *run) restore(tasks map[string]contract.TaskInput) {
	for i := range r.ledger.Steps {
		e := &r.ledger.Steps[i]
		if t, open := tasks[e.Step]; open {
			r.open = append(r.open, &work{run: r, key: e.Step, step: e.Step, element: -1, task: t})
		}
		key := job.CheckKey(e.Step)
		if t, open := tasks[key]; open {
			r.open = append(r.open, &work{run: r, key: key, step: e.Step, element: job.OfCheck, task: t})
		}
		for n := range e.Elements {
			key := job.ElementKey(e.Step, n)
			if t, open := tasks[key]; open {
				r.open = append(r.open, &work{run: r, key: key, step: e.Step, element: n, task: t})
			}
		}
	}
}

// launch begins the tasks that there is room for.
func (r *run) launch(ctx workflow.Context) {
	if r.ledger.Paused != nil || r.quiet {
		return
	}
	room := min(underWayBytes, mostBytes-workflow.GetInfo(ctx).GetCurrentHistorySize())
	under, all, bytes := map[string]int{}, 0, 0
	for _, w := range r.open {
		if w.delivery != nil {
			under[w.step]++
			all++
			bytes += w.answer()
		}
	}
	for _, w := range r.open {
		limit := max(1, r.in.Plan.Step(w.step).Parallel)
		if w.delivery != nil || under[w.step] >= limit || all >= job.MaxParallel ||
			all > 0 && bytes+w.bytes()+w.answer() > room {
			continue
		}
		if r.full(ctx) {
			r.changed = true // the rest begins in the next turn
			return
		}
		r.turn += w.bytes()
		under[w.step]++
		all++
		bytes += w.bytes() + w.answer()
		r.deliver(ctx, w)
	}
}

func (r *run) deliver(ctx workflow.Context, w *work) {
	now := workflow.Now(ctx)
	r.bytes += len(w.task.Spec.Payload)
	if w.task.Carried != nil && w.task.Carried.WaitingSince.IsZero() {
		w.task.Carried.WaitingSince = now
	}
	w.task.ResultLimit = int(r.in.Plan.Step(w.step).ResultLimit)
	w.task.IdempotencyKey, w.task.DeadlineAt = r.ledger.KeyOf(w.step, w.key), r.ledger.EndOf(w.step)
	w.delivery = delivery.New(w.task, now, w)
	at := w.work(r.ledger)
	at.Status = api.StepQueued
	if at.StartedAt == nil {
		at.StartedAt = &now
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		if ended := w.delivery.Run(ctx); !ended {
			w.task = w.delivery.Task()
			if w.task.Carried != nil {
				w.task.Carried.Attempts = r.cut(w.task.Carried.Attempts) // all: policies count them
			}
		}
		w.over, r.changed = true, true
	})
}

// collect takes the results of the tasks that have ended.
func (r *run) collect(now time.Time) {
	open := r.open
	r.open = nil
	for _, w := range open {
		switch {
		case !w.over:
			r.open = append(r.open, w)
		case !w.delivery.State().Status.Final():
			w.delivery, w.over, w.launched = nil, false, false // it goes on after the run has continued as new
			r.open = append(r.open, w)
		default:
			r.take(w, now)
		}
	}
}

// take puts into the ledger how a task ended.
func (r *run) take(w *work, now time.Time) {
	state := w.delivery.State()
	e, s := r.ledger.Entry(w.step), r.in.Plan.Step(w.step)
	at := w.work(r.ledger)
	at.Attempts, at.NextAt, at.PolicyState = r.brief(state.Attempts), nil, state.PolicyState
	result, problem := r.result(w, s, state)
	problem = r.briefly(problem)
	switch {
	case problem == "":
		r.results[w.key] = result
	case w.element != -1:
		job.EndWork(at, api.StepFailed, problem, now)
	default:
		job.FailEntry(e, s.OnFailure, problem, now)
		return
	}
	if problem == "" {
		job.EndWork(at, api.StepCompleted, "", now)
	}
	if w.element == job.OfCheck {
		job.EndWork(&e.StepWork, api.StepCompleted, "", now)
	}
	if w.element < 0 {
		r.ended = append(r.ended, w.step)
		return
	}
	if r.endElements(e, s, now); len(s.Tools) == 0 && e.Status.Through() {
		r.ended = append(r.ended, w.step)
	}
}

const (
	// maxWhy bounds in bytes why a task has ended, and maxReason why each of its attempts has. Agents may say more.
	maxWhy, maxReason = 1 << 10, 200
	// attemptsKept is how many attempts a run keeps of all its tasks, but at least the newest of each, and textKept how
	// many bytes of what all say: its ledger is to fit into a message of Temporal's.
	attemptsKept, textKept = 4000, 128 << 10
)

// tasks is how many tasks the ledger has.
func (r *run) tasks() int {
	n := len(r.ledger.Steps)
	for i := range r.ledger.Steps {
		n += len(r.ledger.Steps[i].Elements)
	}
	return n
}

// briefly is the part that the run keeps of why a task has ended.
func (r *run) briefly(why string) string { return api.Shorten(why, min(maxWhy, textKept/r.tasks())) }

// brief is what the ledger keeps of a task's attempts.
func (r *run) brief(attempts []api.Attempt) []api.Attempt {
	kept := max(1, attemptsKept/r.tasks())
	return r.cut(attempts[max(0, len(attempts)-kept):])
}

// cut is attempts with the beginning of what they say.
func (r *run) cut(attempts []api.Attempt) []api.Attempt {
	attempts = slices.Clone(attempts)
	limit := min(maxReason, textKept/(max(1, len(attempts))*r.tasks()))
	for i := range attempts {
		a := &attempts[i]
		a.Reason, a.ErrorType = api.Shorten(a.Reason, limit), api.Shorten(a.ErrorType, limit)
		if a.Progress != nil {
			a.Progress = new(*a.Progress)
			a.Progress.Step = api.Shorten(a.Progress.Step, limit/2)
			a.Progress.Message = api.Shorten(a.Progress.Message, limit/2)
		}
	}
	return attempts
}

// result is what a task returned, and why that is a failure of its step; "" if it is none.
func (r *run) result(w *work, s *job.PlannedStep, state contract.TaskState) (json.RawMessage, string) {
	switch state.Status {
	case api.TaskCompleted:
	case api.TaskExpired:
		return nil, "no agent took its task in time"
	case api.TaskCancelled:
		if w.late != "" {
			return nil, w.late
		}
		return nil, "its task was cancelled: " + state.Why
	default:
		return nil, state.Why
	}
	r.bytes += len(state.Result)
	if w.task.Spec.Type == api.ModelTask {
		tokens, microUSD := mesh.Taken(state.Result)
		r.ledger.Tokens, r.ledger.MicroUSD = r.ledger.Tokens+tokens, r.ledger.MicroUSD+microUSD
	}
	switch {
	case len(state.Result) > int(s.ResultLimit):
		return nil, api.ResultTooLarge(len(state.Result), int(s.ResultLimit))
	case r.bytes > job.MaxRunBytes:
		return nil, fmt.Sprintf("the payloads and results of the run have more than %d MiB: pass on where large data is, "+
			"as a path or a key, instead of the data", job.MaxRunBytes>>20)
	}
	return state.Result, ""
}

// refresh puts into a ledger how the open tasks stand.
func (r *run) refresh(l *job.Ledger) {
	for _, w := range r.open {
		if e := l.Entry(w.step); w.element >= 0 && !e.Status.Final() {
			e.Status, e.Why = api.StepQueued, ""
		}
	}
	for _, w := range r.open {
		w.refresh(l)
	}
}

// refresh puts into a ledger how an open task stands.
func (w *work) refresh(l *job.Ledger) {
	if w.delivery == nil || w.over {
		return
	}
	state, at := w.delivery.State(), w.work(l)
	at.Attempts, at.Why = w.run.brief(state.Attempts), w.run.briefly(state.Why)
	at.NextAt, at.PolicyState = state.NextAttempt, state.PolicyState
	switch state.Status {
	case api.TaskRetryWait:
		at.Status = api.StepRetryWait
	case api.TaskReview:
		at.Status = api.StepBlocked
	default:
		at.Status = api.StepQueued
	}
	if e := l.Entry(w.step); w.element == job.OfCheck {
		if e.Status, e.Why = at.Status, checked; at.Why != "" {
			e.Why += ": " + at.Why
		}
	} else if w.element >= 0 && at.Status == api.StepBlocked {
		e.Status, e.Why = api.StepBlocked, fmt.Sprintf("element %d: %s", w.element, state.Why)
	}
}

// Mark makes the loop look at the task.
func (w *work) Mark(workflow.Context, api.TaskStatus) { w.run.changed = true }

// Note does nothing: lists show runs.
func (w *work) Note(workflow.Context, string, any) {}

// Held makes the loop look at the task, which waits for a person.
func (w *work) Held(workflow.Context) { w.run.changed = true }

// KeepsDeadLetters is false: the step's on_failure says what its failure means.
func (w *work) KeepsDeadLetters() bool { return false }

// timer watches the times of a step: the end of its wait, and its deadline.
func (r *run) timer(ctx workflow.Context, e *api.StepEntry) {
	if e.Status.Final() || !e.Begun {
		return
	}
	r.timers[e.Step]++
	mine := r.timers[e.Step]
	over := func() bool { return e.Status.Final() || r.timers[e.Step] != mine }
	if e.NextAt != nil && r.in.Plan.Step(e.Step).Wait != nil {
		workflow.Go(ctx, func(ctx workflow.Context) {
			wait := e.NextAt.Sub(workflow.Now(ctx))
			_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(max(wait, 1), "step "+e.Step), over)
			if !over() && ctx.Err() == nil {
				job.EndWork(&e.StepWork, api.StepCompleted, "", workflow.Now(ctx))
			}
			r.changed = true
		})
	}
	if e.DeadlineAt != nil {
		workflow.Go(ctx, func(ctx workflow.Context) {
			wait := e.DeadlineAt.Sub(workflow.Now(ctx))
			_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(max(wait, 1), "deadline of step "+e.Step), over)
			if !over() && ctx.Err() == nil {
				r.expire(ctx, e, "its deadline of "+r.in.Plan.Step(e.Step).Deadline.Std().String()+" passed")
			}
			r.changed = true
		})
	}
}

// expire ends a step whose deadline has passed, or that may not go on for another reason.
func (r *run) expire(ctx workflow.Context, e *api.StepEntry, why string) {
	s := r.in.Plan.Step(e.Step)
	for _, a := range r.arrays {
		if a.step == e.Step {
			a.late = why
			a.stop()
		}
	}
	var open []*work
	for _, w := range r.open {
		switch {
		case w.step != e.Step:
			open = append(open, w)
		case w.delivery == nil: // it does not begin any more
			job.EndWork(w.work(r.ledger), api.StepFailed, why, workflow.Now(ctx))
			if w.element == job.OfCheck { // a person may take the result
				job.EndWork(&e.StepWork, api.StepCompleted, "", workflow.Now(ctx))
				r.ended = append(r.ended, w.step)
			}
		default:
			w.late = why
			w.delivery.Cancel(why)
			open = append(open, w)
		}
	}
	switch r.open = open; {
	case s.Task == nil:
		job.FailEntry(e, s.OnFailure, why, workflow.Now(ctx))
	case len(e.Elements) > 0:
		r.endElements(e, s, workflow.Now(ctx))
	}
}
