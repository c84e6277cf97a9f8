package task

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// setUpdateHandlers lets people act on an open task. A validator's error reaches the caller as contract.Refused.
func (r *run) setUpdateHandlers(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, r, contract.CancelUpdate, r.takeCancel, r.mayCancel),
		handle(ctx, r, contract.RetryUpdate,
			func(_ workflow.Context, req contract.RetryRequest) { r.retry = &req },
			func(contract.RetryRequest) error { return r.refuseDeadLetter("retried") }),
		handle(ctx, r, contract.DiscardUpdate,
			func(_ workflow.Context, req contract.DiscardRequest) { r.discard = &req }, r.mayDiscard),
		handle(ctx, r, contract.ReprioritizeUpdate, r.reprioritize, r.mayReprioritize),
		handle(ctx, r, contract.ReviewUpdate,
			func(_ workflow.Context, req contract.ReviewRequest) { r.review = &req }, r.mayReview))
}

// handle answers an update with the task's state after it.
func handle[In any](
	ctx workflow.Context, r *run, update contract.Update[In, contract.TaskState], do func(workflow.Context, In),
	validate func(In) error,
) error {
	return update.Handle(ctx, func(ctx workflow.Context, in In) (contract.TaskState, error) {
		do(ctx, in)
		return r.state(), nil
	}, validate)
}

func (r *run) takeCancel(_ workflow.Context, req contract.CancelRequest) {
	if req.Reason == "" {
		req.Reason = "cancelled by request"
	}
	r.cancel = &req
}

func (r *run) mayCancel(contract.CancelRequest) error {
	if r.cancel != nil || r.status.Final() {
		return workflows.Refuse("the task has ended or is being cancelled")
	}
	return nil
}

func (r *run) mayReview(req contract.ReviewRequest) error {
	if err := req.Decision.Validate(); err != nil {
		return workflows.Refuse("%s", err)
	}
	if r.status != fleet.TaskReview || r.review != nil {
		return workflows.Refuse("only a task in review can be decided; this task is %s", standing(r.status))
	}
	return nil
}
