package client

import (
	"context"
	"net/http"

	"mainstay.dev/mainstay/api"
)

// ScheduleQuery selects schedules; all that is set must hold.
type ScheduleQuery struct {
	Cluster string
	Type    string // of their tasks
	Tenant  string
}

// Schedules lists schedules.
func (c *Client) Schedules(q ScheduleQuery) *List[api.ScheduleEntry] {
	return list[api.ScheduleEntry](c, path("schedules"), "schedules",
		values("cluster", q.Cluster, "type", q.Type, "tenant", q.Tenant))
}

// Schedule returns a schedule.
func (c *Client) Schedule(ctx context.Context, name string) (*api.Schedule, error) {
	return get[api.Schedule](ctx, c, path("schedules", name), nil)
}

// CreateSchedule creates a schedule.
func (c *Client) CreateSchedule(ctx context.Context, r *api.ScheduleRequest) (*api.Schedule, error) {
	return post[api.Schedule](ctx, c, path("schedules"), r)
}

// ReplaceSchedule gives a schedule other times and another task.
func (c *Client) ReplaceSchedule(ctx context.Context, name string, r *api.ScheduleRequest) (*api.Schedule, error) {
	return do[api.Schedule](ctx, c, request{method: http.MethodPut, path: path("schedules", name), body: r})
}

// DeleteSchedule deletes a schedule; its tasks stay.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	_, err := do[none](ctx, c, request{method: http.MethodDelete, path: path("schedules", name)})
	return err
}

// PauseSchedule stops a schedule from making tasks.
func (c *Client) PauseSchedule(ctx context.Context, name, reason string) (*api.Schedule, error) {
	return post[api.Schedule](ctx, c, path("schedules", name, "pause"), api.ReasonRequest{Reason: reason})
}

// ResumeSchedule lets a schedule make tasks again.
func (c *Client) ResumeSchedule(ctx context.Context, name, reason string) (*api.Schedule, error) {
	return post[api.Schedule](ctx, c, path("schedules", name, "resume"), api.ReasonRequest{Reason: reason})
}

// TriggerSchedule makes a task of the schedule now.
func (c *Client) TriggerSchedule(ctx context.Context, name string, r api.TriggerRequest) (*api.Triggered, error) {
	return post[api.Triggered](ctx, c, path("schedules", name, "trigger"), r)
}
