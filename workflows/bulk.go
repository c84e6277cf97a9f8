package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

const (
	// bulkPageTimeout bounds one page: a task that does not answer takes some seconds of it.
	bulkPageTimeout = 10 * time.Minute
	// bulkSilence is how long a page may go without a heartbeat before another worker gets it.
	bulkSilence = 15 * time.Second
)

// Bulk acts on all selected tasks, a page at a time, so its progress survives any process. It also completes when tasks
// refused: the counts include them.
func Bulk(ctx workflow.Context, in contract.BulkInput) (contract.BulkState, error) {
	run := &bulkRun{in: in}
	if in.Carried != nil {
		run.BulkCarried = *in.Carried
	} else {
		run.State = contract.BulkState{Status: api.BulkRunning, Expected: in.Expected, StartedAt: workflow.Now(ctx)}
		if run.in.Spec.Filter.SubmittedBefore.IsZero() && len(in.Spec.IDs) == 0 {
			// Tasks submitted from now on are not selected.
			run.in.Spec.Filter.SubmittedBefore = run.State.StartedAt
		}
	}
	if err := run.setHandlers(ctx); err != nil {
		return run.State, err
	}
	return run.loop(ctx)
}

// bulkRun is one run of a Bulk workflow. All that changes is in here.
type bulkRun struct {
	in contract.BulkInput
	contract.BulkCarried
	cancel *contract.CancelRequest
}

func (r *bulkRun) setHandlers(ctx workflow.Context) error {
	if err := contract.BulkQuery.Handle(ctx, func() contract.BulkState { return r.State }); err != nil {
		return err
	}
	return contract.BulkCancelUpdate.Handle(ctx, func(_ workflow.Context,
		req contract.CancelRequest) (contract.BulkState, error) {
		r.cancel = &req
		return r.State, nil
	}, func(contract.CancelRequest) error {
		if r.cancel != nil || r.State.Status != api.BulkRunning {
			return Refuse("the bulk operation has ended or is being cancelled")
		}
		return nil
	})
}

// loop acts page by page. A cancellation lets the page under way finish, so that the counts are right.
func (r *bulkRun) loop(ctx workflow.Context) (contract.BulkState, error) {
	pageCtx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	pageCtx = workflow.WithActivityOptions(pageCtx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, StartToCloseTimeout: bulkPageTimeout, HeartbeatTimeout: bulkSilence,
		RetryPolicy: &temporal.RetryPolicy{MaximumInterval: 30 * time.Second},
		Summary:     string(r.in.Spec.Action) + " a page of tasks",
	})
	for {
		switch {
		case r.cancel != nil:
			return r.end(ctx, api.BulkCancelled, r.cancel.Reason)
		case ctx.Err() != nil:
			return r.end(ctx, api.BulkCancelled, "the workflow was cancelled")
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested() && workflow.AllHandlersFinished(ctx):
			next := r.in
			next.Carried = &r.BulkCarried
			return r.State, workflow.NewContinueAsNewError(ctx, contract.BulkWorkflow, next)
		}
		page, err := contract.BulkPageActivity.Execute(pageCtx, r.page()).Get(pageCtx)
		if err != nil {
			return r.end(ctx, api.BulkFailed, err.Error())
		}
		r.State.Add(page.Counts)
		r.Place.Token, r.Place.IDs = page.Next, min(r.Place.IDs+contract.BulkPageSize, len(r.in.Spec.IDs))
		if len(page.Next) == 0 && r.Place.IDs == len(r.in.Spec.IDs) {
			return r.end(ctx, api.BulkCompleted, "")
		}
	}
}

// page is the input of the next page.
func (r *bulkRun) page() contract.BulkPageInput {
	page := contract.BulkPageInput{Bulk: r.in.ID, Spec: r.in.Spec, Token: r.Place.Token}
	page.Spec.IDs = nil
	if ids := r.in.Spec.IDs; len(ids) > 0 {
		page.IDs = ids[r.Place.IDs:min(r.Place.IDs+contract.BulkPageSize, len(ids))]
	}
	return page
}

// end closes the operation. Only a completed one returns normally, so that the Web UI shows how it ended.
func (r *bulkRun) end(ctx workflow.Context, status api.BulkStatus, why string) (contract.BulkState, error) {
	_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
	r.State.Status, r.State.Why = status, why
	switch status {
	case api.BulkCancelled:
		return contract.BulkState{}, temporal.NewCanceledError(r.State)
	case api.BulkFailed:
		return contract.BulkState{},
			temporal.NewApplicationErrorWithOptions("bulk operation failed: "+why, string(status),
				temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{r.State}})
	}
	return r.State, nil
}
