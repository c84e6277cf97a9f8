package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// settleLimit bounds what should take a moment.
	settleLimit = time.Minute
	// stuckLimit is how long something may stand still until a run is given up.
	stuckLimit = 2 * time.Minute
	// noLimit is longer than any benchmark.
	noLimit = 24 * time.Hour
)

// eventually asks until done, and says after limit what it waited for in vain. An error of done ends it.
func eventually(
	ctx context.Context, what string, limit, every time.Duration, done func(context.Context) (bool, error),
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("after %s there is still no sign of %s", limit,
		what))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// advancing reads a number until it is at least n, and gives up when it stands still for stuckLimit.
func advancing(
	ctx context.Context, what string, n int, every time.Duration, read func(context.Context) (int, error),
) error {
	best, since := -1, time.Now()
	return eventually(ctx, what, noLimit, every, func(ctx context.Context) (bool, error) {
		now, err := read(ctx)
		switch {
		case err != nil || now >= n:
			return true, err
		case now > best:
			best, since = now, time.Now()
		case time.Since(since) > stuckLimit:
			err = fmt.Errorf("waiting for %s: there are %d, and no more came in %s", what, best, stuckLimit)
		}
		return false, err
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eachOf calls do for 0…n-1, so many at the same time, and returns the first error, which ends the others.
func eachOf(ctx context.Context, n, atOnce int, do func(context.Context, int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for i := range n {
		all.Go(func() error { return do(ctx, i) })
	}
	return all.Wait()
}
