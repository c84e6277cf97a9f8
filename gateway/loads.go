package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

func loadReduction(r *fleet.LoadReduction) *api.LoadReduction {
	if r == nil {
		return nil
	}
	return &api.LoadReduction{Since: r.Since.UTC(), Until: r.Until.UTC(), UntilHealthy: r.UntilHealthy, Reason: r.Reason}
}

type reduceLoadInput struct {
	ID   string                 `path:"id" doc:"The agent's id."`
	Body *api.ReduceLoadRequest `doc:"May be left out: half of its slots, for 10 minutes."`
}

func (g *Gateway) registerLoads(routes huma.API) {
	httpapi.Register(routes, access.Operate, huma.Operation{
		OperationID: "reduce-load", Method: http.MethodPost, Path: "/api/v1/agents/{id}/reduce-load", Tags: []string{"Agents"},
		Summary: "Let an agent run fewer tasks at a time",
		Description: "What it runs goes on; nothing more is given to it while it has as many as it may. It stays so when the agent, its hub or Mainstay restarts, " +
			"until the time is over. Asking again changes how many and begins the time anew. Answers when the hubs have heard, at most after 2 s.",
	}, g.reduceLoad)
	httpapi.Register(routes, access.Operate, huma.Operation{
		OperationID: "restore-load", Method: http.MethodPost, Path: "/api/v1/agents/{id}/restore-load", Tags: []string{"Agents"},
		Summary: "Give an agent all its slots back", Description: "At once. Where nothing was reduced, nothing happens.",
	}, func(ctx context.Context, in *agentInput) (*agentOutput, error) {
		return changeLoad(ctx, g, in.ID, contract.RestoreLoadUpdate, contract.RestoreLoadRequest{AgentID: in.ID})
	})
}

func (g *Gateway) reduceLoad(ctx context.Context, in *reduceLoadInput) (*agentOutput, error) {
	request := contract.ReduceLoadRequest{AgentID: in.ID}
	if b := in.Body; b != nil {
		request.Slots, request.Factor, request.UntilHealthy, request.Reason = b.Slots, b.Factor, b.UntilHealthy, b.Reason
		if b.For != "" {
			d, err := fleet.ParseDuration(b.For)
			if err == nil && (d < time.Second || d > fleet.MaxReduceFor) {
				err = fmt.Errorf("must be between 1s and %s", fleet.Duration(fleet.MaxReduceFor))
			}
			if err != nil {
				return nil, invalid("body.for", err)
			}
			request.For = fleet.Duration(d)
		}
		if err := request.Reduce().Validate(); err != nil {
			return nil, invalid("body", err)
		}
	}
	return changeLoad(ctx, g, in.ID, contract.ReduceLoadUpdate, request)
}

// changeLoad asks an agent's cluster, and answers the agent as it stands then.
func changeLoad[In any](
	ctx context.Context, g *Gateway, id string, u contract.Update[In, contract.LoadReduced], request In,
) (*agentOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	view, live, err := g.clusterOfAgent(ctx, id)
	if err != nil {
		return nil, err
	}
	if _, err := store.Update(ctx, g.store, u, contract.ClusterWorkflowID(view.Config.Name), request); err != nil {
		return nil, g.answer(err, "change an agent's load", protocol.CodeUnknownAgent)
	}
	after, err := g.view(ctx, view.Config.Name)
	if err != nil {
		return nil, err
	}
	member := after.Member(id)
	if member == nil {
		return nil, unknown(protocol.CodeUnknownAgent)
	}
	return &agentOutput{Body: agentOf(&after.Cluster, member, live)}, nil
}
