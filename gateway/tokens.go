package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// maxTokenLife bounds how long a token may live that does not live for ever.
const maxTokenLife = 10 * 365 * 24 * time.Hour

// TokenRequest asks for a token.
type TokenRequest struct {
	Name      string           `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"For people: who or what uses it. The audit log has it."`
	Kind      access.TokenKind `json:"kind,omitempty" enum:"api,join" default:"api" doc:"api: a client of the API. join: agents that register."`
	Role      access.Role      `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Of an api token: what it may do."`
	Tenant    string           `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Of an api token: the only tenant whose tasks it sees and touches. Absent: all."`
	Cluster   string           `json:"cluster,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Of a join token: the cluster that its agents may join. Required there."`
	AgentID   string           `json:"agent_id,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Of a join token: the only agent that may use it. Absent: any."`
	MaxUses   int              `json:"max_uses,omitempty" minimum:"0" maximum:"1000" doc:"Of a join token: how many agents may register with it. One that registers again, also as a new process, counts once. 0: no limit."`
	ExpiresIn fleet.Duration   `json:"expires_in,omitempty" doc:"How long it lives, from a minute to ten years. Absent: until it is revoked."`
}

// Token is a token as it is kept.
type Token struct {
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	Kind      access.TokenKind `json:"kind" enum:"api,join"`
	Role      access.Role      `json:"role,omitempty" enum:"viewer,operator,admin"`
	Tenant    string           `json:"tenant,omitempty"`
	Cluster   string           `json:"cluster,omitempty"`
	AgentID   string           `json:"agent_id,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	CreatedBy string           `json:"created_by,omitempty" doc:"The name of the token, or the certificate, that made it."`
	ExpiresAt *time.Time       `json:"expires_at,omitempty"`
	Expired   bool             `json:"expired,omitempty"`
	MaxUses   int              `json:"max_uses,omitempty" doc:"Of a join token: how many agents may register with it. Absent: any number."`
	Uses      *int             `json:"uses,omitempty" doc:"How many have. Only with max_uses, and while the cluster answers."`
}

// NewToken is a token with its secret.
type NewToken struct {
	Token
	Secret string `json:"token" doc:"The token itself. Only its hash is kept, so it is shown this once."`
}

func tokenOf(r *access.Record, now time.Time) Token {
	return Token{
		ID: r.ID, Name: r.Name, Kind: r.Kind, Role: r.Role, Tenant: r.Tenant, Cluster: r.Cluster, AgentID: r.AgentID,
		CreatedAt: r.CreatedAt.UTC(), CreatedBy: r.CreatedBy, ExpiresAt: known(r.ExpiresAt), Expired: r.Expired(now), MaxUses: r.MaxUses,
	}
}

// createToken makes a token and keeps its hash.
func (g *Gateway) createToken(ctx context.Context, r *TokenRequest) (NewToken, error) {
	if r.ExpiresIn != 0 && (r.ExpiresIn.Std() < time.Minute || r.ExpiresIn.Std() > maxTokenLife) {
		return NewToken{}, invalid("body.expires_in", errors.New("must lie between 1m and 87600h"))
	}
	var random [access.RandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	kind := r.Kind
	if kind == "" {
		kind = access.APIToken
	}
	secret, record := access.Mint(kind, random)
	by := access.From(ctx)
	record.Name, record.Role, record.Tenant, record.Cluster, record.AgentID = r.Name, r.Role, r.Tenant, r.Cluster, r.AgentID
	record.MaxUses = r.MaxUses
	record.CreatedAt, record.CreatedBy = time.Now().UTC().Truncate(time.Second), by.Name
	if r.ExpiresIn != 0 {
		record.ExpiresAt = record.CreatedAt.Add(r.ExpiresIn.Std())
	}
	if field, err := record.Validate(); err != nil {
		return NewToken{}, invalid("body."+field, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if record.Cluster != "" {
		if _, err := g.knownCluster(ctx, record.Cluster); err != nil {
			return NewToken{}, err
		}
	}
	access.Touch(ctx, "token", record.ID)
	if err := g.keepToken(ctx, record); err != nil {
		return NewToken{}, g.answer(err, "keep a token", protocol.CodeInternal)
	}
	return NewToken{Token: tokenOf(&record, time.Now()), Secret: secret}, nil
}

// keepToken hands a token to the workflow that keeps them, which the first one starts.
func (g *Gateway) keepToken(ctx context.Context, record access.Record) error {
	_, err := update(ctx, g, contract.CreateTokenUpdate, contract.AccessWorkflowID, record)
	if !isAny[*serviceerror.NotFound](err) {
		return err
	}
	_, err = g.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: contract.AccessWorkflowID, TaskQueue: contract.WorkerQueue, StaticSummary: "the API's tokens",
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		Memo:                     map[string]any{contract.MemoTokens: []access.Record{}},
	}, contract.AccessWorkflow, contract.AccessInput{})
	if err != nil && !isAny[*serviceerror.WorkflowExecutionAlreadyStarted](err) {
		return err
	}
	_, err = update(ctx, g, contract.CreateTokenUpdate, contract.AccessWorkflowID, record)
	return err
}

// listTokens reads them where the doors of the API read them.
func (g *Gateway) listTokens(ctx context.Context) ([]access.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d, err := g.client.DescribeWorkflowExecution(ctx, contract.AccessWorkflowID, "")
	if isAny[*serviceerror.NotFound](err) {
		return nil, nil
	}
	if err != nil {
		return nil, g.answer(err, "list tokens", protocol.CodeInternal)
	}
	var records []access.Record
	contract.Decode(d.GetWorkflowExecutionInfo().GetMemo().GetFields()[contract.MemoTokens], &records)
	return records, nil
}

// withUses says how many agents have registered with tokens that have a maximum: their clusters count them. Where one does not
// answer, nothing is said.
func (g *Gateway) withUses(ctx context.Context, tokens []Token) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	views := map[string]*contract.ClusterView{}
	for i := range tokens {
		t := &tokens[i]
		if t.MaxUses == 0 {
			continue
		}
		view, asked := views[t.Cluster]
		if !asked {
			if v, err := g.view(ctx, t.Cluster); err == nil {
				view = &v
			}
			views[t.Cluster] = view
		}
		if view != nil {
			uses := view.UsesOf(t.ID)
			t.Uses = &uses
		}
	}
}

// RevokedToken says what came of revoking a token.
type RevokedToken struct {
	ID            string   `json:"id"`
	EndedSessions []string `json:"ended_sessions,omitempty" doc:"The agents that were connected and whose sessions end, with end_sessions."`
}

// revokeToken forgets a token. A join token's cluster hears first: it refuses the token from then on, whatever the doors of
// the API still believe, and if that fails the token is still there to be revoked again.
func (g *Gateway) revokeToken(ctx context.Context, id string, endSessions bool) (RevokedToken, error) {
	revoked := RevokedToken{ID: id}
	records, err := g.listTokens(ctx)
	if err != nil {
		return revoked, err
	}
	i := slices.IndexFunc(records, func(r access.Record) bool { return r.ID == id })
	if i < 0 {
		return revoked, unknown(protocol.CodeUnknownToken)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch record := &records[i]; {
	case record.Kind == access.JoinToken:
		ended, err := update(ctx, g, contract.RevokeJoinTokenUpdate, contract.ClusterWorkflowID(record.Cluster),
			contract.RevokeJoinTokenRequest{ID: id, EndSessions: endSessions})
		if err != nil && !isAny[*serviceerror.NotFound](err) { // without the cluster nobody joins it
			return revoked, g.answer(err, "revoke a join token", protocol.CodeUnknownToken)
		}
		revoked.EndedSessions = ended.Agents
	case endSessions:
		return revoked, invalid("query.end_sessions", errors.New("is for join tokens: the sessions that an api token opened always end with it"))
	}
	_, err = update(ctx, g, contract.RevokeTokenUpdate, contract.AccessWorkflowID, contract.RevokeTokenRequest{ID: id})
	var refused *temporal.ApplicationError
	if errors.As(err, &refused) && refused.Type() == contract.UnknownToken {
		return revoked, unknown(protocol.CodeUnknownToken)
	}
	return revoked, g.answer(err, "revoke a token", protocol.CodeUnknownToken)
}
