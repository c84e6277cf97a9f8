package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/store"
)

// stateOf says what an agent is good for. One whose load is not known is taken to have a free slot.
func stateOf(a *api.Agent) api.WorkerState {
	switch a.Status {
	case fleet.AgentOffline:
		return api.WorkerDead
	case fleet.AgentStopping, fleet.AgentDraining, fleet.AgentMaintenance:
		return api.WorkerDraining
	}
	if a.Running != nil && *a.Running >= a.EffectiveSlots {
		return api.WorkerBusy
	}
	return api.WorkerReady
}

// ViewInput says how much to tell of an agent. It is exported because huma reads no unexported embedded field.
type ViewInput struct {
	View string `query:"view" enum:"basic,full" default:"basic" doc:"full adds current_tasks, as far as the hubs answer."`
}

func (v ViewInput) full() bool { return v.View == "full" }

type listAgentsInput struct {
	Cluster    string              `query:"cluster"`
	Status     fleet.AgentStatus   `query:"status" enum:"online,suspect,warning,stopping,offline,draining,maintenance"`
	State      api.WorkerState     `query:"state" enum:"ready,busy,draining,dead" doc:"What it is good for now."`
	Live       bool                `query:"live" doc:"Only those that a hub has a session of."`
	Zone       string              `query:"zone"`
	Group      string              `query:"group"`
	Capability []string            `query:"capability,explode" maxItems:"32" doc:"Repeat it for several: an agent must have all."`
	TaskType   string              `query:"task_type" doc:"Only those that handle this type."`
	Metadata   []string            `query:"metadata,explode" maxItems:"32" doc:"As name=value. Repeat it for several: all must fit."`
	Health     []fleet.HealthLevel `query:"health" enum:"healthy,degraded,warning,critical,failed" doc:"Levels, separated by commas."`
	ViewInput
	rest.PageInput
}

// wants reports whether an agent fits all filters.
func (in *listAgentsInput) wants(a *api.Agent) bool {
	return (in.Status == "" || a.Status == in.Status) && (in.State == "" || a.State == in.State) &&
		(!in.Live || a.Hub != "" && a.Status != fleet.AgentOffline) &&
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
	ctx context.Context, c *fleet.Cluster, live store.Live, in *listAgentsInput,
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

// addTasks asks hubs what the agents run. What a hub does not tell stays absent.
func (h *Handlers) addTasks(ctx context.Context, c *fleet.Cluster, only string, agents []api.Agent) {
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
	ID string `path:"id" doc:"The cluster's name."`
	rest.PageInput
}

type listMembersOutput struct {
	Body struct {
		Members       []api.Agent `json:"members"`
		NextPageToken string      `json:"next_page_token,omitempty"`
	}
}

func (h *Handlers) listMembers(ctx context.Context, in *membersInput) (*listMembersOutput, error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	live := h.Live(ctx)
	members := make([]api.Agent, len(view.Members))
	for i := range view.Members {
		members[i] = agentOf(&view.Cluster, &view.Members[i], live)
	}
	out := &listMembersOutput{}
	out.Body.Members, out.Body.NextPageToken, err = rest.Page(members, in.PageToken, in.PageSize,
		func(a *api.Agent) string { return a.ID })
	return out, err
}
