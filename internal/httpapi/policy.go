package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/protocol"
)

// Gate decides about every request before its handler, its validation and its body.
type Gate interface {
	// Admit returns the context that the handler gets, with the caller's identity, or the problem to answer with. done,
	// unless nil, is called with the status once the request has been answered.
	Admit(r *http.Request, route Route, params map[string]string) (ctx context.Context, done func(status int),
		err error)
}

// Route is one method of one path, and who may use it.
type Route struct {
	Method string
	Path   string // with OpenAPI's braces
	Policy access.Policy
	// Operation is its id in the OpenAPI document; empty for routes that are not in it.
	Operation string
	// MaxBody bounds the body that is read, in bytes; 0: the operation takes none.
	MaxBody int64
	// Held says that its answers have no end.
	Held bool
	// Wide says that its answer costs as much as several others; see Wide.
	Wide bool
}

const policyKey, wideKey = "mainstay.policy", "mainstay.wide"

// Wide marks an operation that counts as several requests: it asks many clusters, hubs or queues for one answer, or a
// workflow of Temporal's own and then all that it has started.
func Wide(op huma.Operation) huma.Operation {
	op.Metadata = map[string]any{wideKey: true}
	return op
}

// Register adds an operation that policy guards. Use it, not huma.Register: an operation without a policy lets nobody
// in while security is on, and fails the tests.
func Register[I, O any](
	api huma.API, policy access.Policy, op huma.Operation, handler func(context.Context, *I) (*O, error),
) {
	if r, ours := api.(*registrar); ours {
		api = &registrar{API: r.API, server: r.server, config: r.config, single: true}
	}
	huma.Register(api, Guarded(policy, op), func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
		if _, told := Code(err); late && !told {
			err = Problem(protocol.CodeUnavailable,
				"the control plane is busy, and did not get to the request in time; try again")
		}
		return out, err
	})
}

// Guarded gives a policy to an operation that is not registered with Register, such as a stream.
func Guarded(policy access.Policy, op huma.Operation) huma.Operation {
	metadata := map[string]any{policyKey: policy}
	for key, value := range op.Metadata {
		metadata[key] = value
	}
	metadata[policyKey] = policy
	op.Metadata = metadata
	op.Security = securityOf(policy)
	if op.Extensions == nil {
		op.Extensions = map[string]any{}
	}
	if role := policy.Role(); role != "" {
		op.Extensions["x-mainstay-role"] = string(role)
		op.Extensions["x-mainstay-one-tenant"] = policy.IsScoped()
	}
	return op
}

// Handle adds a route that is not in the OpenAPI document, as of a page. path is with OpenAPI's braces; one that ends
// in "/*name" takes all below it.
func (s *Server) Handle(policy access.Policy, method, path string, handler http.Handler) {
	s.addRoute(Route{Method: method, Path: path, Policy: policy})
	s.engine.Handle(method, ginPath(path), gin.WrapH(handler))
}

// Guarding makes a server of one handler, with a policy for all its paths and methods, and nothing beside it. Of the
// options it takes Logger, which must not be nil, Gate and Proxies.
func Guarding(o Options, policy access.Policy, handler http.Handler) *Server {
	releaseMode()
	engine := gin.New()
	s := &Server{logger: o.Logger, engine: engine, compressed: engine, gate: o.Gate, routes: map[string]Route{}}
	engine.Use(identify, locate(o.Proxies), limitUnreadBody, s.admit)
	for _, method := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	} {
		s.Handle(policy, method, "/*path", handler)
	}
	return s
}

// handleGin is Handle for the server's own pages.
func (s *Server) handleGin(policy access.Policy, path string, handler gin.HandlerFunc) {
	s.addRoute(Route{Method: http.MethodGet, Path: path, Policy: policy})
	s.engine.GET(path, handler)
}

// Routes lists the routes, sorted by path and method.
func (s *Server) Routes() []Route {
	routes := make([]Route, 0, len(s.routes))
	for _, r := range s.routes {
		routes = append(routes, r)
	}
	slices.SortFunc(routes, func(a, b Route) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Method, b.Method)
	})
	return routes
}

func (s *Server) addRoute(r Route) { s.routes[r.Method+" "+r.Path] = r }

// registrar is the API that parts register on: it notes every operation's route, also of those that are hidden from the
// document.
type registrar struct {
	huma.API
	server *Server
	config huma.Config
	// single says that this is the API of one operation, and body is the schema of its body; nil: it takes none.
	single bool
	body   *huma.Schema
}

// Config hands huma its settings: it asks the API for them in an interface of its own.
func (a *registrar) Config() huma.Config { return a.config }

// Adapter implements huma.API.
func (a *registrar) Adapter() huma.Adapter { return &notingAdapter{a.API.Adapter(), a} }

// Unmarshal implements huma.API. A value that is only validated is read only as far as that needs.
func (a *registrar) Unmarshal(contentType string, data []byte, into any) error {
	data, err := textfile.Clean(data)
	if err != nil {
		return err // encoding/json would silently replace bytes that are not UTF-8
	}
	tree, validates := into.(*any)
	if !validates || a.body == nil {
		return a.API.Unmarshal(contentType, data, into)
	}
	if err := a.API.Unmarshal(contentType, []byte("null"), &ignored{}); err != nil {
		return err // not a type that is read
	}
	read, err := skeleton(a.OpenAPI().Components.Schemas, a.body, data)
	*tree = read
	return err
}

type notingAdapter struct {
	huma.Adapter
	api *registrar
}

