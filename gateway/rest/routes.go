package rest

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
)

// API is where resources add their operations.
type API = huma.API

// Root begins the paths of most operations.
const Root = "/api/v1/agents"

// Routes adds the operations of one resource. Every operation of the gateway is added by one of three functions: Serve
// for an answer that is a body, List for a page of a list, and Respond for an answer whose status or headers differ.
type Routes struct {
	api    API
	tag    string
	scoped bool
	root   string
}

// On makes the routes of a resource. GET needs a viewer and other methods an operator, unless an option says otherwise.
func On(api API, tag string) *Routes { return &Routes{api: api, tag: tag, root: Root} }

// Scoped lets identities of one tenant in: the handlers limit themselves to what belongs to the tenant.
func (r *Routes) Scoped() *Routes {
	r.scoped = true
	return r
}

// At puts the operations below another root.
func (r *Routes) At(root string) *Routes {
	r.root = root
	return r
}

// operation has what options change.
type operation struct {
	huma.Operation
	policy  access.Policy
	held    bool
	also    map[string]string // descriptions of other statuses with the same body
	body    string            // what the document says of a body that may be left out
	missing bool
	next    bool
}

// Option says what is particular about an operation.
type Option func(*operation)

// Status is the status of the answer, where that is not 200.
func Status(status int) Option { return func(o *operation) { o.DefaultStatus = status } }

// Also documents another status that the same body may come with.
func Also(status int, when string) Option {
	return func(o *operation) { o.also[strconv.Itoa(status)] = when }
}

// As gives an operation another policy than its method says.
func As(policy access.Policy) Option { return func(o *operation) { o.policy = policy } }

// MaxBody bounds the body of the request, in bytes.
func MaxBody(bytes int64) Option { return func(o *operation) { o.MaxBodyBytes = bytes } }

// ReadFor is how long the body of the request may take to come.
func ReadFor(limit time.Duration) Option { return func(o *operation) { o.BodyReadTimeout = limit } }

// LeftOut documents the meaning of a missing body.
func LeftOut(meaning string) Option { return func(o *operation) { o.body = meaning } }

// Payload makes room for a task's payload or result in the body of the request.
func Payload(o *operation) { o.MaxBodyBytes = httpapi.PayloadMaxBody }

// Wide has an operation count as several requests; see httpapi.Wide.
func Wide(o *operation) { o.Operation = httpapi.Wide(o.Operation) }

// Held lets an operation take longer than CallTimeout: it bounds its calls by itself.
func Held(o *operation) { o.held = true }

// Stream documents an answer that is no JSON.
func Stream(mediaType, description, body string) Option {
	return func(o *operation) {
		o.Responses = map[string]*huma.Response{"200": {Description: description, Content: map[string]*huma.MediaType{
			mediaType: {Schema: &huma.Schema{Type: huma.TypeString, Description: body}}}}}
	}
}

// Answering documents an answer of several shapes.
func Answering(schema *huma.Schema, description string) Option {
	return func(o *operation) {
		o.Responses = map[string]*huma.Response{strconv.Itoa(o.DefaultStatus): {Description: description,
			Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}}
	}
}

// operation describes an operation. at is its method and its path below the root, as in "GET /drains/{id}".
func (r *Routes) operation(id, at, summary, description string, options []Option) *operation {
	method, path, _ := strings.Cut(at, " ")
	o := &operation{policy: access.Operate, also: map[string]string{}, body: "May be left out."}
	o.Operation = huma.Operation{OperationID: id, Method: method, Path: r.root + path, Tags: []string{r.tag},
		Summary: summary, Description: description}
	if method == http.MethodGet {
		o.policy = access.View
	}
	for _, option := range options {
		option(o)
	}
	if r.scoped {
		o.policy = o.policy.Scoped()
	}
	return o
}

// None is the answer of an operation that answers with 204 and no body.
type None struct{}

// Serve adds an operation that answers with what do returns.
func Serve[In, Out any](
	r *Routes, id, at, summary, description string, do func(context.Context, *In) (Out, error), options ...Option,
) {
	o := r.operation(id, at, summary, description, options)
	if reflect.TypeFor[Out]() == reflect.TypeFor[None]() {
		add(r.api, o, func(ctx context.Context, in *In) (*struct{}, error) {
			_, err := do(ctx, in)
			return nil, err
		})
		return
	}
	add(r.api, o, func(ctx context.Context, in *In) (*Output[Out], error) { return Reply(do(ctx, in)) })
}

// Respond adds an operation that answers with a whole response, in the form that huma reads.
func Respond[In, Out any](
	r *Routes, id, at, summary, description string, do func(context.Context, *In) (*Out, error), options ...Option,
) {
	add(r.api, r.operation(id, at, summary, description, options), do)
}

// add registers an operation, and completes what the OpenAPI document says of it.
func add[In, Out any](api API, o *operation, do func(context.Context, *In) (*Out, error)) {
	httpapi.Register(api, o.policy, o.Operation, func(ctx context.Context, in *In) (*Out, error) {
		if o.held {
			return do(ctx, in)
		}
		ctx, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		return do(ctx, in)
	})
	item := api.OpenAPI().Paths[o.Path]
	documented := map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post,
		http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[o.Method]
	for _, p := range documented.Parameters {
		if p.In == "path" && p.Description == "" {
			before, _, _ := strings.Cut(o.Path, "/{"+p.Name+"}")
			p.Description = namedBy[before[strings.LastIndexByte(before, '/')+1:]]
			p.Schema.Description = p.Description
		}
	}
	if body := documented.RequestBody; body != nil && !body.Required && body.Content["application/json"] != nil {
		body.Content["application/json"].Schema.Description = o.body
	}
	for status, when := range o.also {
		content := maps.Clone(documented.Responses[strconv.Itoa(documented.DefaultStatus)].Content)
		documented.Responses[status] = &huma.Response{Description: when, Content: content}
	}
}

