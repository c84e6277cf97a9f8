// Package scaling shows how the numbers of clusters' agents are kept, and lets people set them.
package scaling

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
)

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	// Configure changes a cluster's settings.
	Configure func(
		ctx context.Context, name string, expected []string,
		change func(fleet.ClusterConfig) (fleet.ClusterConfig, error),
	) (api.Cluster, error)
}

type scaleInput struct {
	ID   string `path:"id" doc:"The cluster's name."`
	Body api.ScaleRequest
}

type scalingRecordInput struct {
	ID string `path:"id" maxLength:"256" doc:"The action's id: <cluster>:<number>."`
}

type listScalingsInput struct {
	Cluster string `query:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	rest.RecordPageInput
}

type listScalingsOutput struct {
	Body struct {
		Scalings      []fleet.ScalingRecord `json:"scalings"`
		NextPageToken string                `json:"next_page_token,omitempty"`
	}
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	get := rest.Op("Scaling", "get-scaling", "GET /clusters/{id}/scaling",
		"Show how a cluster's number of agents is kept", "")
	httpapi.Register(routes, access.View, get, func(ctx context.Context,
		in *rest.ClusterInput) (*rest.Output[api.ScalingStatus], error) {
		return rest.Reply(h.scalingStatus(ctx, in.ID))
	})
	httpapi.Register(routes, access.Operate, rest.Op("Scaling", "scale-cluster", "POST /clusters/{id}/scaling",
		"Say how many agents a cluster is to have",
		"Agents are started or stopped at once. Who is stopped is drained before: agents without work first, and only agents that a spawner started."), h.scaleCluster)
	httpapi.Register(routes, access.View, rest.Op("Scaling", "list-scalings", "GET /scalings",
		"List what scaling has done",
		"Newest first. An action appears within about a second of its start."), h.listScalings)
	httpapi.Register(routes, access.View, rest.Op("Scaling", "get-scaling-action", "GET /scalings/{id}",
		"Get one action of scaling", "Why it was begun, which agents it started or stopped, and how that went."),
		func(ctx context.Context, in *scalingRecordInput) (*rest.Output[fleet.ScalingRecord], error) {
			return rest.Reply(h.scalingRecord(ctx, in.ID))
		})
}
