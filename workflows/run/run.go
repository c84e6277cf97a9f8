// Package run is the Run workflow: it carries out one run of a job. What comes next is decided by job.Ledger, what
// expressions give by a local activity, and each task is delivered by a delivery of package delivery.
package run

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/delivery"
	"mainstay.dev/sdk/api"
)

const (
	// evaluateTimeout bounds one evaluation, with its tries.
	evaluateTimeout = time.Minute
	// defaultsKept is how long a change of the cluster's task_defaults may be unknown to the run.
	defaultsKept = 10 * time.Second
)

// Workflow carries out one run. A run that completed, in part or whole, returns its ledger. Any other end is the
// workflow's failure (or cancellation) with the ledger as its detail.
func Workflow(ctx workflow.Context, in contract.RunInput) (*job.Ledger, error) {
	id, _ := contract.RunOfWorkflowID(workflow.GetInfo(ctx).WorkflowExecution.ID)
	r := &run{in: in, id: id, results: map[string]json.RawMessage{}, timers: map[string]int{},
		endedFor: map[string]bool{}, admissions: contract.RunAdmittedSignal.Inbox(ctx)}
	r.begin(ctx)
	if err := r.handle(ctx); err != nil {
		return nil, err
	}
	return r.loop(ctx)
}

// run is one run of a Run workflow. All that changes is in here.
type run struct {
	in     contract.RunInput
	id     string
	ledger *job.Ledger

	open     []*work                    // tasks that have not ended, in the order in which they were made
	arrays   []*stepArray               // arrays that have not ended
	ended    []string                   // steps that have ended since the last evaluation
	results  map[string]json.RawMessage // of tasks, by their keys, until their step's output is known
	talks    map[string]mesh.Talk       // of models with tools, by their steps
	bytes    int                        // of payloads and results so far
	turn     int                        // of evaluations and payloads in the answer to the present workflow task
	turnAt   int                        // length of the history when that began
	timers   map[string]int             // by step: which of its timers counts
	endedFor map[string]bool            // steps that were ended for what they hold
	marked   api.RunStatus              // the status search attribute as last set

	changes workflows.Changes // of this run, and of the priorities of its tasks

	defaults      *api.TaskDefaults // of the cluster, as the last evaluation knew them; nil: see contract.Evaluated
	types         cluster.LaneTypes // of the cluster, likewise
	defaultsUntil time.Time

	admissions contract.Inbox[contract.Admission]
	admission  *contract.Admission
	turnless   int  // how often in a row it was not the turn of its evaluations
	changed    bool // something happened that the loop has not looked at
	quiet      bool // nothing new begins, so that the run can continue as new
}

// begin makes the ledger, or goes on from the one of the run before.
func (r *run) begin(ctx workflow.Context) {
	if c := r.in.Carried; c != nil {
		r.ledger, r.bytes, r.admission = &c.Ledger, c.Bytes, &contract.Admission{}
		r.marked = r.mark()
		if c.Results != nil {
			r.results = c.Results
		}
		r.ended, r.talks = c.Ended, c.Talks
		if c.Waits {
			r.admission = nil
		}
		r.restore(c.Tasks)
		for i := range r.ledger.Steps {
			r.timer(ctx, &r.ledger.Steps[i])
		}
		r.deadline(ctx)
		return
	}
	r.ledger = job.NewLedger(&r.in.Plan, r.id, r.in.Inputs, r.in.Origin, workflow.Now(ctx))
	r.ledger.Delay(r.in.StartAt)
	if r.in.Done != nil {
		r.ledger.TakeOver(r.in.Done)
	}
	r.deadline(ctx)
}

// deadline wakes the loop when the run's deadline passes.
func (r *run) deadline(ctx workflow.Context) {
	if at := r.ledger.DeadlineAt; at != nil {
		r.wake(ctx, at.Sub(workflow.Now(ctx)), "deadline of the run", func() bool { return r.ledger.Status.Final() })
	}
}

// wake makes the loop look again after a time, unless it is over before that.
func (r *run) wake(ctx workflow.Context, wait time.Duration, why string, over func() bool) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(max(wait, time.Millisecond), why), over)
		r.changed = true
	})
}

// loop begins steps until the run has ended.
func (r *run) loop(ctx workflow.Context) (*job.Ledger, error) {
	r.awaitStart(ctx)
	if err := r.awaitServices(ctx); err != nil {
		return nil, err
	}
	if err := r.admit(ctx); err != nil {
		return nil, err
	}
	for {
		r.changed = false
		if r.heedCancellation(ctx); ctx.Err() != nil {
			// Else what waits for an evaluation would return at once, and the loop never rest.
			disconnected, done := workflow.NewDisconnectedContext(ctx)
			defer done()
			ctx = disconnected
		}
		if r.full(ctx) {
			r.nextTurn(ctx)
		}
		now := workflow.Now(ctx)
		r.collect(now)
		r.collectArrays(now)
		if r.mayContinue(ctx) {
			return nil, r.continueAsNew(ctx, false)
		}
		r.endLargest(ctx)
		begin := r.ledger.Advance(&r.in.Plan, now)
		if r.heedBudget(ctx, begin); r.ledger.Paused != nil || r.quiet {
			begin = nil
		}
		if len(r.ended) > 0 || len(begin) > 0 {
			r.evaluate(ctx, begin)
			continue
		}
		if status, why, ended := r.ledger.End(&r.in.Plan, now); ended {
			return r.end(ctx, status, why)
		}
		r.launch(ctx)
		r.show(ctx)
		_ = workflow.Await(ctx, func() bool { return r.changed || ctx.Err() != nil && r.ledger.Cancel == nil })
	}
}