// namedBy says what a parameter in a path names, by the part of the path before it.
var namedBy = map[string]string{
	"agents":     "The agent's id.",
	"arrays":     "The array's id.",
	"bulk":       "The operation's id.",
	"clusters":   "The cluster's name.",
	"drains":     "The drain's id: <cluster>:<name>.",
	"failovers":  "The failover's id: <cluster>:<agent>:<epoch>.",
	"inbound":    "The id that the event was given when it was received.",
	"instances":  "The instance's number, or its agent.",
	"jobs":       "The job's name.",
	"quarantine": "The id that the event was given when it was received.",
	"runs":       "The run's id.",
	"scalings":   "The action's id: <cluster>:<number>.",
	"schedules":  "The schedule's name.",
	"schemas":    "Its name; with .json behind it or without.",
	"services":   "The service's name.",
	"steps":      "The step's id.",
	"tasks":      "The task's id.",
	"tokens":     "The token's id, which is also its second part.",
}

// ByID names a thing in the path. Types that requests embed are exported, because huma reads no others.
type ByID struct {
	ID string `path:"id"`
}

// ByName is ByID where the path calls the id a name.
type ByName struct {
	Name string `path:"name"`
}

// RecordID is the id of a record of what a cluster did.
type RecordID struct {
	ID string `path:"id" maxLength:"256"`
}

// To is a request to do something to a thing. Its body may be left out if B is a pointer.
type To[B any] struct {
	ByID
	Body B
}

// ToNamed is To where the path calls the thing's id a name.
type ToNamed[B any] struct {
	ByName
	Body B
}

// Body is a request that names nothing in its path.
type Body[B any] struct{ Body B }

// Slug is a parameter that is a name or an id.
type Slug string

// Schema implements huma.SchemaProvider.
func (Slug) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: new(63), Pattern: "^[a-z0-9][a-z0-9._-]*$"}
}

// Given is a body, or the zero value if it was left out.
func Given[B any](body *B) (given B) {
	if body != nil {
		given = *body
	}
	return given
}

// Output is an answer with a body.
type Output[T any] struct{ Body T }

// Reply answers what was read or done, or the error that it met.
func Reply[T any](body T, err error) (*Output[T], error) {
	if err != nil {
		return nil, err
	}
	return &Output[T]{body}, nil
}

// StatusOutput is an answer with a body and a status of its own.
type StatusOutput[T any] struct {
	Status int
	Body   T
}

// Begun answers 202 for what has begun, and 200 for what is there already or has ended.
func Begun[T any](body T, there bool, err error) (*StatusOutput[T], error) {
	if err != nil {
		return nil, err
	}
	if there {
		return &StatusOutput[T]{http.StatusOK, body}, nil
	}
	return &StatusOutput[T]{http.StatusAccepted, body}, nil
}

// Page is a part of a list, and the token of the next part.
type Page[T any] struct {
	Items []T
	Next  string
	// Missing are the clusters that did not answer; see WithMissing.
	Missing []string
}

// WithMissing adds to a list over all clusters the names of those that did not answer.
func WithMissing(o *operation) { o.missing = true }

// WithNext gives a list a next_page_token though the request takes no page_token.
func WithNext(o *operation) { o.next = true }

// List adds an operation that answers with a page of a list. The answer has the things under key. It has a
// next_page_token if the request takes a page_token. Pages are read when it is the client's turn, so Held is implied.
func List[In, T any](
	r *Routes, key, id, at, summary, description string, list func(context.Context, *In) (Page[T], error),
	options ...Option,
) {
	o := r.operation(id, at, summary, description, append(options, Held))
	_, paged := reflect.TypeFor[In]().FieldByName("PageToken")
	fields := []reflect.StructField{{Name: "Items", Type: reflect.TypeFor[[]T](),
		Tag: reflect.StructTag(`json:"` + key + `"`)}}
	if paged || o.next {
		fields = append(fields, reflect.StructField{Name: "Next", Type: reflect.TypeFor[string](),
			Tag: `json:"next_page_token,omitempty"`})
	}
	if o.missing {
		fields = append(fields, reflect.StructField{Name: "Missing", Type: reflect.TypeFor[[]string](),
			Tag: `json:"missing_clusters,omitempty" doc:"Clusters that did not answer: the list lacks what is theirs."`})
	}
	page := reflect.StructOf(fields)
	schemas := r.api.OpenAPI().Components.Schemas
	name := huma.DefaultSchemaNamer(reflect.TypeFor[T](), "") + "Page"
	if other := schemas.Map()[name]; other != nil && other.Properties[key] == nil { // a list of the same things
		name = strings.ToUpper(key[:1]) + key[1:] + "Page"
	}
	schema := schemas.Schema(page, true, name)
	o.Responses = map[string]*huma.Response{"200": {
		Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}}
	add(r.api, o, func(ctx context.Context, in *In) (*Output[any], error) {
		found, err := list(ctx, in)
		if err != nil {
			return nil, err
		}
		found.Items = append([]T{}, found.Items...) // never null
		answer := reflect.New(page).Elem()
		for i := range fields {
			answer.Field(i).Set(reflect.ValueOf(found).FieldByName(fields[i].Name))
		}
		return &Output[any]{answer.Interface()}, nil
	})
}
