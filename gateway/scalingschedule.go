package gateway

import (
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
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
)

// EnsureScaling makes the schedule that looks at the clusters, if one of them has scaling on.
func (g *Gateway) EnsureScaling(ctx context.Context) error {
	clusters, err := g.store.Clusters().Scaled(ctx)
	if err != nil || len(clusters) == 0 {
		return err
	}
	return g.ensureSweep(ctx)
}

// ensureSweep makes the schedule of the sweep if it is not there. One that people have paused or changed stays as it is.
func (g *Gateway) ensureSweep(ctx context.Context) error {
	summary, err := converter.GetDefaultDataConverter().ToPayload("look at the clusters that have scaling on")
	if err != nil {
		return fmt.Errorf("encode a summary: %w", err)
	}
	_, err = g.client.WorkflowService().CreateSchedule(ctx, &workflowservice.CreateScheduleRequest{
		Namespace: g.namespace, ScheduleId: contract.ScalingScheduleID, RequestId: uuid.NewString(),
		Schedule: &schedulepb.Schedule{
			Spec: &schedulepb.ScheduleSpec{Interval: []*schedulepb.IntervalSpec{{Interval: durationpb.New(contract.ScalingInterval)}}},
			Action: &schedulepb.ScheduleAction{Action: &schedulepb.ScheduleAction_StartWorkflow{StartWorkflow: &workflowpb.NewWorkflowExecutionInfo{
				WorkflowId: "scaling-sweep", WorkflowType: &commonpb.WorkflowType{Name: contract.ScalingSweepWorkflow},
				TaskQueue: &taskqueuepb.TaskQueue{Name: contract.WorkerQueue}, UserMetadata: &sdkpb.UserMetadata{Summary: summary},
			}}},
			// What was missed while Temporal was away need not be made up for.
			Policies: &schedulepb.SchedulePolicies{OverlapPolicy: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: durationpb.New(contract.ScalingInterval)},
			State:    &schedulepb.ScheduleState{Notes: "Mainstay looks at the clusters that have scaling on. Pause it to hold all automatic scaling."},
		},
	})
	if store.KindOf(err) == store.Exists {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the schedule of scaling: %w", err)
	}
	return nil
}

// afterConfigure sees to it that a cluster that has scaling on is looked at. Where that fails, the next start of a gateway
// makes up for it.
func (g *Gateway) afterConfigure(ctx context.Context, on bool) {
	if !on {
		return
	}
	if err := g.ensureSweep(ctx); err != nil {
		g.logger.Warn("the schedule of scaling was not made", zap.Error(err))
	}
}
