// Package drain takes agents out of service.
package drain

import (
	"context"
	"maps"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type drainAgentInput struct {
	ID   string            `path:"id" doc:"The agent's id."`
	Body *api.DrainRequest `doc:"May be left out."`
}

type drainAgentsInput struct {
	Name string `path:"id" doc:"The cluster's name."`
	Body api.DrainAgentsRequest
}

type drainInput struct {
	ID string `path:"id" maxLength:"256" doc:"The drain's id: <cluster>:<name>."`
}

type listDrainsInput struct {
	Cluster string `query:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	rest.RecordPageInput
}

type listDrainsOutput struct {
	Body struct {
		Drains        []fleet.DrainRecord `json:"drains"`
		NextPageToken string              `json:"next_page_token,omitempty"`
	}
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	record := routes.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[fleet.DrainRecord](), true, "DrainRecord")
	planned := map[string]*huma.Response{"200": {
		Description: "A dry run: what would happen",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: record}},
	}}
	httpapi.Register(routes, access.Operate, huma.Operation{
		OperationID: "drain-agent",
		Method:      http.MethodPost,
		Path:        "/api/v1/agents/{id}/drain",
		Tags:        []string{"Drains"},
		Summary:     "Take an agent out of service", DefaultStatus: http.StatusAccepted, Responses: planned,
		Description: "Nothing new is given to it, what it has may finish until the deadline, and it ends in maintenance with nothing in flight. Answers 409 conflict when it is being drained already. A dry run answers 200 with what would happen.",
	}, h.drainAgent)
	httpapi.Register(routes, access.Operate, huma.Operation{
		OperationID:   "drain-agents",
		Method:        http.MethodPost,
		Path:          "/api/v1/agents/clusters/{id}/drain",
		Tags:          []string{"Drains"},
		Summary:       "Take agents of a cluster out of service, some at a time",
		DefaultStatus: http.StatusAccepted,
		Responses:     maps.Clone(planned),
	}, h.drainAgents)
	httpapi.Register(routes, access.View, rest.Op("Drains", "list-drains", "GET /drains",
		"List drains",
		"Newest first, dry runs among them. A drain appears within about a second of its start."), h.listDrains)
	httpapi.Register(routes, access.View, rest.Op("Drains", "get-drain", "GET /drains/{id}",
		"Get a drain", "How far it is with each agent, what the agent had, and how that ended."),
		func(ctx context.Context, in *drainInput) (*rest.Output[fleet.DrainRecord], error) {
			return rest.Reply(h.drain(ctx, in.ID))
		})
	httpapi.Register(routes, access.Operate, rest.WithStatus(http.StatusAccepted,
		rest.Op("Drains", "cancel-drain", "POST /drains/{id}/cancel",
			"Cancel a drain",
			"Agents that are not done are given work again; those that are done stay in maintenance.")), h.cancelDrain)
}
