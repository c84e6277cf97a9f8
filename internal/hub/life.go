package hub

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub/registry"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// A session opens with admitLocked, loses its connection with disconnectedLocked, and ends with endLocked. Its attempts
// are then lost (loseLocked) or given back to their lanes (giveBackLocked), unless their agent may bring them back
// (awaitLocked in grace.go).

// goodbyeKept is how long a hub remembers a goodbye: longer than a cluster takes to hear of it.
const goodbyeKept = time.Minute

// admitLocked opens the session of a joined agent, or brings an existing one up to date. from is the address that it
// registers from.
func (h *Hub) admitLocked(
	reg protocol.Register, from, token string, joined *cluster.Joined, now time.Time,
) (*session, error) {
	epoch := joined.Epoch
	s, directive := h.sessions[reg.AgentID], h.directives[reg.Cluster]
	if s != nil && s.cluster != reg.Cluster {
		return nil, foreignProblem() // it registered there while this one joined
	}
	if s != nil && (s.epoch > epoch || s.epoch == epoch && s.instance != reg.InstanceID) ||
		directive.Fenced(reg.AgentID, epoch) {
		return nil, fencedProblem() // a newer process registered while this one joined, here or at another hub
	}
	if directive.Ended(token) {
		return nil, revokedProblem() // it was revoked meanwhile
	}
	if left := h.goodbyes[reg.Cluster+"/"+reg.AgentID]; left != nil && left.instance == reg.InstanceID &&
		left.epoch == epoch && (reg.Registration <= left.registration.Registration ||
		left.registration.Registration == 0) { // its goodbye counts whatever registered since
		return nil, httpapi.RetryAfter(time.Second, "this process has said goodbye a moment ago")
	}
	if s != nil && s.instance != reg.InstanceID {
		h.fenceLocked(s, now)
		s = nil
	}
	if s == nil {
		s = newSession(reg, epoch, now)
		s.timing = h.config.Timing.For(len(h.sessions))
		if joined.GivenUp {
			h.metrics.mistakes.Inc()
		}
		if joined.Refuted != "" {
			h.metrics.refuted.Inc()
			h.log.Error("An agent lives although a proof said that it had ended", zap.String("agent", s.agent),
				zap.String("proof", joined.Refuted))
		}
		s.health = h.health.Open(s.agent)
		h.sessions[s.agent] = s
		h.metrics.registered.Inc()
	} else {
		fresh := newSession(reg, epoch, now)
		s.registration, s.candidate, s.kind = fresh.registration, fresh.candidate, fresh.kind
		s.reports.providers, s.link.lastContact, s.link.closedAt = reg.Providers, now, time.Time{}
		s.link.sequence, s.link.repliedAt, s.leaving.vacated = 0, time.Time{}, false
		s.health.Rejoined()
		s.orders.repeat(s.work.attempts)
	}
	s.token, s.mistakes = token, joined.Mistakes
	s.lease.length, s.lease.offered = h.newLeaseLocked(s), 0
	s.lease.longest, s.lease.unpolled = h.longestLease(), true
	h.moveLocked(s, from)
	h.states.Rejoined(s.cluster, s.reports.state != nil)
	listed := map[attemptKey]bool{}
	for _, r := range reg.Running {
		listed[attemptKey{r.TaskID, r.Attempt}] = true
		h.reattachLocked(s, r, now)
	}
	h.settleUnlistedLocked(s, listed, func(a *attempt) bool { return a.deliveredIn > 0 }, h.giveBackLocked)
	h.settleAwaitedLocked(s, listed)
	for _, a := range s.work.attempts {
		a.deliveredIn = min(a.deliveredIn, 1) // the process counts its polls from 1 again
	}
	s.orders.answerNow = len(reg.Running) > 0
	h.slotsChangedLocked(s)
	h.serveLocked(s)
	h.sendRoleLocked(s)
	h.registry.Changed(s.agent)
	return s, nil
}

// reattachLocked takes over an attempt that the agent still runs, as after a restart of the hub.
func (h *Hub) reattachLocked(s *session, r protocol.RunningAttempt, now time.Time) {
	key := attemptKey{r.TaskID, r.Attempt}
	a := s.work.attempts[key]
	if a == nil {
		claims, err := h.seal.openAttempt(r.Token)
		cluster, _, _ := contract.LaneOfQueue(claims.Lane)
		if err != nil || claims.Agent != s.agent || claims.Instance != s.instance || claims.Task != r.TaskID ||
			claims.Attempt != r.Attempt || cluster != "" && cluster != s.cluster {
			s.drop(key, "its token is not this session's")
			return
		}
		a = &attempt{attemptClaims: claims, session: s, sealed: r.Token, assignedAt: now, deliveredIn: 1}
		s.work.attempts[key] = a
		s.resources.reallocated(a.Allocation)
		h.fresh = append(h.fresh, a)
		h.metrics.reattached.Inc()
	}
	a.apply(r, now)
	a.beatNeeds = true // Temporal learns soon that this hub has it
}

