package hub

import (
	"context"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// holdPoll handles one poll. The poll is the session's heartbeat and acknowledges assignments. holdPoll answers at once
// when it has work or commands, else after the heartbeat interval.
func (h *Hub) holdPoll(
	ctx context.Context, claims sessionClaims, conn *connection, poll protocol.Poll,
) (protocol.Polled, error) {
	h.mu.Lock()
	s, err := h.findLocked(claims)
	if err != nil {
		h.mu.Unlock()
		return protocol.Polled{}, err
	}
	if poll.Sequence <= s.link.sequence {
		h.mu.Unlock()
		return protocol.Polled{}, nil // a late duplicate of an answered poll
	}
	h.applyPollLocked(s, conn, poll, time.Now())
	s.wake.Send() // ends an older poll that is still held; this one looks at the outbox first
	hold := time.NewTimer(h.holdTimeLocked(s))
	defer hold.Stop()
	for waiting := !s.orders.answerNow; ; {
		if s.gone {
			defer h.mu.Unlock()
			if s.fenced {
				return protocol.Polled{}, fencedProblem()
			}
			_, err := h.findLocked(claims)
			return protocol.Polled{}, err
		}
		if s.link.sequence != poll.Sequence {
			h.mu.Unlock()
			s.wake.Send() // the wake was for the newer poll
			return protocol.Polled{}, nil
		}
		if len(s.work.outbox) > 0 || len(s.orders.waiting) > 0 || !waiting || h.stopping {
			answer := h.answerLocked(s, time.Now())
			h.mu.Unlock()
			return answer, nil
		}
		h.mu.Unlock()
		select {
		case <-s.wake:
		case <-hold.C:
			waiting = false
		case <-ctx.Done():
			// The connection closed or the server stops. ConnState marks the session, unless another server is in
			// front.
			h.mu.Lock()
			if s.link.sequence == poll.Sequence && !s.gone && !s.link.closed() {
				h.disconnectedLocked(s, time.Now())
			}
			h.mu.Unlock()
			return protocol.Polled{}, nil // the connection is closed
		}
		h.mu.Lock()
	}
}

// answerLocked empties the outbox and the commands into one answer.
func (h *Hub) answerLocked(s *session, now time.Time) protocol.Polled {
	answer := protocol.Polled{Commands: s.orders.waiting, LeaseHeld: !h.lease.Fresh(now)}
	for _, a := range s.work.outbox {
		a.deliveredIn, a.deliveredOn = s.link.sequence, s.link.conn
		answer.Assignments = append(answer.Assignments, a.assignment())
	}
	s.orders.told, s.orders.toldIn, s.link.repliedAt = s.orders.waiting, s.link.sequence, now
	s.work.outbox, s.orders.waiting, s.orders.answerNow = nil, nil, false
	if !answer.LeaseHeld {
		s.lease.answeredAt = now
		h.offerLeaseLocked(s, &answer, now)
	}
	return answer
}

// applyPollLocked brings the session up to date with a poll.
func (h *Hub) applyPollLocked(s *session, conn *connection, poll protocol.Poll, now time.Time) {
	poll.Metrics.Bound()
	s.health.Heartbeat(now.Sub(s.link.lastContact), h.holdTimeLocked(s), poll.Metrics, now)
	s.link.measure(&poll, s.orders.toldIn, now)
	if poll.Answered != nil && *poll.Answered < s.orders.toldIn {
		s.orders.repeat(s.work.attempts)
	}
	s.link.sequence, s.link.lastContact, s.orders.told = poll.Sequence, now, nil
	s.lease.read(poll.Lease.Std())
	s.attach(conn)
	h.unholdLocked(s, now)
	s.reports.metrics, s.reports.counters, s.reports.health = poll.Metrics, poll.Counters, poll.Health
	s.reports.note = api.Printable(poll.HealthNote)
	if poll.Providers != nil {
		s.reports.providers = poll.Providers
	}
	if poll.State != nil && (s.reports.state == nil || s.reports.state.Digest != poll.State.Digest) {
		s.reports.state = poll.State
		h.states.Changed()
	}
	if poll.Stopping && !s.leaving.stopping {
		s.leaving.stopping, s.leaving.stoppingAt = true, now
		h.resignLocked(s)
		h.registry.Changed(s.agent)
	}
	for _, r := range poll.Returned {
		if a := s.work.attempts[attemptKey{r.TaskID, r.Attempt}]; a != nil && !a.accepted {
			a.deliveredIn = 0 // it certainly never began
			h.forgetLocked(a)
			if why := h.avoidPortLocked(a, r.PortInUse); why != "" {
				h.slotsChangedLocked(s)
				h.giveBackInTurnLocked(a, why, now)
				continue
			}
			if r.Unreadable != "" {
				h.giveBackUnreceivedLocked(a, "agent "+s.agent+" cannot read it: "+r.Unreadable)
				continue
			}
			s.countUndone(a, now)
			h.giveBackInTurnLocked(a, "the agent handed it back", now)
		}
	}
	listed := make(map[attemptKey]bool, len(poll.Running))
	var overdue []*attempt
	for _, r := range poll.Running {
		key := attemptKey{r.TaskID, r.Attempt}
		listed[key] = true
		if a := s.work.attempts[key]; a != nil {
			h.applyRunningLocked(a, r, now)
			if h.overdue(a, r, now) {
				overdue = append(overdue, a)
			}
		}
	}
	h.countLeftoversLocked(s, poll.Running, now)
	for _, a := range overdue {
		h.endOverdueLocked(a, now)
	}
	h.settleUnlistedLocked(s, listed, func(a *attempt) bool {
		return a.deliveredIn > 0 &&
			a.deliveredIn < poll.Sequence
	}, h.giveBackUnlistedLocked)
	if s.leaving.stopping {
		h.returnUndeliveredLocked(s, "the agent is stopping")
	}
	h.slotsChangedLocked(s)
}

// applyRunningLocked applies the agent's report of one running attempt, and publishes what is new.
func (h *Hub) applyRunningLocked(a *attempt, r protocol.RunningAttempt, now time.Time) {
	accepted := a.accepted
	a.apply(r, now)
	if !accepted {
		a.session.work.ever = true
		h.countAcceptedLocked(a, now)
		h.events.Running(a.about(), a.input.TransferredFrom, a.queuedAt)
	}
	h.events.Progress(a.about(), now, a.progress, &a.published)
}
