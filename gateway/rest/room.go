package rest

import (
	"context"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/protocol"
)

// How many schedules there are at most, and how many jobs: of all, and of one tenant. A count is about a second old, so
// many requests at once may make some more.
const (
	MaxKept       = 10_000
	MaxTenantKept = 1000
)

// Room refuses one more of the things that count counts, once there are MaxKept. A tenant may have MaxTenantKept, but
// no more than are still free, so that there is always one for the next tenant. An older Temporal cannot count
// schedules: there it refuses nothing.
func (c *Core) Room(
	ctx context.Context, tenant, things string, count func(ctx context.Context, query string) (int64, error),
) error {
	all, err := count(ctx, "")
	own := all
	if err == nil && tenant != "" {
		own, err = count(ctx, contract.Equals(contract.AttrTenant.GetName(), tenant))
	}
	switch {
	case store.KindOf(err) == store.Unsupported:
		return nil
	case err != nil:
		return c.Answer(err, "count "+things, protocol.CodeInternal)
	case tenant != "" && own >= min(MaxTenantKept, MaxKept-all):
		return httpapi.Problem(protocol.CodeConflict,
			"the tenant has as many "+things+" as it may: delete those that it no longer needs")
	case all >= MaxKept:
		return httpapi.Problem(protocol.CodeConflict,
			"there are as many "+things+" as there may be: delete those that nobody needs")
	}
	return nil
}
