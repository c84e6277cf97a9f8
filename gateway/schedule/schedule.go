// Package schedule answers what clients ask about schedules, which submit tasks again and again.
package schedule

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// create makes a schedule. Its cluster must be there; the lane is found anew for each task.
func (h *Handlers) create(ctx context.Context, in *rest.Body[api.ScheduleRequest]) (api.Schedule, error) {
	r := &in.Body
	name, ok := rest.OwnID(ctx, r.Name)
	if !ok {
		return api.Schedule{}, rest.Unknown(protocol.CodeUnknownSchedule)
	}
	tenant, plain := api.CutTenant(name)
	if err := api.ValidateScheduleName(plain); err != nil {
		return api.Schedule{}, rest.Invalid("body.name", err)
	}
	if tenant == "" {
		name = api.Qualify(r.Task.Tenant, plain)
	}
	schedule, spec, err := h.buildSchedule(ctx, name, r)
	if err != nil {
		return api.Schedule{}, err
	}
	if err := h.roomFor(ctx, name, r, schedule.Spec); err != nil {
		return api.Schedule{}, err
	}
	attributes, err := scheduleAttributes(&spec)
	if err != nil {
		return api.Schedule{}, h.Answer(err, "create a schedule", protocol.CodeInternal)
	}
	err = h.Store.MakeSchedule(ctx, contract.ScheduleID(name), schedule, attributes)
	if store.KindOf(err) == store.Exists {
		return api.Schedule{}, httpapi.Problem(protocol.CodeScheduleExists,
			"there is a schedule with this name: delete it first, choose another name, or replace it (PUT in the API)")
	}
	if err != nil {
		return api.Schedule{}, h.Answer(err, "create a schedule", protocol.CodeInternal)
	}
	return h.schedule(ctx, name)
}

// buildSchedule checks a request and makes Temporal's schedule of it. Its tasks are of the tenant that its name is of.
func (h *Handlers) buildSchedule(
	ctx context.Context, name string, r *api.ScheduleRequest,
) (*schedulepb.Schedule, api.TaskSpec, error) {
	tenant, _ := api.CutTenant(name)
	r.Task.Tenant = cmp.Or(r.Task.Tenant, tenant)
	spec, err := checkSchedule(r, time.Now())
	if err != nil {
		return nil, spec, err
	}
	if spec.Tenant, err = rest.OwnTenant(ctx, spec.Tenant); err != nil {
		return nil, spec, err
	}
	if spec.Tenant != tenant {
		return nil, spec, rest.Invalid("body.task.tenant",
			errors.New("must be the tenant before the schedule's name, or be left out"))
	}
	if _, err := h.KnownCluster(ctx, spec.Cluster); err != nil {
		return nil, spec, err
	}
	schedule, err := buildSchedule(r, name, spec)
	return schedule, spec, h.Answer(err, "build a schedule", protocol.CodeInternal)
}

// replace replaces a schedule, but keeps its past.
func (h *Handlers) replace(ctx context.Context, in *rest.ToNamed[api.ScheduleRequest]) (api.Schedule, error) {
	r := &in.Body
	name, err := rest.OwnSchedule(ctx, in.Name)
	if err != nil {
		return api.Schedule{}, err
	}
	if named, _ := rest.OwnID(ctx, r.Name); r.Name != "" && named != name {
		return api.Schedule{}, rest.Invalid("body.name",
			errors.New("must be the name in the path, or be left out: a schedule cannot be renamed"))
	}
	present, err := h.describeSchedule(ctx, name)
	if err != nil {
		return api.Schedule{}, err
	}
	schedule, spec, err := h.buildSchedule(ctx, name, r)
	if err != nil {
		return api.Schedule{}, err
	}
	if err := h.roomFor(ctx, name, r, schedule.Spec); err != nil {
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
		err = h.Store.ReplaceSchedule(ctx, contract.ScheduleID(name), schedule, attributes, present.GetConflictToken())
	}
	if store.KindOf(err) == store.Blocked {
		return api.Schedule{}, httpapi.Problem(protocol.CodeConflict,
			"the schedule was changed by somebody else just now; look at it and try again")
	}
	if err != nil {
		return api.Schedule{}, h.Answer(err, "replace a schedule", protocol.CodeUnknownSchedule)
	}
	return h.scheduleWhen(ctx, name, func(d *workflowservice.DescribeScheduleResponse) bool {
		return string(d.GetConflictToken()) != string(present.GetConflictToken())
	})
}

