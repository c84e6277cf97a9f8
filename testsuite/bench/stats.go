package bench

import (
	"slices"
	"time"
)

// Latency sums up a set of durations.
type Latency struct {
	Count         int
	P50, P99, Max time.Duration
}

// Summarize takes the nearest-rank percentiles.
func Summarize(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	s := slices.Clone(all)
	slices.Sort(s)
	rank := func(p float64) time.Duration {
		i := int(p*float64(len(s))+0.999999) - 1
		return s[min(max(i, 0), len(s)-1)]
	}
	return Latency{Count: len(s), P50: rank(0.50), P99: rank(0.99), Max: s[len(s)-1]}
}

// Median of an odd or even number of values; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// MedianRatio is the median of a[i]/b[i]: rounds that were close in time are compared, so that a slow minute of the
// machine counts less.
func MedianRatio(a, b []float64) float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return Median(ratios)
}
