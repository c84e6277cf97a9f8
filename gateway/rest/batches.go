package rest

import (
	"context"
	"time"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// BatchLimit bounds the work for one batch, with its wait for the turn.
const BatchLimit = 90 * time.Second

// BatchTurn waits until no other batch of the caller's tenant, or token, is taken, until done is called: a batch starts
// many workflows side by side, and others wait for Temporal meanwhile. While security is off nobody waits.
func (c *Core) BatchTurn(ctx context.Context) (done func(), err error) {
	id := access.From(ctx)
	if !id.Known() {
		return func() {}, nil
	}
	kept, _ := c.batches.LoadOrStore(id.Sharer(), make(chan struct{}, 1))
	own := kept.(chan struct{})
	select {
	case own <- struct{}{}:
		return func() { <-own }, nil
	case <-ctx.Done():
		return nil, httpapi.RetryAfter(time.Second, "other batches of this tenant or token take long: send one after another")
	}
}

// batched marks the context of an element of a batch.
type batched struct{}

// EachElement calls start for the elements 0…n-1 of a batch, with a context for StartTurn.
func (c *Core) EachElement(ctx context.Context, n int, start func(ctx context.Context, i int)) {
	ctx = context.WithValue(ctx, batched{}, true)
	parallel.Each(n, store.BatchFanOut(), func(i int) { start(ctx, i) })
}

// StartTurn waits until an element of a batch may be started in Temporal, until done is called. One for each core is
// started at a time, of all batches together, and they take turns: what is started faster than workers take it has
// everybody wait behind it. With two for each batch, batches of four tenants had others wait for a minute. What is not
// of a batch does not wait.
func (c *Core) StartTurn(ctx context.Context) (done func(), err error) {
	if ctx.Value(batched{}) == nil {
		return func() {}, nil
	}
	select {
	case c.elements <- struct{}{}:
		return func() { <-c.elements }, nil
	case <-ctx.Done():
		return nil, httpapi.Problem(protocol.CodeUnavailable, UnavailableDetail)
	}
}
