package client

import (
	"bytes"
	"context"
	"net/http"

	"mainstay.dev/sdk/api"
)

// InboundQuery selects events from outside; all that is set must hold.
type InboundQuery struct {
	Type, Tenant string
	Status       api.InboundStatus
}

// SentEvents answers what was sent: an event, or a batch of them.
type SentEvents struct {
	api.Inbound
	Events []api.InboundItem `json:"events"`
}

// Send sends a CloudEvent in structured mode, or a batch of them: JSON, an object or a list. It may be repeated, since
// an event's source and id name it.
func (e Inbound) Send(ctx context.Context, events []byte) (*SentEvents, error) {
	kind := "application/cloudevents+json"
	if bytes.HasPrefix(bytes.TrimSpace(events), []byte("[")) {
		kind = "application/cloudevents-batch+json"
	}
	return do[SentEvents](ctx, e.c, request{method: http.MethodPost, path: path("events"), text: events, keyed: true,
		header: http.Header{"Content-Type": {kind}}})
}

// List lists events from outside, newest first.
func (e Inbound) List(q InboundQuery) *List[api.InboundEvent] {
	return list[api.InboundEvent](e.c, path("inbound"), "events",
		values("type", q.Type, "tenant", q.Tenant, "status", q.Status))
}

// Get returns an event with what became of it.
func (e Inbound) Get(ctx context.Context, id string) (*api.Inbound, error) {
	return get[api.Inbound](ctx, e.c, path("inbound", id), nil)
}

// Quarantine lists the events that could not be dispatched, newest first.
func (e Inbound) Quarantine(q InboundQuery) *List[api.InboundEvent] {
	return list[api.InboundEvent](e.c, path("quarantine"), "events", values("type", q.Type, "tenant", q.Tenant))
}

// Quarantined returns an event that is or was in quarantine.
func (e Inbound) Quarantined(ctx context.Context, id string) (*api.Inbound, error) {
	return get[api.Inbound](ctx, e.c, path("quarantine", id), nil)
}

// Replay has an event dispatched again, and returns it after the first try.
func (e Inbound) Replay(ctx context.Context, id string, in api.ReplayRequest) (*api.Inbound, error) {
	return post[api.Inbound](ctx, e.c, path("quarantine", id, "replay"), in)
}

// Discard gives an event up.
func (e Inbound) Discard(ctx context.Context, id, reason string) (*api.Inbound, error) {
	return post[api.Inbound](ctx, e.c, path("quarantine", id, "discard"), api.DiscardEventRequest{Reason: reason})
}
