package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// Overview is the whole fleet at a glance.
func (c *Client) Overview(ctx context.Context) (*api.Overview, error) {
	return get[api.Overview](ctx, c, path("overview"), nil)
}

// Session says who the token's owner is, and what it may do.
func (c *Client) Session(ctx context.Context) (*api.Session, error) {
	return get[api.Session](ctx, c, "/api/v1/session", nil)
}

// Health says how the process behind the address stands. An unhealthy one is no error.
func (c *Client) Health(ctx context.Context) (*api.Health, error) {
	once := *c
	once.retries = 0
	data, err := once.send(ctx, &request{method: http.MethodGet, path: "/health"})
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

// Tokens lists tokens, without their secrets.
func (c *Client) Tokens() *List[api.Token] {
	return list[api.Token](c, path("tokens"), "tokens", values())
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, r api.TokenRequest) (*api.NewToken, error) {
	return post[api.NewToken](ctx, c, path("tokens"), r)
}

// RevokeToken revokes a token. endSessions: those of the agents that registered with a join token end too.
func (c *Client) RevokeToken(ctx context.Context, id string, endSessions bool) (*api.RevokedToken, error) {
	return do[api.RevokedToken](ctx, c, request{method: http.MethodDelete, path: path("tokens", id),
		query: values("end_sessions", endSessions)})
}

// Healing says how healing stands.
func (c *Client) Healing(ctx context.Context) (*api.HealingStatus, error) {
	return get[api.HealingStatus](ctx, c, path("healing", "status"), nil)
}

// TriggerHealing runs a healing cycle now.
func (c *Client) TriggerHealing(ctx context.Context, r api.HealingTrigger) (*fleet.HealingCycleRecord, error) {
	return post[fleet.HealingCycleRecord](ctx, c, path("healing", "trigger"), r)
}

// PauseHealing stops the healing cycle from running by itself.
func (c *Client) PauseHealing(ctx context.Context, reason string) (*api.HealingStatus, error) {
	return post[api.HealingStatus](ctx, c, path("healing", "pause"), api.ReasonRequest{Reason: reason})
}

// ResumeHealing takes a pause of healing back.
func (c *Client) ResumeHealing(ctx context.Context, reason string) (*api.HealingStatus, error) {
	return post[api.HealingStatus](ctx, c, path("healing", "resume"), api.ReasonRequest{Reason: reason})
}

// HealingQuery selects actions of healing; all that is set must hold.
type HealingQuery struct {
	Cluster, Agent string
	Type           fleet.HealingType
	Status         fleet.HealingStatus
}

// HealingActions lists what healing did, newest first.
func (c *Client) HealingActions(q HealingQuery) *List[fleet.HealingRecord] {
	return list[fleet.HealingRecord](c, path("healing", "actions"), "actions",
		values("cluster", q.Cluster, "agent", q.Agent, "type", q.Type, "status", q.Status))
}
