package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// createSchedule makes a schedule. Its cluster must be there; the lane is found anew for each task.
func (g *Gateway) createSchedule(ctx context.Context, r *api.ScheduleRequest) (api.Schedule, error) {
	name, ok := ownID(ctx, r.Name)
	if !ok {
		return api.Schedule{}, unknown(protocol.CodeUnknownSchedule)
	}
	tenant, plain := fleet.CutTenant(name)
	if err := fleet.ValidateScheduleName(plain); err != nil {
		return api.Schedule{}, invalid("body.name", err)
	}
	if tenant == "" {
		name = fleet.Qualify(r.Task.Tenant, plain)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	schedule, spec, err := g.buildSchedule(ctx, name, r)
	if err != nil {
		return api.Schedule{}, err
	}
	attributes, err := scheduleAttributes(&spec)
	if err != nil {
		return api.Schedule{}, g.answer(err, "create a schedule", protocol.CodeInternal)
	}
	_, err = g.client.WorkflowService().CreateSchedule(ctx, &workflowservice.CreateScheduleRequest{
		Namespace: g.namespace, ScheduleId: contract.ScheduleID(name), Schedule: schedule, SearchAttributes: attributes, RequestId: uuid.NewString(),
	})
	if store.KindOf(err) == store.Exists {
		return api.Schedule{}, httpapi.Problem(protocol.CodeScheduleExists, "there is a schedule with this name; replace it with PUT, or choose another name")
	}
	if err != nil {
		return api.Schedule{}, g.answer(err, "create a schedule", protocol.CodeInternal)
	}
	return g.schedule(ctx, name)
}

// buildSchedule checks a request and makes Temporal's schedule of it. Its tasks are of the tenant that its name is of.
func (g *Gateway) buildSchedule(ctx context.Context, name string, r *api.ScheduleRequest) (*schedulepb.Schedule, fleet.TaskSpec, error) {
	tenant, _ := fleet.CutTenant(name)
	if r.Task.Tenant == "" {
		r.Task.Tenant = tenant
	}
	spec, err := checkSchedule(r, time.Now())
	if err != nil {
		return nil, spec, err
	}
	if spec.Tenant, err = ownTenant(ctx, spec.Tenant); err != nil {
		return nil, spec, err
	}
	if spec.Tenant != tenant {
		return nil, spec, invalid("body.task.tenant", errors.New("must be the tenant before the schedule's name, or be left out"))
	}
	if _, err := g.knownCluster(ctx, spec.Cluster); err != nil {
		return nil, spec, err
	}
	schedule, err := buildSchedule(r, name, spec)
	return schedule, spec, g.answer(err, "build a schedule", protocol.CodeInternal)
}

// replaceSchedule puts all but the past in place of what was there.
func (g *Gateway) replaceSchedule(ctx context.Context, name string, r *api.ScheduleRequest) (api.Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	present, err := g.describeSchedule(ctx, name)
	if err != nil {
		return api.Schedule{}, err
	}
	schedule, spec, err := g.buildSchedule(ctx, name, r)
	if err != nil {
		return api.Schedule{}, err
	}
	if r.Paused == nil {
		schedule.State.Paused = present.GetSchedule().GetState().GetPaused()
	}
	if r.Note == nil {
		schedule.State.Notes = present.GetSchedule().GetState().GetNotes()
	}
	attributes, err := scheduleAttributes(&spec)
	if err == nil {
		_, err = g.client.WorkflowService().UpdateSchedule(ctx, &workflowservice.UpdateScheduleRequest{
			Namespace: g.namespace, ScheduleId: contract.ScheduleID(name), Schedule: schedule, ConflictToken: present.GetConflictToken(),
			SearchAttributes: attributes, RequestId: uuid.NewString(),
		})
	}
	if store.KindOf(err) == store.Blocked {
		return api.Schedule{}, httpapi.Problem(protocol.CodeConflict, "the schedule was changed by somebody else just now; look at it and try again")
	}
	if err != nil {
		return api.Schedule{}, g.answer(err, "replace a schedule", protocol.CodeUnknownSchedule)
	}
	return g.scheduleWhen(ctx, name, func(d *workflowservice.DescribeScheduleResponse) bool {
		return string(d.GetConflictToken()) != string(present.GetConflictToken())
	})
}

func (g *Gateway) pauseSchedule(ctx context.Context, name string, pause bool, why *api.ReasonRequest) (api.Schedule, error) {
	name, err := ownSchedule(ctx, name)
	if err != nil {
		return api.Schedule{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := g.seesSchedule(ctx, name); err != nil {
		return api.Schedule{}, err
	}
	if err := g.patchSchedule(ctx, name, pausePatch(pause, why)); err != nil {
		return api.Schedule{}, err
	}
	return g.scheduleWhen(ctx, name, func(d *workflowservice.DescribeScheduleResponse) bool {
		return d.GetSchedule().GetState().GetPaused() == pause
	})
}

// pausePatch pauses or resumes a schedule of Temporal; the reason becomes its note.
func pausePatch(pause bool, why *api.ReasonRequest) *schedulepb.SchedulePatch {
	note := "paused by request"
	if !pause {
		note = "resumed by request"
	}
	if why != nil && why.Reason != "" {
		note = why.Reason
	}
	if pause {
		return &schedulepb.SchedulePatch{Pause: note}
	}
	return &schedulepb.SchedulePatch{Unpause: note}
}

func (g *Gateway) patchSchedule(ctx context.Context, name string, patch *schedulepb.SchedulePatch) error {
	_, err := g.client.WorkflowService().PatchSchedule(ctx, &workflowservice.PatchScheduleRequest{
		Namespace: g.namespace, ScheduleId: contract.ScheduleID(name), Patch: patch, RequestId: uuid.NewString(),
	})
	return g.answer(err, "patch a schedule", protocol.CodeUnknownSchedule)
}

// triggerSchedule makes a task now and returns its id.
func (g *Gateway) triggerSchedule(ctx context.Context, name string, overlap fleet.Overlap, now time.Time) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	present, err := g.describeSchedule(ctx, name)
	if err != nil {
		return "", err
	}
	if overlap == "" {
		overlap = overlapOf(present.GetSchedule().GetPolicies().GetOverlapPolicy())
	}
	if overlap == fleet.OverlapSkip && len(present.GetInfo().GetRunningWorkflows()) > 0 {
		return "", httpapi.Problem(protocol.CodeConflict, "the last task has not ended, and overlap is skip: wait for it, or trigger with another overlap, such as allow_all")
	}
	at := now.UTC().Truncate(time.Second)
	err = g.patchSchedule(ctx, name, &schedulepb.SchedulePatch{TriggerImmediately: &schedulepb.TriggerImmediatelyRequest{
		OverlapPolicy: overlaps[overlap], ScheduledTime: timestamppb.New(at),
	}})
	return contract.FiringTaskID(name, at), err
}

func (g *Gateway) deleteSchedule(ctx context.Context, name string) error {
	name, err := ownSchedule(ctx, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := g.seesSchedule(ctx, name); err != nil {
		return err
	}
	_, err = g.client.WorkflowService().DeleteSchedule(ctx, &workflowservice.DeleteScheduleRequest{Namespace: g.namespace, ScheduleId: contract.ScheduleID(name)})
	return g.answer(err, "delete a schedule", protocol.CodeUnknownSchedule)
}

func (g *Gateway) describeSchedule(ctx context.Context, name string) (*workflowservice.DescribeScheduleResponse, error) {
	d, err := g.client.WorkflowService().DescribeSchedule(ctx, &workflowservice.DescribeScheduleRequest{Namespace: g.namespace, ScheduleId: contract.ScheduleID(name)})
	if err != nil {
		return nil, g.answer(err, "describe a schedule", protocol.CodeUnknownSchedule)
	}
	if limited(ctx) && !sees(ctx, tenantOfSchedule(d)) {
		return nil, unknown(protocol.CodeUnknownSchedule)
	}
	return d, nil
}

// tenantOfSchedule is that of the tasks that it makes.
func tenantOfSchedule(d *workflowservice.DescribeScheduleResponse) string {
	var input contract.PeriodicInput
	if payloads := d.GetSchedule().GetAction().GetStartWorkflow().GetInput().GetPayloads(); len(payloads) > 0 {
		contract.Decode(payloads[0], &input)
	}
	return input.Spec.Tenant
}

// seesSchedule looks beforehand whether a request of one tenant may touch a schedule.
func (g *Gateway) seesSchedule(ctx context.Context, name string) error {
	if !limited(ctx) {
		return nil
	}
	_, err := g.describeSchedule(ctx, name)
	return err
}

// schedule returns a schedule as it stands.
func (g *Gateway) schedule(ctx context.Context, name string) (api.Schedule, error) {
	name, err := ownSchedule(ctx, name)
	if err != nil {
		return api.Schedule{}, err
	}
	return g.scheduleWhen(ctx, name, func(*workflowservice.DescribeScheduleResponse) bool { return true })
}

// scheduleWhen returns a schedule once a change shows: Temporal makes changes soon after it has accepted them.
func (g *Gateway) scheduleWhen(ctx context.Context, name string, done func(*workflowservice.DescribeScheduleResponse) bool) (api.Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var d *workflowservice.DescribeScheduleResponse
	err := g.waitUntil(ctx, queryTimeout, "wait for a schedule", func(ctx context.Context, _ bool) (_ bool, err error) {
		d, err = g.describeSchedule(ctx, name)
		return err == nil && done(d), err
	})
	if err != nil {
		return api.Schedule{}, err
	}
	return g.scheduleOf(ctx, name, d)
}

// scheduleOf is a schedule as its description and its tasks tell it.
func (g *Gateway) scheduleOf(ctx context.Context, name string, d *workflowservice.DescribeScheduleResponse) (api.Schedule, error) {
	s, info := d.GetSchedule(), d.GetInfo()
	schedule := api.Schedule{
		Name: name, ScheduleTimes: timesOf(s.GetSpec()), Paused: s.GetState().GetPaused(), Note: s.GetState().GetNotes(),
		NextTimes: []time.Time{}, CreatedAt: store.TimeOf(info.GetCreateTime()), UpdatedAt: store.TimeOf(info.GetUpdateTime()),
		Counts: api.ScheduleCount{Fired: info.GetActionCount(), SkippedOverlap: info.GetOverlapSkipped(), MissedWindow: info.GetMissedCatchupWindow()},
	}
	schedule.Overlap = overlapOf(s.GetPolicies().GetOverlapPolicy())
	schedule.CatchupWindow = fleet.Duration(s.GetPolicies().GetCatchupWindow().AsDuration())
	var input contract.PeriodicInput
	if payloads := s.GetAction().GetStartWorkflow().GetInput().GetPayloads(); len(payloads) == 0 || !contract.Decode(payloads[0], &input) {
		return schedule, g.answer(errors.New("the schedule's action is not Mainstay's"), "read a schedule", protocol.CodeInternal)
	}
	schedule.Task.TaskSpec = input.Spec
	if !schedule.Paused {
		for _, t := range info.GetFutureActionTimes() {
			schedule.NextTimes = append(schedule.NextTimes, t.AsTime().UTC())
		}
	}
	schedule.Runs = g.runs(ctx, name, info.GetRecentActions())
	return schedule, nil
}
