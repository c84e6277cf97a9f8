package contract

import (
	"time"

	"mainstay.dev/mainstay/internal/access"
)

// AccessWorkflowID is the id of the one workflow that keeps the API's tokens.
const AccessWorkflowID = "access"

// AccessWorkflow is its type.
const AccessWorkflow = "Access"

// MemoTokens is the list of access.Record in the Access workflow's memo. Gateways and hubs read it there: that needs no
// worker.
const MemoTokens = "tokens"

// MemoEnded is the list of access.EndedSession in the same memo, once there was one.
const MemoEnded = "ended_sessions"

// Updates of the Access workflow.
var (
	// CreateTokenUpdate keeps a token. The secret never leaves the gateway.
	CreateTokenUpdate = Update[access.Record, access.Record]{"create-token"}
	// RevokeTokenUpdate forgets one.
	RevokeTokenUpdate = Update[RevokeTokenRequest, RevokedToken]{"revoke-token"}
	// EndSessionUpdate ends a browser's session.
	EndSessionUpdate = Update[access.EndedSession, None]{"end-session"}
)

// RevokeTokenRequest names a token.
type RevokeTokenRequest struct {
	ID string `json:"id"`
	// WithChildren also revokes the tokens that it has made, and those that these have made; it may be gone itself.
	WithChildren bool `json:"with_children,omitempty"`
}

// RevokedToken is a token that was revoked, with its children where that was asked for. For one that was gone already
// it has only the id.
type RevokedToken struct {
	access.Record
	Children []access.Record `json:"children,omitempty"`
}

// UnknownToken is the type of the error when there is no such token.
const UnknownToken = "UnknownToken"

// AccessInput starts an Access workflow, and carries its state over continue-as-new.
type AccessInput struct {
	Tokens []access.Record       `json:"tokens,omitempty"`
	Ended  []access.EndedSession `json:"ended_sessions,omitempty"`
}

// ExpiredTokenKept is for how long a token is still listed after its time is over.
const ExpiredTokenKept = 30 * 24 * time.Hour
