package rest

import (
	"context"
	"time"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// BatchLimit bounds the work for one batch, with its wait for the turn.
const BatchLimit = 90 * time.Second

// BatchTurn waits until no other batch of the caller's tenant, or token, is taken, until done is called: a batch starts
// many workflows side by side, and others wait for Temporal meanwhile. While security is off all callers are one.
func (c *Core) BatchTurn(ctx context.Context) (done func(), err error) {
	id := access.From(ctx)
	if !id.Known() {
		return func() {}, nil
	}
	done, err = c.batches.Acquire(ctx, id.Sharer(), 1)
	if err != nil {
		return nil, httpapi.RetryAfter(time.Second, "other batches of this tenant or token take long: send one after another")
	}
	return done, nil
}

// batched marks the context of an element of a batch.
type batched struct{}

// EachElement calls start for the elements 0…n-1 of a batch, with a context for InTurn.
func (c *Core) EachElement(ctx context.Context, n int, start func(ctx context.Context, i int)) {
	ctx = context.WithValue(ctx, batched{}, true)
	parallel.Each(n, store.BatchFanOut(), func(i int) { start(ctx, i) })
}

// ElementError is why an element of a batch was not accepted.
func ElementError(err error) *api.BatchError {
	problem, ok := httpapi.Body(err)
	if !ok {
		problem = protocol.Problem{Code: protocol.CodeInternal, Detail: InternalDetail}
	}
	return &api.BatchError{Code: problem.Code, Detail: problem.Detail, Errors: problem.Errors}
}

// InTurn calls start when an element of a batch may be started in Temporal. All batches together start one for each
// core at a time, and take turns: starting faster than the workers take up makes everybody wait. With two for each
// batch, the batches of four tenants delayed others by a minute. Requests outside of a batch do not wait. ctx bounds
// the wait, and CallTimeout the start. start should do nothing else, for others wait meanwhile.
func (c *Core) InTurn(ctx context.Context, start func(ctx context.Context) error) error {
	if ctx.Value(batched{}) != nil {
		select {
		case c.elements <- struct{}{}:
			defer func() { <-c.elements }()
		case <-ctx.Done():
			return httpapi.Problem(protocol.CodeUnavailable, UnavailableDetail)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return start(ctx)
}
