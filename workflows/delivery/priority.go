package delivery

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// priority returns the present priority; 0: the default.
func (d *Delivery) priority() fleet.Priority {
	if d.carried.Priority != 0 {
		return d.carried.Priority
	}
	return d.task.Spec.Priority
}

// deliveryPriority is the priority of the present or next delivery: a task that was lost with its agent goes ahead.
func (d *Delivery) deliveryPriority() fleet.Priority {
	if d.lastLost() != nil {
		return fleet.MovedPriority(d.priority())
	}
	return d.priority()
}

func (d *Delivery) mayReprioritize(req contract.ReprioritizeRequest) error {
	switch {
	case !req.Priority.Valid():
		return workflows.Refuse("%s", fleet.ErrPriority)
	case d.status.Final():
		return workflows.Refuse("the task has ended: it is %s", d.status)
	case d.cancel != nil:
		return workflows.Refuse("the task is being cancelled")
	}
	return nil
}

// reprioritize sets the priority of later deliveries, and changes the one that waits in its lane. It returns when
// Temporal has taken the change.
func (d *Delivery) reprioritize(ctx workflow.Context, req contract.ReprioritizeRequest) {
	d.carried.Priority = req.Priority
	d.carrier.Note(ctx, contract.MemoPriority, req.Priority)
	if d.delivering == 0 {
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
		if _, err := moved.Get(ctx); err != nil {
			workflow.GetLogger(ctx).Warn("The delivery that waits keeps its priority", "error", err)
		}
	}
}
