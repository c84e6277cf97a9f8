package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
)

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
			"Who does not say who it is hears only status, uptime_seconds and metadata_store_connected while security is on.",
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
		if !who.Known() { // a stranger hears no more than a probe needs
			h = api.Health{Status: h.Status, UptimeSeconds: h.UptimeSeconds,
				MetadataStoreConnected: h.MetadataStoreConnected}
		}
		if healthy {
			return &healthOutput{Status: http.StatusOK, Body: h}, nil
		}
		return &healthOutput{Status: http.StatusServiceUnavailable, Body: h}, nil
	})
}
