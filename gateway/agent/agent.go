// Package agent answers what clients ask about agents: how they stand, their health, load and maintenance.
package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	workerpb "go.temporal.io/api/worker/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

// agentOf joins a member with its roles and its live facts.
func agentOf(c *cluster.Cluster, m *cluster.Member, live store.Live) api.Agent {
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
	heartbeat := live.Of(m)
	published, _, _ := contract.StatusOf(heartbeat)
	a.Connection = m.Connection(published, time.Now())
	if heartbeat != nil {
		takeLive(&a, heartbeat)
	}
	if !m.Connected() {
		a.Health, a.HealthScore = api.HealthFailed, nil
	}
	a.State = stateOf(&a)
	return a
}

func takeLive(a *api.Agent, h *workerpb.WorkerHeartbeat) {
	if level, score, ok := contract.HealthOf(h); ok {
		a.Health, a.HealthScore = level, &score
	}
	if t := h.GetHeartbeatTime(); t != nil {
		a.LastHeartbeat = new(t.AsTime().UTC())
	}
	if slots := h.GetActivityTaskSlotsInfo(); slots != nil {
		running := int(slots.GetCurrentUsedSlots())
		completed, failed := int64(slots.GetTotalProcessedTasks()), int64(slots.GetTotalFailedTasks())
		a.Running, a.Completed, a.Failed = &running, &completed, &failed
	}
	if host := h.GetHostInfo(); host != nil {
		a.CPUPercent = contract.PercentOf(host.GetCurrentHostCpuUsage())
		a.MemoryPercent = contract.PercentOf(host.GetCurrentHostMemUsage())
	}
}

type getInput struct {
	rest.ByID
	ViewInput
}

// Register adds the operations.
func (h *Handlers) Register(api rest.API) {
	r := rest.On(api, "Agents")
	rest.List(r, "agents", "list-agents", "GET ", "List agents",
		"Sorted by id. How an agent does right now comes from what its hub publishes, and is absent when that is not known. "+
			"All filters that are given must fit. The full view asks the hubs, and so costs more.",
		h.list, rest.Wide, rest.WithMissing)
	rest.Serve(r, "get-agent", "GET /{id}", "Get an agent", "", h.agent)
	rest.Serve(r, "forget-agent", "DELETE /{id}", "Forget a lost agent",
		"It is no member any more; should it come back, it joins anew. Answers 409 conflict while it is connected.",
		h.forget)
	rest.Serve(r, "declare-agent-dead", "POST /{id}/dead", "Declare an agent dead, so that its fenced work moves now",
		"For when it is certain that its process and all that it started has ended, as when its machine "+
			"is switched off. Nothing waits "+
			"for its leases then: fenced work and roles move at once. If the agent lives, an event and a metric tell of it.",
		h.declareDead)
	rest.Serve(r, "get-agent-health", "GET /{id}/health", "Get an agent's health, with what it is made of",
		"Its hub rates it by the last five minutes. Answers 501 not_supported when Temporal has no standalone activities.",
		h.health, rest.Wide)
	rest.Serve(r, "reduce-load", "POST /{id}/reduce-load", "Let an agent run fewer tasks at a time",
		"What it runs goes on; nothing more is given to it while it has as many as it may. It stays so when the "+
			"agent, its hub or Mainstay restarts, until the time is over. Asking again changes how many and begins "+
			"the time anew. Answers when the hubs have heard, at most after 2 s.",
		h.reduceLoad, rest.LeftOut("May be left out: half of its slots, for 10 minutes."))
	rest.Serve(r, "restore-load", "POST /{id}/restore-load", "Give an agent all its slots back",
		"At once. Where nothing was reduced, nothing happens.", h.restoreLoad)
	rest.Serve(rest.On(api, "Drains"), "set-maintenance", "POST /{id}/maintenance",
		"Put an agent into maintenance, or end it",
		"It stays in maintenance when it restarts. Answers 409 conflict while it is being drained.", h.setMaintenance)
	r = rest.On(api, "Clusters")
	rest.List(r, "members", "list-members", "GET /clusters/{id}/members", "List a cluster's members", "", h.members,
		rest.Wide)
	rest.Serve(r, "get-cluster-health", "GET /clusters/{id}/health", "Get the health of a cluster's agents", "",
		h.clusterHealth, rest.Wide)
}

func (h *Handlers) list(ctx context.Context, in *listInput) (page rest.Page[api.Agent], err error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	var live store.Live
	var beside sync.WaitGroup
	beside.Go(func() { live = h.Live(ctx) })
	views, missing, err := h.Views(ctx, in.Cluster)
	beside.Wait()
	if err != nil {
		return page, err
	}
	var agents []api.Agent
	for v := range views {
		found, err := h.discover(ctx, &views[v].Cluster, live, in)
		if err != nil {
			return page, err
		}
		agents = append(agents, found...)
	}
	page, err = rest.PageAtHand(agents, in.PageInput, func(a *api.Agent) string { return a.ID + "@" + a.Cluster })
	page.Missing = missing
	return page, err
}

