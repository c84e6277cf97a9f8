package activities

import (
	"cmp"
	"context"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/limit"
)

// turnWait is how long a tenant's activity waits for its turn, before it is tried again after turnLater: one that waits
// takes room of others.
const turnWait, turnLater = time.Second, 10 * time.Second

// turns are of activities that may cost much. Those of one tenant come one after another on each worker.
type turns struct{ one limit.AtOnce }

// turn is the turn of one activity, until it is done. A second done does nothing.
type turn struct {
	of     *turns
	tenant string
	done   func() // lets the next one begin
}

// take waits until it is the caller's turn.
func (t *turns) take(ctx context.Context, tenant string) (*turn, error) {
	soon, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	done, err := t.one.Acquire(soon, tenant, 1)
	if err != nil {
		return nil, cmp.Or(ctx.Err(), errTurn)
	}
	return &turn{t, tenant, done}, nil
}

var errTurn = temporal.NewApplicationErrorWithOptions("it is not the tenant's turn: another activity of it goes first",
	contract.NotTheirTurn, temporal.ApplicationErrorOptions{NextRetryDelay: turnLater,
		Category: temporal.ApplicationErrorCategoryBenign})

// rest ends the turn, and lets the tenant's next one begin after a while.
func (t *turn) rest(while time.Duration) { time.AfterFunc(while, t.done) }

// aside lets others go first while do waits for something else. Where ctx ends, the turn is over, which is an error.
func (t *turn) aside(ctx context.Context, do func() error) error {
	t.done()
	err := do()
	done, ended := t.of.one.Acquire(ctx, t.tenant, 1)
	if ended != nil {
		return cmp.Or(err, ended)
	}
	t.done = done
	return err
}