// disconnectedLocked marks a session suspect.
func (h *Hub) disconnectedLocked(s *session, now time.Time) {
	s.link.conn = nil
	if s.gone || h.stopping {
		return
	}
	s.link.closedAt, s.link.unreachable = now, false
	h.away[s] = struct{}{}
	s.orders.repeat(s.work.attempts)
	h.slotsChangedLocked(s)
}

// givenUpLocked is the end of a lost session.
func (h *Hub) givenUpLocked(s *session, now time.Time) ending {
	e := ending{evidence: api.EvidenceSilence, after: now.Sub(s.link.lastContact),
		lease: s.lease.left(now), at: now}
	text := ""
	switch {
	case s.link.unreachable:
		e.evidence, text = api.EvidenceUnreachable, "its host does not answer; it last polled %s before"
	case s.link.closed():
		e.evidence, e.after = api.EvidenceClosed, now.Sub(s.link.closedAt)
		text = "its connection closed and it did not come back within %s"
	}
	e.after = e.after.Round(time.Millisecond)
	if text == "" {
		e.reason = fmt.Sprintf("no heartbeat for %g s (limit %g s)", e.after.Round(time.Second/10).Seconds(),
			s.timing.FailureThreshold.Seconds())
		return e
	}
	e.reason = fmt.Sprintf(text, e.after)
	return e
}

// ending is why and how a session ends.
type ending struct {
	reason string
	left   bool // the agent said goodbye
	fenced bool // a newer process has its id
	living bool // fenced, and connected until then
	// revoked: a person ended the session together with its join token.
	revoked bool
	// evidence is the sign by which a session was given up, and after the time from its last sign of life.
	evidence api.Evidence
	after    time.Duration
	lease    time.Duration // how long the agent may go on with fenced work
	at       time.Time
}

// fenceLocked ends a session whose agent id a newer process has.
func (h *Hub) fenceLocked(s *session, now time.Time) {
	h.endLocked(s, ending{reason: "a newer process took its agent id", fenced: true, living: h.takenLocked(s, now),
		lease: s.lease.left(now), at: now})
}

// endLocked closes a session: its attempts are lost or given back, its lanes released, and the cluster is notified.
func (h *Hub) endLocked(s *session, e ending) {
	if s.gone {
		return
	}
	h.log.Info("A session ended", zap.String("agent", s.agent), zap.String("cluster", s.cluster),
		zap.String("reason", e.reason), zap.Int("attempts", len(s.work.attempts)))
	h.metrics.ended.WithLabelValues(endKind(e)).Inc()
	if e.evidence != "" {
		h.metrics.givenUp.WithLabelValues(string(e.evidence)).Inc()
	}
	s.gone, s.fenced = true, e.fenced
	if s.reports.state != nil {
		h.states.Changed()
	}
	if h.sessions[s.agent] == s {
		delete(h.sessions, s.agent)
		h.leaveHostLocked(s)
	}
	s.health.Close(e.at)
	if s.link.conn != nil {
		s.link.conn.session = nil
		s.link.conn = nil
	}
	held, unlisted, awaited := h.endAttemptsLocked(s, &e)
	s.work.outbox = nil
	h.slotsChangedLocked(s)
	h.serveLocked(s)
	s.wake.Send()
	if e.left {
		h.leftLocked(s)
	}
	if e.evidence == "" { // it said goodbye, or somebody ended it
		h.brakeLocked(s.cluster).Back(s.agent)
	}
	if !e.fenced {
		t := s.transition(api.AgentOffline, e.reason, e.at)
		t.Left, t.LeaseRemaining, t.Attempts, t.Unlisted = e.left, new(api.Duration(e.lease)), held, unlisted
		t.Evidence, t.NoticedAfter, t.AwaitedUntil = e.evidence, api.Duration(e.after), awaited.UTC()
		h.notices.Notify(s.cluster, t)
	}
	h.registry.Remove(registry.Gone(&s.registration, s.openedAt))
}

