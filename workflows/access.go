package workflows

import (
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
)

// accessEvents is the history length at which Access continues as new: each change has all tokens in it.
const accessEvents = 500

// Access is the single writer of the API's tokens: hashes, never secrets. Its memo has them, where gateways and hubs
// read them.
func Access(ctx workflow.Context, in contract.AccessInput) error {
	r := &accessRun{tokens: in.Tokens, ended: in.Ended}
	if err := r.publish(ctx); err != nil {
		return err
	}
	if len(r.ended) > 0 {
		if err := r.publishEnded(ctx); err != nil {
			return err
		}
	}
	if err := r.setUpdateHandlers(ctx); err != nil {
		return err
	}
	err := workflow.Await(ctx, func() bool { return r.longEnough(ctx) && workflow.AllHandlersFinished(ctx) })
	if err != nil {
		return err
	}
	return workflow.NewContinueAsNewError(
		ctx,
		contract.AccessWorkflow,
		contract.AccessInput{Tokens: r.tokens, Ended: r.ended},
	)
}

type accessRun struct {
	tokens []access.Record
	ended  []access.EndedSession
}

func (r *accessRun) setUpdateHandlers(ctx workflow.Context) error {
	err := contract.CreateTokenUpdate.Handle(ctx, r.create, func(token access.Record) error {
		if _, err := token.Validate(); err != nil {
			return Refuse("%s", err)
		}
		if slices.ContainsFunc(
			r.tokens,
			func(t access.Record) bool { return t.Name == token.Name && t.ID != token.ID },
		) {
			return Refuse("there is a token of this name: choose another name, or revoke that one first")
		}
		if len(r.tokens) >= access.MaxTokens {
			return Refuse("there are %d tokens, which is the most: revoke some", len(r.tokens))
		}
		return r.checkMaker(token.CreatedByID)
	})
	if err != nil {
		return err
	}
	err = contract.EndSessionUpdate.Handle(ctx, contract.NoAnswer(r.endSession), nil)
	if err != nil {
		return err
	}
	return contract.RevokeTokenUpdate.Handle(ctx, r.revoke, func(req contract.RevokeTokenRequest) error {
		_, err := r.going(req)
		return err
	})
}

func (r *accessRun) find(id string) int {
	return slices.IndexFunc(r.tokens, func(t access.Record) bool { return t.ID == id })
}

// checkMaker refuses the tokens of one that is gone: it may have asked before it was revoked. The ancestors are bounded
// here, so that none of them need be forgotten later.
func (r *accessRun) checkMaker(id string) error {
	if access.Kept(id) && r.find(id) < 0 {
		return Refuse("the token that makes this one was revoked: use another")
	}
	line := access.Line(r.tokens, id)
	ancestors := len(line)
	for i := range r.tokens {
		ancestors += len(access.Line(r.tokens, r.tokens[i].ID)) - 1
	}
	if len(line) > 0 && ancestors > access.MaxAncestors {
		return Refuse("tokens that were made by other tokens have too many ancestors together: make this one with the " +
			"first admin token or a client certificate, or revoke some")
	}
	return nil
}

// create adds a token. A repeated update finds the token and changes nothing.
func (r *accessRun) create(ctx workflow.Context, token access.Record) (access.Record, error) {
	if i := r.find(token.ID); i >= 0 {
		return r.tokens[i], nil
	}
	before := workflow.Now(ctx).Add(-contract.ExpiredTokenKept)
	r.forget(func(t access.Record) bool { return t.Expired(before) })
	r.tokens = append(r.tokens, token)
	return token, r.publish(ctx)
}

func (r *accessRun) revoke(ctx workflow.Context, req contract.RevokeTokenRequest) (contract.RevokedToken, error) {
	revoked, err := r.going(req)
	if err != nil {
		return contract.RevokedToken{}, err
	}
	r.forget(func(t access.Record) bool {
		return t.ID == req.ID ||
			slices.ContainsFunc(revoked.Children, func(c access.Record) bool { return c.ID == t.ID })
	})
	return revoked, r.publish(ctx)
}

// going is what a request revokes. A token that is gone may still have children, and so may one that is not kept here:
// the first admin's.
func (r *accessRun) going(req contract.RevokeTokenRequest) (contract.RevokedToken, error) {
	going := contract.RevokedToken{Record: access.Record{ID: req.ID}}
	i := r.find(req.ID)
	if i >= 0 {
		going.Record = r.tokens[i]
	}
	if req.WithChildren {
		going.Children = access.Descendants(r.tokens, req.ID)
	}
	if i < 0 && len(going.Children) == 0 {
		return going, temporal.NewApplicationError("there is no such token", contract.UnknownToken)
	}
	return going, nil
}

// forget drops tokens. Tokens that they have made, and that stay, keep their ancestors: else nobody could find out that
// a leaked token has made them by another.
func (r *accessRun) forget(goes func(access.Record) bool) {
	for i := range r.tokens {
		t := &r.tokens[i]
		if maker := r.find(t.CreatedByID); maker >= 0 && goes(r.tokens[maker]) && !goes(*t) {
			t.Ancestors = access.Line(r.tokens, t.CreatedByID)
		}
	}
	r.tokens = slices.DeleteFunc(slices.Clone(r.tokens), goes)
}

func (r *accessRun) endSession(ctx workflow.Context, session access.EndedSession) error {
	r.ended = access.EndSession(r.ended, session, workflow.Now(ctx))
	return r.publishEnded(ctx)
}

func (r *accessRun) publishEnded(ctx workflow.Context) error {
	return workflow.UpsertMemo(ctx, map[string]any{contract.MemoEnded: r.ended})
}

func (r *accessRun) publish(ctx workflow.Context) error {
	tokens := r.tokens
	if tokens == nil {
		tokens = []access.Record{}
	}
	return workflow.UpsertMemo(ctx, map[string]any{contract.MemoTokens: tokens})
}

func (r *accessRun) longEnough(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > accessEvents
}
