package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	for failures, base := range map[int]time.Duration{1: 2 * time.Second, 2: 4 * time.Second, 3: 8 * time.Second,
		20: 5 * time.Minute} {
		got := Backoff(api.RetryPolicy{}, "t-1", failures)
		require.GreaterOrEqual(t, got, base)
		require.LessOrEqual(t, got, min(base+time.Second, 5*time.Minute))
		require.Equal(t, got, Backoff(api.RetryPolicy{}, "t-1", failures), "replay must find the same value")
	}
	require.NotEqual(t, Backoff(api.RetryPolicy{}, "t-1", 1), Backoff(api.RetryPolicy{}, "t-2", 1), "tasks are spread")
	require.LessOrEqual(t, Backoff(api.RetryPolicy{InitialInterval: api.Duration(time.Millisecond)}, "t-1", 1),
		2*time.Millisecond)
	require.LessOrEqual(t, Backoff(api.RetryPolicy{}, "t-1", 1<<30), 5*time.Minute)
}

// For any policy that a task may have, the waits double from the initial one, with jitter on top of at most a second
// and never more than the wait itself; they never shrink, and never exceed the policy's bound.
func TestBackoffGrowsWithinBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		initial := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "initial"))
		limit := time.Duration(rapid.Int64Range(int64(initial), int64(24*time.Hour)).Draw(t, "max"))
		policy := api.RetryPolicy{InitialInterval: api.Duration(initial), MaxInterval: api.Duration(limit)}
		id := rapid.StringMatching(`[a-z0-9]{1,20}`).Draw(t, "id")
		base, before := initial, time.Duration(0)
		for failures := 1; failures <= 40; failures++ {
			got := Backoff(policy, id, failures)
			switch {
			case got < before:
				t.Fatalf("wait %d is %s, shorter than %s before it", failures, got, before)
			case got > limit:
				t.Fatalf("wait %d is %s, longer than %s", failures, got, limit)
			case got < base:
				t.Fatalf("wait %d is %s, shorter than its base %s", failures, got, base)
			case got > base+min(base, time.Second):
				t.Fatalf("wait %d is %s: too much jitter on %s", failures, got, base)
			case got != Backoff(policy, id, failures):
				t.Fatalf("wait %d differs in replay", failures)
			}
			before, base = got, min(2*base, limit)
		}
	})
}

func TestBackoffIsSpread(t *testing.T) {
	t.Parallel()
	waits := map[time.Duration]bool{}
	for i := range 200 {
		waits[Backoff(api.RetryPolicy{}, "t-"+string(rune('a'+i)), 1)] = true
	}
	require.Greater(t, len(waits), 190, "tasks that failed together are not tried again together")
}