// forget removes a lost agent from its cluster.
func (h *Handlers) forget(ctx context.Context, in *rest.ByID) (done rest.None, err error) {
	view, _, err := h.ClusterOfAgent(ctx, in.ID)
	if err != nil {
		return done, err
	}
	_, err = store.UpdateCluster(ctx, h.Store.Clusters(), contract.ForgetUpdate, view.Config.Name,
		contract.ForgetRequest{AgentID: in.ID})
	return done, h.Answer(err, "forget an agent", protocol.CodeUnknownAgent)
}

// declareDead takes a person's proof that an agent has ended.
func (h *Handlers) declareDead(ctx context.Context, in *rest.To[api.DeadRequest]) (api.Agent, error) {
	by := access.From(ctx)
	return change(ctx, h, in.ID, "take a proof of death", contract.DeadUpdate, cluster.DeathProof{AgentID: in.ID,
		Instance: in.Body.InstanceID, By: cmp.Or(by.Name, "an operator"), Proof: in.Body.Proof})
}

// agent shows an agent.
func (h *Handlers) agent(ctx context.Context, in *getInput) (api.Agent, error) {
	view, live, err := h.ClusterOfAgent(ctx, in.ID)
	if err != nil {
		return api.Agent{}, err
	}
	agents := []api.Agent{agentOf(&view.Cluster, view.Member(in.ID), live)}
	if in.full() {
		h.addTasks(ctx, &view.Cluster, in.ID, agents)
	}
	return agents[0], nil
}

// stateOf maps an agent's status to its state as a worker. Suspect agents get no tasks, so their state is unknown.
func stateOf(a *api.Agent) api.WorkerState {
	switch a.Status {
	case api.AgentOffline:
		return api.WorkerDead
	case api.AgentMaintenance:
		return api.WorkerMaintenance
	case api.AgentStopping, api.AgentDraining:
		return api.WorkerDraining
	case api.AgentSuspect, api.AgentWarning:
		return api.WorkerUnknown
	}
	if a.Running == nil {
		return api.WorkerUnknown
	}
	if *a.Running >= a.EffectiveSlots {
		return api.WorkerBusy
	}
	return api.WorkerReady
}

// ViewInput selects how much of an agent an answer has. It is exported because huma reads no unexported embedded field.
type ViewInput struct {
	View string `query:"view" enum:"basic,full" default:"basic" doc:"full adds current_tasks, as far as the hubs answer."`
}

func (v ViewInput) full() bool { return v.View == "full" }

type listInput struct {
	Cluster    string            `query:"cluster"`
	Status     api.AgentStatus   `query:"status" enum:"online,suspect,warning,stopping,offline,draining,maintenance"`
	State      api.WorkerState   `query:"state" enum:"ready,busy,draining,maintenance,dead,unknown" doc:"What it is good for now."`
	Live       bool              `query:"live" doc:"Only those that a hub has a session of."`
	Zone       string            `query:"zone"`
	Group      string            `query:"group"`
	Capability []string          `query:"capability,explode" maxItems:"32" doc:"Repeat it for several: an agent must have all."`
	TaskType   string            `query:"task_type" doc:"Only those that handle this type."`
	Metadata   []string          `query:"metadata,explode" maxItems:"32" doc:"As name=value. Repeat it for several: all must fit."`
	Health     []api.HealthLevel `query:"health" enum:"healthy,degraded,warning,critical,failed" doc:"Levels, separated by commas."`
	ViewInput
	rest.PageInput
}

// wants reports whether an agent fits all filters.
func (in *listInput) wants(a *api.Agent) bool {
	return (in.Status == "" || a.Status == in.Status) && (in.State == "" || a.State == in.State) &&
		(!in.Live || a.Hub != "" && a.Status != api.AgentOffline) &&
		(len(in.Health) == 0 || slices.Contains(in.Health, a.Health)) && (in.Zone == "" || a.Zone == in.Zone) &&
		(in.Group == "" || a.Group == in.Group) &&
		!slices.ContainsFunc(in.Capability, func(c string) bool { return !slices.Contains(a.Capabilities, c) }) &&
		(in.TaskType == "" || len(a.TaskTypes) == 0 || slices.Contains(a.TaskTypes, in.TaskType)) &&
		!slices.ContainsFunc(in.Metadata, func(term string) bool {
			name, value, _ := strings.Cut(term, "=")
			has, ok := a.Metadata[name]
			return !ok || has != value
		})
}

// discover lists the agents of a cluster that fit.
func (h *Handlers) discover(
	ctx context.Context, c *cluster.Cluster, live store.Live, in *listInput,
) ([]api.Agent, error) {
	if slices.ContainsFunc(in.Metadata, func(term string) bool { return strings.Index(term, "=") < 1 }) {
		return nil, rest.Invalid("query.metadata", errors.New("must be like name=value"))
	}
	var agents []api.Agent
	for i := range c.Members {
		if a := agentOf(c, &c.Members[i], live); in.wants(&a) {
			agents = append(agents, a)
		}
	}
	if in.full() && len(agents) > 0 {
		h.addTasks(ctx, c, "", agents)
	}
	return agents, nil
}

