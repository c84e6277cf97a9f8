package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"mainstay.dev/mainstay/flow"
	"mainstay.dev/mainstay/ratelimit"
)

const (
	// shareRate and shareBurst give each tenant half of a core, and 5 s of one at once. The unit is that of flow.Spent.
	shareRate, shareBurst = 5_000, 50_000
	// bytesEach and elementsEach are how many bytes of JSON cost one unit to read, and how many elements to fill in.
	bytesEach, elementsEach = 1 << 10, 5
	// readAtOnce bounds the bytes of JSON that are read for all tenants at a time, and readOfTenant those of one. In
	// memory they may take a hundred times as much.
	readAtOnce, readOfTenant = 4 << 20, 1 << 20
)

// shares bound what a worker does for the expressions of each tenant.
type shares struct {
	*ratelimit.Limiter
	fills turns // elements of one tenant are filled in for one step at a time
	all   *semaphore.Weighted

	mu    sync.Mutex
	rooms map[string]*semaphore.Weighted // by tenant
}

func newShares(rate float64, burst int) *shares {
	return &shares{Limiter: ratelimit.New(rate, burst), all: semaphore.NewWeighted(readAtOnce),
		rooms: map[string]*semaphore.Weighted{}}
}

var errShare = errors.New("the expressions of the tenant have taken more than their share of the worker; trying again")

// begin bounds the evaluations with the context that it returns, which read so many bytes of JSON. It waits while
// others read much. What they took is counted when ended is called.
func (s *shares) begin(
	ctx context.Context, tenant string, bytes int,
) (bounded context.Context, ended func(), err error) {
	if err := s.left(tenant); err != nil {
		return ctx, nil, err
	}
	room, size := s.room(tenant), int64(min(bytes, readOfTenant))
	if err := room.Acquire(ctx, size); err != nil {
		return ctx, nil, err
	}
	if err := s.all.Acquire(ctx, size); err != nil {
		room.Release(size)
		return ctx, nil, err
	}
	release := func() {
		s.all.Release(size)
		room.Release(size)
	}
	if err := s.left(tenant); err != nil { // those before it may have taken all
		release()
		return ctx, nil, err
	}
	s.Spend(tenant, bytes/bytesEach, time.Now())
	bounded = flow.WithLimit(ctx)
	return bounded, func() {
		s.Spend(tenant, flow.Spent(bounded), time.Now())
		release()
	}, nil
}

// left refuses a tenant that has no share left.
func (s *shares) left(tenant string) error {
	if s.Take(tenant, 0, time.Now()) > 0 {
		return errShare
	}
	return nil
}

func (s *shares) room(tenant string) *semaphore.Weighted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[tenant] == nil {
		s.rooms[tenant] = semaphore.NewWeighted(readOfTenant)
	}
	return s.rooms[tenant]
}

// fill counts the elements that are about to be filled in, until ended is called.
func (s *shares) fill(ctx context.Context, tenant string, elements int) (ended func(), err error) {
	ended, err = s.fills.take(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if err := s.left(tenant); err != nil {
		ended()
		return nil, err
	}
	s.Spend(tenant, elements/elementsEach, time.Now())
	return ended, nil
}
