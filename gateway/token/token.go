// Package token makes, lists and revokes the API's tokens.
package token

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	// Key seals tokens; without it none can be made.
	Key []byte
}

type newTokenOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         api.NewToken
}

type revokeInput struct {
	rest.ByID
	EndSessions bool `query:"end_sessions" doc:"Of a join token: also end the sessions of the agents that registered with it. Their tasks move as those of any agent that is gone."`
	Children    bool `query:"with_children" doc:"Also revoke the tokens that it has made, those that these have made, and so on."`
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r, admin := rest.On(routes, "Access"), rest.As(access.Administer)
	rest.Respond(r, "create-token", "POST /tokens", "Make a token",
		"The answer holds the token itself, this once. It works at once, also at other gateways and hubs.",
		func(ctx context.Context, in *rest.Body[api.TokenRequest]) (*newTokenOutput, error) {
			token, err := h.create(ctx, &in.Body)
			return &newTokenOutput{CacheControl: "no-store", Body: token}, err
		}, admin, rest.Status(http.StatusCreated))
	rest.List(r, "tokens", "list-tokens", "GET /tokens", "List tokens",
		"Sorted by id, without their secrets. An expired token is listed for 30 days more.",
		func(ctx context.Context, in *rest.PageInput) (page rest.Page[api.Token], err error) {
			records, err := h.read(ctx)
			if err != nil {
				return page, err
			}
			found, err := rest.PageAtHand(records, *in, func(r *access.Record) string { return r.ID })
			page.Next = found.Next
			for i := range found.Items {
				page.Items = append(page.Items, tokenOf(&found.Items[i], time.Now()))
			}
			h.withUses(ctx, page.Items)
			return page, err
		}, admin)
	rest.Serve(r, "revoke-token", "DELETE /tokens/{id}", "Revoke a token",
		"An api token stops to work within 5 s, with the browsers' sessions and the streams that it opened. A join "+
			"token lets in no agent from now on; agents that have registered with it stay, unless end_sessions says otherwise.",
		h.revoke, admin, rest.Held)
}

func tokenOf(r *access.Record, now time.Time) api.Token {
	return api.Token{
		ID: r.ID, Name: r.Name, Kind: r.Kind, Role: r.Role, Tenant: r.Tenant, Cluster: r.Cluster, AgentID: r.AgentID,
		CreatedAt: r.CreatedAt.UTC(),
		CreatedBy: r.CreatedBy, CreatedByID: r.CreatedByID,
		ExpiresAt: rest.Known(r.ExpiresAt),
		Expired:   r.Expired(now),
		MaxUses:   r.MaxUses,
	}
}

// create makes a token and keeps its hash.
func (h *Handlers) create(ctx context.Context, r *api.TokenRequest) (api.NewToken, error) {
	if err := api.Within("", r); err != nil {
		if field, ok := errors.AsType[*api.FieldError](err); ok {
			return api.NewToken{}, rest.Invalid("body."+field.Field, field.Err)
		}
		return api.NewToken{}, rest.Invalid("body", err)
	}
	if len(h.Key) == 0 {
		return api.NewToken{}, httpapi.Problem(protocol.CodeConflict,
			"this gateway has no key to seal tokens with: give it the installation's MAINSTAY_TOKEN_KEY")
	}
	var random [access.RandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	secret, record := access.Mint(cmp.Or(r.Kind, api.TokenAPI), random)
	by := access.From(ctx)
	record.Name, record.Role = r.Name, r.Role
	record.Tenant, record.Cluster, record.AgentID = r.Tenant, r.Cluster, r.AgentID
	record.MaxUses = r.MaxUses
	record.CreatedAt, record.CreatedBy, record.CreatedByID = time.Now().UTC().Truncate(time.Second), by.Name, by.ID
	if r.ExpiresIn != 0 {
		record.ExpiresAt = record.CreatedAt.Add(r.ExpiresIn.Std())
	}
	if field, err := record.Validate(); err != nil {
		return api.NewToken{}, rest.Invalid("body."+field, err)
	}
	record.Seal = record.SealWith(h.Key)
	if record.Cluster != "" {
		if _, err := h.KnownCluster(ctx, record.Cluster); err != nil {
			return api.NewToken{}, err
		}
	}
	access.Touch(ctx, "token", record.ID)
	if _, err := store.UpdateAccess(ctx, h.Store, contract.CreateTokenUpdate, record); err != nil {
		return api.NewToken{}, h.Answer(err, "keep a token", protocol.CodeInternal)
	}
	return api.NewToken{Token: tokenOf(&record, time.Now()), Secret: secret}, nil
}

// read reads them where the doors of the API read them.
func (h *Handlers) read(ctx context.Context) ([]access.Record, error) {
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
			t.Uses = new(view.UsesOf(t.ID))
		}
	}
}

