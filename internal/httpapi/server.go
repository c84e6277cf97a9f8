// Package httpapi is the HTTP server that the gateway and the hub mount their operations on: one OpenAPI document, one
// error format, one set of limits, and the endpoints every process has (/health, /healthz, /readyz, /metrics,
// /openapi.json, /docs). It knows nothing of either part.
package httpapi

import (
	"bytes"
	"context"
	"log"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi/static"
	"mainstay.dev/sdk/api"
)

// DefaultMaxBody is how many bytes a request body may have unless its operation sets MaxBodyBytes.
const DefaultMaxBody = 256 << 10

// PayloadMaxBody is MaxBodyBytes of operations that take a task's payload or result.
const PayloadMaxBody = 2 << 20

// Limits of the connection. A poll or a wait is held for up to a minute, so the write timeout lies well above it.
const (
	readHeaderTimeout = 5 * time.Second
	bodyReadTimeout   = 30 * time.Second
	writeTimeout      = 3 * time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Options are what a server needs. All are optional.
type Options struct {
	// Logger gets panics and internal errors, and each request at debug level.
	Logger *zap.Logger
	// Registry is served at /metrics and takes the request metrics.
	Registry *prometheus.Registry
	// Ready answers /readyz; nil means always ready. It is given a few seconds.
	Ready func(ctx context.Context) error
	// Health adds the state of the parts to /health; nil: nothing.
	Health func(*api.Health)
	// Tracer makes a span of each request; nil: none.
	Tracer trace.Tracer
	// Version is shown in the OpenAPI document and at /health.
	Version string
	// Gate decides who may use which route; nil means that security is off.
	Gate Gate
	// Proxies are those whose word about a client's address counts; nil: nobody's.
	Proxies *Proxies
	// Metrics is the policy of /metrics. The zero value means access.View.
	Metrics access.Policy
}

// Server is the HTTP side of a process.
type Server struct {
	logger *zap.Logger
	engine *gin.Engine
	// compressed is the engine for answers that may be compressed.
	compressed http.Handler
	api        huma.API
	gate       Gate
	routes     map[string]Route // by method and path
	described  map[string]bool  // the schemas whose durations have their bounds
	// streams are the paths that answer without end.
	streams map[string]bool

	spec, docs func() (*static.Text, error) // made when they are first asked for
}

var releaseMode = sync.OnceFunc(func() { gin.SetMode(gin.ReleaseMode) })

// New makes a server with the endpoints that every process has. Register operations on API before serving.
func New(o Options) *Server {
	overrideHuma()
	releaseMode()
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if !o.Metrics.Declared() {
		o.Metrics = access.View
	}
	if o.Version == "" {
		o.Version = "dev"
	}

	engine := gin.New()
	s := &Server{logger: o.Logger, engine: engine, compressed: compressing(engine), gate: o.Gate,
		routes: map[string]Route{}, described: map[string]bool{}, streams: map[string]bool{}}
	s.spec, s.docs = sync.OnceValues(s.makeSpec), sync.OnceValues(s.makeDocs)
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.Use(identify, locate(o.Proxies), observe(newMetrics(o.Registry), o.Logger), recovery(), limitUnreadBody,
		closeChunked, plainBody, s.admit)
	if o.Tracer != nil {
		engine.Use(traced(o.Tracer))
	}
	engine.NoRoute(noRoute)
	engine.NoMethod(s.noMethod)

	config := humaConfig(o.Version)
	s.api = &registrar{API: humagin.New(engine, config), server: s, config: config}
	s.registerSystem(o)
	return s
}

func humaConfig(version string) huma.Config {
	c := huma.DefaultConfig("Mainstay", version)
	c.Info.Description = "Durable control plane for fleets of remote agents. Errors are application/problem+json with a " +
		"stable code: 400 for bodies that are not JSON, 422 for requests that do not fit the schema, both invalid_request."
	c.Components.SecuritySchemes = securitySchemes()
	c.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	describeTypes(c.Components.Schemas)
	c.CreateHooks = nil // no $schema fields in answers
	c.RejectUnknownQueryParameters = true
	c.OnAddOperation = append(c.OnAddOperation, func(spec *huma.OpenAPI, op *huma.Operation) {
		applyLimits(op)
		documentErrors(spec, op)
	})
	return c
}

// applyLimits replaces huma's own defaults. Huma refuses a body of exactly MaxBodyBytes, hence the extra byte.
func applyLimits(op *huma.Operation) {
	const humaMaxBody, humaReadTimeout = 1 << 20, 5 * time.Second
	if op.MaxBodyBytes == humaMaxBody {
		op.MaxBodyBytes = DefaultMaxBody
	}
	if op.MaxBodyBytes > 0 {
		op.MaxBodyBytes++
	}
	if op.BodyReadTimeout == humaReadTimeout {
		op.BodyReadTimeout = bodyReadTimeout
	}
}

// documentErrors says of every operation that anything else it answers is a problem.
func documentErrors(spec *huma.OpenAPI, op *huma.Operation) {
	if op.Responses["default"] != nil {
		return
	}
	schema := spec.Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem")
	op.Responses["default"] = &huma.Response{
		Description: "Error", Content: map[string]*huma.MediaType{problemType: {Schema: schema}},
	}
}

// bodyLimit is the limit as applyLimits was given it.
func bodyLimit(op *huma.Operation) int64 { return op.MaxBodyBytes - 1 }

// API is where parts register their operations.
func (s *Server) API() huma.API { return s.api }

// Handler serves everything registered.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// HTTPServer is an http.Server for Handler with timeouts against slow clients. Set its Addr or give it a listener.
//
// It speaks HTTP/1.1 only. Over HTTP/2 a connection carries many requests, and the server would keep all answers, with
// the requests' headers, for a client that reads none: the number of connections would bound no memory.
func (s *Server) HTTPServer() *http.Server {
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(newErrorLog(s.logger.Named("http")), "", 0),
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	return server
}

// errorsRate and errorsBurst bound the lines of an errorLog, a second and in a burst.
const (
	errorsRate  = 1
	errorsBurst = 100
)

// errorLog takes the log of net/http. Anybody can make it log much, as by failed handshakes: it replaces excess lines
// by their number, in the next line.
type errorLog struct {
	logger  *zap.Logger
	lines   *rate.Limiter
	leftOut atomic.Int64
}

func newErrorLog(logger *zap.Logger) *errorLog {
	return &errorLog{logger: logger, lines: rate.NewLimiter(errorsRate, errorsBurst)}
}

// Write implements io.Writer.
func (l *errorLog) Write(line []byte) (int, error) {
	if !l.lines.Allow() {
		l.leftOut.Add(1)
		return len(line), nil
	}
	l.logger.Info(string(bytes.TrimSpace(line)), zap.Int64("left_out", l.leftOut.Swap(0)))
	return len(line), nil
}
