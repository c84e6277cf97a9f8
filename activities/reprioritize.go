package activities

import (
	"context"
	"errors"
	"fmt"

	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"mainstay.dev/mainstay/contract"
)

// Reprioritize changes the priority of a delivery that waits in its lane: Temporal queues it again. One that an agent
// has is not disturbed, and one that is over is left alone. Fairness key and weight stay: what an activity does not say
// of its priority is the workflow's. It takes Temporal up to about a second, as it does so with a timer.
func (a *Control) Reprioritize(ctx context.Context, in contract.ReprioritizeInput) error {
	_, err := a.Client.WorkflowService().UpdateActivityOptions(ctx, &workflowservice.UpdateActivityOptionsRequest{
		Namespace:       a.Namespace,
		Execution:       &commonpb.WorkflowExecution{WorkflowId: in.WorkflowID, RunId: in.RunID},
		Activity:        &workflowservice.UpdateActivityOptionsRequest_Id{Id: contract.AttemptActivityID(in.Attempt)},
		ActivityOptions: &activitypb.ActivityOptions{Priority: &commonpb.Priority{PriorityKey: int32(in.Priority)}},
		UpdateMask:      &fieldmaskpb.FieldMask{Paths: []string{"priority.priority_key"}},
	})
	var over *serviceerror.NotFound
	var refused *serviceerror.InvalidArgument
	var tooOld *serviceerror.Unimplemented
	switch {
	case err == nil, errors.As(err, &over):
		return nil
	case errors.As(err, &refused), errors.As(err, &tooOld):
		return temporal.NewNonRetryableApplicationError(
			"Temporal does not change the priority of what waits; it holds for later deliveries", "NotChanged", err)
	}
	return fmt.Errorf("change the priority of %s of %s: %w", contract.AttemptActivityID(in.Attempt), in.WorkflowID, err)
}
