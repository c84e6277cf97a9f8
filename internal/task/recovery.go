package task

import (
	"fmt"
	"time"

	"mainstay.dev/sdk/api"
)

// maxRecoveryAttempts bounds the attempts of a policy, and the histories that are kept.
const maxRecoveryAttempts = 50

// NextRecovery is when the next may begin, by a history of when earlier ones were to begin. It reports false when they
// are used up and none follows.
func NextRecovery(p *api.RecoveryPolicy, history []time.Time, now time.Time) (time.Time, bool) {
	active, limit := p.Active(history, now), *p.Attempts
	switch {
	case p.Unlimited || len(active) < limit:
		return now.Add(recoveryWait(p, len(active))), true
	case limit == 0 || p.Mode != api.ExhaustedDelay:
		return time.Time{}, false
	}
	at, free := now.Add(recoveryWait(p, limit-1)), active[len(active)-limit].Add(p.Interval.Std())
	if free.After(at) {
		at = free
	}
	return at, true
}

// recoveryWait is the wait after n that count.
func recoveryWait(p *api.RecoveryPolicy, n int) time.Duration {
	wait, limit := p.Delay.Std(), p.MaxDelay.Std()
	switch p.DelayFunction {
	case api.DelayExponential:
		return Doubled(wait, n, limit)
	case api.DelayFibonacci:
		for next := wait; n > 0 && wait < limit; n-- {
			wait, next = next, wait+next
		}
	}
	return min(wait, limit)
}

// recoveriesAllowed says how many are allowed.
func recoveriesAllowed(p *api.RecoveryPolicy, what string) string {
	return fmt.Sprintf("%s in %s", api.Count(*p.Attempts, what), p.Interval)
}
