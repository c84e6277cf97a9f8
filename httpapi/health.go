package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/access"
)

// Health is how a process stands.
type Health struct {
	Status        string   `json:"status" enum:"healthy,unhealthy"`
	Roles         []string `json:"roles,omitempty" doc:"What the process does."`
	Version       string   `json:"version,omitempty"`
	UptimeSeconds int64    `json:"uptime_seconds"`
	// MetadataStoreConnected is found by asking Temporal.
	MetadataStoreConnected bool `json:"metadata_store_connected" doc:"Temporal, where all state is kept, answers."`

	HubID                string     `json:"hub_id,omitempty" doc:"This and what follows only of a hub."`
	Agents               *int       `json:"agents,omitempty" doc:"Agents that have a session here."`
	ActiveLeases         *int       `json:"active_leases,omitempty" doc:"Leaderships and shards that its agents hold."`
	LastHeartbeatSuccess *bool      `json:"last_heartbeat_success,omitempty" doc:"Temporal took a heartbeat of the hub's own lease within the last 5 s. Without, it renews no agent's lease."`
	LastHeartbeat        *time.Time `json:"last_heartbeat,omitempty" doc:"When Temporal last took one."`
}

type healthOutput struct {
	Status int
	Body   Health
}

// registerHealth adds /health: the same as /readyz, with facts.
func (s *Server) registerHealth(o Options) {
	started := time.Now()
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Health](), true, "Health")
	Register(s.api, access.Open, huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/health", Tags: []string{"System"},
		Summary: "How the process stands", Description: "Answers 200 when it is healthy: Temporal answers, and a hub's own lease is fresh. Else 503, with the same body. " +
			"Who does not say who it is hears only status, uptime_seconds and metadata_store_connected while security is on.",
		Responses: map[string]*huma.Response{"503": {Description: "It is unhealthy", Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}},
	}, func(ctx context.Context, _ *struct{}) (*healthOutput, error) {
		who := access.From(ctx)
		h := Health{Status: "healthy", Version: o.Version, UptimeSeconds: int64(time.Since(started).Seconds()), MetadataStoreConnected: true}
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
			h = Health{Status: h.Status, UptimeSeconds: h.UptimeSeconds, MetadataStoreConnected: h.MetadataStoreConnected}
		}
		if healthy {
			return &healthOutput{Status: http.StatusOK, Body: h}, nil
		}
		return &healthOutput{Status: http.StatusServiceUnavailable, Body: h}, nil
	})
}
