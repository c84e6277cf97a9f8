package rest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/store"
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
		one := access.Identity{Kind: access.KindToken, ID: "1", Tenant: "acme"}
		done, err := turn(one)
		require.NoError(t, err)
		_, err = turn(access.Identity{Kind: access.KindToken, ID: "2", Tenant: "acme"})
		require.ErrorContains(t, err, "other batches")
		for _, id := range []access.Identity{{Kind: access.KindToken, ID: "1", Tenant: "beta"},
			{Kind: access.KindToken, ID: "1"}, {Kind: access.KindToken, ID: "2"}, {}, {}} {
			_, err = turn(id)
			require.NoError(t, err)
		}
		time.AfterFunc(time.Second, done)
		_, err = turn(one)
		require.NoError(t, err)
	})
}
