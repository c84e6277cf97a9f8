package task

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// priority returns the present priority; 0: the default.
func (r *run) priority() fleet.Priority {
	if r.carry.Priority != 0 {
		return r.carry.Priority
	}
	return r.in.Spec.Priority
}

// deliveryPriority is the priority of the present or next delivery: a task that was lost with its agent goes ahead.
func (r *run) deliveryPriority() fleet.Priority {
	if r.lastLost() != nil {
		return fleet.MovedPriority(r.priority())
	}
	return r.priority()
}

func (r *run) mayReprioritize(req contract.ReprioritizeRequest) error {
	switch {
	case !req.Priority.Valid():
		return workflows.Refuse("%s", fleet.ErrPriority)
	case r.status.Final():
		return workflows.Refuse("the task has ended: it is %s", r.status)
	case r.cancel != nil:
		return workflows.Refuse("the task is being cancelled")
	}
	return nil
}

// reprioritize sets the priority of later deliveries, and changes the one that waits in its lane. It returns when
// Temporal has taken the change.
func (r *run) reprioritize(ctx workflow.Context, req contract.ReprioritizeRequest) {
	r.carry.Priority = req.Priority
	r.note(ctx, contract.MemoPriority, req.Priority)
	if r.delivering == 0 {
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
		Attempt: r.delivering, Priority: r.deliveryPriority(),
	})
	// The end of the task ends the wait, so that the update is answered before the workflow closes.
	_ = workflow.Await(ctx, func() bool { return moved.IsReady() || r.status.Final() })
	if moved.IsReady() {
		if _, err := moved.Get(ctx); err != nil {
			workflow.GetLogger(ctx).Warn("The delivery that waits keeps its priority", "error", err)
		}
	}
}