// revoke forgets a token and, if asked, its children. It informs a join token's cluster first, which then refuses the
// token, whatever the API's caches hold. If that fails, the token is still there to be revoked again.
func (h *Handlers) revoke(ctx context.Context, in *revokeInput) (api.RevokedToken, error) {
	revoked := api.RevokedToken{ID: in.ID}
	records, err := h.read(ctx)
	if err != nil {
		return revoked, err
	}
	going := slices.DeleteFunc(slices.Clone(records), func(r access.Record) bool { return r.ID != in.ID })
	if in.Children { // it may be gone, or one that is known beforehand, and its children are kept
		going = append(going, access.Descendants(records, in.ID)...)
	}
	if len(going) == 0 && in.EndSessions {
		return h.endSessionsOf(ctx, in.ID)
	}
	if len(going) == 0 {
		return revoked, rest.Unknown(protocol.CodeUnknownToken)
	}
	if in.EndSessions && !slices.ContainsFunc(going, func(r access.Record) bool { return r.Kind == api.TokenJoin }) {
		return revoked, rest.Invalid("query.end_sessions",
			errors.New("is for join tokens: the sessions that an api token opened always end with it"))
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if err := h.revokeJoinTokens(ctx, going, in.EndSessions, &revoked); err != nil {
		return revoked, err
	}
	gone, err := store.Update(ctx, h.Store, contract.RevokeTokenUpdate, contract.AccessWorkflowID,
		contract.RevokeTokenRequest{ID: in.ID, WithChildren: in.Children})
	if err != nil {
		return revoked, h.Answer(err, "revoke a token", protocol.CodeUnknownToken)
	}
	late := slices.DeleteFunc(gone.Children, func(c access.Record) bool { // made since the list was read
		revoked.Children = append(revoked.Children, c.ID)
		return slices.ContainsFunc(going, func(g access.Record) bool { return g.ID == c.ID })
	})
	return revoked, h.revokeJoinTokens(ctx, late, in.EndSessions, &revoked)
}

// endSessionsOf ends the sessions that agents opened with a token that is not kept, as a spawner's, and has their
// clusters refuse it.
func (h *Handlers) endSessionsOf(ctx context.Context, id string) (api.RevokedToken, error) {
	revoked := api.RevokedToken{ID: id}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	views, _, err := h.Views(ctx, "")
	if err != nil {
		return revoked, err
	}
	var of []access.Record
	for i := range views {
		if slices.ContainsFunc(views[i].Members, func(m cluster.Member) bool { return m.JoinToken == id }) {
			of = append(of, access.Record{ID: id, Kind: api.TokenJoin, Cluster: views[i].Config.Name})
		}
	}
	if len(of) == 0 {
		return revoked, rest.Unknown(protocol.CodeUnknownToken)
	}
	err = h.revokeJoinTokens(ctx, of, true, &revoked)
	return revoked, err
}

// revokeJoinTokens makes the join tokens' clusters refuse them, and adds the agents whose sessions end.
func (h *Handlers) revokeJoinTokens(
	ctx context.Context, records []access.Record, endSessions bool, revoked *api.RevokedToken,
) error {
	for i := range records {
		if records[i].Kind != api.TokenJoin {
			continue
		}
		ended, err := store.Update(ctx, h.Store,
			contract.RevokeJoinTokenUpdate, contract.ClusterWorkflowID(records[i].Cluster),
			contract.RevokeJoinTokenRequest{ID: records[i].ID, EndSessions: endSessions})
		if err != nil && store.KindOf(err) != store.NotFound { // without the cluster nobody joins it
			return h.Answer(err, "revoke a join token", protocol.CodeUnknownToken)
		}
		revoked.EndedSessions = append(revoked.EndedSessions, ended.Agents...)
	}
	return nil
}
