package delivery

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// Handle lets people act on the open tasks that a workflow carries. find is the delivery of the task that a request
// names, or nil. changes are the workflow's. A validator's error reaches the caller as contract.Refused.
func Handle(ctx workflow.Context, find func(key string) *Delivery, changes *workflows.Changes) error {
	return errors.Join(
		handle(ctx, find, contract.CancelUpdate, (*Delivery).takeCancel, (*Delivery).mayCancel),
		handle(ctx, find, contract.RetryUpdate,
			func(d *Delivery, _ workflow.Context, req contract.RetryRequest) { d.retry = &req },
			func(d *Delivery, _ contract.RetryRequest) error { return d.refuseDeadLetter("retried") }),
		handle(ctx, find, contract.DiscardUpdate,
			func(d *Delivery, _ workflow.Context, req contract.DiscardRequest) { d.discard = &req },
			(*Delivery).mayDiscard),
		handle(ctx, find, contract.ReprioritizeUpdate,
			func(d *Delivery, ctx workflow.Context, req contract.ReprioritizeRequest) {
				changes.Take()
				d.reprioritize(ctx, req)
			},
			func(d *Delivery, req contract.ReprioritizeRequest) error {
				return cmp.Or(d.mayReprioritize(req), changes.Refuse())
			}),
		handle(ctx, find, contract.ReviewUpdate,
			func(d *Delivery, _ workflow.Context, req contract.ReviewRequest) { d.review = &req },
			(*Delivery).mayReview),
		handle(ctx, find, contract.LateResultUpdate,
			func(d *Delivery, ctx workflow.Context, req contract.LateResultRequest) {
				d.late = &req.LateResult
				d.late.At = workflow.Now(ctx).UTC()
			},
			(*Delivery).mayBringLate))
}

// handle carries out an update.
func handle[In contract.TaskRequest](
	ctx workflow.Context, find func(key string) *Delivery, update contract.Update[In, contract.Done],
	do func(*Delivery, workflow.Context, In), validate func(*Delivery, In) error,
) error {
	return update.Handle(ctx, func(ctx workflow.Context, in In) (contract.Done, error) {
		do(find(in.TaskKey()), ctx, in)
		return contract.Done{}, nil
	}, func(in In) error {
		if d := find(in.TaskKey()); d != nil {
			return validate(d, in)
		}
		return workflows.Refuse("the task has not begun, or has ended")
	})
}

func (d *Delivery) takeCancel(_ workflow.Context, req contract.CancelRequest) {
	req.Reason = cmp.Or(req.Reason, "cancelled by request")
	d.cancel = &req
}

func (d *Delivery) mayCancel(contract.CancelRequest) error {
	if d.cancel != nil || d.status.Final() {
		return workflows.Refuse("the task has ended or is being cancelled")
	}
	return nil
}

func (d *Delivery) mayReview(req contract.ReviewRequest) error {
	if err := req.Decision.Validate(); err != nil {
		return workflows.Refuse("%s", err)
	}
	if d.status != api.TaskReview || d.review != nil {
		return workflows.Refuse("only a task in review can be decided; this task is %s", standing(d.status))
	}
	if req.Decision == api.ReviewAccept && d.late == nil {
		return workflows.Refuse("its agent has brought no result since: decide rerun, completed or failed")
	}
	return nil
}

// mayBringLate takes one result of the attempt that the task went to review with.
func (d *Delivery) mayBringLate(req contract.LateResultRequest) error {
	if n := len(d.log); n > 0 && d.status == api.TaskReview && d.review == nil && d.late == nil {
		last := &d.log[n-1]
		if last.Number == req.Attempt && (last.Outcome.Gone() || last.Outcome == api.AttemptTimedOut) {
			return nil
		}
	}
	return workflows.Refuse("no result is waited for")
}

// memoCauseBytes bounds the cause of a dead letter in the memo, which lists carry; the state has all of it.
const memoCauseBytes = 300

