package run

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// stepArray is the array of a step that has many elements. It is a child of the run.
type stepArray struct {
	step  string
	id    string
	child workflow.ChildWorkflowFuture
	stop  workflow.CancelFunc
	late  string // why it was stopped, if its step's deadline has passed
	over  bool
	state contract.ArrayState
	err   error // that it ended with
}

// beginArray starts the array of a step.
func (r *run) beginArray(ctx workflow.Context, e *api.StepEntry, in *contract.ArrayInput) {
	a := &stepArray{step: e.Step, id: job.TaskID(r.id, e.Step)}
	job.SetPolicy(e, &in.Spec, r.in.Plan.Step(e.Step))
	e.Array, e.Counts = a.id, &api.StepCounts{Total: in.Total(), Running: in.Total()}
	r.turn, r.bytes = r.turn+in.Bytes(), r.bytes+in.Bytes()
	start := contract.StartOfArray(a.id, in, 0)
	ctx, a.stop = workflow.WithCancel(ctx)
	a.child = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            start.WorkflowID,
		TaskQueue:             contract.WorkerQueue,
		WaitForCancellation:   true,
		TypedSearchAttributes: start.Attributes,
		Memo:                  start.Memo,
		StaticSummary:         start.Summary,
		Priority:              temporal.Priority{PriorityKey: start.Priority.PriorityKey},
	}), contract.ArrayWorkflow, *in)
	r.arrays = append(r.arrays, a)
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		if a.child.GetChildWorkflowExecution().Get(ctx, nil) == nil && r.ledger.Paused != nil {
			r.tellArrays(ctx, contract.ArrayRequest{Action: contract.PauseArray, Reason: r.ledger.Paused.Reason})
		}
		a.err = a.child.Get(ctx, &a.state)
		var failed *temporal.ApplicationError
		var cancelled *temporal.CanceledError
		switch {
		case errors.As(a.err, &failed) && failed.HasDetails():
			_ = failed.Details(&a.state)
		case errors.As(a.err, &cancelled) && cancelled.HasDetails():
			_ = cancelled.Details(&a.state)
		}
		a.over, r.changed = true, true
	})
}

// tellArrays makes the arrays of the run's steps do what the run does.
func (r *run) tellArrays(ctx workflow.Context, request contract.ArrayRequest) {
	for _, a := range r.arrays {
		if !a.over && a.child.GetChildWorkflowExecution().IsReady() {
			contract.ArraySignal.SendFrom(ctx, contract.ArrayWorkflowID(a.id), "", request)
		}
	}
}

// collectArrays takes the ends of arrays into the ledger.
func (r *run) collectArrays(now time.Time) {
	arrays := r.arrays
	r.arrays = nil
	for _, a := range arrays {
		if !a.over {
			r.arrays = append(r.arrays, a)
			continue
		}
		e, s := r.ledger.Entry(a.step), r.in.Plan.Step(a.step)
		counts := api.StepCounts{Total: e.Counts.Total, Done: a.state.Counts.Completed}
		counts.Failed = counts.Total - counts.Done
		job.EndCounted(e, s, counts, a.why(), now)
		if e.Status.Through() {
			r.ended = append(r.ended, a.step)
		}
	}
}

// why is why elements of the array did not complete.
func (a *stepArray) why() string {
	switch {
	case a.late != "":
		return a.late
	case a.state.Status == "" && a.err != nil:
		return workflows.ReasonOf(a.err)
	case a.state.Status == api.ArrayCancelled:
		return "their array was cancelled: " + a.state.Why
	}
	return "see why with: mainstay array elements " + a.id
}
