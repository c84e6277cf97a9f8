package contract

import (
	"time"

	"mainstay.dev/mainstay/access"
)

// AccessWorkflowID is the id of the one workflow that keeps the API's tokens.
const AccessWorkflowID = "access"

// AccessWorkflow is its type.
const AccessWorkflow = "Access"

// MemoTokens is the list of access.Record in the Access workflow's memo. Gateways and hubs read it there: that needs no
// worker.
const MemoTokens = "tokens"

// Updates of the Access workflow.
var (
	// CreateTokenUpdate keeps a token. The secret never leaves the gateway.
	CreateTokenUpdate = Update[access.Record, access.Record]{"create-token"}
	// RevokeTokenUpdate forgets one.
	RevokeTokenUpdate = Update[RevokeTokenRequest, access.Record]{"revoke-token"}
)

// RevokeTokenRequest names a token.
type RevokeTokenRequest struct {
	ID string `json:"id"`
}

// UnknownToken is the type of the error when there is no such token.
const UnknownToken = "UnknownToken"

// AccessInput starts an Access workflow, and carries its state over continue-as-new.
type AccessInput struct {
	Tokens []access.Record `json:"tokens,omitempty"`
}

// ExpiredTokenKept is for how long a token is still listed after its time is over.
const ExpiredTokenKept = 30 * 24 * time.Hour
