// Package schema serves the JSON Schemas of what people write: payloads, jobs and an agent's configuration. They are in
// the program, so everybody may read them.
package schema

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/config/agentconfig"
	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/payload"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{}

type schemaEntry struct {
	Name string `json:"name"`
	Path string `json:"path" doc:"Where the schema is."`
}

type getInput struct {
	Name string `path:"name" maxLength:"64"`
}

const path = "/api/v1/schemas"

// names are the names of all schemas.
func names() []string { return append([]string{"agent", "job"}, payload.Types()...) }

// Register adds the operations.
func (Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Schemas").At(path)
	rest.List(r, "schemas", "list-schemas", "GET ", "List the JSON Schemas of what people write", "",
		func(context.Context, *struct{}) (page rest.Page[schemaEntry], _ error) {
			for _, name := range names() {
				page.Items = append(page.Items, schemaEntry{name, path + "/" + name})
			}
			return page, nil
		}, rest.As(access.Open))
	rest.Serve(r, "get-schema", "GET /{name}", "Get a JSON Schema",
		"In JSON Schema 2020-12, for editors: of the payload of a task (exec, mcp-tool, model), of the "+
			"configuration of an agent (agent), or of a job's definition (job; also mainstay job schema).",
		func(_ context.Context, in *getInput) (json.RawMessage, error) {
			return schemaOf(strings.TrimSuffix(in.Name, ".json"))
		}, rest.As(access.Open))
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
