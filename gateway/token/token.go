package token

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// maxTokenLife bounds how long a token may live that does not live for ever.
const maxTokenLife = 10 * 365 * 24 * time.Hour

func tokenOf(r *access.Record, now time.Time) api.Token {
	return api.Token{
		ID: r.ID, Name: r.Name, Kind: r.Kind, Role: r.Role, Tenant: r.Tenant, Cluster: r.Cluster, AgentID: r.AgentID,
		CreatedAt: r.CreatedAt.UTC(),
		CreatedBy: r.CreatedBy,
		ExpiresAt: rest.Known(r.ExpiresAt),
		Expired:   r.Expired(now),
		MaxUses:   r.MaxUses,
	}
}

// createToken makes a token and keeps its hash.
func (h *Handlers) createToken(ctx context.Context, r *api.TokenRequest) (api.NewToken, error) {
	if r.ExpiresIn != 0 && (r.ExpiresIn.Std() < time.Minute || r.ExpiresIn.Std() > maxTokenLife) {
		return api.NewToken{}, rest.Invalid("body.expires_in", errors.New("must lie between 1m and 87600h"))
	}
	var random [access.RandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	kind := r.Kind
	if kind == "" {
		kind = access.APIToken
	}
	secret, record := access.Mint(kind, random)
	by := access.From(ctx)
	record.Name, record.Role = r.Name, r.Role
	record.Tenant, record.Cluster, record.AgentID = r.Tenant, r.Cluster, r.AgentID
	record.MaxUses = r.MaxUses
	record.CreatedAt, record.CreatedBy = time.Now().UTC().Truncate(time.Second), by.Name
	if r.ExpiresIn != 0 {
		record.ExpiresAt = record.CreatedAt.Add(r.ExpiresIn.Std())
	}
	if field, err := record.Validate(); err != nil {
		return api.NewToken{}, rest.Invalid("body."+field, err)
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if record.Cluster != "" {
		if _, err := h.KnownCluster(ctx, record.Cluster); err != nil {
			return api.NewToken{}, err
		}
	}
	access.Touch(ctx, "token", record.ID)
	if err := h.keepToken(ctx, record); err != nil {
		return api.NewToken{}, h.Answer(err, "keep a token", protocol.CodeInternal)
	}
	return api.NewToken{Token: tokenOf(&record, time.Now()), Secret: secret}, nil
}

// keepToken hands a token to the workflow that keeps them, which the first one starts.
func (h *Handlers) keepToken(ctx context.Context, record access.Record) error {
	_, err := store.Update(ctx, h.Store, contract.CreateTokenUpdate, contract.AccessWorkflowID, record)
	if store.KindOf(err) != store.NotFound {
		return err
	}
	_, err = h.Store.Start(ctx, &store.Start{
		Type:    contract.AccessWorkflow,
		ID:      contract.AccessWorkflowID,
		Summary: "the API's tokens",
		Memo:    map[string]any{contract.MemoTokens: []access.Record{}},
		Join:    true,
	}, contract.AccessInput{})
	if err != nil && store.KindOf(err) != store.Exists {
		return err
	}
	_, err = store.Update(ctx, h.Store, contract.CreateTokenUpdate, contract.AccessWorkflowID, record)
	return err
}

// listTokens reads them where the doors of the API read them.
func (h *Handlers) listTokens(ctx context.Context) ([]access.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	records, err := h.Store.Tokens(ctx)
	return records, h.Answer(err, "list tokens", protocol.CodeInternal)
}

// withUses says how many agents have registered with tokens that have a maximum: their clusters count them. Where one
// does not answer, nothing is said.
func (h *Handlers) withUses(ctx context.Context, tokens []api.Token) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	views := map[string]*contract.ClusterView{}
	for i := range tokens {
		t := &tokens[i]
		if t.MaxUses == 0 {
			continue
		}
		view, asked := views[t.Cluster]
		if !asked {
			if v, err := h.View(ctx, t.Cluster); err == nil {
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

// revokeToken forgets a token. A join token's cluster hears first: it refuses the token from then on, whatever the
// doors of the API still believe, and if that fails the token is still there to be revoked again.
func (h *Handlers) revokeToken(ctx context.Context, id string, endSessions bool) (api.RevokedToken, error) {
	revoked := api.RevokedToken{ID: id}
	records, err := h.listTokens(ctx)
	if err != nil {
		return revoked, err
	}
	i := slices.IndexFunc(records, func(r access.Record) bool { return r.ID == id })
	if i < 0 {
		return revoked, rest.Unknown(protocol.CodeUnknownToken)
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	switch record := &records[i]; {
	case record.Kind == access.JoinToken:
		ended,
			err := store.Update(ctx, h.Store,
			contract.RevokeJoinTokenUpdate, contract.ClusterWorkflowID(record.Cluster),
			contract.RevokeJoinTokenRequest{ID: id, EndSessions: endSessions})
		if err != nil && store.KindOf(err) != store.NotFound { // without the cluster nobody joins it
			return revoked, h.Answer(err, "revoke a join token", protocol.CodeUnknownToken)
		}
		revoked.EndedSessions = ended.Agents
	case endSessions:
		return revoked, rest.Invalid("query.end_sessions",
			errors.New("is for join tokens: the sessions that an api token opened always end with it"))
	}
	_, err = store.Update(ctx, h.Store, contract.RevokeTokenUpdate, contract.AccessWorkflowID,
		contract.RevokeTokenRequest{ID: id})
	var refused *temporal.ApplicationError
	if errors.As(err, &refused) && refused.Type() == contract.UnknownToken {
		return revoked, rest.Unknown(protocol.CodeUnknownToken)
	}
	return revoked, h.Answer(err, "revoke a token", protocol.CodeUnknownToken)
}