// end cancels what is still open, waits for it, and closes the workflow as the run ended.
func (r *run) end(ctx workflow.Context, status api.RunStatus, why string) (*job.Ledger, error) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for _, w := range r.open {
		if w.delivery != nil {
			w.delivery.Cancel("the run has ended: it is " + string(status))
		}
	}
	for _, a := range r.arrays {
		a.stop()
	}
	_ = workflow.Await(ctx, func() bool { return !r.delivering() })
	r.collect(workflow.Now(ctx))
	r.collectArrays(workflow.Now(ctx))
	for left := 0; len(r.ended) > 0 && len(r.ended) != left; {
		left = len(r.ended)
		r.evaluate(ctx, nil) // a run that repeats this one takes their outputs over
	}
	r.ledger.Close(status, why, workflow.Now(ctx))
	r.show(ctx)
	r.leave(ctx)
	if event := r.ledger.Origin.Event; event != "" && status == api.RunFailed {
		workflows.TellEvent(ctx, contract.EventOutcome{Event: event, ID: r.id, Cluster: r.in.Plan.Cluster,
			Died: string(status) + ": " + why})
	}
	_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
	if !contract.Fits(r.ledger) {
		r.ledger.Forget()
	}
	switch status {
	case api.RunCompleted, api.RunPartial:
		return r.ledger, nil
	case api.RunCancelled:
		return nil, temporal.NewCanceledError(*r.ledger)
	}
	return nil, temporal.NewApplicationErrorWithOptions("run failed: "+why, string(status),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{*r.ledger}})
}

// delivering reports whether a task is being delivered, or an array is at work.
func (r *run) delivering() bool {
	if slices.ContainsFunc(r.arrays, func(a *stepArray) bool { return !a.over }) {
		return true
	}
	for _, w := range r.open {
		if w.delivery != nil && !w.over {
			return true
		}
	}
	return false
}

// show keeps the run's status, and sets the search attribute where the workflow's own status does not show it.
func (r *run) show(ctx workflow.Context) {
	if !r.ledger.Status.Final() {
		r.refresh(r.ledger)
		r.ledger.Status, r.ledger.Why = r.ledger.Standing(r.underWay())
	}
	r.showMark(ctx, r.mark())
}

// showMark sets the search attribute to a mark, if that has changed.
func (r *run) showMark(ctx workflow.Context, mark api.RunStatus) {
	if mark == r.marked {
		return
	}
	update := contract.AttrStatus.ValueUnset()
	if mark != "" {
		update = contract.AttrStatus.ValueSet(string(mark))
	}
	r.marked = mark
	err := workflow.UpsertTypedSearchAttributes(ctx, update, contract.AttrStatusAt.ValueSet(workflow.Now(ctx)))
	if err != nil {
		workflow.GetLogger(ctx).Warn("The status search attribute was not set", "error", err)
	}
}

// mark is the status that lists show beside the workflow's own.
func (r *run) mark() api.RunStatus {
	switch s := r.ledger.Status; s {
	case api.RunPausing, api.RunPaused, api.RunBlocked, api.RunPartial:
		return s
	}
	return ""
}

// showWaiting shows that the run waits for something, which is no person's decision.
func (r *run) showWaiting(ctx workflow.Context, why string) {
	r.ledger.Status, r.ledger.Why = api.RunBlocked, why
	r.showMark(ctx, contract.RunWaiting)
}

// underWay reports whether a task is in a lane, with an agent or in a backoff, or an array is at work. One of a paused
// run begins nothing.
func (r *run) underWay() bool {
	if len(r.arrays) > 0 && r.ledger.Paused == nil {
		return true
	}
	for _, w := range r.open {
		if w.delivery != nil && (w.delivery.Delivering() || w.work(r.ledger).Status == api.StepRetryWait) {
			return true
		}
	}
	return false
}

// awaitStart waits until the time of a run that is to begin later, or until it is cancelled.
func (r *run) awaitStart(ctx workflow.Context) {
	wait := r.in.StartAt.Sub(workflow.Now(ctx))
	if wait <= 0 || r.in.Carried != nil {
		return
	}
	r.showWaiting(ctx, api.StartsAt(r.in.StartAt))
	_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(wait, r.ledger.Why),
		func() bool { return r.ledger.Cancel != nil })
}

