package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForgottenClientsAreThoseThatWereQuietLongest(t *testing.T) {
	t.Parallel()
	l := New(0.001, 1)
	now := time.Now()
	require.Zero(t, l.Take("busy", now))
	for i := range maxClients - 1 {
		require.Zero(t, l.Take(fmt.Sprint(i), now))
	}
	require.NotZero(t, l.Take("busy", now))
	require.Zero(t, l.Take("one more", now))
	require.Len(t, l.clients, maxClients)
	require.Equal(t, maxClients, l.recent.Len())
	require.NotZero(t, l.Take("busy", now), "still known")
	require.Zero(t, l.Take("0", now), "forgotten")
}
