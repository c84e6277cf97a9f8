// Package lease holds a hub's lease at its Hub workflow.
package lease

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
)

const (
	// Beat is the time between two renewals of the hub's lease.
	Beat = 2 * time.Second
	// fresh is how long after its own renewal the hub may renew agents' leases: half of its own lease, so that an
	// agent's role lease ends before the hub is given up and its roles go to others.
	fresh = 5 * time.Second
	// lost is how long after its last renewal the hub must assume that the clusters gave it up.
	lost = 10 * time.Second
)

// Lease is the lease of one hub. Its methods may be called from any goroutine.
type Lease struct {
	hub     part.Hub
	rejoins func()
	madeAt  time.Time

	mu        sync.Mutex
	renewedAt time.Time
}

// New makes a lease that nobody holds yet. rejoins is called when the lease is renewed after the hub may have been
// given up, before it counts as renewed.
func New(hub part.Hub, rejoins func()) *Lease {
	return &Lease{hub: hub, rejoins: rejoins, madeAt: time.Now()}
}

// Take starts the Hub workflow, or signals to the running one that a new process of the hub has started.
func (l *Lease) Take(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if err := l.hub.TakeLease(ctx, host, os.Getpid()); err != nil {
		return fmt.Errorf("take the lease of hub %s: %w", l.hub.ID, err)
	}
	return nil
}

// Run takes the lease again when it was not renewed for so long that the hub may have been given up, because the
// workflow may have ended.
func (l *Lease) Run(ctx context.Context) {
	part.Every(ctx, fresh, func(now time.Time) {
		if now.Sub(l.RenewedAt()) <= lost {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, fresh)
		defer cancel()
		if err := l.Take(ctx); err != nil {
			l.hub.Logger.Warn("The hub's lease could not be taken anew; trying again", zap.Error(err))
		}
	})
}

// Hold is the activity that renews the lease until its context ends. It sends the heartbeats itself, not through the
// SDK, to know when Temporal took them.
func (l *Lease) Hold(ctx context.Context, in contract.HoldLeaseInput) error {
	token := activity.GetInfo(ctx).TaskToken
	if in.Lost {
		l.rejoins()
	}
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	for {
		if gone := l.renew(ctx, token); gone {
			return nil // another activity holds the lease now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *Lease) renew(ctx context.Context, token []byte) (gone bool) {
	ctx, cancel := context.WithTimeout(ctx, Beat)
	defer cancel()
	sent := time.Now()
	_, err := l.hub.Heartbeat(ctx, token, nil)
	if store.KindOf(err) == store.NotFound {
		return true
	}
	if err != nil {
		l.hub.Logger.Warn("Temporal did not take the heartbeat of the hub's lease", zap.Error(err))
		return false
	}
	before := l.RenewedAt()
	if before.IsZero() { // a new process may have agents before its first lease
		before = l.madeAt
	}
	if sent.Sub(before) > lost {
		l.rejoins()
	}
	l.Renewed(sent)
	return false
}

// Renewed records when Temporal took a heartbeat of the lease.
func (l *Lease) Renewed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewedAt = at
}

// RenewedAt is when Temporal last took the heartbeat of the lease; zero before the first.
func (l *Lease) RenewedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewedAt
}

// Fresh reports whether the hub may renew agents' leases.
func (l *Lease) Fresh(now time.Time) bool { return now.Sub(l.RenewedAt()) <= fresh }

// OutOfTouch reports whether the hub has had a lease, and may no longer renew agents' leases.
func (l *Lease) OutOfTouch(now time.Time) bool { return l.Age(now) > fresh }

// Age is how long ago Temporal last took the heartbeat of the lease; 0 before the first.
func (l *Lease) Age(now time.Time) time.Duration {
	at := l.RenewedAt()
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at))
}