// endAttemptsLocked loses, gives back or awaits each attempt of a session that ends. It returns the ones that the
// cluster lists with the agent's end, how many more there were, and until when the last is awaited.
func (h *Hub) endAttemptsLocked(s *session, e *ending) (held []cluster.HeldAttempt, unlisted int, awaited time.Time) {
	successor := h.successorsLocked(s)
	hold := func(a cluster.HeldAttempt) {
		if len(held) < api.MaxTransfers {
			held = append(held, a)
		} else {
			unlisted++
		}
	}
	for _, a := range s.work.attempts {
		if until := h.awaitLocked(a, e); !until.IsZero() {
			awaited = later(awaited, until)
			if a.JobInstance == nil { // jobs report their instances themselves
				one := a.held()
				one.AwaitedUntil = until.UTC()
				hold(one)
			}
			continue
		}
		hold(a.held())
		if a.mayHaveBegun() {
			a.contested, a.successor = e.living, successor(a)
			h.loseLocked(a, e.reason, e.lease)
		} else {
			h.giveBackLocked(a, e.reason)
		}
	}
	s.work.eachAllocation(func(a *api.Allocation) {
		s.resources.reallocated(a)
		h.freePortsLocked(s, a, true)
	})
	clear(s.work.attempts)
	return held, unlisted, awaited
}

func endKind(e ending) string {
	switch {
	case e.left:
		return "left"
	case e.fenced:
		return "fenced"
	case e.revoked:
		return "revoked"
	}
	return "lost"
}

// leftLocked remembers a goodbye. The cluster removes the member when it hears of it: a session that is opened for the
// same epoch meanwhile would belong to no member, and nobody would see it.
func (h *Hub) leftLocked(s *session) {
	id := s.cluster + "/" + s.agent
	h.goodbyes[id] = s
	time.AfterFunc(goodbyeKept, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.goodbyes[id] == s {
			delete(h.goodbyes, id)
		}
	})
}

// rejoin makes all agents register again, because the clusters may have given them up together with this hub. Running
// work goes on: the registrations list it.
func (f facts) rejoin() {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log.Warn("The hub was out of touch with Temporal; its agents register again", zap.Int("agents", len(h.sessions)))
	for _, b := range h.brakes {
		b.Release() // the reclaimer gives up who does not come back
	}
	for agent, s := range h.sessions {
		h.returnUndeliveredLocked(s, "the hub was out of touch with Temporal")
		delete(h.sessions, agent)
		h.leaveHostLocked(s)
		s.gone = true
		s.work.eachAllocation(s.resources.reallocated)
		clear(s.work.attempts)
		s.health.Close(time.Now())
		h.slotsChangedLocked(s)
		h.serveLocked(s)
		s.wake.Send()
	}
	h.reclaimer.ask(everyCluster)
}

// settleUnlistedLocked ends the attempts that the agent should have listed and did not. An accepted one is lost;
// another goes back to its lane with giveBack.
func (h *Hub) settleUnlistedLocked(s *session, listed map[attemptKey]bool, shouldList func(*attempt) bool,
	giveBack func(a *attempt, why string),
) {
	for key, a := range s.work.attempts {
		if listed[key] || !shouldList(a) {
			continue
		}
		h.forgetLocked(a)
		if !a.accepted {
			giveBack(a, "the agent did not receive it")
			continue
		}
		s.countUndone(a, time.Now())
		h.loseLocked(a, "the agent no longer has the attempt", 0) // no lease: by its own list the agent has stopped it
	}
}

// giveBackUnlistedLocked gives back an attempt that the agent's next poll does not list. If that poll came on the same
// connection as the answer, the agent had the answer and did not receive the assignment from it. On another connection
// the poll may be older than the answer's arrival, or the answer was lost.
func (h *Hub) giveBackUnlistedLocked(a *attempt, why string) {
	if a.deliveredOn == a.session.link.conn {
		a.session.countUndone(a, time.Now())
		h.giveBackUnreceivedLocked(a, "agent "+a.session.agent+" was given it and did not list it in its next poll")
		return
	}
	h.giveBackInTurnLocked(a, why, time.Now())
}

// takeBackLocked takes back an attempt that the agent did not list as running in time. It goes back to its lane if no
// answer carried it or it is idempotent; otherwise the agent may have begun it, so it counts as lost.
func (d detector) takeBackLocked(a *attempt, now time.Time) {
	h := d.hub
	if a.deliveredIn > 0 && a.session.loss.judged == cluster.Alive { // else its silence counts
		a.session.countUndone(a, now)
	}
	h.forgetLocked(a)
	if !a.mayHaveBegun() || a.input.Spec.Safety() == api.Idempotent {
		h.giveBackLocked(a, "the agent did not accept it in time")
		return
	}
	h.loseLocked(a, "the agent did not accept it in time", a.session.lease.most())
}

