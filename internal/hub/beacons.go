package hub

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// endingAllowance is the additional time for an agent that is stopping an overdue attempt, beside the grace of the
// work: how long a handler may take to return after that, and the time to report.
const endingAllowance = 10 * time.Second

// overdue reports whether an attempt is over its beacon timeout and its agent has had the time to end it.
func (h *Hub) overdue(a *attempt, r protocol.RunningAttempt, now time.Time) bool {
	if a.Beacon <= 0 {
		return false
	}
	allowed := a.Beacon.Std() + a.session.timing.HeartbeatInterval
	if r.State != "" {
		allowed += endingAllowance + a.StopGrace.Std()
	}
	return a.beaconAge(r, now) > allowed
}

// endOverdueLocked ends an attempt whose handler gives no sign of life and which its agent does not end. The agent
// lives, so the failure detector does not notice. The slot stays in use until the agent no longer lists the attempt.
func (h *Hub) endOverdueLocked(a *attempt, now time.Time) {
	s := a.session
	h.log.Warn("A handler gives no sign of life and its agent does not end it", zap.String("agent", s.agent),
		zap.String("task", a.Task),
		zap.Int("attempt", a.Attempt), zap.Duration("beacon_timeout", a.Beacon.Std()))
	h.metrics.overdue.Inc()
	s.countEnd(a, api.AttemptTimedOut, now)
	reason := fmt.Sprintf("no beacon for %s", a.Beacon.Std())
	s.leave(a.key(), leftover{toldAt: now})
	h.forgetLocked(a)
	a.command(protocol.CommandDrop, reason)
	report := a.report(h.id)
	report.Outcome, report.Reason = api.AttemptTimedOut, reason
	report.ErrorType, report.Begun, report.EndedAt = api.ErrorTypeNoBeacon, true, new(now.UTC())
	h.fail(a, report)
}
