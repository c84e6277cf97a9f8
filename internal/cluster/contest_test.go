package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestContestSlowsDown(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var c Contest
	require.Zero(t, c.Wait(now), "the first process takes the id at once")
	for i, hold := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		c.Take(now)
		require.Equal(t, hold*time.Second, c.Wait(now), "after %d", i+1)
		now = now.Add(hold * time.Second)
		require.Zero(t, c.Wait(now))
	}
	require.Equal(t, 7, c.Taken)
	require.False(t, c.Over(now))
	now = now.Add(contestKept)
	require.True(t, c.Over(now))
	require.Zero(t, c.Wait(now))
	c.Take(now)
	require.Equal(t, Contest{Taken: 1, Since: now, Last: now}, c)
}

func TestTwoProcessesRarelyTakeAnIDFromEachOther(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var c Contest
	for end := now.Add(2 * time.Minute); now.Before(end); now = now.Add(1500 * time.Millisecond) {
		if c.Wait(now) == 0 { // the other one was started again
			c.Take(now)
		}
	}
	require.Equal(t, 4, c.Taken)
}