// returnUndeliveredLocked returns attempts that a session was assigned and no answer carried.
func (h *Hub) returnUndeliveredLocked(s *session, why string) {
	h.returnUndeliveredIfLocked(s, why, func(*attempt) bool { return true })
}

func (h *Hub) returnUndeliveredIfLocked(s *session, why string, returns func(*attempt) bool) {
	var kept []*attempt
	for _, a := range s.work.outbox {
		if !returns(a) {
			kept = append(kept, a)
			continue
		}
		delete(s.work.attempts, a.key())
		s.resources.reallocated(a.Allocation)
		h.giveBackLocked(a, why)
	}
	s.work.outbox = kept
	h.slotsChangedLocked(s)
}

// giveBackLocked returns an attempt that certainly never began to its lane; it does not count as an attempt.
func (h *Hub) giveBackLocked(a *attempt, why string) {
	h.giveBackAsLocked(a, why, false, 0)
}

// giveBackUnreceivedLocked is giveBackLocked for an attempt that reached a living agent, which did not receive it: the
// task may be unreadable.
func (h *Hub) giveBackUnreceivedLocked(a *attempt, why string) {
	h.metrics.notReceived.Inc()
	h.log.Warn("An agent did not receive a task", zap.String("agent", a.session.agent), zap.String("task", a.Task),
		zap.Int("attempt", a.Attempt), zap.String("why", why))
	h.giveBackAsLocked(a, why, true, 0)
}

func (h *Hub) giveBackAsLocked(a *attempt, why string, notReceived bool, after time.Duration) {
	h.metrics.returned.Inc()
	a.traceFailed(why)
	report := a.report(h.id)
	report.Outcome, report.Reason, report.Begun, report.NotReceived = api.AttemptReturned, why, false, notReceived
	report.RetryAfter = api.Duration(after)
	h.fail(a, report)
}

// giveBackInTurnLocked is giveBackLocked for a task that an agent did not begin although it could have: it may do so
// with each. One that is stopping gets no more.
func (h *Hub) giveBackInTurnLocked(a *attempt, why string, now time.Time) {
	turn := h.offers.Spend(a.Tenant, 1, now)
	if turn <= crowded || a.session.leaving.stopping {
		turn = 0
	}
	h.giveBackAsLocked(a, why, false, turn)
}

// forgetLocked removes an attempt from its session; the caller decides what follows.
func (h *Hub) forgetLocked(a *attempt) {
	s := a.session
	if w := h.awaited[a.key()]; w != nil && w.attempt == a {
		delete(h.awaited, a.key())
	}
	if s.work.attempts[a.key()] != a {
		return
	}
	delete(s.work.attempts, a.key())
	s.resources.reallocated(a.Allocation)
	if s.work.leftovers[a.key()] == nil {
		h.freePortsLocked(s, a.Allocation, a.mayHaveBegun())
	}
	for i, waiting := range s.work.outbox {
		if waiting == a {
			s.work.outbox = append(s.work.outbox[:i:i], s.work.outbox[i+1:]...)
			break
		}
	}
	h.slotsChangedLocked(s)
}

// loseLocked reports an attempt that may have begun and will bring no result. lease is how long the agent may still go
// on with it.
func (h *Hub) loseLocked(a *attempt, why string, lease time.Duration) {
	h.metrics.lost.Inc()
	a.traceFailed(why)
	now := time.Now().UTC()
	remaining := api.Duration(max(0, lease))
	report := a.report(h.id)
	report.Outcome, report.Reason, report.Begun = api.AttemptLost, why, true
	report.EndedAt, report.LeaseRemaining, report.NoticedAt = &now, &remaining, &now
	report.Prefer = a.successor
	report.Planned = a.contested // says nothing against the task
	if a.evacuation != nil {
		report.NoticedAt, report.Outcome = nil, api.AttemptMoved
		report.Reason, report.Target, report.Planned = a.evacuation.Reason, a.evacuation.Target, true
	}
	h.fail(a, report)
}

// fail reports the end of an attempt without a result. It is published once Temporal has it.
func (h *Hub) fail(a *attempt, report contract.AttemptReport) {
	h.responder.fail(a, report, boundLog(h.logs.Tail(a.Task, a.Attempt), a.logLimit()), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events.Ended(a.about(), &a.input, &report)
	})
}