// awaitServices waits until each service that the job requires has a healthy instance. A cancellation and the deadline
// of the run end the wait.
func (r *run) awaitServices(ctx workflow.Context) error {
	if r.in.Plan.Requires == nil || r.in.Carried != nil && !r.in.Carried.Waits {
		return nil
	}
	began := workflow.Now(ctx)
	over := func() bool { return r.ledger.Cancel != nil || ctx.Err() != nil }
	question := contract.LookAtInstances{Job: r.in.Plan.Job,
		Definition: &api.JobDefinition{Tenant: r.in.Plan.Tenant, Requires: r.in.Plan.Requires}}
	looks := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           contract.WorkerQueue,
		StartToCloseTimeout: 15 * time.Second,
		// A cancellation and the deadline are heeded between two looks.
		ScheduleToCloseTimeout: 30 * time.Second,
		Summary:                "required services",
	})
	for !over() {
		seen, err := contract.LookAtInstancesActivity.Execute(looks, question).Get(ctx)
		switch {
		case err != nil: // it took too long, or the workflow was cancelled
			seen.Missing = r.in.Plan.Requires.Services
		case len(seen.Missing) == 0:
			return nil
		}
		now := workflow.Now(ctx)
		wait := job.LookAgain(r.in.Plan.Requires, now.Sub(began))
		if at := r.ledger.DeadlineAt; at != nil {
			if wait = min(wait, at.Sub(now)); wait <= 0 {
				return nil
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && workflow.AllHandlersFinished(ctx) {
			return r.continueAsNew(ctx, true)
		}
		r.showWaiting(ctx, job.Lacking(seen.Missing))
		_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(wait, "until it looks for required services again"), over)
	}
	return nil
}

// admit waits until the run may begin, where its job bounds how many go at a time, or until its deadline.
func (r *run) admit(ctx workflow.Context) error {
	limit := r.in.Plan.Concurrency
	if limit == nil {
		return nil
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for ctx.Err() == nil {
			_ = workflow.Await(ctx, func() bool { return r.admissions.Len() > 0 })
			r.heedAdmission(ctx)
		}
	})
	if r.admission != nil {
		return nil // it was admitted before it continued as new
	}
	key, err := r.concurrencyKey(ctx)
	if err != nil {
		return err
	}
	begins := contract.RunBegins{Run: r.id, Key: key, Concurrency: *limit}
	if err := contract.RunBeginsSignal.SendFrom(ctx, contract.JobWorkflowID(r.in.Plan.Job), "", begins).
		Get(ctx, nil); err != nil {
		r.admission = &contract.Admission{}
		return nil //nolint:nilerr // the job was deleted, and nobody counts its runs
	}
	r.showWaiting(ctx, "it waits until another run of its job has ended")
	_ = workflow.Await(ctx, func() bool {
		return r.admission != nil || r.ledger.Cancel != nil || ctx.Err() != nil || r.ledger.Late(workflow.Now(ctx))
	})
	if r.admission != nil && r.admission.Skip {
		r.ledger.Cancel = &api.Decision{Action: "skip", Reason: r.admission.Why, At: workflow.Now(ctx)}
	}
	return nil
}

// heedAdmission takes the job's answer about the run.
func (r *run) heedAdmission(ctx workflow.Context) {
	r.admissions.Take(func(a contract.Admission) { r.admission = &a })
	if r.admission != nil && r.admission.Cancel && r.ledger.Cancel == nil {
		r.cancel(ctx, "", r.admission.Why)
	}
}

// heedCancellation treats the workflow's own cancellation like a request.
func (r *run) heedCancellation(ctx workflow.Context) {
	if ctx.Err() != nil && r.ledger.Cancel == nil {
		r.cancel(ctx, "", "the workflow was cancelled")
	}
}

// leave reports to the job that the run has ended.
func (r *run) leave(ctx workflow.Context) {
	if r.in.Plan.Concurrency == nil {
		return
	}
	err := contract.RunEndedSignal.SendFrom(ctx, contract.JobWorkflowID(r.in.Plan.Job), "",
		contract.RunEnded{Run: r.id}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Info("The job did not learn that its run ended", "error", err)
	}
}

// handle answers queries, and lets people act on the run, its steps and their tasks.
func (r *run) handle(ctx workflow.Context) error {
	return errors.Join(
		contract.LedgerQuery.Handle(ctx, r.view),
		contract.StepTaskQuery.Handle(ctx, r.task),
		delivery.Handle(ctx, r.delivery, &r.changes),
		r.handleUpdates(ctx))
}

// view is the ledger as it stands now.
func (r *run) view() job.Ledger {
	l := r.ledger.Clone()
	r.refresh(l)
	l.Explain(&r.in.Plan)
	return *l
}

// task is an open task of the run as its delivery knows it; nothing of any other.
func (r *run) task(key string) contract.TaskState {
	if d := r.delivery(key); d != nil {
		return d.State()
	}
	return contract.TaskState{}
}

// delivery is the delivery of the open task with a key; nil if there is none.
func (r *run) delivery(key string) *delivery.Delivery {
	for _, w := range r.open {
		if w.key == key && !w.over {
			return w.delivery
		}
	}
	return nil
}
