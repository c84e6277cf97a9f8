package agent

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

type maintenanceInput struct {
	ID   string `path:"id" doc:"The agent's id."`
	Body api.MaintenanceRequest
}

func (h *Handlers) registerMaintenance(routes huma.API) {
	httpapi.Register(routes, access.Operate, rest.Op("Drains", "set-maintenance", "POST /{id}/maintenance",
		"Put an agent into maintenance, or end it",
		"It stays in maintenance when it restarts. Answers 409 conflict while it is being drained."), h.setMaintenance)
}

// setMaintenance cordons an agent by hand, or lifts its cordon.
func (h *Handlers) setMaintenance(ctx context.Context, in *maintenanceInput) (*rest.Output[api.Agent], error) {
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
) (*rest.Output[api.Agent], error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	view, live, err := h.ClusterOfAgent(ctx, id)
	if err != nil {
		return nil, err
	}
	name := view.Config.Name
	if _, err := store.UpdateCluster(ctx, h.Store.Clusters(), u, name, request); err != nil {
		return nil, h.Answer(err, doing, protocol.CodeUnknownAgent)
	}
	after, err := h.View(ctx, name)
	if err != nil {
		return nil, err
	}
	member := after.Member(id)
	if member == nil {
		return nil, rest.Unknown(protocol.CodeUnknownAgent)
	}
	return &rest.Output[api.Agent]{Body: agentOf(&after.Cluster, member, live)}, nil
}
