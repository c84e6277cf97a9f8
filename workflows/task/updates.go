package task

import (
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// setUpdateHandlers lets people act on an open task. A validator's error reaches the caller as contract.Refused.
func (r *run) setUpdateHandlers(ctx workflow.Context) error {
	err := contract.CancelUpdate.Handle(ctx, func(ctx workflow.Context, req contract.CancelRequest) (contract.TaskState,
		error) {
		if req.Reason == "" {
			req.Reason = "cancelled by request"
		}
		r.cancel = &req
		return r.state(), nil
	}, func(contract.CancelRequest) error {
		if r.cancel != nil || r.status.Final() {
			return workflows.Refuse("the task has ended or is being cancelled")
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = contract.RetryUpdate.Handle(ctx, func(ctx workflow.Context, req contract.RetryRequest) (contract.TaskState,
		error) {
		r.retry = &req
		return r.state(), nil
	}, func(contract.RetryRequest) error {
		return r.refuseDeadLetter("retried")
	})
	if err != nil {
		return err
	}
	if err := r.setDiscardHandler(ctx); err != nil {
		return err
	}
	if err := r.setReprioritizeHandler(ctx); err != nil {
		return err
	}
	return contract.ReviewUpdate.Handle(ctx, func(ctx workflow.Context, req contract.ReviewRequest) (contract.TaskState,
		error) {
		r.review = &req
		return r.state(), nil
	}, func(req contract.ReviewRequest) error {
		if err := req.Decision.Validate(); err != nil {
			return workflows.Refuse("%s", err)
		}
		if r.status != fleet.TaskReview || r.review != nil {
			return workflows.Refuse("only a task in review can be decided; this task is %s", standing(r.status))
		}
		return nil
	})
}
