package hub

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// endingAllowance is how much longer an agent has that is stopping an overdue attempt itself: its grace for the
// handler, and the time to report.
const endingAllowance = 15 * time.Second

// beaconAge is how long ago the handler gave its last sign of life: as the agent says, else as far as the hub has seen.
func (a *attempt) beaconAge(r protocol.RunningAttempt, now time.Time) time.Duration {
	if r.BeaconAge != nil {
		return max(0, r.BeaconAge.Std())
	}
	return now.Sub(a.aliveAt)
}

// overdue reports whether an attempt is over its beacon timeout and its agent has had the time to end it.
func (h *Hub) overdue(a *attempt, r protocol.RunningAttempt, now time.Time) bool {
	if a.beacon <= 0 {
		return false
	}
	allowed := a.beacon + h.config.Timing.HeartbeatInterval
	if r.State != "" {
		allowed += endingAllowance
	}
	return a.beaconAge(r, now) > allowed
}

// endOverdueLocked ends an attempt whose handler gives no sign of life and which its agent does not end: the agent
// lives, so no failure detector would notice. Its slot stays in use until the agent no longer lists it.
func (h *Hub) endOverdueLocked(a *attempt, now time.Time) {
	s := a.session
	h.log.Warn("A handler gives no sign of life and its agent does not end it", zap.String("agent", s.agent),
		zap.String("task", a.task),
		zap.Int("attempt", a.number), zap.Duration("beacon_timeout", a.beacon))
	h.metrics.overdue.Inc()
	s.countEnd(a, fleet.AttemptTimedOut, now)
	reason := fmt.Sprintf("no beacon for %s", a.beacon)
	s.leave(a.attemptKey, leftover{toldAt: now})
	h.forgetLocked(a)
	s.command(protocol.Command{Type: protocol.CommandDrop, TaskID: a.task, Attempt: a.number, Reason: reason})
	ended := now.UTC()
	report := a.report(h.id)
	report.Outcome, report.Reason = fleet.AttemptTimedOut, reason
	report.ErrorType, report.Begun, report.EndedAt = fleet.ErrorTypeNoBeacon, true, &ended
	h.fail(a, report)
}
