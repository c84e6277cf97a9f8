package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

type listTargetsInput struct {
	rest.ByID
	rest.PageInput
}

func (h *Handlers) registerBalance(r *rest.Routes) {
	rest.Serve(r, "rebalance-cluster", "POST /clusters/{id}/rebalance", "Spread shards, targets and tasks evenly",
		"A cluster keeps the number of shards even by itself. This also evens out the targets in them, "+
			"with as few moves as that needs, and tells what moved. "+
			"A shard that moves has no owner until its old owner's lease has run out. "+
			"With tasks, it moves running tasks too. What waits in a lane goes to the first agent that is free, "+
			"pinned work to its own. Asked again, nothing moves.", h.rebalance)
	rest.List(r, "targets", "change-targets", "POST /clusters/{id}/targets", "Add and remove deployment targets",
		"Answers the cluster's first 1,000 targets as they stand then, with who looks after each.", h.changeTargets,
		rest.As(access.Administer), rest.WithNext)
	rest.List(r, "targets", "list-targets", "GET /clusters/{id}/targets",
		"List deployment targets and who looks after them",
		"In an active_passive cluster that is the leader; in a sharded one the owner of the target's shard; "+
			"in an active_active one they are spread evenly.",
		func(ctx context.Context, in *listTargetsInput) (page rest.Page[api.Target], err error) {
			view, err := h.View(ctx, in.ID)
			if err != nil {
				return page, err
			}
			return targetPage(&view.Cluster, in.PageInput)
		})
}

func (h *Handlers) rebalance(
	ctx context.Context, in *rest.To[*api.RebalanceRequest],
) (answer api.Rebalance, err error) {
	body := rest.Given(in.Body)
	answer, err = rest.UpdateCluster(ctx, h.Core, "rebalance a cluster", contract.RebalanceUpdate, in.ID,
		contract.RebalanceRequest{DryRun: body.DryRun, Reason: body.Reason})
	if err == nil && body.Tasks {
		err = h.spreadTasks(ctx, in.ID, body.Reason, &answer)
	}
	if err != nil && len(answer.Moves) > 0 && !answer.DryRun { // the answer still lists the moves that were made
		answer.Why += "; no task moves: " + err.Error()
		err = nil
	}
	return answer, err
}

// spreadTasks adds moves of tasks to a rebalance, and has the hubs carry them out. It drops the moves that a hub
// refuses.
func (h *Handlers) spreadTasks(ctx context.Context, clusterName, reason string, answer *api.Rebalance) error {
	view, err := h.View(ctx, clusterName)
	if err != nil {
		return err
	}
	c := &view.Cluster
	byHub, err := rest.AskHubs(ctx, h.Core, contract.ReadTasksActivity, c, "", "tasks", contract.ReadTasksID,
		contract.ReadTasksInput{Cluster: clusterName})
	if err != nil {
		return err
	}
	var holders []*cluster.TaskHolder
	for i := range c.Members {
		m := &c.Members[i]
		if held, known := byHub[m.Hub].Agents[m.AgentID]; known && m.Serving() {
			holders = append(holders, &cluster.TaskHolder{Member: m, Slots: c.EffectiveSlots(m), Tasks: held})
		}
	}
	planned := len(answer.Moves)
	cluster.SpreadTasks(answer, holders)
	if answer.DryRun || len(answer.Moves) == planned {
		return nil
	}
	byAgent := map[string][]api.RebalanceMove{}
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
				Reason: "rebalance: " + cmp.Or(reason, "others are less busy")})
	})
	made, unmoved := map[cluster.HeldAttempt]bool{}, map[string]string{}
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
	if cluster.KeepMadeMoves(answer, made, unmoved); len(answer.Moves) > 0 {
		return nil // the answer lists the moves that were made
	}
	return cmp.Or(errs...)
}

func (h *Handlers) changeTargets(
	ctx context.Context, in *rest.To[api.TargetsRequest],
) (page rest.Page[api.Target], err error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	var check cluster.Cluster
	if _, err := check.Targets.Change(in.Body.Add, nil); err != nil {
		return page, rest.Invalid("body.add", err)
	}
	request := contract.TargetsRequest{Add: in.Body.Add, Remove: in.Body.Remove}
	view, err := rest.ChangeCluster(ctx, h.Core, "change a cluster's targets", contract.TargetsUpdate, in.ID, request)
	if err != nil {
		return page, err
	}
	return targetPage(&view.Cluster, rest.PageInput{PageSize: api.MaxTargets})
}

func targetPage(c *cluster.Cluster, in rest.PageInput) (rest.Page[api.Target], error) {
	targets := make([]api.Target, len(c.Targets))
	for i, t := range c.Targets {
		targets[i] = api.Target{ID: t.ID, Agent: c.AgentOfTarget(t)}
		if c.Config.ReplicationMode == api.Sharded {
			shard := task.ShardOf(t.ID, c.Config.Shards)
			targets[i].Shard = &shard
		}
	}
	return rest.PageAtHand(targets, in, func(t *api.Target) string { return t.ID })
}