// pauses makes the handler that pauses or resumes a schedule.
func (h *Handlers) pauses(
	pause bool,
) func(context.Context, *rest.ToNamed[*api.ReasonRequest]) (api.Schedule, error) {
	return func(ctx context.Context, in *rest.ToNamed[*api.ReasonRequest]) (api.Schedule, error) {
		name, err := rest.OwnSchedule(ctx, in.Name)
		if err != nil {
			return api.Schedule{}, err
		}
		if err := h.mayChange(name); err != nil {
			return api.Schedule{}, err
		}
		if err := h.seesSchedule(ctx, name); err != nil {
			return api.Schedule{}, err
		}
		if err := h.Store.PauseSchedule(ctx, contract.ScheduleID(name), pause, in.Body.Text()); err != nil {
			return api.Schedule{}, h.Answer(err, "pause or resume a schedule", protocol.CodeUnknownSchedule)
		}
		return h.scheduleWhen(ctx, name, func(d *workflowservice.DescribeScheduleResponse) bool {
			return d.GetSchedule().GetState().GetPaused() == pause
		})
	}
}

// trigger makes a task now.
func (h *Handlers) trigger(
	ctx context.Context, in *rest.ToNamed[*api.TriggerRequest],
) (made api.Triggered, err error) {
	name, err := rest.OwnSchedule(ctx, in.Name)
	if err != nil {
		return made, err
	}
	if err := h.mayChange(name); err != nil {
		return made, err
	}
	present, err := h.describeSchedule(ctx, name)
	if err != nil {
		return made, err
	}
	overlap := cmp.Or(rest.Given(in.Body).Overlap, overlapOf(present.GetSchedule().GetPolicies().GetOverlapPolicy()))
	if overlap == api.OverlapSkip && len(present.GetInfo().GetRunningWorkflows()) > 0 {
		return made, httpapi.Problem(protocol.CodeConflict,
			"the last task has not ended, and overlap is skip: wait for it, or trigger with another overlap, such as allow_all")
	}
	at := time.Now().UTC().Truncate(time.Second)
	if err := h.claim(ctx, name, at); err != nil {
		return made, err
	}
	err = h.Store.TriggerSchedule(ctx, contract.ScheduleID(name), at, overlaps[overlap])
	return api.Triggered{Name: name, TaskID: contract.FiringTaskID(name, at)},
		h.Answer(err, "trigger a schedule", protocol.CodeUnknownSchedule)
}

// triggers are the seconds in which schedules were last triggered, by name.
type triggers struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// take reports whether a schedule was not triggered yet for a second.
func (t *triggers) take(name string, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.last, func(_ string, last time.Time) bool { return last.Before(at) })
	if _, taken := t.last[name]; taken {
		return false
	}
	if t.last == nil {
		t.last = map[string]time.Time{}
	}
	t.last[name] = at
	return true
}

// claim refuses a second that has a firing, also one of a schedule of this name that is deleted: Temporal names firings
// by the second, so a further one would make no task.
func (h *Handlers) claim(ctx context.Context, name string, at time.Time) error {
	taken := !h.triggered.take(name, at)
	for _, id := range []string{contract.FiringWorkflowID(name, at),
		contract.TaskWorkflowID(contract.FiringTaskID(name, at))} {
		if taken {
			break
		}
		_, err := h.Store.Describe(ctx, id)
		if err != nil && store.KindOf(err) != store.NotFound {
			return h.Answer(err, "look for a firing", protocol.CodeInternal)
		}
		taken = err == nil
	}
	if taken {
		return httpapi.Problem(protocol.CodeConflict, "the schedule has fired in this second, and makes one task a "+
			"second at most: try again in a second, or submit the tasks themselves")
	}
	return nil
}

