package hub

import (
	"fmt"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// giveBackUnplacedLocked returns a task that no agent of the lane took, with the reason and the earliest time to try
// again.
func (l *lane) giveBackUnplacedLocked(a *attempt, now time.Time) {
	h := l.hub
	h.metrics.returned.Inc()
	a.traceFailed("no agent could take it")
	report := a.report(h.id)
	report.Outcome = fleet.AttemptReturned
	report.Reason, report.Unhandled, report.RetryAfter = l.whyUnplacedLocked(&a.input.Spec, now)
	h.fail(a, report)
}

// mayServeLocked reports whether an agent of the lane can run a task, busy or not.
func (l *lane) mayServeLocked(spec *fleet.TaskSpec, now time.Time) bool {
	for s := range l.sessions {
		c := s.live()
		if c.Eligible(spec, now) {
			return true
		}
	}
	return false
}

// whyUnplacedLocked explains why no agent of the lane took a task: whether none could, busy or not, and when the first
// rate limit that blocks an agent ends.
func (l *lane) whyUnplacedLocked(
	spec *fleet.TaskSpec, now time.Time,
) (why string, unhandled bool, retryAfter fleet.Duration) {
	var first time.Time
	if l.mayServeLocked(spec, now) {
		return "every agent that can run it is busy", false, 0
	}
	for s := range l.sessions {
		c := s.live()
		if until, limited := c.Providers.LimitedUntil(spec.Provider, now); limited && c.Fits(spec) &&
			(first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	if !first.IsZero() {
		return fmt.Sprintf("provider %s limits the rate of every agent that can run it, the first until %s",
				spec.Provider, first.UTC().Format(time.RFC3339)),
			false, fleet.Duration(first.Sub(now))
	}
	if spec.NeedsTreeEnd() {
		return "no agent here that has the capabilities it needs runs commands and ends all of their processes when it is lost", true, 0
	}
	return "no agent here has a handler for its type and the capabilities it needs", true, 0
}
