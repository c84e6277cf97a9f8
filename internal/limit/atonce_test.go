package limit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &AtOnce{Most: 3}
		two, err := l.Acquire(t.Context(), "a", 2)
		require.NoError(t, err)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(soon, "a", 2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		all, err := l.Acquire(t.Context(), "b", 9)
		require.NoError(t, err, "another key, and more than there is")
		one, err := l.Acquire(t.Context(), "a", 1)
		require.NoError(t, err)
		time.AfterFunc(time.Second, two)
		again, err := l.Acquire(t.Context(), "a", 2)
		require.NoError(t, err)
		two() // once more does nothing
		for _, release := range []func(){all, one, again} {
			release()
		}
		require.Empty(t, l.keys, "nothing is kept")
	})
}

func TestTheZeroValueLetsEachKeyHaveOne(t *testing.T) {
	t.Parallel()
	var l AtOnce
	release, err := l.Acquire(t.Context(), "a", 1)
	require.NoError(t, err)
	require.False(t, l.tryAcquire("a", 1))
	require.True(t, l.tryAcquire("b", 1))
	release()
	require.True(t, l.tryAcquire("a", 1))
}

func TestHold(t *testing.T) {
	t.Parallel()
	group, all := &AtOnce{Most: 10}, &AtOnce{Most: 15}
	hold := func(key string) *Hold { return &Hold{Shares: []Share{{group, key}, {all, ""}}} }
	a, b, c := hold("a"), hold("a"), hold("c")
	require.True(t, a.Grow(100), "alone it may have any size")
	require.False(t, b.Grow(1), "it has all of its group")
	require.False(t, c.Grow(1), "and all of all")
	a.Release()
	require.True(t, c.Grow(5))
	require.True(t, a.Grow(8))
	require.True(t, a.Grow(3), "which is less")
	require.False(t, b.Grow(3), "the group has none")
	require.True(t, b.Grow(2))
	require.False(t, c.Grow(6), "all have none")
	for _, h := range []*Hold{a, b, c} {
		h.Release()
		h.Release()
	}
	require.Empty(t, group.keys)
	require.Empty(t, all.keys)
}