// addTasks asks the hubs which tasks the agents run. Agents whose hub does not answer stay without tasks.
func (h *Handlers) addTasks(ctx context.Context, c *cluster.Cluster, only string, agents []api.Agent) {
	byHub, err := rest.AskHubs(ctx, h.Core, contract.ReadTasksActivity, c, only, "tasks", contract.ReadTasksID,
		contract.ReadTasksInput{Cluster: c.Config.Name, AgentID: only})
	if err != nil {
		h.Logger.Debug("what agents run is not known", zap.String("cluster", c.Config.Name), zap.Error(err))
	}
	for i := range agents {
		held, known := byHub[agents[i].Hub].Agents[agents[i].ID]
		if !known {
			continue
		}
		agents[i].CurrentTasks = held
		if n := len(held); n < contract.MaxHeldTasks { // newer than what its hub publishes
			agents[i].Running = &n
			agents[i].State = stateOf(&agents[i])
		}
	}
}

type membersInput struct {
	rest.ByID
	rest.PageInput
}

func (h *Handlers) members(ctx context.Context, in *membersInput) (page rest.Page[api.Agent], err error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return page, err
	}
	live := h.Live(ctx)
	members := make([]api.Agent, len(view.Members))
	for i := range view.Members {
		members[i] = agentOf(&view.Cluster, &view.Members[i], live)
	}
	return rest.PageAtHand(members, in.PageInput, func(a *api.Agent) string { return a.ID })
}

func (h *Handlers) health(ctx context.Context, in *rest.ByID) (health api.AgentHealth, err error) {
	view, live, err := h.ClusterOfAgent(ctx, in.ID)
	if err != nil {
		return health, err
	}
	agents, err := h.healths(ctx, &view.Cluster, live, in.ID)
	if err != nil {
		return health, err
	}
	return agents[0], nil
}

func (h *Handlers) clusterHealth(ctx context.Context, in *rest.ByID) (health api.ClusterHealth, err error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return health, err
	}
	agents, err := h.healths(ctx, &view.Cluster, h.Live(ctx), "")
	return api.ClusterHealth{
		Cluster: view.Config.Name, Status: view.Status(), Score: meanScore(agents), Agents: agents,
	}, err
}

// healths asks the hubs of a cluster's members, or that of one member, how well they do.
func (h *Handlers) healths(
	ctx context.Context, c *cluster.Cluster, live store.Live, only string,
) ([]api.AgentHealth, error) {
	byHub, err := rest.AskHubs(ctx, h.Core, contract.ReadHealthActivity, c, only, "health", contract.ReadHealthID,
		contract.ReadHealthInput{Cluster: c.Config.Name, AgentID: only})
	if err != nil {
		return nil, err
	}
	agents, facts := []api.AgentHealth{}, live.Facts(c)
	for i := range c.Members {
		if m := &c.Members[i]; only == "" || m.AgentID == only {
			a := healthOf(c, m, byHub)
			a.Status, _, _ = live.Status(m)
			if now, known := facts[m.AgentID]; known {
				takeMetrics(&a, &now)
			}
			agents = append(agents, a)
		}
	}
	return agents, nil
}

// healthOf joins what the cluster knows of a member with what its hub says.
func healthOf(c *cluster.Cluster, m *cluster.Member, byHub map[string]contract.ReadHealthResult) api.AgentHealth {
	a := api.AgentHealth{AgentID: m.AgentID, Cluster: c.Config.Name}
	rated, known := byHub[m.Hub].Agents[m.AgentID]
	switch {
	case !m.Connected():
		a.Level, a.Score, a.FailedAt = api.HealthFailed, new(0.0), &m.StatusSince
		a.Why = "not connected: " + m.StatusReason
	case !known:
		a.Why = "its hub did not answer for it; try again"
	default:
		a.Level, a.Score, a.Why, a.Factors, a.Checks = rated.Level, &rated.Score, rated.Why, rated.Factors, rated.Checks
		a.ConsecutiveFailures = &rated.ConsecutiveFailures
		if m.Health != nil && m.Health.Level.WorseThan(api.HealthWarning) {
			a.FailedAt = &m.Health.Since
		}
	}
	return a
}

// takeMetrics puts in what the agent's hub publishes of it.
func takeMetrics(a *api.AgentHealth, now *healing.LiveAgent) {
	a.LastHeartbeat = &now.LastHeartbeat
	a.Metrics = &api.HealthMetrics{CPUPercent: now.CPUPercent, MemoryPercent: now.MemoryPercent, TaskCount: now.Running}
	if now.Processed > 0 {
		a.Metrics.ErrorRate = new(float64(now.Failed) / float64(now.Processed))
	}
}

func meanScore(agents []api.AgentHealth) *float64 {
	sum, n := 0.0, 0
	for i := range agents {
		if a := &agents[i]; a.Score != nil && a.Status != api.AgentMaintenance {
			sum += *a.Score
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return new(sum / float64(n))
}
