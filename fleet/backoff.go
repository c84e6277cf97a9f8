package fleet

import (
	"hash/fnv"
	"time"
)

// Backoff bounds between the attempts of a task.
const (
	DefaultInitialInterval = 2 * time.Second
	DefaultMaxInterval     = 5 * time.Minute
	maxJitter              = time.Second
)

// Backoff is the wait after the nth failed attempt: initial·2^(n-1) plus jitter, at most max. The jitter (up to one
// second, and never more than the wait itself) comes from the task's id, so that replay finds the same value.
func Backoff(policy RetryPolicy, taskID string, failures int) time.Duration {
	wait := policy.InitialInterval.Or(DefaultInitialInterval)
	limit := policy.MaxInterval.Or(DefaultMaxInterval)
	for i := 1; i < failures && wait < limit; i++ {
		wait *= 2
	}
	if wait > limit {
		wait = limit
	}
	return min(wait+jitter(taskID, failures, min(maxJitter, wait)), limit)
}

// jitter is a fixed value in [0, bound) for a task and a count.
func jitter(taskID string, n int, bound time.Duration) time.Duration {
	if bound <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(taskID))
	_, _ = h.Write([]byte{byte(n), byte(n >> 8)})
	return time.Duration(h.Sum64() % uint64(bound))
}
