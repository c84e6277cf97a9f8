// Package scaling shows how the numbers of clusters' agents are kept, and lets people set them.
package scaling

import (
	"context"
	"net/http"

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
	get := rest.ClusterOperation("get-scaling", http.MethodGet, "/{id}/scaling",
		"Show how a cluster's number of agents is kept", http.StatusOK)
	get.Tags = []string{"Scaling"}
	httpapi.Register(routes, access.View, get, func(ctx context.Context,
		in *rest.ClusterInput) (*rest.Output[api.ScalingStatus], error) {
		return rest.Reply(h.scalingStatus(ctx, in.ID))
	})
	scale := rest.ClusterOperation("scale-cluster", http.MethodPost, "/{id}/scaling",
		"Say how many agents a cluster is to have", http.StatusOK)
	scale.Tags = []string{"Scaling"}
	scale.Description = "Agents are started or stopped at once. Who is stopped is drained before: agents without work first, and only agents that a spawner started."
	httpapi.Register(routes, access.Operate, scale, h.scaleCluster)
	httpapi.Register(routes, access.View, huma.Operation{
		OperationID: "list-scalings",
		Method:      http.MethodGet,
		Path:        "/api/v1/agents/scalings",
		Tags:        []string{"Scaling"},
		Summary:     "List what scaling has done",
		Description: "Newest first. An action appears within about a second of its start.",
	}, h.listScalings)
	httpapi.Register(routes, access.View, huma.Operation{
		OperationID: "get-scaling-action",
		Method:      http.MethodGet,
		Path:        "/api/v1/agents/scalings/{id}",
		Tags:        []string{"Scaling"},
		Summary:     "Get one action of scaling",
		Description: "Why it was begun, which agents it started or stopped, and how that went.",
	}, func(ctx context.Context, in *scalingRecordInput) (*rest.Output[fleet.ScalingRecord], error) {
		return rest.Reply(h.scalingRecord(ctx, in.ID))
	})
}
