// Package schedule answers what clients ask about schedules, which submit tasks again and again.
package schedule

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type createScheduleInput struct {
	Body api.ScheduleRequest
}

type replaceScheduleInput struct {
	Name string `path:"name" doc:"The schedule's name."`
	Body api.ScheduleRequest
}

type scheduleInput struct {
	Name string `path:"name" doc:"The schedule's name."`
}

type scheduleReasonInput struct {
	Name string             `path:"name" doc:"The schedule's name."`
	Body *api.ReasonRequest `doc:"May be left out. The reason becomes the schedule's note."`
}

type triggerInput struct {
	Name string              `path:"name" doc:"The schedule's name."`
	Body *api.TriggerRequest `doc:"May be left out."`
}

type listSchedulesInput struct {
	Cluster string `query:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Type    string `query:"type" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Tenant  string `query:"tenant" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	rest.RecordPageInput
}

type listSchedulesOutput struct {
	Body struct {
		Schedules     []api.ScheduleEntry `json:"schedules"`
		NextPageToken string              `json:"next_page_token,omitempty"`
	}
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	create := rest.WithPayload(rest.Op(
		"Schedules",
		"create-schedule",
		"POST /schedules",
		"Submit a task again and again",
		"Each time is one task, whose id is the schedule's name, @ and the time. A schedule belongs to the tenant of its task, which stands before its name in answers, as in acme:nightly. Answers 409 schedule_exists when the tenant has one with this name.",
	))
	create.DefaultStatus = http.StatusCreated
	httpapi.Register(routes, access.Operate.Scoped(), create,
		func(ctx context.Context, in *createScheduleInput) (*rest.Output[api.Schedule], error) {
			return rest.Reply(h.createSchedule(ctx, &in.Body))
		})
	httpapi.Register(routes, access.View.Scoped(), rest.Op("Schedules", "list-schedules", "GET /schedules",
		"List schedules", "A schedule appears within about a second of its change."), h.listSchedules)
	httpapi.Register(routes, access.View.Scoped(), rest.Op("Schedules", "get-schedule", "GET /schedules/{name}",
		"Get a schedule", "With its next times, and what became of its newest tasks."),
		func(ctx context.Context, in *scheduleInput) (*rest.Output[api.Schedule], error) {
			return rest.Reply(h.schedule(ctx, in.Name))
		})
	replace := rest.WithPayload(rest.Op("Schedules", "replace-schedule", "PUT /schedules/{name}",
		"Replace a schedule", "The tasks that it has made go on as they are."))
	httpapi.Register(routes, access.Operate.Scoped(), replace,
		func(ctx context.Context, in *replaceScheduleInput) (*rest.Output[api.Schedule], error) {
			name, err := rest.OwnSchedule(ctx, in.Name)
			if err != nil {
				return nil, err
			}
			if named, _ := rest.OwnID(ctx, in.Body.Name); in.Body.Name != "" && named != name {
				return nil, rest.Invalid("body.name",
					errors.New("must be the name in the path, or be left out: a schedule cannot be renamed"))
			}
			return rest.Reply(h.replaceSchedule(ctx, name, &in.Body))
		})
	httpapi.Register(routes, access.Operate.Scoped(),
		rest.Op("Schedules", "pause-schedule", "POST /schedules/{name}/pause",
			"Pause a schedule", "It makes no task until it is resumed, but by trigger."),
		func(ctx context.Context, in *scheduleReasonInput) (*rest.Output[api.Schedule], error) {
			return rest.Reply(h.pauseSchedule(ctx, in.Name, true, in.Body))
		})
	httpapi.Register(routes, access.Operate.Scoped(),
		rest.Op("Schedules", "resume-schedule", "POST /schedules/{name}/resume",
			"Resume a schedule", "What was due while it was paused is not made up for."),
		func(ctx context.Context, in *scheduleReasonInput) (*rest.Output[api.Schedule], error) {
			return rest.Reply(h.pauseSchedule(ctx, in.Name, false, in.Body))
		})
	trigger := rest.Op("Schedules", "trigger-schedule", "POST /schedules/{name}/trigger",
		"Make a task now",
		"Also while the schedule is paused. Answers 409 conflict when overlap is skip and the last task has not ended.")
	trigger.DefaultStatus = http.StatusAccepted
	httpapi.Register(routes, access.Operate.Scoped(), trigger,
		func(ctx context.Context, in *triggerInput) (*rest.Output[api.Triggered], error) {
			var overlap fleet.Overlap
			if in.Body != nil {
				overlap = in.Body.Overlap
			}
			name, err := rest.OwnSchedule(ctx, in.Name)
			if err != nil {
				return nil, err
			}
			task, err := h.triggerSchedule(ctx, name, overlap, time.Now())
			return rest.Reply(api.Triggered{Name: name, TaskID: task}, err)
		})
	remove := rest.Op("Schedules", "delete-schedule", "DELETE /schedules/{name}",
		"Delete a schedule", "The tasks that it has made go on as they are.")
	remove.DefaultStatus = http.StatusNoContent
	httpapi.Register(routes, access.Operate.Scoped(), remove,
		func(ctx context.Context, in *scheduleInput) (*struct{}, error) {
			return nil, h.deleteSchedule(ctx, in.Name)
		})
}
