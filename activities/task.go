package activities

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
)

// runningAttempt is the attempt that a task has under way.
type runningAttempt struct {
	number int
	report contract.AttemptReport
}

// readTask reads a task's state, and its attempt under way if an agent has it.
func readTask(ctx context.Context, c client.Client, id string) (contract.TaskState, *runningAttempt, error) {
	workflowID := contract.TaskWorkflowID(id)
	var state contract.TaskState
	description, err := c.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return state, nil, fmt.Errorf("describe task %s: %w", id, err)
	}
	if description.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		err := c.GetWorkflow(ctx, workflowID, "").Get(ctx, &state) // closed: answers at once
		var failed *temporal.ApplicationError
		var cancelled *temporal.CanceledError
		switch {
		case errors.As(err, &failed) && failed.HasDetails():
			err = failed.Details(&state)
		case errors.As(err, &cancelled) && cancelled.HasDetails():
			err = cancelled.Details(&state)
		}
		if err != nil {
			return state, nil, fmt.Errorf("read the end of task %s: %w", id, err)
		}
		return state, nil, nil
	}
	if state, err = contract.StatusQuery.Ask(ctx, c, workflowID); err != nil {
		return state, nil, fmt.Errorf("query task %s: %w", id, err)
	}
	for _, pending := range description.GetPendingActivities() {
		number := contract.AttemptOfActivityID(pending.GetActivityId())
		if number == 0 || pending.GetHeartbeatDetails() == nil {
			continue
		}
		running := &runningAttempt{number: number}
		if err := converter.GetDefaultDataConverter().FromPayloads(pending.GetHeartbeatDetails(), &running.report); err != nil {
			return state, nil, fmt.Errorf("read the heartbeat of task %s: %w", id, err)
		}
		return state, running, nil
	}
	return state, nil, nil
}
