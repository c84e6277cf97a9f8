package hub

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/sdk/api"
)

// detectEvery is the time between two looks at the sessions; it adds to the time to notice a loss.
const detectEvery = 50 * time.Millisecond

// detectShare is what each session adds to the time between two looks while none is disconnected, so that looks at many
// cost little; silence shows so much later.
const detectShare = 50 * time.Microsecond

// briefly is the part of the grace within which an agent whose connection closed does not show as suspect: one that
// opens a connection for each poll is back by then.
const briefly = 4

// detector watches the sessions.
type detector struct{ hub *Hub }

// Run looks at the sessions until the context ends.
func (d detector) Run(ctx context.Context) {
	h := d.hub
	part.Every(ctx, detectEvery, func(now time.Time) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.stopping && (len(h.away) > 0 || now.Sub(h.judgedAt) >= time.Duration(len(h.sessions))*detectShare) {
			d.judgeAllLocked(now)
		}
	})
}

// judgeAllLocked ends lost sessions, unless their cluster's brake is engaged, and takes back assignments that agents
// did not accept in time.
func (d detector) judgeAllLocked(now time.Time) {
	h := d.hub
	h.judgedAt = now
	maps.DeleteFunc(h.away, func(s *session, _ struct{}) bool { return s.gone || s.disconnectedAt.IsZero() })
	d.settleBrakesLocked(now)
	for _, s := range h.sessions {
		s.countMissed(h.holdTimeLocked(s), now)
		judged := h.judgeLocked(s, now)
		if judged == cluster.Lost {
			switch b := h.brakes[s.cluster]; {
			case b.engaged:
				d.holdLocked(s, now)
			case !b.askCluster || !s.unjudged && b.unheardSince.IsZero():
				h.endLocked(s, h.givenUpLocked(s, now))
			}
			continue
		}
		if judged == cluster.Suspect && s.brieflyAway(now) {
			judged = s.judged
		}
		if judged != s.judged {
			h.log.Info("An agent's liveness changed", zap.String("agent", s.agent),
				zap.String("from", string(s.judged)), zap.String("to", string(judged)))
			h.publishLivenessLocked(s, judged, now)
			s.judged, s.judgedAt = judged, now
			h.registry.Changed(s.agent)
		}
		h.vacateLocked(s, now)
		for _, a := range s.attempts {
			if !a.accepted && now.Sub(a.assignedAt) > h.acceptTimeLocked(a) {
				d.takeBackLocked(a, now)
			} else if a.accepted && a.instance != nil {
				h.instances.see(h.id, a, now)
			}
		}
	}
	h.instances.tellLocked(h, now)
	d.endAwaitedLocked(now)
}

