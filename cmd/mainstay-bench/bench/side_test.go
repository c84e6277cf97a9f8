package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimes(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for i := 100; i >= 1; i-- {
		all = append(all, time.Duration(i)*time.Millisecond)
	}
	require.Equal(t, Times{Count: 100, P50: 50, P99: 99, Max: 100}, timesOf(all))
	require.Equal(t, Times{Count: 1, P50: 7, P99: 7, Max: 7}, timesOf([]time.Duration{7 * time.Millisecond}))
	require.Zero(t, timesOf(nil))
}

func TestMedian(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	require.Zero(t, median(nil))
}

func TestMedianRatio(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0.9, medianRatio([]float64{9, 30, 10}, []float64{10, 60, 5}), 1e-9)
	require.Zero(t, medianRatio(nil, nil))
}
