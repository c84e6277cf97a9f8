package activities

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
)

// turnWait is how long a tenant's activity waits for its turn, before it is tried again after turnLater: one that waits
// takes room of others.
const turnWait, turnLater = time.Second, 10 * time.Second

// turns are of activities that may cost much. Those of one tenant come one after another on each worker.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // by tenant; a channel holds one element while it is somebody's turn
}

// turn is that of one activity, until it is done.
type turn struct {
	held  chan struct{}
	taken bool
}

// take waits until it is the caller's turn.
func (t *turns) take(ctx context.Context, tenant string) (*turn, error) {
	t.mu.Lock()
	held := t.held[tenant]
	if held == nil {
		held = make(chan struct{}, 1)
		if t.held == nil {
			t.held = map[string]chan struct{}{}
		}
		t.held[tenant] = held
	}
	t.mu.Unlock()
	patience := time.NewTimer(turnWait)
	defer patience.Stop()
	select {
	case held <- struct{}{}:
		return &turn{held, true}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.C:
		return nil, errTurn
	}
}

var errTurn = temporal.NewApplicationErrorWithOptions("it is not the tenant's turn: another activity of it goes first",
	contract.NotTheirTurn, temporal.ApplicationErrorOptions{NextRetryDelay: turnLater,
		Category: temporal.ApplicationErrorCategoryBenign})

// done lets the next one begin. Once more does nothing.
func (t *turn) done() {
	if t.taken {
		<-t.held
		t.taken = false
	}
}

// rest ends the turn, and lets the tenant's next one begin after a while.
func (t *turn) rest(while time.Duration) {
	if t.taken {
		t.taken = false
		time.AfterFunc(while, func() { <-t.held })
	}
}

// aside lets others go first while do waits for something else. Where ctx ends, the turn is over, which is an error.
func (t *turn) aside(ctx context.Context, do func() error) error {
	t.done()
	err := do()
	select {
	case t.held <- struct{}{}:
		t.taken = true
		return err
	case <-ctx.Done():
		return cmp.Or(err, ctx.Err())
	}
}
