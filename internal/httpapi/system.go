package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi/static"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// readyTimeout bounds one /readyz check.
const readyTimeout = 3 * time.Second

// StatusOutput is the body of /healthz and /readyz.
type StatusOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok,ready"`
	}
}

// registerSystem adds the endpoints that every process has.
func (s *Server) registerSystem(o Options) {
	Register(s.api, access.Open, huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Tags: []string{"System"},
		Summary: "Liveness", Description: "Answers 200 as long as the process serves requests.",
	}, func(context.Context, *struct{}) (*StatusOutput, error) {
		out := &StatusOutput{}
		out.Body.Status = "ok"
		return out, nil
	})
	Register(s.api, access.Open, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: protocol.ReadyPath, Tags: []string{"System"},
		Summary: "Readiness", Description: "Answers 200 when the process can do its work, else 503 with the reason: a process that is cut off from Temporal takes no new work, " +
			"and a hub whose own lease was not renewed renews none of its agents' leases.",
	}, func(ctx context.Context, _ *struct{}) (*StatusOutput, error) {
		if why := s.unready(ctx, o); why != "" {
			return nil, Problem(protocol.CodeUnavailable, "not ready: "+why)
		}
		out := &StatusOutput{}
		out.Body.Status = "ready"
		return out, nil
	})
	s.registerHealth(o)
	s.Handle(o.Metrics, http.MethodGet, "/metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{
		ErrorLog:      zap.NewStdLog(s.logger.Named("metrics")),
		Registry:      o.Registry,
		ErrorHandling: promhttp.ContinueOnError,
	}))
	s.handleGin(access.Open, "/openapi.json", s.serveOpenAPI)
	s.registerDocs()
}

// unready says why the process cannot do its work now; empty when it can. It names nothing of the installation: probes
// do not say who they are.
func (s *Server) unready(ctx context.Context, o Options) string {
	var h api.Health
	if o.Health != nil {
		o.Health(&h)
	}
	if o.Ready != nil {
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		if err := o.Ready(ctx); err != nil {
			s.logger.Debug("not ready", zap.Error(err))
			what := "this process"
			if len(h.Roles) > 0 {
				what = strings.Join(h.Roles, ", ")
			}
			return what + " cannot reach Temporal: nothing new is begun, and what runs goes on"
		}
	}
	if h.LastHeartbeatSuccess != nil && !*h.LastHeartbeatSuccess {
		return "the hub's own lease is not renewed, so it renews none of its agents' leases: their roles end, and fenced work stops"
	}
	return ""
}

// serveOpenAPI answers with the document as it stands at the first request; operations are registered before.
func (s *Server) serveOpenAPI(c *gin.Context) {
	document, err := s.spec()
	if err != nil {
		s.logger.Error("OpenAPI document", zap.Error(err))
		writeProblem(c, Problem(protocol.CodeInternal, "the OpenAPI document cannot be written"))
		return
	}
	document.ServeHTTP(c.Writer, c.Request)
}

func (s *Server) makeSpec() (*static.Text, error) {
	document, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		return nil, err
	}
	return static.New("application/json", document)
}

type healthOutput struct {
	Status int
	Body   api.Health
}

// registerHealth adds /health: the same as /readyz, with facts.
func (s *Server) registerHealth(o Options) {
	started := time.Now()
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Health](), true, "Health")
	Register(s.api, access.Open, huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/health", Tags: []string{"System"},
		Summary: "How the process stands", Description: "Answers 200 when it is healthy: Temporal answers, and a hub's own lease is fresh. Else 503, with the same body. " +
			"Who does not say who it is, or whose token is of one tenant or only registers agents, hears only status, uptime_seconds and metadata_store_connected while security is on.",
		Responses: map[string]*huma.Response{"503": {Description: "It is unhealthy",
			Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}},
	}, func(ctx context.Context, _ *struct{}) (*healthOutput, error) {
		who := access.From(ctx)
		h := api.Health{Status: "healthy", Version: o.Version, UptimeSeconds: int64(time.Since(started).Seconds()),
			MetadataStoreConnected: true}
		if o.Health != nil {
			o.Health(&h)
		}
		if o.Ready != nil {
			ctx, cancel := context.WithTimeout(ctx, readyTimeout)
			defer cancel()
			if err := o.Ready(ctx); err != nil {
				s.logger.Debug("not healthy", zap.Error(err))
				h.MetadataStoreConnected = false
			}
		}
		healthy := h.MetadataStoreConnected && (h.LastHeartbeatSuccess == nil || *h.LastHeartbeatSuccess)
		if !healthy {
			h.Status = "unhealthy"
		}
		if who.Role == "" || who.Tenant != "" { // who may not see the fleet hears no more than a probe needs
			h = api.Health{Status: h.Status, UptimeSeconds: h.UptimeSeconds,
				MetadataStoreConnected: h.MetadataStoreConnected}
		}
		if healthy {
			return &healthOutput{Status: http.StatusOK, Body: h}, nil
		}
		return &healthOutput{Status: http.StatusServiceUnavailable, Body: h}, nil
	})
}
