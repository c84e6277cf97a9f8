package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// checkSchedule finds mistakes in the times and the task, and returns the task's spec.
func checkSchedule(r *api.ScheduleRequest, now time.Time) (api.TaskSpec, error) {
	if err := schedule.PlanOf(&r.ScheduleTimes).Validate(now); err != nil {
		if field, ok := errors.AsType[*api.FieldError](err); ok {
			return api.TaskSpec{}, rest.Invalid("body."+field.Field, field.Err)
		}
		return api.TaskSpec{}, rest.Invalid("body", err)
	}
	switch {
	case r.Task.ID != "":
		return api.TaskSpec{}, rest.Invalid("body.task.id",
			errors.New("must be left out: the id of each task is made of the schedule's name and its time"))
	case r.Task.IdempotencyKey != "":
		return api.TaskSpec{}, rest.Invalid("body.task.idempotency_key",
			errors.New("must be left out: one time of the schedule is one task"))
	case !r.Task.StartAt.IsZero():
		return api.TaskSpec{}, rest.Invalid("body.task.start_at",
			errors.New("must be left out: the schedule says when a task starts"))
	case !r.Task.ExpiresAt.IsZero():
		return api.TaskSpec{}, rest.Invalid("body.task.expires_at",
			errors.New("must be left out: a schedule makes many tasks, each with expires_in"))
	}
	spec := r.Task.TaskSpec
	if err := cmp.Or(spec.Validate(), payload.Task(&spec)); err != nil {
		return api.TaskSpec{}, rest.Invalid("body.task", err)
	}
	return spec, nil
}

var overlaps = map[api.Overlap]enumspb.ScheduleOverlapPolicy{
	"":                     enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
	api.OverlapSkip:        enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
	api.OverlapBufferOne:   enumspb.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE,
	api.OverlapAllowAll:    enumspb.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL,
	api.OverlapCancelOther: enumspb.SCHEDULE_OVERLAP_POLICY_CANCEL_OTHER,
}

// overlapOf is the inverse of overlaps. A policy that only other tools set is called by Temporal's name.
func overlapOf(policy enumspb.ScheduleOverlapPolicy) api.Overlap {
	for _, o := range []api.Overlap{api.OverlapSkip, api.OverlapBufferOne, api.OverlapAllowAll,
		api.OverlapCancelOther} {
		if overlaps[o] == policy {
			return o
		}
	}
	if policy == enumspb.SCHEDULE_OVERLAP_POLICY_UNSPECIFIED {
		return api.OverlapSkip
	}
	return api.Overlap(policy.String())
}

// buildSchedule makes Temporal's schedule of a checked request.
func buildSchedule(r *api.ScheduleRequest, name string, spec api.TaskSpec) (*schedulepb.Schedule, error) {
	input, err := contract.Payloads.ToPayloads(contract.FiringInput{Spec: spec})
	if err != nil {
		return nil, fmt.Errorf("encode a schedule's task: %w", err)
	}
	summary, err := contract.Payloads.ToPayload("a task of schedule " + name)
	if err != nil {
		return nil, fmt.Errorf("encode a summary: %w", err)
	}
	attributes, err := scheduleAttributes(&spec)
	if err != nil {
		return nil, err
	}
	s := &schedulepb.Schedule{
		Spec: store.ScheduleSpec(&r.ScheduleTimes, time.Now()),
		Action: &schedulepb.ScheduleAction{
			Action: &schedulepb.ScheduleAction_StartWorkflow{StartWorkflow: &workflowpb.NewWorkflowExecutionInfo{
				WorkflowId:   contract.FiringsWorkflowID(name),
				WorkflowType: &commonpb.WorkflowType{Name: contract.FiringWorkflow},
				TaskQueue:    &taskqueuepb.TaskQueue{Name: contract.WorkerQueue}, Input: input,
				SearchAttributes: attributes,
				UserMetadata:     &sdkpb.UserMetadata{Summary: summary},
			}}},
		Policies: &schedulepb.SchedulePolicies{
			OverlapPolicy: overlaps[r.Overlap],
			CatchupWindow: durationpb.New(r.CatchupWindow.Or(schedule.CatchupWindow(r.Cron, r.Interval))),
		},
		State: &schedulepb.ScheduleState{},
	}
	if r.Paused != nil {
		s.State.Paused = *r.Paused
	}
	if r.Note != nil {
		s.State.Notes = *r.Note
	}
	return s, nil
}

// scheduleAttributes are the search attributes of a schedule and of its firings: lists find them by cluster and type.
func scheduleAttributes(spec *api.TaskSpec) (*commonpb.SearchAttributes, error) {
	fields := map[string]*commonpb.Payload{}
	for name, value := range map[string]string{
		contract.AttrCluster.GetName(): spec.Cluster, contract.AttrTaskType.GetName(): spec.Type,
		contract.AttrTenant.GetName(): spec.Tenant,
	} {
		if value == "" {
			continue
		}
		payload, err := contract.Payloads.ToPayload(value)
		if err != nil {
			return nil, fmt.Errorf("encode the search attribute %s: %w", name, err)
		}
		fields[name] = payload
	}
	return &commonpb.SearchAttributes{IndexedFields: fields}, nil
}
