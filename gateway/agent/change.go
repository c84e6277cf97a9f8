package agent

import (
	"context"
	"fmt"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func loadReduction(r *cluster.LoadReduction) *api.LoadReduction {
	if r == nil {
		return nil
	}
	return &api.LoadReduction{Since: r.Since.UTC(), Until: r.Until.UTC(), UntilHealthy: r.UntilHealthy,
		Reason: r.Reason}
}

// doingLoad is what the log says of a change that fails.
const doingLoad = "change an agent's load"

func (h *Handlers) restoreLoad(ctx context.Context, in *rest.ByID) (api.Agent, error) {
	return change(ctx, h, in.ID, doingLoad, contract.RestoreLoadUpdate, contract.RestoreLoadRequest{AgentID: in.ID})
}

func (h *Handlers) reduceLoad(ctx context.Context, in *rest.To[*api.ReduceLoadRequest]) (api.Agent, error) {
	request := contract.ReduceLoadRequest{AgentID: in.ID}
	if b := in.Body; b != nil {
		request.Slots, request.Factor = b.Slots, b.Factor
		request.UntilHealthy, request.Reason = b.UntilHealthy, b.Reason
		if b.For != "" {
			d, err := api.ParseDuration(b.For)
			if err == nil && (d < time.Second || d > cluster.MaxReduceFor) {
				err = fmt.Errorf("must be between 1s and %s", api.Duration(cluster.MaxReduceFor))
			}
			if err != nil {
				return api.Agent{}, rest.Invalid("body.for", err)
			}
			request.For = api.Duration(d)
		}
		if err := request.Reduce().Validate(); err != nil {
			return api.Agent{}, rest.Invalid("body", err)
		}
	}
	return change(ctx, h, in.ID, doingLoad, contract.ReduceLoadUpdate, request)
}

// setMaintenance cordons an agent by hand, or lifts its cordon.
func (h *Handlers) setMaintenance(ctx context.Context, in *rest.To[api.MaintenanceRequest]) (api.Agent, error) {
	const doing = "set an agent's maintenance"
	if !in.Body.Enabled {
		return change(ctx, h, in.ID, doing, contract.UncordonUpdate, contract.UncordonRequest{AgentID: in.ID})
	}
	request := contract.CordonRequest{AgentID: in.ID, Status: api.AgentMaintenance, Reason: in.Body.Reason}
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
