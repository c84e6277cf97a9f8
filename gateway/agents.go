package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	workerpb "go.temporal.io/api/worker/v1"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// agentOf joins a member with its roles and its live facts.
func agentOf(c *fleet.Cluster, m *fleet.Member, live store.Live) api.Agent {
	a := api.Agent{
		ID: m.AgentID, Cluster: c.Config.Name, Status: m.Status, StatusSince: known(m.StatusSince), StatusReason: m.StatusReason,
		Role: c.RoleOf(m.AgentID), Shards: c.ShardsOf(m.AgentID), Epoch: m.Epoch, InstanceID: m.Instance, Host: m.Host, PID: m.PID, Hub: m.Hub,
		Zone: m.Zone, Group: m.Group, Version: m.Version, Capabilities: m.Capabilities, TaskTypes: m.TaskTypes,
		MaxTasks: m.MaxTasks, EffectiveSlots: c.EffectiveSlots(m), LoadReduction: loadReduction(c.Reductions.Of(m.AgentID)), Targets: c.TargetsOf(m.AgentID), Metadata: m.Metadata, JoinedAt: known(m.JoinedAt), Address: m.Address, StartedAt: known(m.StartedAt), JoinToken: m.JoinToken,
		EndsProcessTrees: m.EndsProcessTrees,
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

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type listAgentsOutput struct {
	Body struct {
		Agents        []api.Agent `json:"agents"`
		NextPageToken string      `json:"next_page_token,omitempty"`
	}
}

type agentInput struct {
	ID string `path:"id" doc:"The agent's id."`
}

type getAgentInput struct {
	ID string `path:"id" doc:"The agent's id."`
	ViewInput
}

type agentOutput struct {
	Body api.Agent
}

func (g *Gateway) registerAgents(routes huma.API) {
	httpapi.Register(routes, access.View, huma.Operation{
		OperationID: "list-agents", Method: http.MethodGet, Path: "/api/v1/agents", Tags: []string{"Agents"},
		Summary: "List agents", Description: "Sorted by id. How an agent does right now comes from what its hub publishes, and is absent when that is not known. " +
			"All filters that are given must fit. The full view asks the hubs, and so costs more.",
	}, g.listAgents)
	httpapi.Register(routes, access.View, huma.Operation{
		OperationID: "get-agent", Method: http.MethodGet, Path: "/api/v1/agents/{id}", Tags: []string{"Agents"},
		Summary: "Get an agent",
	}, func(ctx context.Context, in *getAgentInput) (*agentOutput, error) {
		agent, err := g.agent(ctx, in.ID, in.full())
		if err != nil {
			return nil, err
		}
		return &agentOutput{Body: agent}, nil
	})
}

func (g *Gateway) listAgents(ctx context.Context, in *listAgentsInput) (*listAgentsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := openToken(byKey, in.PageToken)
	if err != nil {
		return nil, err
	}
	var live store.Live
	var beside sync.WaitGroup
	beside.Go(func() { live = g.live(ctx) })
	views, err := g.views(ctx, in.Cluster)
	beside.Wait()
	if err != nil {
		return nil, err
	}
	agents := []api.Agent{}
	for v := range views {
		found, err := g.discover(ctx, &views[v].Cluster, live, in)
		if err != nil {
			return nil, err
		}
		agents = append(agents, found...)
	}
	out := &listAgentsOutput{}
	out.Body.Agents, out.Body.NextPageToken = page(agents, string(after), in.PageSize, func(a *api.Agent) string { return a.ID + "@" + a.Cluster })
	return out, nil
}

// agent shows an agent.
func (g *Gateway) agent(ctx context.Context, id string, full bool) (api.Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	view, live, err := g.clusterOfAgent(ctx, id)
	if err != nil {
		return api.Agent{}, err
	}
	agents := []api.Agent{agentOf(&view.Cluster, view.Member(id), live)}
	if full {
		g.addTasks(ctx, &view.Cluster, id, agents)
	}
	return agents[0], nil
}

// clusterOfAgent finds the cluster that an agent is a member of, through the live registry, else through all clusters.
func (g *Gateway) clusterOfAgent(ctx context.Context, id string) (*contract.ClusterView, store.Live, error) {
	if fleet.ValidateAgentID(id) != nil {
		return nil, nil, unknown(protocol.CodeUnknownAgent)
	}
	live := g.liveAgent(ctx, id)
	if cluster, ok := live.ClusterOf(id); ok {
		if view, err := g.view(ctx, cluster); err == nil && view.Member(id) != nil {
			return &view, live, nil
		}
	}
	views, err := g.views(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	best := -1
	for i := range views {
		if m := views[i].Member(id); m != nil && (best < 0 || m.StatusSince.After(views[best].Member(id).StatusSince)) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil, unknown(protocol.CodeUnknownAgent)
	}
	return &views[best], live, nil
}

// views asks all clusters how they stand, or only the one named; sorted by name. A cluster that does not answer fails
// the request: agents must not seem gone because no worker runs.
func (g *Gateway) views(ctx context.Context, only string) ([]contract.ClusterView, error) {
	clusters := []store.ListedCluster{{Name: only}}
	if only == "" {
		var err error
		if clusters, err = g.listed(ctx); err != nil {
			return nil, err
		}
	}
	views, errs := g.viewEach(ctx, clusters)
	kept := views[:0]
	for i := range views {
		code, _ := problemCode(errs[i])
		switch {
		case errs[i] == nil:
			kept = append(kept, views[i])
		case code != protocol.CodeUnknownCluster || only != "": // deleted since it was listed
			return nil, errs[i]
		}
	}
	slices.SortFunc(kept, func(a, b contract.ClusterView) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return kept, nil
}
