package client

import (
	"context"
	"net/http"

	"mainstay.dev/sdk/api"
)

// ScheduleQuery selects schedules; all that is set must hold.
type ScheduleQuery struct {
	Cluster string
	Type    string // of their tasks
	Tenant  string
}

// List lists schedules.
func (s Schedules) List(q ScheduleQuery) *List[api.ScheduleEntry] {
	return list[api.ScheduleEntry](s.c, path("schedules"), "schedules",
		values("cluster", q.Cluster, "type", q.Type, "tenant", q.Tenant))
}

// Get returns a schedule.
func (s Schedules) Get(ctx context.Context, name string) (*api.Schedule, error) {
	return get[api.Schedule](ctx, s.c, path("schedules", name), nil)
}

// Create creates a schedule.
func (s Schedules) Create(ctx context.Context, r *api.ScheduleRequest) (*api.Schedule, error) {
	return post[api.Schedule](ctx, s.c, path("schedules"), r)
}

// Replace gives a schedule other times and another task.
func (s Schedules) Replace(ctx context.Context, name string, r *api.ScheduleRequest) (*api.Schedule, error) {
	return do[api.Schedule](ctx, s.c, request{method: http.MethodPut, path: path("schedules", name), body: r})
}

// Delete deletes a schedule; its tasks stay.
func (s Schedules) Delete(ctx context.Context, name string) error {
	_, err := do[none](ctx, s.c, request{method: http.MethodDelete, path: path("schedules", name), removes: true})
	return err
}

// Pause stops a schedule from making tasks.
func (s Schedules) Pause(ctx context.Context, name, reason string) (*api.Schedule, error) {
	return post[api.Schedule](ctx, s.c, path("schedules", name, "pause"), api.ReasonRequest{Reason: reason})
}

// Resume lets a schedule make tasks again.
func (s Schedules) Resume(ctx context.Context, name, reason string) (*api.Schedule, error) {
	return post[api.Schedule](ctx, s.c, path("schedules", name, "resume"), api.ReasonRequest{Reason: reason})
}

// Trigger makes a task of the schedule now.
func (s Schedules) Trigger(ctx context.Context, name string, r api.TriggerRequest) (*api.Triggered, error) {
	return post[api.Triggered](ctx, s.c, path("schedules", name, "trigger"), r)
}