// Handle implements huma.Adapter.
func (a *notingAdapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	policy, _ := op.Metadata[policyKey].(access.Policy)
	registry, body := a.api.OpenAPI().Components.Schemas, bodySchema(op)
	a.api.server.describeDurations(registry)
	wide, _ := op.Metadata[wideKey].(bool)
	taken := Route{Method: op.Method, Path: op.Path, Policy: policy, Operation: op.OperationID, Held: streaming(op),
		Wide: wide}
	if op.RequestBody != nil {
		taken.MaxBody = bodyLimit(op)
	}
	a.api.server.addRoute(taken)
	if taken.Held {
		a.api.server.streams[op.Path] = true
	}
	if a.api.single {
		a.api.body = body
	}
	single := singleParameters(op)
	a.Adapter.Handle(op, func(ctx huma.Context) {
		if name := givenTwice(ctx, single); name != "" {
			_ = huma.WriteErr(a.api, ctx, http.StatusUnprocessableEntity, invalidDetail, &huma.ErrorDetail{
				Location: "query." + name, Message: "is given more than once: give it once"}) // the client may be gone
			return
		}
		if body != nil {
			bounds := &bounds{registry: registry, root: body, name: "body"}
			bounds.outline.KeepKeys = !policy.IsSession() // agents pass on what their handlers made
			ctx = &boundedBody{humaContext: ctx, bounds: bounds}
		}
		handler(ctx)
	})
}

// singleParameters are the query parameters that take one value.
func singleParameters(op *huma.Operation) map[string]bool {
	single := map[string]bool{}
	for _, p := range op.Parameters {
		single[p.Name] = p.In == "query" && p.Schema != nil && p.Schema.Type != huma.TypeArray
	}
	return single
}

// givenTwice is a repeated query parameter of which only one value would count; empty: there is none.
func givenTwice(ctx huma.Context, single map[string]bool) string {
	address := ctx.URL()
	if !strings.Contains(address.RawQuery, "&") {
		return ""
	}
	for name, values := range address.Query() {
		if len(values) > 1 && single[name] {
			return name
		}
	}
	return ""
}

// bodySchema is the schema of an operation's body; nil: it takes none.
func bodySchema(op *huma.Operation) *huma.Schema {
	if op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
		return nil
	}
	return op.RequestBody.Content["application/json"].Schema
}

// admit asks the gate. Without one, security is off and everybody may do everything. A request that matches no route
// goes on to its 404 or 405.
func (s *Server) admit(c *gin.Context) {
	path := route(c)
	matched, known := s.routes[c.Request.Method+" "+path]
	if !known && c.FullPath() == "" {
		c.Next()
		return
	}
	if s.gate == nil {
		c.Request = c.Request.WithContext(access.With(c.Request.Context(), access.Local))
		c.Next()
		return
	}
	if !known {
		matched = Route{Method: c.Request.Method, Path: path} // without a policy: refused
	}
	params := make(map[string]string, len(c.Params))
	for _, p := range c.Params {
		params[p.Key] = p.Value
	}
	ctx, done, err := s.gate.Admit(c.Request, matched, params)
	if done != nil {
		status := http.StatusInternalServerError // of a panic
		defer func() { done(status) }()
		defer func() {
			if c.Writer.Written() {
				status = c.Writer.Status()
			}
		}()
	}
	if err != nil {
		closeUnread(c)
		if code, _ := Code(err); code == protocol.CodeUnauthorized && c.Request.TLS != nil &&
			len(c.Request.TLS.PeerCertificates) > 0 {
			c.Header("Connection", "close") // a client can show another certificate only when it connects
		}
		writeProblem(c, err)
		return
	}
	c.Request = c.Request.WithContext(ctx)
	countAnswer(c)
	c.Next()
	c.Writer.WriteHeaderNow()
}

// ginPath writes {name} as :name.
func ginPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			parts[i] = ":" + strings.TrimSuffix(name, "}")
		}
	}
	return strings.Join(parts, "/")
}

// Names of the security schemes in the OpenAPI document.
const (
	schemeToken   = "api_token"
	schemeCookie  = "browser_session"
	schemeKey     = "browser_session_key"
	schemeJoin    = "join_token"
	schemeSession = "agent_session"
)

func securitySchemes() map[string]*huma.SecurityScheme {
	return map[string]*huma.SecurityScheme{
		schemeToken: {Type: "http", Scheme: "bearer",
			Description: "An API token (mainstay token create). Not asked for while security is off, as in `mainstay dev` on this machine only."},
		schemeCookie: {Type: "apiKey", In: "cookie", Name: SessionCookie,
			Description: "A browser's session, opened with POST /api/v1/session."},
		schemeKey: {Type: "apiKey", In: "header", Name: SessionKeyHeader,
			Description: "The session_key that signing in has answered: the cookie counts only with it."},
		schemeJoin: {Type: "http", Scheme: "bearer",
			Description: "A join token, with which agents register. Not asked for while security is off."},
		schemeSession: {Type: "http", Scheme: "bearer",
			Description: "The session_token that registering has answered."},
	}
}

// A browser's session needs both its cookie and its key, in this header. Browsers send cookies to all ports of a host
// name; a page of another port cannot read the key.
const (
	SessionCookie    = "mainstay_session"
	SessionKeyHeader = "X-Mainstay-Session-Key"
)

// securityOf describes a policy in the OpenAPI document.
func securityOf(p access.Policy) []map[string][]string {
	switch {
	case p.IsJoin():
		return []map[string][]string{{schemeJoin: {}}}
	case p.IsSession():
		return []map[string][]string{{schemeSession: {}}}
	case p.Role() != "":
		return []map[string][]string{{schemeToken: {}}, {schemeCookie: {}, schemeKey: {}}}
	}
	return []map[string][]string{}
}
