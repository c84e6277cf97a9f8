package fleet

import (
	"time"
)

// SpawnWait is how long to wait after the nth failure.
func SpawnWait(b SpawnBackoff, failures int) time.Duration {
	if b.Strategy == BackoffConstant {
		failures = 1
	}
	return Doubled(b.Delay.Std(), failures-1, b.MaxDelay.Std())
}
