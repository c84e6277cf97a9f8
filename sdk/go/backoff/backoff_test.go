package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/backoff"
)

func TestBackoffGrowsToItsLimit(t *testing.T) {
	t.Parallel()
	b := backoff.Backoff{First: 100 * time.Millisecond, Limit: 2 * time.Second}
	for _, most := range []time.Duration{100, 200, 400, 800, 1600, 2000, 2000} {
		wait := b.Next()
		require.GreaterOrEqual(t, wait, most*time.Millisecond/2)
		require.LessOrEqual(t, wait, most*time.Millisecond)
	}
	b.Reset()
	require.LessOrEqual(t, b.Next(), 100*time.Millisecond)
}

func TestPauseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		backoff.Pause(t.Context(), time.Minute)
		require.Equal(t, time.Minute, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		backoff.Pause(ctx, time.Hour)
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}
