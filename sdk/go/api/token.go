package api

import (
	"time"
)

// TokenRequest asks for a token.
type TokenRequest struct {
	Name      string     `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"For people: who or what uses it. The audit log has it. No two tokens have the same."`
	Kind      TokenKind  `json:"kind,omitempty" enum:"api,join" default:"api" doc:"api: a client of the API. join: agents that register."`
	Role      AccessRole `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Of an api token: what it may do."`
	Tenant    string     `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Of an api token: the only tenant whose tasks it sees and touches. Absent: all."`
	Cluster   string     `json:"cluster,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Of a join token: the cluster that its agents may join. Required there."`
	AgentID   string     `json:"agent_id,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*[*]?$" doc:"Of a join token: the only agent that may use it, or web-* for those whose id begins with web-. Absent: any."`
	MaxUses   int        `json:"max_uses,omitempty" minimum:"1" maximum:"1000" doc:"Of a join token: how many agents may register with it. One that registers again, also as a new process, counts once. Left out: no limit."`
	ExpiresIn Duration   `json:"expires_in,omitempty" least:"1m" most:"87600h" doc:"How long it lives, from a minute to ten years. Absent: until it is revoked."`
}

// Token is a token as it is kept.
type Token struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Kind        TokenKind  `json:"kind" enum:"api,join"`
	Role        AccessRole `json:"role,omitempty" enum:"viewer,operator,admin"`
	Tenant      string     `json:"tenant,omitempty"`
	Cluster     string     `json:"cluster,omitempty"`
	AgentID     string     `json:"agent_id,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	CreatedBy   string     `json:"created_by,omitempty" doc:"The name of the token, or the certificate, that made it."`
	CreatedByID string     `json:"created_by_id,omitempty" doc:"Its id; of a certificate, its subject. Names can be given anew once their token is gone."`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Expired     bool       `json:"expired,omitempty"`
	MaxUses     int        `json:"max_uses,omitempty" doc:"Of a join token: how many agents may register with it. Absent: any number."`
	Uses        *int       `json:"uses,omitempty" doc:"How many have. Only with max_uses, and while the cluster answers."`
}

// NewToken is a token with its secret.
type NewToken struct {
	Token
	Secret string `json:"token" doc:"The token itself. Only its hash is kept, so it is shown this once."`
}

// RevokedToken says what came of revoking a token.
type RevokedToken struct {
	ID            string   `json:"id"`
	EndedSessions []string `json:"ended_sessions,omitempty" doc:"The agents that were connected and whose sessions end, with end_sessions."`
	Children      []string `json:"children,omitempty" doc:"The ids of the other tokens that were revoked, with with_children."`
}
