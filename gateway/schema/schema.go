// Package schema serves the JSON Schemas of what people write: payloads, jobs and an agent's configuration. They are in
// the program, so everybody may read them.
package schema

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/agentconfig"
	"mainstay.dev/mainstay/document"
	"mainstay.dev/mainstay/flow"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/payload"
	"mainstay.dev/mainstay/protocol"
)

// Handlers answer the requests.
type Handlers struct{}

type schemaEntry struct {
	Name string `json:"name"`
	Path string `json:"path" doc:"Where the schema is."`
}

type listOutput struct {
	Body struct {
		Schemas []schemaEntry `json:"schemas"`
	}
}

type getInput struct {
	Name string `path:"name" maxLength:"64" doc:"Its name; with .json behind it or without."`
}

const path = "/api/v1/schemas"

// names are those of all schemas.
func names() []string { return append([]string{"agent", "job"}, payload.Types()...) }

// Register adds the operations.
func (Handlers) Register(routes huma.API) {
	httpapi.Register(routes, access.Open, huma.Operation{OperationID: "list-schemas",
		Method: http.MethodGet, Path: path,
		Tags: []string{"Schemas"}, Summary: "List the JSON Schemas of what people write"},
		func(context.Context, *struct{}) (*listOutput, error) {
			out := &listOutput{}
			for _, name := range names() {
				out.Body.Schemas = append(out.Body.Schemas, schemaEntry{name, path + "/" + name})
			}
			return out, nil
		})
	httpapi.Register(routes, access.Open, huma.Operation{OperationID: "get-schema", Method: http.MethodGet,
		Path: path + "/{name}", Tags: []string{"Schemas"}, Summary: "Get a JSON Schema",
		Description: "In JSON Schema 2020-12, for editors: of the payload of a task (exec, mcp-tool, model), of the " +
			"configuration of an agent (agent), or of a job's definition (job; also mainstay job schema)."},
		func(_ context.Context, in *getInput) (*rest.Output[json.RawMessage], error) {
			return rest.Reply(schemaOf(strings.TrimSuffix(in.Name, ".json")))
		})
}

func schemaOf(name string) (json.RawMessage, error) {
	switch {
	case name == "job":
		return flow.DefinitionSchema(), nil
	case name == "agent":
		return agentconfig.Schema(), nil
	case slices.Contains(payload.Types(), name):
		return document.Indented("The payload of a task of type "+name, payload.Schema(name))
	}
	return nil, httpapi.Problem(protocol.CodeNotFound, "there is no such schema; there are "+
		strings.Join(names(), ", "))
}
