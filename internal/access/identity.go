// Package access says who may do what: identities and their roles, what a route needs, the rule about tenants, and the
// form of tokens. It is pure: it reads no clock, no file and no network.
package access

import (
	"context"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// Identity is who asks.
type Identity struct {
	Kind api.IdentityKind
	// ID is the token's id, or the name in the certificate. It is no secret.
	ID, Name string
	// Role is empty for nobody and for those who may only register agents.
	Role api.AccessRole
	// Tenant limits the identity to what belongs to this tenant. Empty: no limit.
	Tenant string
	// Cluster and AgentID limit who may register agents to one cluster, and to one agent or, where AgentID ends
	// with *, to those whose id begins so. Empty: no limit.
	Cluster, AgentID string
	// Joins says that it may register agents.
	Joins bool
	// MaxUses is how many agents may register with a join token, 0: any number; ExpiresAt is when it ends, zero: not by
	// itself.
	MaxUses   int
	ExpiresAt time.Time
	// Cookie says that a browser sent it along by itself.
	Cookie bool
}

// Local is everybody while security is off.
var Local = Identity{Kind: api.IdentityLocal, ID: "local", Role: api.RoleAdmin, Joins: true}

// Known reports whether it is somebody.
func (id *Identity) Known() bool { return id.Kind != "" }

// Sharer names the group that shares bounds with an identity: its tenant, or the token itself.
func (id *Identity) Sharer() string {
	if id.Tenant != "" {
		return "tenant " + id.Tenant
	}
	return string(id.Kind) + " " + id.ID
}

// MayJoin reports whether it may register an agent in a cluster.
func (id *Identity) MayJoin(cluster, agent string) bool {
	if !id.Joins || id.Cluster != "" && id.Cluster != cluster {
		return false
	}
	if prefix, several := strings.CutSuffix(id.AgentID, "*"); several {
		return strings.HasPrefix(agent, prefix)
	}
	return id.AgentID == "" || id.AgentID == agent
}

// Sees reports whether it may see and change what belongs to a tenant ("": to none).
func (id *Identity) Sees(tenant string) bool {
	return id.Known() && (id.Tenant == "" || id.Tenant == tenant)
}

type identityKey struct{}

// With carries the identity of a request.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// From is the identity of a request; nobody, who may do nothing, if none was put in.
func From(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
