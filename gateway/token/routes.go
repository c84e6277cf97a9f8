// Package token makes, lists and revokes the API's tokens.
package token

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type createTokenInput struct{ Body api.TokenRequest }

type newTokenOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         api.NewToken
}

type revokeTokenInput struct {
	ID          string `path:"id" doc:"The token's id, which is also its second part."`
	EndSessions bool   `query:"end_sessions" doc:"Of a join token: also end the sessions of the agents that registered with it. Their tasks move as those of any agent that is gone."`
}

type listTokensOutput struct {
	Body struct {
		Tokens        []api.Token `json:"tokens"`
		NextPageToken string      `json:"next_page_token,omitempty"`
	}
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	httpapi.Register(routes, access.Administer, rest.WithStatus(http.StatusCreated,
		rest.Op("Access", "create-token", "POST /tokens",
			"Make a token", "The answer holds the token itself, this once. It works at once, also at other gateways and hubs.")),
		func(ctx context.Context, in *createTokenInput) (*newTokenOutput, error) {
			token, err := h.createToken(ctx, &in.Body)
			if err != nil {
				return nil, err
			}
			return &newTokenOutput{CacheControl: "no-store", Body: token}, nil
		})
	httpapi.Register(routes, access.Administer, rest.Op("Access", "list-tokens", "GET /tokens",
		"List tokens", "Sorted by id, without their secrets. An expired token is listed for 30 days more."),
		func(ctx context.Context, in *rest.PageInput) (*listTokensOutput, error) {
			records, err := h.listTokens(ctx)
			if err != nil {
				return nil, err
			}
			records, next, err := rest.Page(records, in.PageToken, in.PageSize,
				func(r *access.Record) string { return r.ID })
			if err != nil {
				return nil, err
			}
			out := &listTokensOutput{}
			out.Body.Tokens, out.Body.NextPageToken = make([]api.Token, len(records)), next
			for i := range records {
				out.Body.Tokens[i] = tokenOf(&records[i], time.Now())
			}
			h.withUses(ctx, out.Body.Tokens)
			return out, nil
		})
	httpapi.Register(routes, access.Administer, rest.Op("Access", "revoke-token", "DELETE /tokens/{id}",
		"Revoke a token",
		"An api token stops to work within 5 s, with the browsers' sessions and the streams that it opened. A join token lets in no agent from now on; agents that have registered with it stay, unless end_sessions says otherwise."),
		func(ctx context.Context, in *revokeTokenInput) (*rest.Output[api.RevokedToken], error) {
			return rest.Reply(h.revokeToken(ctx, in.ID, in.EndSessions))
		})
}
