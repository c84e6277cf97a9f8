// Package agent answers what clients ask about agents: how they stand, their health, load and maintenance.
package agent

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	workerpb "go.temporal.io/api/worker/v1"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

// agentOf joins a member with its roles and its live facts.
func agentOf(c *fleet.Cluster, m *fleet.Member, live store.Live) api.Agent {
	status, since, reason := live.Status(m)
	a := api.Agent{
		ID:           m.AgentID,
		Cluster:      c.Config.Name,
		Status:       status,
		StatusSince:  rest.Known(since),
		StatusReason: reason,
		Role:         c.RoleOf(m.AgentID),
		Shards:       c.ShardsOf(m.AgentID),
		Epoch:        m.Epoch,
		InstanceID:   m.Instance,
		Host:         m.Host,
		PID:          m.PID,
		Hub:          m.Hub,
		Zone:         m.Zone, Group: m.Group, Version: m.Version, Capabilities: m.Capabilities, TaskTypes: m.TaskTypes,
		MaxTasks:         m.MaxTasks,
		EffectiveSlots:   c.EffectiveSlots(m),
		LoadReduction:    loadReduction(c.Reductions.Of(m.AgentID)),
		Targets:          c.TargetsOf(m.AgentID),
		Metadata:         m.Metadata,
		JoinedAt:         rest.Known(m.JoinedAt),
		Address:          m.Address,
		StartedAt:        rest.Known(m.StartedAt),
		JoinToken:        m.JoinToken,
		EndsProcessTrees: m.EndsProcessTrees,
		Resources:        m.Resources,
	}
	a.Health = m.HealthLevel()
	if heartbeat := live.Of(m); heartbeat != nil {
		takeLive(&a, heartbeat)
	}
	if !m.Connected() {
		a.Health, a.HealthScore = fleet.HealthFailed, nil
	}
	a.State = stateOf(&a)
	return a
}

func takeLive(a *api.Agent, h *workerpb.WorkerHeartbeat) {
	if level, score, ok := contract.HealthOf(h); ok {
		a.Health, a.HealthScore = level, &score
	}
	if t := h.GetHeartbeatTime(); t != nil {
		at := t.AsTime().UTC()
		a.LastHeartbeat = &at
	}
	if slots := h.GetActivityTaskSlotsInfo(); slots != nil {
		running := int(slots.GetCurrentUsedSlots())
		completed, failed := int64(slots.GetTotalProcessedTasks()), int64(slots.GetTotalFailedTasks())
		a.Running, a.Completed, a.Failed = &running, &completed, &failed
	}
	if host := h.GetHostInfo(); host != nil {
		cpu, memory := store.Percent(host.GetCurrentHostCpuUsage()), store.Percent(host.GetCurrentHostMemUsage())
		a.CPUPercent, a.MemoryPercent = &cpu, &memory
	}
}

type listAgentsOutput struct {
	Body struct {
		Agents        []api.Agent `json:"agents"`
		NextPageToken string      `json:"next_page_token,omitempty"`
		rest.Missing
	}
}

type getAgentInput struct {
	ID string `path:"id" doc:"The agent's id."`
	ViewInput
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	httpapi.Register(routes, access.View, rest.Op(
		"Agents",
		"list-agents",
		"GET ",
		"List agents",
		"Sorted by id. How an agent does right now comes from what its hub publishes, and is absent when that is not known. "+
			"All filters that are given must fit. The full view asks the hubs, and so costs more.",
	), h.listAgents)
	httpapi.Register(routes, access.View, rest.Op("Agents", "get-agent", "GET /{id}",
		"Get an agent", ""), func(ctx context.Context, in *getAgentInput) (*rest.Output[api.Agent], error) {
		return rest.Reply(h.agent(ctx, in.ID, in.full()))
	})
	httpapi.Register(routes, access.Operate, rest.WithStatus(http.StatusNoContent, rest.Op("Agents", "forget-agent",
		"DELETE /{id}", "Forget a lost agent",
		"It is no member any more; should it come back, it joins anew. Answers 409 conflict while it is connected.")),
		h.forget)
	httpapi.Register(routes, access.View, rest.Op("Clusters", "list-members", "GET /clusters/{id}/members",
		"List a cluster's members", ""), h.listMembers)
	httpapi.Register(routes, access.Operate, rest.Op("Agents", "declare-agent-dead", "POST /{id}/dead",
		"Prove that an agent has ended",
		"For when it is certain that its process and all that it started has ended, as when its machine is switched off. Nothing waits "+
			"for its leases then: fenced work and roles move at once. If the agent lives, an event and a metric tell of it."),
		h.declareDead)
	h.registerHealth(routes)
	h.registerLoads(routes)
	h.registerMaintenance(routes)
}

func (h *Handlers) listAgents(ctx context.Context, in *listAgentsInput) (*listAgentsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	var live store.Live
	var beside sync.WaitGroup
	beside.Go(func() { live = h.Live(ctx) })
	views, missing, err := h.Views(ctx, in.Cluster)
	beside.Wait()
	if err != nil {
		return nil, err
	}
	agents := []api.Agent{}
	for v := range views {
		found, err := h.discover(ctx, &views[v].Cluster, live, in)
		if err != nil {
			return nil, err
		}
		agents = append(agents, found...)
	}
	out := &listAgentsOutput{}
	out.Body.Missing.Clusters = missing
	out.Body.Agents, out.Body.NextPageToken, err = rest.Page(agents, in.PageToken, in.PageSize,
		func(a *api.Agent) string { return a.ID + "@" + a.Cluster })
	return out, err
}

// forget removes a lost agent from its cluster.
func (h *Handlers) forget(ctx context.Context, in *rest.AgentInput) (*struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	view, _, err := h.ClusterOfAgent(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	_, err = store.UpdateCluster(ctx, h.Store.Clusters(), contract.ForgetUpdate, view.Config.Name,
		contract.ForgetRequest{AgentID: in.ID})
	return nil, h.Answer(err, "forget an agent", protocol.CodeUnknownAgent)
}

type deadInput struct {
	ID   string `path:"id" doc:"The agent's id."`
	Body api.DeadRequest
}

// declareDead takes a person's proof that an agent has ended.
func (h *Handlers) declareDead(ctx context.Context, in *deadInput) (*rest.Output[api.Agent], error) {
	by := access.From(ctx)
	return change(ctx, h, in.ID, "take a proof of death", contract.DeadUpdate, fleet.DeathProof{AgentID: in.ID,
		Instance: in.Body.InstanceID, By: cmp.Or(by.Name, "an operator"), Proof: in.Body.Proof})
}

// agent shows an agent.
func (h *Handlers) agent(ctx context.Context, id string, full bool) (api.Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	view, live, err := h.ClusterOfAgent(ctx, id)
	if err != nil {
		return api.Agent{}, err
	}
	agents := []api.Agent{agentOf(&view.Cluster, view.Member(id), live)}
	if full {
		h.addTasks(ctx, &view.Cluster, id, agents)
	}
	return agents[0], nil
}
