package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// EnsureSweep makes the schedule that looks at the clusters, if one of them has scaling on.
func (s Clusters) EnsureSweep(ctx context.Context) error {
	clusters, err := s.Scaled(ctx)
	if err != nil || len(clusters) == 0 {
		return err
	}
	return s.MakeSweep(ctx)
}

// MakeSweep makes the schedule that looks at the clusters if it is not there.
func (s Clusters) MakeSweep(ctx context.Context) error {
	return s.makeLoop(ctx, &loop{
		id: contract.ScalingScheduleID, workflowID: "scaling-sweep", workflow: contract.ScalingSweepWorkflow,
		every: contract.ScalingInterval, catchUp: contract.ScalingInterval,
		summary: "look at the clusters that have scaling on",
		notes:   "Mainstay looks at the clusters that have scaling on. Pause it to hold all automatic scaling.",
	})
}

// healingCatchUp is how late a cycle of healing may begin; one that was missed for longer is not made up for.
const healingCatchUp = 10 * time.Second

// MakeHealing makes the schedule of the healing cycle if it is not there.
func (s Store) MakeHealing(ctx context.Context) error {
	return s.makeLoop(ctx, &loop{
		id: contract.HealingScheduleID, workflowID: contract.HealingCycleWorkflowID(""),
		workflow: contract.HealingCycleWorkflow, timeout: contract.HealingCycleTimeout,
		input: []any{contract.HealingCycleInput{Every: api.Duration(api.DefaultHealingInterval)}},
		every: api.DefaultHealingInterval, catchUp: healingCatchUp,
		summary: "healing cycle",
		notes:   "looks at all clusters and heals them; pause it in the Web UI, or with: mainstay healing pause",
	})
}

// loop is a schedule of Temporal that has all clusters looked at.
type loop struct {
	id, workflowID, workflow string
	input                    []any
	every, catchUp           time.Duration
	timeout                  time.Duration // of one look; zero: none
	summary, notes           string
}

// makeLoop makes a loop if it is not there. One that people have paused or changed stays as it is.
func (s Store) makeLoop(ctx context.Context, l *loop) error {
	summary, err := contract.Payloads.ToPayload(l.summary)
	if err != nil {
		return fmt.Errorf("encode a summary: %w", err)
	}
	input, err := contract.Payloads.ToPayloads(l.input...)
	if err != nil {
		return fmt.Errorf("encode the input of %s: %w", l.workflow, err)
	}
	start := &workflowpb.NewWorkflowExecutionInfo{
		WorkflowId: l.workflowID, WorkflowType: &commonpb.WorkflowType{Name: l.workflow}, Input: input,
		TaskQueue:    &taskqueuepb.TaskQueue{Name: contract.WorkerQueue},
		UserMetadata: &sdkpb.UserMetadata{Summary: summary},
	}
	if l.timeout > 0 {
		start.WorkflowExecutionTimeout = durationpb.New(l.timeout)
	}
	err = s.MakeSchedule(ctx, l.id, &schedulepb.Schedule{
		Spec: &schedulepb.ScheduleSpec{Interval: []*schedulepb.IntervalSpec{{Interval: durationpb.New(l.every)}}},
		Action: &schedulepb.ScheduleAction{
			Action: &schedulepb.ScheduleAction_StartWorkflow{StartWorkflow: start}},
		// Times missed while Temporal was away are not made up for.
		Policies: &schedulepb.SchedulePolicies{OverlapPolicy: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
			CatchupWindow: durationpb.New(l.catchUp)},
		State: &schedulepb.ScheduleState{Notes: l.notes},
	}, nil)
	if err != nil && KindOf(err) != Exists {
		return fmt.Errorf("make the schedule of %s: %w", l.id, err)
	}
	return nil
}

// Notes of a schedule that has no other: Temporal takes no pause or resumption without one.
const (
	notePaused  = "paused by request"
	noteResumed = "resumed by request"
)

// PauseSchedule pauses or resumes a schedule of Temporal. The reason becomes its note; without one the note stays.
func (s Store) PauseSchedule(ctx context.Context, scheduleID string, pause bool, reason string) error {
	note := reason
	if note == "" {
		present, err := s.DescribeSchedule(ctx, scheduleID)
		if err != nil {
			return err
		}
		note = present.GetSchedule().GetState().GetNotes()
	}
	if note == notePaused || note == noteResumed {
		note = ""
	}
	patch := &schedulepb.SchedulePatch{Unpause: cmp.Or(note, noteResumed)}
	if pause {
		patch = &schedulepb.SchedulePatch{Pause: cmp.Or(note, notePaused)}
	}
	return s.patchSchedule(ctx, scheduleID, patch)
}

// TriggerSchedule has a schedule of Temporal fire for a time, as if that had come.
func (s Store) TriggerSchedule(
	ctx context.Context, id string, at time.Time, overlap enumspb.ScheduleOverlapPolicy,
) error {
	return s.patchSchedule(ctx, id, &schedulepb.SchedulePatch{TriggerImmediately: &schedulepb.TriggerImmediatelyRequest{
		OverlapPolicy: overlap, ScheduledTime: timestamppb.New(at)}})
}

