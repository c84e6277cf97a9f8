package hub

import (
	"context"
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
// cost little. Silence shows later by that time.
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
	maps.DeleteFunc(h.away, func(s *session, _ struct{}) bool { return s.gone || !s.link.closed() })
	d.settleBrakesLocked(now)
	for _, s := range h.sessions {
		s.countMissed(h.holdTimeLocked(s), now)
		judged := h.judgeLocked(s, now)
		if judged == cluster.Lost {
			switch b := h.brakes[s.cluster]; {
			case b.engaged:
				d.holdLocked(s, now)
			case !b.askCluster || !s.loss.unjudged && b.unheardSince.IsZero():
				h.endLocked(s, h.givenUpLocked(s, now))
			}
			continue
		}
		if judged == cluster.Suspect && s.brieflyAway(now) {
			judged = s.loss.judged
		}
		if judged != s.loss.judged {
			h.log.Info("An agent's liveness changed", zap.String("agent", s.agent),
				zap.String("from", string(s.loss.judged)), zap.String("to", string(judged)))
			about := api.EventData{Cluster: s.cluster, AgentID: s.agent, Epoch: s.epoch}
			h.events.Liveness(about, now, judged, s.link.closed(), &s.loss.published)
			s.loss.judged, s.loss.judgedAt = judged, now
			h.registry.Changed(s.agent)
		}
		h.vacateLocked(s, now)
		for _, a := range s.work.attempts {
			if !a.accepted && now.Sub(a.assignedAt) > h.acceptTimeLocked(a) {
				d.takeBackLocked(a, now)
			} else if a.accepted && a.JobInstance != nil {
				h.instances.see(h.id, a, now)
			}
		}
	}
	h.instances.tell(h, now)
	d.endAwaitedLocked(now)
}

func (h *Hub) judgeLocked(s *session, now time.Time) cluster.Liveness {
	judged := s.timing.Judge(s.grace(), s.link.lastContact, s.link.closedAt, now)
	if judged == cluster.Lost && now.Before(s.loss.reprieve) {
		return cluster.Suspect
	}
	return judged
}

// acceptTimeLocked is how long the agent has to list an attempt as running. It may begin one that an answer carried
// until its lease ends, as after it was frozen: idempotent work that had gone back would then run twice.
func (h *Hub) acceptTimeLocked(a *attempt) time.Duration {
	if a.mayHaveBegun() && a.input.Spec.Safety() == api.Idempotent {
		return max(h.config.AcceptTimeout, a.session.lease.most())
	}
	return h.config.AcceptTimeout
}
