package rest

import (
	"context"
	"time"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
)

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

// EachElement calls start for the elements 0…n-1 of a batch. One for each core is started at a time, of all batches
// together, and they take turns: what is started faster than workers take it has everybody wait behind it. With two for
// each batch, batches of four tenants had others wait for a minute.
func (c *Core) EachElement(n int, start func(i int)) {
	parallel.Each(n, cap(c.elements), func(i int) {
		c.elements <- struct{}{}
		defer func() { <-c.elements }()
		start(i)
	})
}
