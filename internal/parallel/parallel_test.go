package parallel_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/parallel"
)

func TestEachDoesAllButNotTooManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n, atOnce int
		takes     time.Duration
	}{{0, 4, 0}, {1, 4, time.Second}, {4, 4, time.Second}, {9, 4, 3 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			done, begun := make([]atomic.Int32, c.n), time.Now()
			parallel.Each(c.n, c.atOnce, func(i int) {
				<-time.After(time.Second)
				done[i].Add(1)
			})
			require.Equal(t, c.takes, time.Since(begun), "of %d, %d at a time", c.n, c.atOnce)
			for i := range done {
				require.EqualValues(t, 1, done[i].Load())
			}
		})
	}
}
