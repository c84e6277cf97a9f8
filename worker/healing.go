package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// healingCatchUp is how late a cycle may begin; one that was missed for longer is not made up for.
const healingCatchUp = 10 * time.Second

// EnsureHealing makes the schedule of the healing cycle if there is none. One that there is stays as it is: people may
// have paused it.
func EnsureHealing(ctx context.Context, c client.Client) error {
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: contract.HealingScheduleID,
		Spec: client.ScheduleSpec{
			Intervals: []client.ScheduleIntervalSpec{{Every: fleet.DefaultHealingInterval}}},
		Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: healingCatchUp,
		Note:          "looks at all clusters and heals them; pause it in the Web UI, or with: mainstay healing pause",
		Action: &client.ScheduleWorkflowAction{
			ID:            contract.HealingCycleWorkflowID(""),
			Workflow:      contract.HealingCycleWorkflow,
			TaskQueue:     contract.WorkerQueue,
			Args:          []any{contract.HealingCycleInput{Every: fleet.Duration(fleet.DefaultHealingInterval)}},
			StaticSummary: "healing cycle",
		},
	})
	if err != nil && !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("make the schedule of the healing cycle: %w", err)
	}
	return nil
}

func registerHealingWorkflows(r sdkworker.WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(workflows.HealingCycle, workflow.RegisterOptions{Name: contract.HealingCycleWorkflow})
	r.RegisterWorkflowWithOptions(workflows.HealingAction,
		workflow.RegisterOptions{Name: contract.HealingActionWorkflow})
}
