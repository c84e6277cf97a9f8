// Package part has what the long-lived parts of a hub share: facts about the hub, and how they run.
package part

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/store"
)

// Runner is a long-lived part of a hub. Run works until the context ends, and then returns soon.
type Runner interface{ Run(ctx context.Context) }

// Hub describes one process of a hub to its parts.
type Hub struct {
	store.Hub
	Logger *zap.Logger
}

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

// Group counts goroutines. Unlike a sync.WaitGroup it may grow while somebody waits. Only one may wait.
type Group struct {
	running atomic.Int64
	ended   Signal
}

// NewGroup makes a group without goroutines.
func NewGroup() *Group { return &Group{ended: NewSignal()} }

// Go calls do in a goroutine of the group.
func (g *Group) Go(do func()) {
	g.running.Add(1)
	go func() {
		defer g.ended.Send()
		defer g.running.Add(-1)
		do()
	}()
}

// Wait returns when no goroutine runs or the context ends. It reports whether none runs.
func (g *Group) Wait(ctx context.Context) bool {
	for g.running.Load() > 0 {
		select {
		case <-g.ended:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Signal requests another round of a part. Requests before that round count as one.
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

// Fitting is how many of the first items together have most bytes or fewer. One item always fits.
func Fitting[T any](items []T, most int, size func(*T) int) int {
	bytes := 0
	for i := range items {
		if bytes += size(&items[i]); bytes > most && i > 0 {
			return i
		}
	}
	return len(items)
}
