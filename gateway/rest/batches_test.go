package rest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

func TestBatchesOfATenantAreTakenOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(store.Store{}, zap.NewNop(), nil)
		turn := func(id access.Identity) (func(), error) {
			ctx, cancel := context.WithTimeout(access.With(t.Context(), id), time.Minute)
			defer cancel()
			return c.BatchTurn(ctx)
		}
		one := access.Identity{Kind: api.IdentityToken, ID: "1", Tenant: "acme"}
		done, err := turn(one)
		require.NoError(t, err)
		_, err = turn(access.Identity{Kind: api.IdentityToken, ID: "2", Tenant: "acme"})
		require.ErrorContains(t, err, "other batches")
		for _, id := range []access.Identity{{Kind: api.IdentityToken, ID: "1", Tenant: "beta"},
			{Kind: api.IdentityToken, ID: "1"}, {Kind: api.IdentityToken, ID: "2"}, {}, {}} {
			_, err = turn(id)
			require.NoError(t, err)
		}
		time.AfterFunc(time.Second, done)
		_, err = turn(one)
		require.NoError(t, err)
	})
}

// Four batches of four tenants had everybody wait for a minute: each had as many elements started as one alone may.
func TestElementsOfAllBatchesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(store.Store{}, nil, nil)
		var underWay atomic.Int32
		start := func(ctx context.Context, _ int) {
			assert.NoError(t, c.InTurn(ctx, func(ctx context.Context) error {
				assert.LessOrEqual(t, underWay.Add(1), int32(cap(c.elements))) //nolint:gosec // at most 16
				until, _ := ctx.Deadline()
				assert.Equal(t, CallTimeout, time.Until(until), "however long it waited")
				<-time.After(time.Second)
				underWay.Add(-1)
				return nil
			}))
		}
		begun := time.Now()
		go c.EachElement(t.Context(), 1000, start)
		synctest.Wait()
		c.EachElement(t.Context(), 10, start)
		require.LessOrEqual(t, time.Since(begun), 30*time.Second, "it waited for the other batch")
		<-time.After(time.Hour)
	})
}
