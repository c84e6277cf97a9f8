package run

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// handleUpdates lets people act on the run and on its steps. Each decision is in the ledger, with who and why. What was
// paused can be resumed, however often it was.
func (r *run) handleUpdates(ctx workflow.Context) error {
	return errors.Join(
		contract.PauseRunUpdate.Handle(ctx, counted(r, r.pause), func(contract.PauseRunRequest) error {
			if r.ledger.Paused != nil {
				return workflows.Refuse("the run is paused already")
			}
			return cmp.Or(r.mayAct(), r.changes.Refuse())
		}),
		contract.ResumeRunUpdate.Handle(ctx, counted(r, r.resume), func(contract.RunRequest) error {
			if r.ledger.Paused == nil {
				return workflows.Refuse("the run is not paused")
			}
			return r.mayAct()
		}),
		contract.CancelRunUpdate.Handle(ctx, done(
			func(ctx workflow.Context, req contract.RunRequest) error {
				r.cancel(ctx, req.By, req.Reason)
				return nil
			}), func(contract.RunRequest) error { return r.mayAct() }),
		contract.StepUpdate.Handle(ctx, done(r.act), r.mayActOn))
}

// done makes a handler that answers Done.
func done[In any](do func(workflow.Context, In) error) func(workflow.Context, In) (contract.Done, error) {
	return func(ctx workflow.Context, in In) (contract.Done, error) { return contract.Done{}, do(ctx, in) }
}

// counted is done for requests that can be made without end.
func counted[In any](
	r *run, do func(workflow.Context, In) error,
) func(workflow.Context, In) (contract.Done, error) {
	return done(func(ctx workflow.Context, in In) error {
		r.changes.Take()
		return do(ctx, in)
	})
}

// repeats reports whether a step can be asked for this without end: it can be retried after it.
func repeats(a api.StepAction) bool { return a == api.FailStep || a == api.RejectStep }

// mayActOn refuses requests that a step does not allow.
func (r *run) mayActOn(req contract.StepRequest) error {
	if why := r.ledger.Refuse(req.Step, req.Action); why != "" {
		return workflows.Refuse("%s", why)
	}
	if repeats(req.Action) {
		if err := r.changes.Refuse(); err != nil {
			return err
		}
	}
	output := req.Output
	if req.Attempt > 0 {
		c := job.CorrectionOf(r.ledger.Entry(req.Step), req.Attempt)
		if c == nil || c.Output == nil {
			return workflows.Refuse("the run keeps no result of attempt %d of the step", req.Attempt)
		}
		output = c.Output
	}
	if size := r.ledger.OutputBytes() + len(output); len(output) > 0 && size > job.MaxOutputsBytes {
		return workflows.Refuse("the run's outputs would have %d bytes, and may have %d: complete it with less, or skip it",
			size, job.MaxOutputsBytes)
	}
	return nil
}

// mayAct refuses requests to a run that has ended, or is about to.
func (r *run) mayAct() error {
	switch {
	case r.ledger.Status.Final():
		return workflows.Refuse("the run has ended: it is %s", r.ledger.Status)
	case r.ledger.Cancel != nil:
		return workflows.Refuse("the run is being cancelled")
	}
	return nil
}

func decision(ctx workflow.Context, action string, req contract.RunRequest) api.Decision {
	return api.Decision{Action: action, By: req.By, Reason: req.Reason, At: workflow.Now(ctx)}
}

func (r *run) pause(ctx workflow.Context, req contract.PauseRunRequest) error {
	d := decision(ctx, "pause", req.RunRequest)
	r.ledger.Decide(d)
	r.ledger.Paused = &api.RunPause{Mode: req.Mode, Decision: d}
	for _, w := range r.open {
		if w.delivery != nil {
			w.delivery.Suspend(req.Mode != api.PauseFinish)
		}
	}
	r.tellArrays(ctx, contract.ArrayRequest{Action: contract.PauseArray, By: req.By, Reason: req.Reason})
	r.settle(ctx)
	return nil
}

// heedBudget pauses the run where something would begin and its models have used up their budget.
func (r *run) heedBudget(ctx workflow.Context, begin []string) {
	waits := len(begin) > 0 || slices.ContainsFunc(r.open, func(w *work) bool { return w.delivery == nil })
	if waits && r.ledger.Paused == nil && r.ledger.Cancel == nil && r.ledger.OverBudget(&r.in.Plan) {
		why := fmt.Sprintf("its models have taken %d tokens, and its budget is used up: resume gives it %s more",
			r.ledger.Tokens, r.in.Plan.Budget)
		_ = r.pause(ctx, contract.PauseRunRequest{Mode: api.PauseFinish, RunRequest: contract.RunRequest{Reason: why}})
	}
}

func (r *run) resume(ctx workflow.Context, req contract.RunRequest) error {
	r.ledger.Decide(decision(ctx, "resume", req))
	r.ledger.RenewBudget(&r.in.Plan)
	r.ledger.Paused = nil
	for _, w := range r.open {
		if w.delivery != nil {
			w.delivery.Resume()
		}
	}
	r.tellArrays(ctx, contract.ArrayRequest{Action: contract.ResumeArray, By: req.By, Reason: req.Reason})
	r.settle(ctx)
	return nil
}

func (r *run) cancel(ctx workflow.Context, by, reason string) {
	reason = cmp.Or(reason, "cancelled by request")
	d := decision(ctx, "cancel", contract.RunRequest{By: by, Reason: reason})
	r.ledger.Decide(d)
	r.ledger.Cancel = &d
	r.changed = true
}

func (r *run) act(ctx workflow.Context, req contract.StepRequest) error {
	if repeats(req.Action) {
		r.changes.Take()
	}
	d := decision(ctx, string(req.Action), req.RunRequest)
	d.Step = req.Step
	r.ledger.Decide(d)
	if req.Attempt > 0 {
		req.Output = job.CorrectionOf(r.ledger.Entry(req.Step), req.Attempt).Output
	}
	r.ledger.Act(&r.in.Plan, req.Step, req.Action, req.Reason, req.Output, d.At)
	if req.Action == api.RetryStep {
		r.hear(r.in.Plan.Step(req.Step), req.Reason)
	}
	if r.ledger.Entry(req.Step).Status.Through() {
		delete(r.talks, req.Step)
	}
	r.timers[req.Step]++ // those of before do not count any more
	r.settle(ctx)
	return nil
}

// settle shows the change, and makes the loop look.
func (r *run) settle(ctx workflow.Context) {
	r.show(ctx)
	r.changed = true
}
