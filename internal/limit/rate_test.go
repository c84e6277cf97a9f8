package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForgottenClientsAreThoseThatWereQuietLongest(t *testing.T) {
	t.Parallel()
	l := NewRate(0.001, 1)
	now := time.Now()
	require.Zero(t, l.Take("busy", 1, now))
	for i := range maxClients - 1 {
		require.Zero(t, l.Take(fmt.Sprint(i), 1, now))
	}
	require.NotZero(t, l.Take("busy", 1, now))
	require.Zero(t, l.Take("one more", 1, now))
	require.Len(t, l.clients, maxClients)
	require.Equal(t, maxClients, l.recent.Len())
	require.NotZero(t, l.Take("busy", 1, now), "still known")
	require.Zero(t, l.Take("0", 1, now), "forgotten")
}

func TestWhatWasSpentIsWaitedFor(t *testing.T) {
	t.Parallel()
	l, now := NewRate(10, 100), time.Now()
	for range 3 {
		require.Zero(t, l.Take("a", 0, now))
		l.Spend("a", 50, now)
	}
	require.Equal(t, 5*time.Second, l.Take("a", 0, now).Round(time.Millisecond))
	require.Zero(t, l.Take("b", 0, now))
	require.Zero(t, l.Take("a", 0, now.Add(6*time.Second)))
}

func TestWhatIsMoreThanABurstCountsWhole(t *testing.T) {
	t.Parallel()
	l, now := NewRate(10, 100), time.Now()
	require.Zero(t, l.Take("a", 350, now))
	require.Equal(t, 25100*time.Millisecond, l.Take("a", 1, now).Round(time.Millisecond))
	require.NotZero(t, l.Take("a", 350, now.Add(30*time.Second)), "it needs a whole burst")
	require.Zero(t, l.Take("a", 350, now.Add(36*time.Second)))
}
