package store

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/converter"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/contract"
)

// Tokens are the API's tokens, from the memo of the workflow that keeps them, which needs no worker.
func (s Store) Tokens(ctx context.Context) (tokens []access.Record, err error) {
	info, err := s.Describe(ctx, contract.AccessWorkflowID)
	if KindOf(err) == NotFound {
		return nil, nil // no token was made yet
	}
	if err != nil {
		return nil, fmt.Errorf("describe the workflow of the tokens: %w", err)
	}
	field := info.GetMemo().GetFields()[contract.MemoTokens]
	if field == nil {
		return nil, nil // it has just been started
	}
	if err := converter.GetDefaultDataConverter().FromPayload(field, &tokens); err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	return tokens, nil
}