// givenUpLocked is the end of a lost session.
func (h *Hub) givenUpLocked(s *session, now time.Time) ending {
	e := ending{evidence: api.EvidenceSilence, after: now.Sub(s.lastContact),
		lease: h.leaseLeftLocked(s, now), at: now}
	text := ""
	switch {
	case s.unreachable:
		e.evidence, text = api.EvidenceUnreachable, "its host does not answer; it last polled %s before"
	case !s.disconnectedAt.IsZero():
		e.evidence, e.after = api.EvidenceClosed, now.Sub(s.disconnectedAt)
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

func (h *Hub) judgeLocked(s *session, now time.Time) cluster.Liveness {
	judged := s.timing.Judge(s.grace(), s.lastContact, s.disconnectedAt, now)
	if judged == cluster.Lost && now.Before(s.reprieve) {
		return cluster.Suspect
	}
	return judged
}

// acceptTimeLocked is how long the agent has to list an attempt as running. What an answer carried it may still begin
// until its lease ends, as when it was frozen meanwhile: idempotent work, which goes back, would then run twice.
func (h *Hub) acceptTimeLocked(a *attempt) time.Duration {
	if a.mayHaveBegun() && a.input.Spec.Safety() == api.Idempotent {
		return max(h.config.AcceptTimeout, h.leaseOfLocked(a.session))
	}
	return h.config.AcceptTimeout
}

// takeBackLocked takes back an attempt that the agent did not list as running in time. It goes back to its lane if no
// answer carried it or it is idempotent; otherwise the agent may have begun it, so it counts as lost.
func (d detector) takeBackLocked(a *attempt, now time.Time) {
	h := d.hub
	if a.deliveredIn > 0 && a.session.judged == cluster.Alive { // else its silence counts
		a.session.countUndone(a, now)
	}
	h.forgetLocked(a)
	if !a.mayHaveBegun() || a.input.Spec.Safety() == api.Idempotent {
		h.giveBackLocked(a, "the agent did not accept it in time")
		return
	}
	h.loseLocked(a, "the agent did not accept it in time", h.leaseOfLocked(a.session))
}

// ending is why and how a session ends.
type ending struct {
	reason string
	left   bool // the agent said goodbye
	fenced bool // a newer process has its id
	living bool // fenced, and connected until then
	// revoked: a person ended the session together with its join token.
	revoked bool
	// evidence and after say of a session that was given up on what, and how long after the last sign of life.
	evidence api.Evidence
	after    time.Duration
	lease    time.Duration // how long the agent may go on with fenced work
	at       time.Time
}

// fenceLocked ends a session whose agent id a newer process has.
func (h *Hub) fenceLocked(s *session, now time.Time) {
	h.endLocked(s, ending{reason: "a newer process took its agent id", fenced: true, living: h.takenLocked(s, now),
		lease: h.leaseLeftLocked(s, now), at: now})
}

// endLocked closes a session: its attempts are lost or given back, its lanes released, and the cluster is notified.
func (h *Hub) endLocked(s *session, e ending) {
	if s.gone {
		return
	}
	h.log.Info("A session ended", zap.String("agent", s.agent), zap.String("cluster", s.cluster),
		zap.String("reason", e.reason), zap.Int("attempts", len(s.attempts)))
	h.metrics.ended.WithLabelValues(endKind(e)).Inc()
	if e.evidence != "" {
		h.metrics.givenUp.WithLabelValues(string(e.evidence)).Inc()
	}
	s.gone, s.fenced = true, e.fenced
	if s.state != nil {
		h.states.Changed()
	}
	if h.sessions[s.agent] == s {
		delete(h.sessions, s.agent)
		h.leaveHostLocked(s)
	}
	h.closeListeningLocked(s, e.at)
	if s.conn != nil {
		s.conn.session = nil
		s.conn = nil
	}
	lease := api.Duration(e.lease)
	var held []cluster.HeldAttempt
	unlisted, successor := 0, h.successorsLocked(s)
	hold := func(a cluster.HeldAttempt) {
		if len(held) < api.MaxTransfers {
			held = append(held, a)
		} else {
			unlisted++
		}
	}
	var awaited time.Time
	for _, a := range s.attempts {
		if until := h.awaitLocked(a, &e); !until.IsZero() {
			awaited = later(awaited, until)
			if a.instance == nil { // instances are their jobs' to tell of
				hold(cluster.HeldAttempt{TaskID: a.task, Attempt: a.number, AwaitedUntil: until.UTC()})
			}
			continue
		}
		hold(cluster.HeldAttempt{TaskID: a.task, Attempt: a.number})
		if a.mayHaveBegun() {
			a.contested, a.successor = e.living, successor(a)
			h.loseLocked(a, e.reason, e.lease)
		} else {
			h.giveBackLocked(a, e.reason)
		}
	}
	s.eachAllocation(func(a *api.Allocation) {
		s.reallocated(a)
		h.freePortsLocked(s, a, true)
	})
	clear(s.attempts)
	s.outbox = nil
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
		t.Left, t.LeaseRemaining, t.Attempts, t.Unlisted = e.left, &lease, held, unlisted
		t.Evidence, t.NoticedAfter, t.AwaitedUntil = e.evidence, api.Duration(e.after), awaited.UTC()
		h.notices.Notify(s.cluster, t)
	}
	h.registry.Remove(s.workerGone())
}

// closeListeningLocked drops what the listeners keep about a session.
func (h *Hub) closeListeningLocked(s *session, now time.Time) {
	s.health.Close(now)
	h.states.Forget(s.agent)
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
