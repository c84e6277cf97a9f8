package scaling

import (
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// SpawnWait is how long to wait after the nth failure.
func SpawnWait(b api.SpawnBackoff, failures int) time.Duration {
	if b.Strategy == api.BackoffConstant {
		failures = 1
	}
	return task.Doubled(b.Delay.Std(), failures-1, b.MaxDelay.Std())
}
