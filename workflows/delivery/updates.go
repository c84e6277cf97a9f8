package delivery

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// Handle lets people act on the open tasks that a workflow carries. find is the delivery of the task that a request
// names, or nil. A validator's error reaches the caller as contract.Refused.
func Handle(ctx workflow.Context, find func(key string) *Delivery) error {
	return errors.Join(
		handle(ctx, find, contract.CancelUpdate, (*Delivery).takeCancel, (*Delivery).mayCancel),
		handle(ctx, find, contract.RetryUpdate,
			func(d *Delivery, _ workflow.Context, req contract.RetryRequest) { d.retry = &req },
			func(d *Delivery, _ contract.RetryRequest) error { return d.refuseDeadLetter("retried") }),
		handle(ctx, find, contract.DiscardUpdate,
			func(d *Delivery, _ workflow.Context, req contract.DiscardRequest) { d.discard = &req },
			(*Delivery).mayDiscard),
		handle(ctx, find, contract.ReprioritizeUpdate, (*Delivery).reprioritize, (*Delivery).mayReprioritize),
		handle(ctx, find, contract.ReviewUpdate,
			func(d *Delivery, _ workflow.Context, req contract.ReviewRequest) { d.review = &req },
			(*Delivery).mayReview))
}

// handle answers an update with the task's state after it.
func handle[In contract.TaskRequest](
	ctx workflow.Context, find func(key string) *Delivery, update contract.Update[In, contract.TaskState],
	do func(*Delivery, workflow.Context, In), validate func(*Delivery, In) error,
) error {
	return update.Handle(ctx, func(ctx workflow.Context, in In) (contract.TaskState, error) {
		d := find(in.TaskKey())
		do(d, ctx, in)
		return d.State(), nil
	}, func(in In) error {
		if d := find(in.TaskKey()); d != nil {
			return validate(d, in)
		}
		return workflows.Refuse("the task has not begun, or has ended")
	})
}

func (d *Delivery) takeCancel(_ workflow.Context, req contract.CancelRequest) {
	if req.Reason == "" {
		req.Reason = "cancelled by request"
	}
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
	if d.status != fleet.TaskReview || d.review != nil {
		return workflows.Refuse("only a task in review can be decided; this task is %s", standing(d.status))
	}
	return nil
}