func (h *Handlers) delete(ctx context.Context, in *rest.ByName) (done rest.None, err error) {
	name, err := rest.OwnSchedule(ctx, in.Name)
	if err != nil {
		return done, err
	}
	if err := h.seesSchedule(ctx, name); err != nil {
		return done, err
	}
	err = h.Store.DeleteSchedule(ctx, contract.ScheduleID(name))
	return done, h.Answer(err, "delete a schedule", protocol.CodeUnknownSchedule)
}

func (h *Handlers) describeSchedule(
	ctx context.Context, name string,
) (*workflowservice.DescribeScheduleResponse, error) {
	d, err := h.Store.DescribeSchedule(ctx, contract.ScheduleID(name))
	if err != nil {
		return nil, h.Answer(err, "describe a schedule", protocol.CodeUnknownSchedule)
	}
	if rest.Limited(ctx) && !rest.Sees(ctx, tenantOfSchedule(d)) {
		return nil, rest.Unknown(protocol.CodeUnknownSchedule)
	}
	return d, nil
}

// tenantOfSchedule is the tenant of the tasks that the schedule makes.
func tenantOfSchedule(d *workflowservice.DescribeScheduleResponse) string {
	var input contract.FiringInput
	if payloads := d.GetSchedule().GetAction().GetStartWorkflow().GetInput().GetPayloads(); len(payloads) > 0 {
		contract.Decode(payloads[0], &input)
	}
	return input.Spec.Tenant
}

// seesSchedule looks beforehand whether a request of one tenant may touch a schedule.
func (h *Handlers) seesSchedule(ctx context.Context, name string) error {
	if !rest.Limited(ctx) {
		return nil
	}
	_, err := h.describeSchedule(ctx, name)
	return err
}

// schedule returns a schedule as it stands.
func (h *Handlers) schedule(ctx context.Context, name string) (api.Schedule, error) {
	name, err := rest.OwnSchedule(ctx, name)
	if err != nil {
		return api.Schedule{}, err
	}
	return h.scheduleWhen(ctx, name, func(*workflowservice.DescribeScheduleResponse) bool { return true })
}

// scheduleWhen returns a schedule once a change shows: Temporal makes changes soon after it has accepted them.
func (h *Handlers) scheduleWhen(
	ctx context.Context, name string, done func(*workflowservice.DescribeScheduleResponse) bool,
) (api.Schedule, error) {
	var d *workflowservice.DescribeScheduleResponse
	err := h.WaitUntil(ctx, rest.QueryTimeout, "wait for a schedule",
		func(ctx context.Context, _ bool) (_ bool, err error) {
			d, err = h.describeSchedule(ctx, name)
			return err == nil && done(d), err
		})
	if err != nil {
		return api.Schedule{}, err
	}
	return h.scheduleOf(ctx, name, d)
}

// scheduleOf builds a schedule from its description and its tasks.
func (h *Handlers) scheduleOf(
	ctx context.Context, name string, d *workflowservice.DescribeScheduleResponse,
) (api.Schedule, error) {
	s, info := d.GetSchedule(), d.GetInfo()
	schedule := api.Schedule{
		Name:          name,
		ScheduleTimes: store.TimesOf(s.GetSpec()),
		Paused:        s.GetState().GetPaused(),
		Note:          s.GetState().GetNotes(),
		NextTimes:     []time.Time{},
		CreatedAt:     store.TimeOf(info.GetCreateTime()),
		UpdatedAt:     store.TimeOf(info.GetUpdateTime()),
		Counts: api.ScheduleCount{Fired: info.GetActionCount(), SkippedOverlap: info.GetOverlapSkipped(),
			MissedWindow: info.GetMissedCatchupWindow()},
	}
	schedule.Overlap = overlapOf(s.GetPolicies().GetOverlapPolicy())
	schedule.CatchupWindow = api.Duration(s.GetPolicies().GetCatchupWindow().AsDuration())
	var input contract.FiringInput
	if payloads := s.GetAction().GetStartWorkflow().GetInput().GetPayloads(); len(payloads) == 0 ||
		!contract.Decode(payloads[0], &input) {
		return schedule, h.Answer(errors.New("the schedule's action is not Mainstay's"), "read a schedule",
			protocol.CodeInternal)
	}
	schedule.Task.TaskSpec = input.Spec
	next := nextTimes(&schedule.ScheduleTimes, info.GetFutureActionTimes())
	if schedule.Ended = len(next) == 0; !schedule.Paused {
		schedule.NextTimes = append(schedule.NextTimes, next...)
	}
	schedule.Runs = h.runs(ctx, name, info.GetRecentActions())
	return schedule, nil
}

