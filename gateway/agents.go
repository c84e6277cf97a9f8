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
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// Agent is an agent as clients see it: what its cluster knows, and, when its hub publishes it, how it does right now.
type Agent struct {
	ID           string            `json:"id"`
	Cluster      string            `json:"cluster"`
	Status       fleet.AgentStatus `json:"status" enum:"online,suspect,offline,draining,maintenance"`
	StatusSince  *time.Time        `json:"status_since,omitempty"`
	StatusReason string            `json:"status_reason,omitempty"`
	State        WorkerState       `json:"state" enum:"ready,busy,draining,dead" doc:"What it is good for now: it has a free slot (ready), all are in use (busy), it finishes what it has and gets nothing new (draining, or in maintenance), or no hub has it (dead)."`
	Role         fleet.Role        `json:"role" enum:"leader,standby,member"`
	Shards       []int             `json:"shards,omitempty" doc:"The shards of a sharded cluster that it serves."`
	Epoch        int64             `json:"epoch"`
	InstanceID   string            `json:"instance_id"`
	Host         string            `json:"host,omitempty"`
	PID          int               `json:"pid,omitempty"`
	Hub          string            `json:"hub,omitempty"`
	Address      string            `json:"address,omitempty" doc:"What it says, else where it registered from."`
	StartedAt    *time.Time        `json:"started_at,omitempty" doc:"When its process began."`
	Zone         string            `json:"zone,omitempty"`
	Group        string            `json:"group,omitempty"`
	Version      string            `json:"version,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	TaskTypes    []string          `json:"task_types,omitempty" doc:"Empty: any."`
	MaxTasks     int               `json:"max_tasks"`
	// EndsProcessTrees decides about exec tasks that are fenced or at_most_once.
	EndsProcessTrees bool `json:"ends_process_trees" doc:"No process of an exec task outlives its attempt or the agent; without it the agent gets no exec task that is fenced or at_most_once."`
	// EffectiveSlots is below MaxTasks while its load is reduced.
	EffectiveSlots int               `json:"effective_slots" doc:"How many tasks it may run at a time now; below max_tasks while its load is reduced."`
	LoadReduction  *LoadReduction    `json:"load_reduction,omitempty" doc:"Why it may run fewer tasks than it has slots."`
	Targets        []string          `json:"targets,omitempty" doc:"The deployment targets that it looks after."`
	Metadata       map[string]string `json:"metadata,omitempty"`
	JoinedAt       *time.Time        `json:"joined_at,omitempty"`
	JoinToken      string            `json:"join_token,omitempty" doc:"The id of the join token that it registered with."`

	Health fleet.HealthLevel `json:"health" enum:"healthy,degraded,warning,critical,failed" doc:"How well it does its work; GET /api/v1/agents/{id}/health says why. One that is not connected is failed."`

	Running       *int       `json:"running,omitempty" doc:"Tasks it runs now. This and what follows is absent when not known."`
	LastHeartbeat *time.Time `json:"last_heartbeat,omitempty"`
	CPUPercent    *float64   `json:"cpu_percent,omitempty"`
	MemoryPercent *float64   `json:"memory_percent,omitempty"`
	Completed     *int64     `json:"completed,omitempty" doc:"Tasks completed since its process started."`
	Failed        *int64     `json:"failed,omitempty"`
	HealthScore   *float64   `json:"health_score,omitempty" minimum:"0" maximum:"1"`

	CurrentTasks []contract.HeldTask `json:"current_tasks,omitempty" doc:"What it runs, at most 100. Only in the full view, and if its hub answers."`
}

// agentOf joins a member with its roles and its live facts.
func agentOf(c *fleet.Cluster, m *fleet.Member, live liveAgents) Agent {
	a := Agent{
		ID: m.AgentID, Cluster: c.Config.Name, Status: m.Status, StatusSince: known(m.StatusSince), StatusReason: m.StatusReason,
		Role: c.RoleOf(m.AgentID), Shards: c.ShardsOf(m.AgentID), Epoch: m.Epoch, InstanceID: m.Instance, Host: m.Host, PID: m.PID, Hub: m.Hub,
		Zone: m.Zone, Group: m.Group, Version: m.Version, Capabilities: m.Capabilities, TaskTypes: m.TaskTypes,
		MaxTasks: m.MaxTasks, EffectiveSlots: c.EffectiveSlots(m), LoadReduction: loadReduction(c.Reductions.Of(m.AgentID)), Targets: c.TargetsOf(m.AgentID), Metadata: m.Metadata, JoinedAt: known(m.JoinedAt), Address: m.Address, StartedAt: known(m.StartedAt), JoinToken: m.JoinToken,
		EndsProcessTrees: m.EndsProcessTrees,
	}
	a.Health = m.HealthLevel()
	if heartbeat := live[liveKey{m.AgentID, m.Instance}]; heartbeat != nil {
		a.takeLive(heartbeat)
	}
	if !m.Connected() {
		a.Health, a.HealthScore = fleet.HealthFailed, nil
	}
	a.State = stateOf(&a)
	return a
}

func (a *Agent) takeLive(h *workerpb.WorkerHeartbeat) {
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
		cpu, memory := percent(host.GetCurrentHostCpuUsage()), percent(host.GetCurrentHostMemUsage())
		a.CPUPercent, a.MemoryPercent = &cpu, &memory
	}
}

// percent turns a share of 1 into one of 100 with one decimal.
func percent(share float32) float64 { return float64(int(share*1000+.5)) / 10 }

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type listAgentsOutput struct {
	Body struct {
		Agents        []Agent `json:"agents"`
		NextPageToken string  `json:"next_page_token,omitempty"`
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
	Body Agent
}

func (g *Gateway) registerAgents(api huma.API) {
	httpapi.Register(api, access.View, huma.Operation{
		OperationID: "list-agents", Method: http.MethodGet, Path: "/api/v1/agents", Tags: []string{"Agents"},
		Summary: "List agents", Description: "Sorted by id. How an agent does right now comes from what its hub publishes, and is absent when that is not known. " +
			"All filters that are given must fit. The full view asks the hubs, and so costs more.",
	}, g.listAgents)
	httpapi.Register(api, access.View, huma.Operation{
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
	var live liveAgents
	var beside sync.WaitGroup
	beside.Go(func() { live = g.live(ctx) })
	views, err := g.views(ctx, in.Cluster)
	beside.Wait()
	if err != nil {
		return nil, err
	}
	agents := []Agent{}
	for v := range views {
		found, err := g.discover(ctx, &views[v].Cluster, live, in)
		if err != nil {
			return nil, err
		}
		agents = append(agents, found...)
	}
	out := &listAgentsOutput{}
	out.Body.Agents, out.Body.NextPageToken = page(agents, string(after), in.PageSize, func(a *Agent) string { return a.ID + "@" + a.Cluster })
	return out, nil
}

// agent shows an agent.
func (g *Gateway) agent(ctx context.Context, id string, full bool) (Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	view, live, err := g.clusterOfAgent(ctx, id)
	if err != nil {
		return Agent{}, err
	}
	agents := []Agent{agentOf(&view.Cluster, view.Member(id), live)}
	if full {
		g.addTasks(ctx, &view.Cluster, id, agents)
	}
	return agents[0], nil
}

// clusterOfAgent finds the cluster that an agent is a member of, through the live registry, else through all clusters.
func (g *Gateway) clusterOfAgent(ctx context.Context, id string) (*contract.ClusterView, liveAgents, error) {
	if fleet.ValidateAgentID(id) != nil {
		return nil, nil, unknown(protocol.CodeUnknownAgent)
	}
	live := g.liveAgent(ctx, id)
	if cluster, ok := live.clusterOf(id); ok {
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
	clusters := []listedCluster{{name: only}}
	if only == "" {
		var err error
		if clusters, err = g.listed(ctx); err != nil {
			return nil, err
		}
	} else if _, err := g.describeCluster(ctx, only); err != nil {
		return nil, err
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