// keepDeadLetter keeps the task until a person retries, discards or cancels it, or its retention ends. It returns a
// final status when that ended the task.
func (d *Delivery) keepDeadLetter(ctx workflow.Context, cause, kind string) (api.TaskStatus, string) {
	retention := d.task.DeadLetterRetention.Or(api.DefaultDeadLetterRetention)
	since := workflow.Now(ctx).UTC()
	d.dead = &api.DeadLetter{Since: since, Until: since.Add(retention), Cause: cause, Kind: kind,
		Tried: d.carried.Tried}
	d.carrier.Mark(ctx, api.TaskDeadLetter)
	listed := *d.dead
	listed.Cause = api.Shorten(cause, memoCauseBytes)
	d.carrier.Note(ctx, contract.MemoDeadLetter, listed)
	d.carrier.Held(ctx)

	decided, _ := workflow.AwaitWithOptions(ctx, workflows.Named(retention, "dead letter, kept for a retry"),
		func() bool { return d.retry != nil || d.discard != nil || d.cancel != nil })
	switch {
	case !decided && ctx.Err() == nil:
		return api.TaskFailed, "dead letter, not retried within its retention: " + cause
	case d.discard != nil:
		return api.TaskFailed, "discarded: " + d.discard.Reason
	case d.retry != nil:
		why := "retried by hand"
		if d.retry.Reason != "" {
			why += ": " + d.retry.Reason
		}
		d.restart(ctx, why)
	}
	return "", ""
}

func (d *Delivery) mayDiscard(req contract.DiscardRequest) error {
	if req.Reason == "" {
		return workflows.Refuse("a dead letter is discarded with a reason")
	}
	return d.refuseDeadLetter("discarded")
}

// standing is a status in words. The workflow does not know whether an agent has begun a queued task.
func standing(s api.TaskStatus) string {
	if s == api.TaskQueued {
		return "queued or running"
	}
	return string(s)
}

// refuseDeadLetter rejects an update unless the task is an undecided dead letter.
func (d *Delivery) refuseDeadLetter(done string) error {
	switch {
	case d.status != api.TaskDeadLetter:
		return workflows.Refuse("only a dead letter can be %s; this task is %s", done, standing(d.status))
	case d.retry != nil:
		return workflows.Refuse("the dead letter is being retried")
	case d.discard != nil:
		return workflows.Refuse("the dead letter is being discarded")
	case d.cancel != nil:
		return workflows.Refuse("the task is being cancelled")
	}
	return nil
}

// priority returns the present priority; 0: the default.
func (d *Delivery) priority() api.Priority {
	if d.carried.Priority != 0 {
		return d.carried.Priority
	}
	return d.task.Spec.Priority
}

// deliveryPriority is the priority of the present or next delivery: a task that was lost with its agent goes ahead.
func (d *Delivery) deliveryPriority() api.Priority {
	if d.lastLost() != nil {
		return task.MovedPriority(d.priority())
	}
	return d.priority()
}

func (d *Delivery) mayReprioritize(req contract.ReprioritizeRequest) error {
	switch {
	case !req.Priority.Valid():
		return workflows.Refuse("%s", api.ErrPriority)
	case d.status.Final():
		return workflows.Refuse("the task has ended: it is %s", d.status)
	case d.cancel != nil:
		return workflows.Refuse("the task is being cancelled")
	case req.Priority == d.priority().OrDefault() && !d.unsettled:
		return workflows.Unchanged("the task has this priority already")
	}
	return nil
}

// reprioritize sets the priority of later deliveries, and changes the one that waits in its lane. It returns when
// Temporal has taken the change.
func (d *Delivery) reprioritize(ctx workflow.Context, req contract.ReprioritizeRequest) {
	d.carried.Priority = req.Priority
	d.carrier.Note(ctx, contract.MemoPriority, req.Priority)
	d.reprioritized++
	change := d.reprioritized
	d.unsettled = d.delivering != 0
	if !d.unsettled {
		return
	}
	info := workflow.GetInfo(ctx)
	activityCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond,
			MaximumInterval: 5 * time.Second,
		},
		Summary: "change the priority in the lane to " + req.Priority.String(),
	})
	moved := contract.ReprioritizeActivity.Execute(activityCtx, contract.ReprioritizeInput{
		WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
		ActivityID: contract.AttemptActivityID(d.task.TaskID, d.delivering), Priority: d.deliveryPriority(),
	})
	// The end of the task ends the wait, so that the update is answered before the workflow closes.
	_ = workflow.Await(ctx, func() bool { return moved.IsReady() || d.status.Final() })
	if moved.IsReady() {
		_, err := moved.Get(ctx)
		if err != nil {
			workflow.GetLogger(ctx).Warn("The delivery that waits keeps its priority", "error", err)
		}
		d.unsettled = err != nil || change != d.reprioritized // of two at once, the former came last
	}
}
