package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"
)

// turnWait is how long a tenant's activity waits for its turn, before it is tried again after turnLater: one that waits
// takes room of others.
const turnWait, turnLater = time.Second, 10 * time.Second

// turns are of activities that may cost much. Those of one tenant come one after another on each worker.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // by tenant; a channel holds one element while it is somebody's turn
}

// take waits until it is the caller's turn, which ends with done.
func (t *turns) take(ctx context.Context, tenant string) (done func(), err error) {
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
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.C:
		return nil, temporal.NewApplicationErrorWithOptions("it is not the tenant's turn: another activity of it goes first",
			"Turn", temporal.ApplicationErrorOptions{NextRetryDelay: turnLater, Category: temporal.ApplicationErrorCategoryBenign})
	}
}
