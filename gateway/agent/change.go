package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

func loadReduction(r *fleet.LoadReduction) *api.LoadReduction {
	if r == nil {
		return nil
	}
	return &api.LoadReduction{Since: r.Since.UTC(), Until: r.Until.UTC(), UntilHealthy: r.UntilHealthy,
		Reason: r.Reason}
}

// doingLoad is what the log says of a change that fails.
const doingLoad = "change an agent's load"

type reduceLoadInput struct {
	ID   string                 `path:"id" doc:"The agent's id."`
	Body *api.ReduceLoadRequest `doc:"May be left out: half of its slots, for 10 minutes."`
}

func (h *Handlers) registerLoads(routes huma.API) {
	rest.Serve(routes, access.Operate, rest.Op("Agents", "reduce-load", "POST /{id}/reduce-load",
		"Let an agent run fewer tasks at a time",
		"What it runs goes on; nothing more is given to it while it has as many as it may. It stays so when the agent, its hub or Mainstay restarts, "+
			"until the time is over. Asking again changes how many and begins the time anew. Answers when the hubs have heard, at most after 2 s."), h.reduceLoad)
	rest.Serve(routes, access.Operate, rest.Op("Agents", "restore-load", "POST /{id}/restore-load",
		"Give an agent all its slots back", "At once. Where nothing was reduced, nothing happens."),
		func(ctx context.Context, in *rest.AgentInput) (api.Agent, error) {
			request := contract.RestoreLoadRequest{AgentID: in.ID}
			return change(ctx, h, in.ID, doingLoad, contract.RestoreLoadUpdate, request)
		})
}

func (h *Handlers) reduceLoad(ctx context.Context, in *reduceLoadInput) (api.Agent, error) {
	request := contract.ReduceLoadRequest{AgentID: in.ID}
	if b := in.Body; b != nil {
		request.Slots, request.Factor = b.Slots, b.Factor
		request.UntilHealthy, request.Reason = b.UntilHealthy, b.Reason
		if b.For != "" {
			d, err := fleet.ParseDuration(b.For)
			if err == nil && (d < time.Second || d > fleet.MaxReduceFor) {
				err = fmt.Errorf("must be between 1s and %s", fleet.Duration(fleet.MaxReduceFor))
			}
			if err != nil {
				return api.Agent{}, rest.Invalid("body.for", err)
			}
			request.For = fleet.Duration(d)
		}
		if err := request.Reduce().Validate(); err != nil {
			return api.Agent{}, rest.Invalid("body", err)
		}
	}
	return change(ctx, h, in.ID, doingLoad, contract.ReduceLoadUpdate, request)
}

type maintenanceInput struct {
	ID   string `path:"id" doc:"The agent's id."`
	Body api.MaintenanceRequest
}

func (h *Handlers) registerMaintenance(routes huma.API) {
	rest.Serve(routes, access.Operate, rest.Op("Drains", "set-maintenance", "POST /{id}/maintenance",
		"Put an agent into maintenance, or end it",
		"It stays in maintenance when it restarts. Answers 409 conflict while it is being drained."), h.setMaintenance)
}

// setMaintenance cordons an agent by hand, or lifts its cordon.
func (h *Handlers) setMaintenance(ctx context.Context, in *maintenanceInput) (api.Agent, error) {
	const doing = "set an agent's maintenance"
	if !in.Body.Enabled {
		return change(ctx, h, in.ID, doing, contract.UncordonUpdate, contract.UncordonRequest{AgentID: in.ID})
	}
	request := contract.CordonRequest{AgentID: in.ID, Status: fleet.AgentMaintenance, Reason: in.Body.Reason}
	return change(ctx, h, in.ID, doing, contract.CordonUpdate, request)
}

// change has an agent's cluster change it, and answers the agent as it stands then.
func change[In, Out any](
	ctx context.Context, h *Handlers, id, doing string, u contract.Update[In, Out], request In,
) (a api.Agent, err error) {
	view, live, err := h.ClusterOfAgent(ctx, id)
	if err != nil {
		return a, err
	}
	name := view.Config.Name
	if _, err := store.UpdateCluster(ctx, h.Store.Clusters(), u, name, request); err != nil {
		return a, h.Answer(err, doing, protocol.CodeUnknownAgent)
	}
	after, err := h.View(ctx, name)
	if err != nil {
		return a, err
	}
	member := after.Member(id)
	if member == nil {
		return a, rest.Unknown(protocol.CodeUnknownAgent)
	}
	return agentOf(&after.Cluster, member, live), nil
}
