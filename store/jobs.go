package store

import (
	"context"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/durationpb"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/job"
)

// Jobs are the jobs of a namespace. One that was deleted is not found.
type Jobs struct{ Store }

// Jobs are the namespace's.
func (s Store) Jobs() Jobs { return Jobs{s} }

// Schedule makes Temporal start a run of a plan at the times of the job's nth trigger.
func (s Jobs) Schedule(ctx context.Context, p *job.Plan, n int, t *job.ScheduleTrigger, paused bool) error {
	converter := converter.GetDefaultDataConverter()
	in := &contract.RunInput{Plan: *p, Inputs: t.Inputs, Origin: job.Origin{Schedule: true}}
	input, err := converter.ToPayloads(in)
	if err != nil {
		return fmt.Errorf("encode a run: %w", err)
	}
	start := contract.StartOfRun("", in, 0)
	summary, err := converter.ToPayload(start.Summary)
	if err != nil {
		return fmt.Errorf("encode a summary: %w", err)
	}
	attributes := &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{}}
	for key, value := range start.Attributes.GetUntypedValues() {
		if attributes.IndexedFields[key.GetName()], err = converter.ToPayload(value); err != nil {
			return fmt.Errorf("encode the search attribute %s: %w", key.GetName(), err)
		}
	}
	memo := &commonpb.Memo{Fields: map[string]*commonpb.Payload{}}
	for name, value := range start.Memo {
		if memo.Fields[name], err = converter.ToPayload(value); err != nil {
			return fmt.Errorf("encode the memo %s: %w", name, err)
		}
	}
	return s.KeepSchedule(ctx, contract.JobScheduleID(p.Job, n), &schedulepb.Schedule{
		Spec: ScheduleSpec(&api.ScheduleTimes{Cron: t.Cron, TimeZone: t.TimeZone, Interval: t.Interval}),
		Action: &schedulepb.ScheduleAction{
			Action: &schedulepb.ScheduleAction_StartWorkflow{StartWorkflow: &workflowpb.NewWorkflowExecutionInfo{
				WorkflowId:       contract.ScheduledRunWorkflowID(p.Job, n),
				WorkflowType:     &commonpb.WorkflowType{Name: contract.RunWorkflow},
				TaskQueue:        &taskqueuepb.TaskQueue{Name: contract.WorkerQueue},
				Input:            input,
				Memo:             memo,
				SearchAttributes: attributes,
				UserMetadata:     &sdkpb.UserMetadata{Summary: summary},
				Priority: &commonpb.Priority{PriorityKey: int32(start.Priority.PriorityKey),
					FairnessKey: start.Priority.FairnessKey},
			}}},
		Policies: &schedulepb.SchedulePolicies{
			OverlapPolicy: enumspb.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL, // the job's concurrency bounds its runs
			CatchupWindow: durationpb.New(fleet.DefaultCatchupWindow),
		},
		State: &schedulepb.ScheduleState{Paused: paused, Notes: "starts runs of job " + p.Job},
	}, attributes)
}
