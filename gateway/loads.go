package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// ReduceLoadRequest lets an agent use fewer of its slots.
type ReduceLoadRequest struct {
	Slots        int     `json:"slots,omitempty" minimum:"0" maximum:"10000" doc:"How many tasks it may run at a time. Not with factor; neither: half of its slots."`
	Factor       float64 `json:"factor,omitempty" minimum:"0" maximum:"1" doc:"This share of all its slots, at least one of them."`
	For          string  `json:"for,omitempty" maxLength:"32" example:"10m" doc:"After how long it gets them back, step by step: 1s to 168h. Default 10m."`
	UntilHealthy bool    `json:"until_healthy,omitempty" doc:"It gets them back earlier, once its health is good again."`
	Reason       string  `json:"reason,omitempty" maxLength:"512" doc:"Shown with the agent, and kept in the cluster's history."`
}

// LoadReduction is why an agent may run fewer tasks at a time than it has slots.
type LoadReduction struct {
	Since        time.Time `json:"since"`
	Until        time.Time `json:"until" doc:"From then on it gets its slots back, a quarter of them every 30 s."`
	UntilHealthy bool      `json:"until_healthy,omitempty" doc:"Or earlier, once its health is good again."`
	Reason       string    `json:"reason,omitempty"`
}

func loadReduction(r *fleet.LoadReduction) *LoadReduction {
	if r == nil {
		return nil
	}
	return &LoadReduction{Since: r.Since.UTC(), Until: r.Until.UTC(), UntilHealthy: r.UntilHealthy, Reason: r.Reason}
}

type reduceLoadInput struct {
	ID   string             `path:"id" doc:"The agent's id."`
	Body *ReduceLoadRequest `doc:"May be left out: half of its slots, for 10 minutes."`
}

func (g *Gateway) registerLoads(api huma.API) {
	httpapi.Register(api, access.Operate, huma.Operation{
		OperationID: "reduce-load", Method: http.MethodPost, Path: "/api/v1/agents/{id}/reduce-load", Tags: []string{"Agents"},
		Summary: "Let an agent run fewer tasks at a time",
		Description: "What it runs goes on; nothing more is given to it while it has as many as it may. It stays so when the agent, its hub or Mainstay restarts, " +
			"until the time is over. Asking again changes how many and begins the time anew. Answers when the hubs have heard, at most after 2 s.",
	}, g.reduceLoad)
	httpapi.Register(api, access.Operate, huma.Operation{
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
	if _, err := update(ctx, g, u, contract.ClusterWorkflowID(view.Config.Name), request); err != nil {
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
