package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/durationpb"

	"mainstay.dev/mainstay/contract"
)

// EnsureSweep makes the schedule that looks at the clusters, if one of them has scaling on.
func (s Clusters) EnsureSweep(ctx context.Context) error {
	clusters, err := s.Scaled(ctx)
	if err != nil || len(clusters) == 0 {
		return err
	}
	return s.MakeSweep(ctx)
}

// MakeSweep makes the schedule that looks at the clusters if it is not there. One that people have paused or changed
// stays as it is.
func (s Clusters) MakeSweep(ctx context.Context) error {
	summary, err := converter.GetDefaultDataConverter().ToPayload("look at the clusters that have scaling on")
	if err != nil {
		return fmt.Errorf("encode a summary: %w", err)
	}
	_, err = s.Client.WorkflowService().CreateSchedule(ctx, &workflowservice.CreateScheduleRequest{
		Namespace: s.Namespace, ScheduleId: contract.ScalingScheduleID, RequestId: uuid.NewString(),
		Schedule: &schedulepb.Schedule{
			Spec: &schedulepb.ScheduleSpec{Interval: []*schedulepb.IntervalSpec{{Interval: durationpb.New(
				contract.ScalingInterval)}}},
			Action: &schedulepb.ScheduleAction{
				Action: &schedulepb.ScheduleAction_StartWorkflow{StartWorkflow: &workflowpb.NewWorkflowExecutionInfo{
					WorkflowId: "scaling-sweep", WorkflowType: &commonpb.WorkflowType{Name: contract.ScalingSweepWorkflow},
					TaskQueue:    &taskqueuepb.TaskQueue{Name: contract.WorkerQueue},
					UserMetadata: &sdkpb.UserMetadata{Summary: summary},
				}}},
			// What was missed while Temporal was away need not be made up for.
			Policies: &schedulepb.SchedulePolicies{OverlapPolicy: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
				CatchupWindow: durationpb.New(contract.ScalingInterval)},
			State: &schedulepb.ScheduleState{Notes: "Mainstay looks at the clusters that have scaling on. Pause it to hold all automatic scaling."},
		},
	})
	if KindOf(err) == Exists {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the schedule of scaling: %w", err)
	}
	return nil
}

// PauseSchedule pauses or resumes a schedule of Temporal; the reason, if there is one, becomes its note.
func (s Store) PauseSchedule(ctx context.Context, scheduleID string, pause bool, reason string) error {
	patch := &schedulepb.SchedulePatch{Unpause: cmp.Or(reason, "resumed by request")}
	if pause {
		patch = &schedulepb.SchedulePatch{Pause: cmp.Or(reason, "paused by request")}
	}
	_, err := s.Client.WorkflowService().PatchSchedule(ctx, &workflowservice.PatchScheduleRequest{
		Namespace: s.Namespace, ScheduleId: scheduleID, Patch: patch, RequestId: uuid.NewString(),
	})
	return err
}