// shownTimes is how many next times of a schedule an answer has.
const shownTimes = 10

// nextTimes are the next times of a schedule. If another tool changed it, Temporal's own list is used.
func nextTimes(t *api.ScheduleTimes, told []*timestamppb.Timestamp) (times []time.Time) {
	if t.Cron != "" || t.Interval != 0 {
		return schedule.PlanOf(t).Next(time.Now(), shownTimes)
	}
	for _, at := range told {
		times = append(times, at.AsTime().UTC())
	}
	return times
}

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	lately    admissions
	triggered triggers
	changes   *limit.Rate // by tenant
}

// New makes the handlers.
func New(core *rest.Core) *Handlers {
	return &Handlers{Core: core, changes: limit.NewRate(changeRate, changeBurst)}
}

type listInput struct {
	Cluster rest.Slug `query:"cluster"`
	Type    rest.Slug `query:"type"`
	Tenant  rest.Slug `query:"tenant"`
	rest.RecordPageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Schedules").Scoped()
	rest.Serve(r, "create-schedule", "POST /schedules", "Submit a task again and again",
		"Each time is one task, whose id is the schedule's name, @ and the time. A schedule belongs to the tenant "+
			"of its task, which stands before its name in answers, as in acme:nightly. Answers 409 schedule_exists "+
			"when the tenant has one with this name, and 409 conflict when there are as many schedules as there may "+
			"be, 1000 of a tenant and 10,000 of all, or when those of the tenant would start more than 600 tasks "+
			"and runs a minute together; schedules of jobs count.",
		h.create, rest.Payload, rest.Status(http.StatusCreated))
	rest.List(r, "schedules", "list-schedules", "GET /schedules", "List schedules",
		"A schedule appears within about a second of its change.", h.list)
	rest.Serve(r, "get-schedule", "GET /schedules/{name}", "Get a schedule",
		"With its next times, and what became of its newest tasks.",
		func(ctx context.Context, in *rest.ByName) (api.Schedule, error) { return h.schedule(ctx, in.Name) },
		rest.Wide)
	rest.Serve(r, "replace-schedule", "PUT /schedules/{name}", "Replace a schedule",
		"The tasks that it has made go on as they are. Answers 409 conflict when the tenant's schedules would start "+
			"more than 600 tasks and runs a minute together.",
		h.replace, rest.Payload)
	note := rest.LeftOut("May be left out. The reason becomes the schedule's note.")
	rest.Serve(r, "pause-schedule", "POST /schedules/{name}/pause", "Pause a schedule",
		"It makes no task until it is resumed, but by trigger.", h.pauses(true), note)
	rest.Serve(r, "resume-schedule", "POST /schedules/{name}/resume", "Resume a schedule",
		"What was due while it was paused is not made up for.", h.pauses(false), note)
	rest.Serve(r, "trigger-schedule", "POST /schedules/{name}/trigger", "Make a task now",
		"Also while the schedule is paused. Answers 409 conflict when overlap is skip and the last task has not "+
			"ended, or when the schedule has fired in the same second.",
		h.trigger, rest.Status(http.StatusAccepted))
	rest.Serve(r, "delete-schedule", "DELETE /schedules/{name}", "Delete a schedule",
		"The tasks that it has made go on as they are.", h.delete)
}
