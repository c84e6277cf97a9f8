package guard

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// heldLook is how often the token of a request that is still being answered is looked at again. Tokens are read anew
// for all of them together, every tokensFresh.
const heldLook = time.Second

var errTokenGone = httpapi.Problem(protocol.CodeUnauthorized,
	"the token was revoked, or its time is over: ask an admin for another")

// proof is what an identity rests on: a token, until it or the browser's session ends (zero: not by itself).
type proof struct {
	token  string // its id; empty: none that can end
	digest string
	until  time.Time
}

// holds reports whether the proof is still one. While nobody can tell, it is.
func (g *Gate) holds(ctx context.Context, p proof) bool {
	if !p.until.IsZero() && !g.now().Before(p.until) {
		return false
	}
	record, err := g.record(ctx, p.token)
	return err != nil || record.ID != "" && printOf(&record) == p.digest && !record.Expired(g.now())
}

// held ends a request that outlives the proof it came with: a stream of events, or a wait.
type held struct {
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// whileGood is a context that ends with the proof. stop must be called when the request has been answered.
func (g *Gate) whileGood(ctx context.Context, p proof) (_ context.Context, stop func()) {
	if p.token == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	h := &held{}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(heldLook, func() {
		good := g.holds(ctx, p)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case h.over:
		case good:
			h.timer.Reset(heldLook)
		default:
			cancel(errTokenGone)
		}
	})
	return ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over = true
		h.timer.Stop()
		cancel(nil)
	}
}

// proofOf is a token's.
func (g *Gate) proofOf(record *access.Record) proof {
	for i := range g.fixed {
		if g.fixed[i].ID == record.ID {
			return proof{}
		}
	}
	return proof{token: record.ID, digest: printOf(record), until: record.ExpiresAt}
}
