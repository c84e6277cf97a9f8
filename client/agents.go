package client

import (
	"context"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

// AgentQuery selects agents; all that is set must hold.
type AgentQuery struct {
	Cluster, Zone, Group string
	Status               fleet.AgentStatus
	State                api.WorkerState
	Live                 bool     // only those that a hub has a session of
	Capabilities         []string // all of these
	TaskType             string   // only those that handle it
	Metadata             []string // each as name=value
	Health               string   // levels, separated by commas
	Full                 bool     // with what they run; their hubs are asked
}

// Agents lists agents.
func (c *Client) Agents(q AgentQuery) *List[api.Agent] {
	return list[api.Agent](c, path(), "agents", values(
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

// Agent returns an agent; full with what it runs, which its hub is asked for.
func (c *Client) Agent(ctx context.Context, id string, full bool) (*api.Agent, error) {
	return get[api.Agent](ctx, c, path(id), values("view", view(full)))
}

// AgentHealth says how well an agent does its work, and why.
func (c *Client) AgentHealth(ctx context.Context, id string) (*api.AgentHealth, error) {
	return get[api.AgentHealth](ctx, c, path(id, "health"), nil)
}

// DrainAgent takes an agent out of service.
func (c *Client) DrainAgent(ctx context.Context, id string, r api.DrainRequest) (*fleet.DrainRecord, error) {
	return post[fleet.DrainRecord](ctx, c, path(id, "drain"), r)
}

// SetMaintenance keeps new work from an agent, or lets it have work again.
func (c *Client) SetMaintenance(ctx context.Context, id string, r api.MaintenanceRequest) (*api.Agent, error) {
	return post[api.Agent](ctx, c, path(id, "maintenance"), r)
}

// ReduceLoad lets an agent use fewer of its slots for a while.
func (c *Client) ReduceLoad(ctx context.Context, id string, r api.ReduceLoadRequest) (*api.Agent, error) {
	return post[api.Agent](ctx, c, path(id, "reduce-load"), r)
}

// RestoreLoad gives an agent all its slots back.
func (c *Client) RestoreLoad(ctx context.Context, id string) (*api.Agent, error) {
	return post[api.Agent](ctx, c, path(id, "restore-load"), nil)
}

// StartFailover asks to move an agent's work and roles away.
func (c *Client) StartFailover(ctx context.Context, id string, r api.FailoverRequest) (*api.FailoverAccepted, error) {
	return post[api.FailoverAccepted](ctx, c, path(id, "failover"), r)
}

// FailoverQuery selects failovers; all that is set must hold.
type FailoverQuery struct {
	Cluster string
	Agent   string // whose work was moved
	Status  fleet.FailoverStatus
}

// Failovers lists failovers, newest first.
func (c *Client) Failovers(q FailoverQuery) *List[fleet.FailoverRecord] {
	return list[fleet.FailoverRecord](c, path("failovers"), "failovers",
		values("cluster", q.Cluster, "agent", q.Agent, "status", q.Status))
}

// Failover returns the record of a failover.
func (c *Client) Failover(ctx context.Context, id string) (*fleet.FailoverRecord, error) {
	return get[fleet.FailoverRecord](ctx, c, path("failovers", id), nil)
}

// Drains lists drains, newest first; of all clusters when cluster is empty.
func (c *Client) Drains(cluster string) *List[fleet.DrainRecord] {
	return list[fleet.DrainRecord](c, path("drains"), "drains", values("cluster", cluster))
}

// Drain returns the record of a drain.
func (c *Client) Drain(ctx context.Context, id string) (*fleet.DrainRecord, error) {
	return get[fleet.DrainRecord](ctx, c, path("drains", id), nil)
}

// CancelDrain cancels a drain: agents that are not done are given work again.
func (c *Client) CancelDrain(ctx context.Context, id string) (*fleet.DrainRecord, error) {
	return post[fleet.DrainRecord](ctx, c, path("drains", id, "cancel"), nil)
}
