package hub

import (
	"slices"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// parked is a task that came from a lane when no slot was free.
type parked struct {
	attempt *attempt
	timer   *time.Timer
}

// took takes a task that a lane poll brought: it goes to the best session with a free slot, or is parked if one may become free. The mutex is
// held.
func (h *Hub) took(l *lane, task *workflowservice.PollActivityTaskQueueResponse) {
	a := &attempt{token: task.GetTaskToken(), lane: l.name, takenAt: time.Now(), inLane: waitedInLane(task)}
	if err := converter.GetDefaultDataConverter().FromPayloads(task.GetInput(), &a.input); err != nil {
		h.log.Error("A task on a lane cannot be read", zap.String("lane", l.name), zap.Error(err))
		h.fail(a, contract.AttemptReport{Hub: h.id, Outcome: fleet.AttemptFailed, Final: true, Reason: "the hub cannot read the task: it was made by another version"})
		return
	}
	a.attemptKey = attemptKey{a.input.TaskID, a.input.Attempt}
	h.traceDelivery(a, task.GetHeader())
	a.taskType, a.tenant = a.input.Spec.Type, a.input.Spec.Tenant
	if t := task.GetScheduledTime(); t != nil {
		a.queuedAt = t.AsTime()
	}
	if h.stopping {
		h.giveBack(a, "the hub is stopping")
		return
	}
	if h.place(l, a) {
		return
	}
	if len(l.sessions) == 0 {
		h.giveBack(a, "no agent of this hub serves the lane any more")
		return
	}
	if !l.mayServe(&a.input.Spec, time.Now()) {
		h.giveBackUnplaced(l, a, time.Now()) // to wait here would help nobody
		return
	}
	h.metrics.parked.Inc()
	p := &parked{attempt: a}
	p.timer = time.AfterFunc(h.config.Park, func() { h.parkEnded(l, p) })
	l.parked = append(l.parked, p)
}

// place gives an attempt to the best session of the lane. It reports false when none has a free slot. The mutex is held.
func (h *Hub) place(l *lane, a *attempt) bool {
	sessions := make([]*session, 0, len(l.sessions))
	candidates := make([]fleet.Candidate, 0, len(l.sessions))
	for s := range l.sessions {
		if s.free > 0 {
			sessions = append(sessions, s)
			candidates = append(candidates, s.live())
		}
	}
	chosen := fleet.Place(&a.input.Spec, candidates, fleet.Hint{Prefer: a.input.PreferAgent, Avoid: a.input.TransferredFrom}, time.Now())
	if chosen < 0 {
		return false
	}
	h.assign(sessions[chosen], a)
	return true
}

// assign puts an attempt in a session's outbox and wakes its poll. The mutex is held.
func (h *Hub) assign(s *session, a *attempt) {
	a.session, a.assignedAt, a.beacon = s, time.Now(), a.input.Spec.BeaconTimeout.Std()
	a.sealed = h.seal.attempt(attemptClaims{Task: a.task, Attempt: a.number, Agent: s.agent, Instance: s.instance, Epoch: s.epoch, Lane: a.lane, Temporal: a.token, Beacon: a.input.Spec.BeaconTimeout,
		Type: a.taskType, Tenant: a.tenant})
	s.attempts[a.attemptKey] = a
	s.outbox = append(s.outbox, a)
	h.slotsChanged(s)
	s.signal()
}

// assignment is what the agent is told of an attempt.
func (a *attempt) assignment() protocol.Assignment {
	spec := &a.input.Spec
	return protocol.Assignment{
		TaskID: a.task, Attempt: a.number, Type: spec.Type, Cluster: spec.Cluster, Payload: spec.Payload, Token: a.sealed,
		RetrySafety: spec.Safety(), Timeout: fleet.Duration(spec.Timeout.Or(fleet.DefaultTaskTimeout)), Beacon: spec.BeaconTimeout,
		Checkpoint: a.input.Checkpoint, Labels: spec.Labels, Tenant: spec.Tenant, TransferredFrom: a.input.TransferredFrom,
		TraceParent: a.trace["traceparent"], TraceState: a.trace["tracestate"],
	}
}

// unpark places parked tasks while slots are free. The mutex is held.
func (h *Hub) unpark(l *lane) {
	for len(l.parked) > 0 && l.free > 0 {
		placed := false
		for i, p := range l.parked {
			if h.place(l, p.attempt) {
				p.timer.Stop()
				l.parked = slices.Delete(l.parked, i, i+1)
				placed = true
				break
			}
		}
		if !placed {
			return
		}
	}
}

// parkEnded returns a task that waited long enough.
func (h *Hub) parkEnded(l *lane, p *parked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(l.parked, p)
	if i < 0 {
		return
	}
	l.parked = slices.Delete(l.parked, i, i+1)
	h.giveBackUnplaced(l, p.attempt, time.Now())
	h.fill(l)
}

// returnParked returns all parked tasks of a lane. The mutex is held.
func (h *Hub) returnParked(l *lane, why string) {
	for _, p := range l.parked {
		p.timer.Stop()
		h.giveBack(p.attempt, why)
	}
	l.parked = nil
}

// returnUndelivered returns what a session was assigned but never told. The mutex is held.
func (h *Hub) returnUndelivered(s *session, why string) {
	h.returnUndeliveredIf(s, why, func(*attempt) bool { return true })
}

func (h *Hub) returnUndeliveredIf(s *session, why string, returns func(*attempt) bool) {
	var kept []*attempt
	for _, a := range s.outbox {
		if !returns(a) {
			kept = append(kept, a)
			continue
		}
		delete(s.attempts, a.attemptKey)
		h.giveBack(a, why)
	}
	s.outbox = kept
	h.slotsChanged(s)
}

// giveBack returns an attempt that certainly never began to its lane; it does not count as an attempt. The mutex is
// held.
func (h *Hub) giveBack(a *attempt, why string) {
	h.giveBackAs(a, why, false)
}

// giveBackUnreceived is giveBack for an attempt that reached an agent that lives and that did not receive it: it may be that the
// task cannot be read. The mutex is held.
func (h *Hub) giveBackUnreceived(a *attempt, why string) {
	h.metrics.notReceived.Inc()
	h.log.Warn("An agent did not receive a task", zap.String("agent", a.session.agent), zap.String("task", a.task), zap.Int("attempt", a.number), zap.String("why", why))
	h.giveBackAs(a, why, true)
}

func (h *Hub) giveBackAs(a *attempt, why string, notReceived bool) {
	h.metrics.returned.Inc()
	a.traceFailed(why)
	report := a.report(h.id)
	report.Outcome, report.Reason, report.Begun, report.NotReceived = fleet.AttemptReturned, why, false, notReceived
	h.fail(a, report)
}
