// Package loop says how the long-lived parts of a hub run.
package loop

import (
	"context"
	"time"
)

// Part is a long-lived part of a hub. Run works until the context ends, and returns soon after that.
type Part interface{ Run(ctx context.Context) }

// Every calls do at each tick until the context ends.
func Every(ctx context.Context, interval time.Duration, do func(now time.Time)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			do(now)
		}
	}
}

// Pause waits until the time is over or the context ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Signal is a wish for another round of a loop. Wishes that come before the round count as one.
type Signal chan struct{}

// NewSignal makes a signal that nobody has sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
