package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
)

type rebalanceInput struct {
	ID   string                `path:"id" doc:"The cluster's name."`
	Body *api.RebalanceRequest `doc:"May be left out."`
}

type changeTargetsInput struct {
	ID   string `path:"id" doc:"The cluster's name."`
	Body api.TargetsRequest
}

type listTargetsInput struct {
	ID string `path:"id" doc:"The cluster's name."`
	rest.PageInput
}

type targetsOutput struct {
	Body struct {
		Targets       []api.Target `json:"targets"`
		NextPageToken string       `json:"next_page_token,omitempty"`
	}
}

func (h *Handlers) registerBalance(routes huma.API) {
	rebalance := rest.Op("Clusters", "rebalance-cluster", "POST /clusters/{id}/rebalance",
		"Spread shards, targets and tasks evenly",
		"A cluster keeps the number of shards even by itself. This also evens out the targets in them, "+
			"with as few moves as that needs, and tells what moved. "+
			"A shard that moves has no owner until its old owner's lease has run out. "+
			"With tasks, it moves running tasks too. What waits in a lane goes to the first agent that is free, "+
			"pinned work to its own. Asked again, nothing moves.")
	rest.Serve(routes, access.Operate, rebalance, h.rebalance)
	httpapi.Register(routes, access.Administer, rest.Op("Clusters", "change-targets", "POST /clusters/{id}/targets",
		"Add and remove deployment targets",
		"Answers the cluster's first 1,000 targets as they stand then, with who looks after each."), h.changeTargets)
	httpapi.Register(routes, access.View, rest.Op("Clusters", "list-targets", "GET /clusters/{id}/targets",
		"List deployment targets and who looks after them",
		"In an active_passive cluster that is the leader; in a sharded one the owner of the target's shard; "+
			"in an active_active one they are spread evenly."),
		func(ctx context.Context, in *listTargetsInput) (*targetsOutput, error) {
			view, err := h.View(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return targetPage(&view.Cluster, &in.PageInput)
		})
}

func (h *Handlers) rebalance(ctx context.Context, in *rebalanceInput) (fleet.Rebalance, error) {
	var request contract.RebalanceRequest
	if in.Body != nil {
		request = contract.RebalanceRequest{DryRun: in.Body.DryRun, Reason: in.Body.Reason}
	}
	answer, err := rest.UpdateCluster(ctx, h.Core, "rebalance a cluster", contract.RebalanceUpdate, in.ID, request)
	if err == nil && in.Body != nil && in.Body.Tasks {
		err = h.spreadTasks(ctx, in, &answer)
	}
	if err != nil && len(answer.Moves) > 0 && !answer.DryRun { // what is done is told
		answer.Why += "; no task moves: " + err.Error()
		err = nil
	}
	return answer, err
}

// spreadTasks adds moves of tasks to a rebalance, and has the hubs carry them out. What a hub does not move any more is
// left out.
func (h *Handlers) spreadTasks(ctx context.Context, in *rebalanceInput, answer *fleet.Rebalance) error {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return err
	}
	c := &view.Cluster
	byHub, err := rest.AskHubs(ctx, h.Core, contract.ReadTasksActivity, c, "", "tasks", contract.ReadTasksID,
		contract.ReadTasksInput{Cluster: in.ID})
	if err != nil {
		return err
	}
	var holders []*fleet.TaskHolder
	for i := range c.Members {
		m := &c.Members[i]
		if held, known := byHub[m.Hub].Agents[m.AgentID]; known && m.Serving() {
			holders = append(holders, &fleet.TaskHolder{Member: m, Slots: c.EffectiveSlots(m), Tasks: held})
		}
	}
	planned := len(answer.Moves)
	answer.SpreadTasks(holders)
	if answer.DryRun || len(answer.Moves) == planned {
		return nil
	}
	byAgent := map[string][]fleet.RebalanceMove{}
	for _, m := range answer.Moves[planned:] {
		byAgent[m.From] = append(byAgent[m.From], m)
	}
	agents := slices.Sorted(maps.Keys(byAgent))
	answers, errs := make([]contract.EvacuateResult, len(agents)), make([]error, len(agents))
	answered := make([]bool, len(agents))
	parallel.Each(len(agents), rest.FanOut, func(i int) {
		m := c.Member(agents[i])
		answers[i], answered[i], errs[i] = rest.Ask(ctx, h.Core, contract.EvacuateActivity, rest.HubQuestion{Hub: m.Hub,
			ID: contract.EvacuateID(m.AgentID, uuid.NewString()), Summary: "move tasks off " + m.AgentID},
			contract.EvacuateInput{AgentID: m.AgentID, Instance: m.Instance, Epoch: m.Epoch, Moves: byAgent[m.AgentID],
				Reason: "rebalance: " + cmp.Or(in.Body.Reason, "others are less busy")})
	})
	made, unmoved := map[fleet.HeldAttempt]bool{}, map[string]string{}
	for i, agent := range agents {
		switch {
		case errs[i] != nil:
			unmoved[agent] = errs[i].Error()
		case !answered[i]:
			unmoved[agent] = "its hub did not answer in time"
		}
		for _, a := range answers[i].Attempts {
			made[a] = true
		}
	}
	if answer.KeepMade(made, unmoved); len(answer.Moves) > 0 {
		return nil // what was made is told
	}
	return cmp.Or(errs...)
}

func (h *Handlers) changeTargets(ctx context.Context, in *changeTargetsInput) (*targetsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	var check fleet.Cluster
	if _, err := check.Targets.Change(in.Body.Add, nil); err != nil {
		return nil, rest.Invalid("body.add", err)
	}
	request := contract.TargetsRequest{Add: in.Body.Add, Remove: in.Body.Remove}
	view, err := rest.ChangeCluster(ctx, h.Core, "change a cluster's targets", contract.TargetsUpdate, in.ID, request)
	if err != nil {
		return nil, err
	}
	return targetPage(&view.Cluster, &rest.PageInput{PageSize: fleet.MaxTargets})
}

func targetPage(c *fleet.Cluster, p *rest.PageInput) (out *targetsOutput, err error) {
	targets := make([]api.Target, len(c.Targets))
	for i, t := range c.Targets {
		targets[i] = api.Target{ID: t.ID, Agent: c.AgentOfTarget(t)}
		if c.Config.ReplicationMode == fleet.Sharded {
			shard := fleet.ShardOf(t.ID, c.Config.Shards)
			targets[i].Shard = &shard
		}
	}
	out = &targetsOutput{}
	out.Body.Targets, out.Body.NextPageToken, err = rest.Page(targets, p.PageToken, p.PageSize,
		func(t *api.Target) string { return t.ID })
	return out, err
}
