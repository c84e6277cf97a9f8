package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
)

// sweepLimit bounds one look at all clusters; the next one waits for it.
const sweepLimit = 5 * time.Minute

// ScalingSweep looks once at all clusters that have scaling on. A Temporal Schedule starts it.
func ScalingSweep(ctx workflow.Context) (contract.SweepResult, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, ScheduleToCloseTimeout: sweepLimit, HeartbeatTimeout: 30 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "look at the clusters that have scaling on",
	})
	result, err := contract.SweepScalingActivity.Execute(ctx, contract.None{}).Get(ctx)
	return result, err
}
