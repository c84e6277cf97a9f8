package activities

import (
	"cmp"
	"context"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/limit"
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
	*limit.Rate
	turns turns        // a tenant's expressions are evaluated one after another
	rooms limit.AtOnce // bytes that are read, by tenant
	all   limit.AtOnce // bytes that are read for all
}

func newShares(rate float64, burst int) *shares {
	return &shares{Rate: limit.NewRate(rate, burst), rooms: limit.AtOnce{Most: readOfTenant},
		all: limit.AtOnce{Most: readAtOnce}}
}

var errShare = temporal.NewApplicationErrorWithOptions(
	"the expressions of the tenant have taken more than their share of the worker; trying again",
	contract.NotTheirTurn, temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})

// evaluating is the turn of evaluations, with room for the JSON that they read.
type evaluating struct {
	*turn
	context.Context // bounds them
	shares          *shares
	tenant          string
	leave           func() // gives the room back
}

// begin waits a moment for the tenant's turn, and for room while others read much. The evaluations with the context
// that it returns are bounded, and count in the tenant's share when they have ended.
func (s *shares) begin(ctx context.Context, tenant string, bytes int) (*evaluating, error) {
	if err := s.left(tenant); err != nil { // without a turn: there may be many
		return nil, err
	}
	turn, err := s.turns.take(ctx, tenant)
	if err != nil {
		return nil, err
	}
	e := &evaluating{turn: turn, Context: flow.WithLimit(ctx), shares: s, tenant: tenant}
	if err = s.left(tenant); err == nil { // those before it may have taken all
		err = e.enter(ctx, int64(min(bytes, readOfTenant)))
	}
	if err != nil {
		turn.done()
		return nil, err
	}
	s.Spend(tenant, bytes/bytesEach, time.Now())
	return e, nil
}

// enter waits for room for the JSON to be read.
func (e *evaluating) enter(ctx context.Context, bytes int64) error {
	soon, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	own, err := e.shares.rooms.Acquire(soon, e.tenant, bytes)
	if err != nil {
		return cmp.Or(ctx.Err(), errTurn)
	}
	all, err := e.shares.all.Acquire(soon, "", bytes)
	if err != nil {
		own()
		return cmp.Or(ctx.Err(), errTurn)
	}
	e.leave = func() {
		all()
		own()
	}
	return nil
}

// ended gives turn and room back, and counts what was evaluated.
func (e *evaluating) ended() {
	e.shares.Spend(e.tenant, flow.Spent(e), time.Now())
	e.done()
	e.leave()
}

// left refuses a tenant that has no share left.
func (s *shares) left(tenant string) error {
	if s.Take(tenant, 0, time.Now()) > 0 {
		return errShare
	}
	return nil
}

// fill counts the elements that are about to be filled in.
func (e *evaluating) fill(elements int) error {
	if err := e.shares.left(e.tenant); err != nil {
		return err
	}
	e.shares.Spend(e.tenant, elements/elementsEach, time.Now())
	return nil
}