func (s Store) patchSchedule(ctx context.Context, id string, patch *schedulepb.SchedulePatch) error {
	_, err := s.Client.WorkflowService().PatchSchedule(ctx, &workflowservice.PatchScheduleRequest{
		Namespace: s.Namespace, ScheduleId: id, Patch: patch, RequestId: uuid.NewString(),
	})
	return err
}

// DescribeSchedule is a schedule of Temporal as it stands.
func (s Store) DescribeSchedule(ctx context.Context, id string) (*workflowservice.DescribeScheduleResponse, error) {
	return s.Client.WorkflowService().DescribeSchedule(ctx,
		&workflowservice.DescribeScheduleRequest{Namespace: s.Namespace, ScheduleId: id})
}

// Schedules is one page of the schedules of Temporal that a query finds, and the token of the next page.
func (s Store) Schedules(
	ctx context.Context, query string, size int, token []byte,
) ([]*schedulepb.ScheduleListEntry, []byte, error) {
	page, err := s.Client.WorkflowService().ListSchedules(ctx, &workflowservice.ListSchedulesRequest{
		Namespace: s.Namespace, MaximumPageSize: int32(size), NextPageToken: token, Query: query,
	})
	return page.GetSchedules(), page.GetNextPageToken(), err
}

// AllSchedules finds the schedules of tasks and those of jobs.
var AllSchedules = "(" + contract.AttrTaskType.GetName() + " IS NOT NULL OR " +
	contract.AttrJob.GetName() + " IS NOT NULL)"

// CountSchedules counts the schedules of tasks and of jobs; with a query, those of them that it finds.
func (s Store) CountSchedules(ctx context.Context, query string) (int64, error) {
	if query != "" {
		query = " AND " + query
	}
	answer, err := s.Client.WorkflowService().CountSchedules(ctx, &workflowservice.CountSchedulesRequest{
		Namespace: s.Namespace, Query: AllSchedules + query,
	})
	return answer.GetCount(), err
}

const (
	// exactSchedules is how many schedules of a tenant start at the exact second.
	exactSchedules = 20
	// spreadRate is about how many of the tenant's other schedules may start in a second.
	spreadRate = 10
	// maxSpread is shorter than the minute of those that it delays.
	maxSpread = 50 * time.Second
)

// Spread delays the starts of a schedule, each by another while, if its tenant has many schedules: most are due at the
// beginning of a minute or an hour, and others' would wait until all have begun. It delays no schedule more frequent
// than once a minute, because starts are bounded elsewhere. Without counts from Temporal it delays none.
func (s Store) Spread(ctx context.Context, tenant string, spec *schedulepb.ScheduleSpec) error {
	for _, i := range spec.GetInterval() {
		if i.GetInterval().AsDuration() < time.Minute {
			return nil
		}
	}
	n, err := s.CountSchedules(ctx, contract.OfTenant(tenant))
	if KindOf(err) == Unsupported || err == nil && n < exactSchedules {
		return nil
	}
	spread := min(time.Duration(n)*time.Second/spreadRate, maxSpread)
	if spread > spec.GetJitter().AsDuration() {
		spec.Jitter = durationpb.New(spread)
	}
	return err
}

// MakeSchedule makes a schedule of Temporal.
func (s Store) MakeSchedule(
	ctx context.Context, id string, schedule *schedulepb.Schedule, attributes *commonpb.SearchAttributes,
) error {
	_, err := s.Client.WorkflowService().CreateSchedule(ctx, &workflowservice.CreateScheduleRequest{
		Namespace: s.Namespace, ScheduleId: id, RequestId: uuid.NewString(), Schedule: schedule,
		SearchAttributes: attributes,
	})
	return err
}

// ReplaceSchedule puts a schedule in the place of the one with its id. The error is Blocked if that is no longer the
// one that seen is the conflict token of; nil: any.
func (s Store) ReplaceSchedule(
	ctx context.Context, id string, schedule *schedulepb.Schedule, attributes *commonpb.SearchAttributes, seen []byte,
) error {
	_, err := s.Client.WorkflowService().UpdateSchedule(ctx, &workflowservice.UpdateScheduleRequest{
		Namespace: s.Namespace, ScheduleId: id, RequestId: uuid.NewString(), Schedule: schedule,
		SearchAttributes: attributes, ConflictToken: seen,
	})
	return err
}

// KeepSchedule makes a schedule of Temporal, or puts it in the place of the one with its id.
func (s Store) KeepSchedule(
	ctx context.Context, id string, schedule *schedulepb.Schedule, attributes *commonpb.SearchAttributes,
) error {
	err := s.MakeSchedule(ctx, id, schedule, attributes)
	if KindOf(err) == Exists {
		err = s.ReplaceSchedule(ctx, id, schedule, attributes, nil)
	}
	return err
}

// DeleteSchedule removes a schedule of Temporal.
func (s Store) DeleteSchedule(ctx context.Context, id string) error {
	_, err := s.Client.WorkflowService().DeleteSchedule(ctx,
		&workflowservice.DeleteScheduleRequest{Namespace: s.Namespace, ScheduleId: id})
	return err
}

// DropSchedule is DeleteSchedule for one that may be gone already.
func (s Store) DropSchedule(ctx context.Context, id string) error {
	if err := s.DeleteSchedule(ctx, id); KindOf(err) != NotFound {
		return err
	}
	return nil
}
