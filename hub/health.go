package hub

import (
	"context"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

const (
	// healthLook is how often the agents are rated.
	healthLook = time.Second
	// A cluster is told of another level once it has lasted: a worse one soon, a better one later, so that what comes and
	// goes writes little.
	worseAfter  = 2 * time.Second
	betterAfter = 15 * time.Second
)

// watchHealth rates the agents until the hub stops, and tells their clusters of lasting changes.
func (h *Hub) watchHealth() {
	h.every(h.config.HealthInterval, func(now time.Time) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, s := range h.sessions {
			h.tellHealth(s, now)
		}
	})
}

// tellHealth tells an agent's cluster of its level when that has changed for long enough. Of an agent that is silent or
// disconnected nothing is told: the failure detector is at it. The mutex is held.
func (h *Hub) tellHealth(s *session, now time.Time) {
	if s.gone || s.held || s.judged != fleet.Alive {
		return
	}
	health := h.assess(s, now)
	if health.Busy { // that is no illness, and comes and goes
		health.Level, health.Why = fleet.HealthHealthy, ""
	}
	worse := health.Level.WorseThan(s.toldLevel)
	switch {
	case !worse && !s.toldLevel.WorseThan(health.Level):
		s.turnedAt = time.Time{}
		return
	case s.turnedAt.IsZero() || s.worsening != worse:
		s.turnedAt, s.worsening = now, worse
		return
	case worse && now.Sub(s.turnedAt) < worseAfter, !worse && now.Sub(s.turnedAt) < betterAfter:
		return
	}
	h.log.Info("An agent's health changed", zap.String("agent", s.agent), zap.String("from", string(s.toldLevel)), zap.String("to", string(health.Level)),
		zap.Float64("score", health.Score), zap.String("why", health.Why))
	s.toldLevel, s.turnedAt = health.Level, time.Time{}
	h.notices.transition(s.cluster, fleet.Transition{AgentID: s.agent, Instance: s.instance, Epoch: s.epoch, At: now.UTC(),
		Health: &fleet.MemberHealth{Level: health.Level, Score: health.Score, Why: health.Why, Since: now.UTC()}})
}

// stuck is how many handlers do not stop although they were told to: as the agent says, or as its lists show.
func (s *session) stuck(now time.Time) int {
	n := 0
	for _, l := range s.leftovers {
		if l.stuck || l.occupies && !l.since.IsZero() && now.Sub(l.since) > endingAllowance {
			n++
		}
	}
	return n
}

// readHealth rates the agents of a cluster that have a session here.
func (h *Hub) readHealth(_ context.Context, in contract.ReadHealthInput) (contract.ReadHealthResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	result := contract.ReadHealthResult{Agents: map[string]fleet.Health{}}
	for _, s := range h.sessions {
		if s.cluster == in.Cluster && (in.AgentID == "" || s.agent == in.AgentID) {
			result.Agents[s.agent] = h.assess(s, now)
		}
	}
	return result, nil
}

// assess rates a session by what it did within the last minutes. The mutex is held.
func (h *Hub) assess(s *session, now time.Time) fleet.Health {
	facts := s.window.Facts(fleet.HealthFacts{
		SelfReported: s.ownHealth, SelfNote: s.ownNote, Slots: s.registration.MaxTasks, Stuck: s.stuck(now),
		Silence: now.Sub(s.lastContact), Interval: h.holdTime(s),
		CPUPercent: &s.metrics.CPUPercent, MemoryPercent: &s.metrics.MemoryPercent, DiskPercent: &s.metrics.DiskPercent,
	}, now)
	health := fleet.AssessHealth(facts, s.health)
	s.health, s.score = health.Level, health.Score
	return health
}

// noteEnd counts the end of an attempt that an agent reported. One that was cancelled or taken off it says nothing about
// the agent. The mutex is held.
func (s *session) noteEnd(a *attempt, outcome fleet.AttemptOutcome, now time.Time) {
	if !a.cancelling && a.evacuation == nil {
		s.window.Ended(outcome, now)
	}
}
