package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Overview is the whole fleet at a glance.
func (c *Client) Overview(ctx context.Context) (*api.Overview, error) {
	return get[api.Overview](ctx, c, path("overview"), nil)
}

// Search finds things of all kinds by a part of their name, or by the beginning of their id.
func (c *Client) Search(ctx context.Context, text string) (*api.SearchResult, error) {
	return get[api.SearchResult](ctx, c, path("search"), values("text", text))
}

// Session says who the token's owner is, and what it may do.
func (c *Client) Session(ctx context.Context) (*api.Session, error) {
	return get[api.Session](ctx, c, "/api/v1/session", nil)
}

// Health says how the process behind the address stands. An unhealthy one is no error.
func (c *Client) Health(ctx context.Context) (*api.Health, error) {
	data, err := c.Once().send(ctx, &request{method: http.MethodGet, path: "/health"})
	refused := &Error{base: c.base, Problem: protocol.Problem{Status: http.StatusOK}}
	if errors.As(err, &refused) { // unhealthy is 503 with the same body
		data = refused.body
	} else if err != nil {
		return nil, err
	}
	health := &api.Health{}
	if json.Unmarshal(data, health) != nil || health.Status != "healthy" && health.Status != "unhealthy" {
		return nil, refused
	}
	if c.raw != nil {
		*c.raw = data
	}
	return health, nil
}

// List lists tokens, without their secrets.
func (t Tokens) List() *List[api.Token] {
	return list[api.Token](t.c, path("tokens"), "tokens", values())
}

// Create makes a token.
func (t Tokens) Create(ctx context.Context, r api.TokenRequest) (*api.NewToken, error) {
	return post[api.NewToken](ctx, t.c, path("tokens"), r)
}

// Revoke revokes a token. endSessions: those of the agents that registered with a join token end too. withChildren: the
// tokens that it has made are revoked too, and those that these have made.
func (t Tokens) Revoke(ctx context.Context, id string, endSessions, withChildren bool) (*api.RevokedToken, error) {
	return do[api.RevokedToken](ctx, t.c, request{method: http.MethodDelete, path: path("tokens", id),
		query: values("end_sessions", endSessions, "with_children", withChildren)})
}

// Status says how healing stands.
func (h Healing) Status(ctx context.Context) (*api.HealingStatus, error) {
	return get[api.HealingStatus](ctx, h.c, path("healing", "status"), nil)
}

// Trigger runs a healing cycle now.
func (h Healing) Trigger(ctx context.Context, r api.HealingTrigger) (*api.HealingCycleRecord, error) {
	return post[api.HealingCycleRecord](ctx, h.c, path("healing", "trigger"), r)
}

// Pause stops the healing cycle from running by itself.
func (h Healing) Pause(ctx context.Context, reason string) (*api.HealingStatus, error) {
	return post[api.HealingStatus](ctx, h.c, path("healing", "pause"), api.ReasonRequest{Reason: reason})
}

// Resume takes a pause of healing back.
func (h Healing) Resume(ctx context.Context, reason string) (*api.HealingStatus, error) {
	return post[api.HealingStatus](ctx, h.c, path("healing", "resume"), api.ReasonRequest{Reason: reason})
}

// HealingQuery selects actions of healing; all that is set must hold.
type HealingQuery struct {
	Cluster, Agent string
	Type           api.HealingType
	Status         api.HealingOutcome
}

// Actions lists what healing did, newest first.
func (h Healing) Actions(q HealingQuery) *List[api.HealingRecord] {
	return list[api.HealingRecord](h.c, path("healing", "actions"), "actions",
		values("cluster", q.Cluster, "agent", q.Agent, "type", q.Type, "status", q.Status))
}
