package httpapi

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"sort"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi/static"
	"mainstay.dev/sdk/protocol"
)

//go:embed docs.html
var docsHTML string

//go:embed docs.css
var docsCSS []byte

var docsPage = template.Must(template.New("docs").Parse(docsHTML))

// docsPolicy lets the page load nothing but its own style sheet.
const docsPolicy = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) registerDocs() {
	s.handleGin(access.Open, "/docs", s.serveDocs)
	s.handleGin(access.Open, "/docs/docs.css", func(c *gin.Context) {
		c.Data(http.StatusOK, "text/css; charset=utf-8", docsCSS)
	})
}

// serveDocs renders the operations on the server: no script, no CDN.
func (s *Server) serveDocs(c *gin.Context) {
	page, err := s.docs()
	if err != nil {
		s.logger.Error("docs page", zap.Error(err))
		writeProblem(c, Problem(protocol.CodeInternal, "the page cannot be written; /openapi.json has the same facts"))
		return
	}
	c.Header("Content-Security-Policy", docsPolicy)
	page.ServeHTTP(c.Writer, c.Request)
}

func (s *Server) makeDocs() (*static.Text, error) {
	var page bytes.Buffer
	if err := docsPage.Execute(&page, describeAPI(s.api.OpenAPI())); err != nil {
		return nil, err
	}
	return static.New("text/html; charset=utf-8", page.Bytes())
}

// docsView is what the page shows.
type docsView struct {
	Title, Version, Description string
	Groups                      []docsGroup
}

type docsGroup struct {
	Name       string
	Operations []docsOperation
}

type docsOperation struct {
	ID, Method, Path, Summary, Description string
	Parameters                             []docsField
	Body                                   []docsField
	Responses                              []docsResponse
}

type docsField struct {
	Name, In, Type, Doc string
	Required            bool
}

type docsResponse struct {
	Status, Description string
	Fields              []docsField
}

func describeAPI(spec *huma.OpenAPI) docsView {
	groups := map[string][]docsOperation{}
	for path, item := range spec.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			tag := "Other"
			if len(op.Tags) > 0 {
				tag = op.Tags[0]
			}
			groups[tag] = append(groups[tag], describeOperation(spec, path, op))
		}
	}
	view := docsView{Title: spec.Info.Title, Version: spec.Info.Version, Description: spec.Info.Description}
	for name, operations := range groups {
		sort.Slice(operations, func(i, j int) bool {
			a, b := operations[i], operations[j]
			return a.Path < b.Path || a.Path == b.Path && a.Method < b.Method
		})
		view.Groups = append(view.Groups, docsGroup{Name: name, Operations: operations})
	}
	sort.Slice(view.Groups, func(i, j int) bool { return view.Groups[i].Name < view.Groups[j].Name })
	return view
}

func describeOperation(spec *huma.OpenAPI, path string, op *huma.Operation) docsOperation {
	d := docsOperation{ID: op.OperationID, Method: op.Method, Path: path, Summary: op.Summary,
		Description: op.Description}
	for _, p := range op.Parameters {
		d.Parameters = append(d.Parameters, docsField{Name: p.Name, In: p.In, Type: typeName(p.Schema),
			Doc: p.Description, Required: p.Required})
	}
	if op.RequestBody != nil {
		for _, media := range op.RequestBody.Content {
			d.Body = append(d.Body, describeFields(spec, media.Schema)...)
		}
	}
	for status, response := range op.Responses {
		r := docsResponse{Status: status, Description: response.Description}
		if media := response.Content["application/json"]; media != nil {
			r.Fields = describeFields(spec, media.Schema)
		}
		d.Responses = append(d.Responses, r)
	}
	sort.Slice(d.Responses, func(i, j int) bool { return d.Responses[i].Status < d.Responses[j].Status })
	return d
}

func describeFields(spec *huma.OpenAPI, schema *huma.Schema) []docsField {
	schema = resolve(spec, schema)
	if schema == nil {
		return nil
	}
	if schema.Type == "array" {
		return describeFields(spec, schema.Items)
	}
	required := map[string]bool{}
	for _, name := range schema.Required {
		required[name] = true
	}
	fields := make([]docsField, 0, len(schema.Properties))
	for name, property := range schema.Properties {
		fields = append(fields, docsField{Name: name, Type: typeName(property), Doc: property.Description,
			Required: required[name]})
	}
	sort.Slice(fields, func(i, j int) bool { return fields[i].Name < fields[j].Name })
	return fields
}

func resolve(spec *huma.OpenAPI, schema *huma.Schema) *huma.Schema {
	if schema != nil && schema.Ref != "" {
		return spec.Components.Schemas.SchemaFromRef(schema.Ref)
	}
	return schema
}

func typeName(schema *huma.Schema) string {
	switch {
	case schema == nil:
		return ""
	case schema.Ref != "":
		return schema.Ref[strings.LastIndexByte(schema.Ref, '/')+1:]
	case schema.Type == "array":
		return "list of " + typeName(schema.Items)
	case schema.Type == "":
		return "any JSON"
	}
	return schema.Type
}
