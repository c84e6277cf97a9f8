// Package backoff spaces the tries of what failed.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff gives growing, jittered waits: the nth lies between half and all of First·2^n, at most Limit.
type Backoff struct {
	First, Limit time.Duration
	wait         time.Duration
}

// Next is the next wait.
func (b *Backoff) Next() time.Duration {
	if b.wait == 0 {
		b.wait = b.First
	} else {
		b.wait = min(2*b.wait, b.Limit)
	}
	return b.wait/2 + rand.N(b.wait/2+1)
}

// Reset begins with the first wait again, after a try that succeeded.
func (b *Backoff) Reset() { b.wait = 0 }

// Pause waits for the next wait, or until ctx ends.
func (b *Backoff) Pause(ctx context.Context) { Pause(ctx, b.Next()) }

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
