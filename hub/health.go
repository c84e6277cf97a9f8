package hub

import (
	"context"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

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
		Silence: now.Sub(s.lastContact), Interval: h.config.Timing.Hold(h.lease(s)), Stuck: s.occupied(),
		CPUPercent: &s.metrics.CPUPercent, MemoryPercent: &s.metrics.MemoryPercent, DiskPercent: &s.metrics.DiskPercent,
	}, now)
	health := fleet.AssessHealth(facts, s.health)
	s.health = health.Level
	return health
}

// noteEnd counts the end of an attempt that an agent reported. One that was cancelled or taken off it says nothing about
// the agent. The mutex is held.
func (s *session) noteEnd(a *attempt, outcome fleet.AttemptOutcome, now time.Time) {
	if !a.cancelling && a.evacuation == nil {
		s.window.Ended(outcome, now)
	}
}
