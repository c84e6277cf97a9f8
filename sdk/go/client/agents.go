package client

import (
	"context"
	"net/http"

	"mainstay.dev/sdk/api"
)

// AgentQuery selects agents; all that is set must hold.
type AgentQuery struct {
	Cluster, Zone, Group string
	Status               api.AgentStatus
	State                api.WorkerState
	Live                 bool     // only those that a hub has a session of
	Capabilities         []string // all of these
	TaskType             string   // only those that handle it
	Metadata             []string // each as name=value
	Health               string   // levels, separated by commas
	Full                 bool     // with what they run; their hubs are asked
}

// List lists agents.
func (a Agents) List(q AgentQuery) *List[api.Agent] {
	return list[api.Agent](a.c, path(), "agents", values(
		"cluster", q.Cluster, "status", q.Status, "state", q.State, "live", q.Live, "zone", q.Zone, "group", q.Group,
		"capability", q.Capabilities, "task_type", q.TaskType, "metadata", q.Metadata, "health", q.Health, "view", view(
			q.Full)))
}

func view(full bool) string {
	if full {
		return "full"
	}
	return ""
}

// Get returns an agent; full adds what it runs, for which the API asks its hub.
func (a Agents) Get(ctx context.Context, id string, full bool) (*api.Agent, error) {
	return get[api.Agent](ctx, a.c, path(id), values("view", view(full)))
}

// Health says how well an agent does its work, and why.
func (a Agents) Health(ctx context.Context, id string) (*api.AgentHealth, error) {
	return get[api.AgentHealth](ctx, a.c, path(id, "health"), nil)
}

// Forget removes an agent that is gone for good.
func (a Agents) Forget(ctx context.Context, id string) error {
	_, err := do[none](ctx, a.c, request{method: http.MethodDelete, path: path(id), removes: true})
	return err
}

// Dead says that an agent's process and all that it started has ended, so that nothing waits for its leases.
func (a Agents) Dead(ctx context.Context, id string, r api.DeadRequest) (*api.Agent, error) {
	return post[api.Agent](ctx, a.c, path(id, "dead"), r)
}

// Drain takes an agent out of service.
func (a Agents) Drain(ctx context.Context, id string, r api.DrainRequest) (*api.DrainRecord, error) {
	return post[api.DrainRecord](ctx, a.c, path(id, "drain"), r)
}

// SetMaintenance keeps new work from an agent, or lets it have work again.
func (a Agents) SetMaintenance(ctx context.Context, id string, r api.MaintenanceRequest) (*api.Agent, error) {
	return post[api.Agent](ctx, a.c, path(id, "maintenance"), r)
}

// ReduceLoad lets an agent use fewer of its slots for a while.
func (a Agents) ReduceLoad(ctx context.Context, id string, r api.ReduceLoadRequest) (*api.Agent, error) {
	return post[api.Agent](ctx, a.c, path(id, "reduce-load"), r)
}

// RestoreLoad gives an agent all its slots back.
func (a Agents) RestoreLoad(ctx context.Context, id string) (*api.Agent, error) {
	return post[api.Agent](ctx, a.c, path(id, "restore-load"), nil)
}

// FailOver asks to move an agent's work and roles away.
func (a Agents) FailOver(ctx context.Context, id string, r api.FailoverRequest) (*api.FailoverAccepted, error) {
	return post[api.FailoverAccepted](ctx, a.c, path(id, "failover"), r)
}

// Terminate has an agent that a spawner started drained and stopped.
func (a Agents) Terminate(ctx context.Context, id, reason string) (*api.ScalingAccepted, error) {
	return post[api.ScalingAccepted](ctx, a.c, path(id, "terminate"), api.ReasonRequest{Reason: reason})
}

// FailoverQuery selects failovers; all that is set must hold.
type FailoverQuery struct {
	Cluster string
	Agent   string // whose work was moved
	Status  api.FailoverStatus
}

// List lists failovers, newest first.
func (f Failovers) List(q FailoverQuery) *List[api.FailoverRecord] {
	return list[api.FailoverRecord](f.c, path("failovers"), "failovers",
		values("cluster", q.Cluster, "agent", q.Agent, "status", q.Status))
}

// Get returns the record of a failover.
func (f Failovers) Get(ctx context.Context, id string) (*api.FailoverRecord, error) {
	return get[api.FailoverRecord](ctx, f.c, path("failovers", id), nil)
}

// List lists drains, newest first; of all clusters when cluster is empty.
func (d Drains) List(cluster string) *List[api.DrainRecord] {
	return list[api.DrainRecord](d.c, path("drains"), "drains", values("cluster", cluster))
}

// Get returns the record of a drain.
func (d Drains) Get(ctx context.Context, id string) (*api.DrainRecord, error) {
	return get[api.DrainRecord](ctx, d.c, path("drains", id), nil)
}

// Cancel cancels a drain: agents that are not done are given work again.
func (d Drains) Cancel(ctx context.Context, id string) (*api.DrainRecord, error) {
	return post[api.DrainRecord](ctx, d.c, path("drains", id, "cancel"), nil)
}
