package agent

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff gives growing, jittered waits: the nth is between half and all of first·2^n, at most limit.
type backoff struct {
	first, limit time.Duration
	wait         time.Duration
}

func (b *backoff) next() time.Duration {
	if b.wait == 0 {
		b.wait = b.first
	} else {
		b.wait = min(2*b.wait, b.limit)
	}
	return b.wait/2 + rand.N(b.wait/2+1)
}

func (b *backoff) reset() { b.wait = 0 }

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
