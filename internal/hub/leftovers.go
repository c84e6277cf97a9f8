package hub

import (
	"time"

	"go.uber.org/zap"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	// maxDropped bounds the attempts that an agent must drop at a time. It also bounds those that it lists and the hub
	// never knew but remembers, because the agent may make them up.
	maxDropped = 256
	// stuckSpacing is the least time between two warnings of one agent's handlers.
	stuckSpacing = 10 * time.Second
)

// leftover is an attempt that an agent still has although it no longer counts: the agent is about to drop it, or
// cannot.
type leftover struct {
	toldAt   time.Time // when the agent was last asked to drop it
	occupies bool      // it keeps a slot from other work
	stuck    bool      // the agent reports that it cannot stop it
	since    time.Time // when the agent first listed it so
	// allocation is what its handler still has of the agent's resources
	allocation *api.Allocation
}

// countLeftoversLocked records attempts that an agent lists and the hub does not count. One that the agent was
// commanded to drop keeps its slot. One that is listed for the first time keeps none: it may just have ended, with a
// poll that crossed its result.
func (h *Hub) countLeftoversLocked(s *session, running []protocol.RunningAttempt, now time.Time) {
	var left map[attemptKey]*leftover // usually empty
	for _, r := range running {
		key := attemptKey{r.TaskID, r.Attempt}
		if s.work.attempts[key] != nil {
			continue
		}
		l := s.work.leftovers[key]
		if l == nil && len(left) >= maxDropped {
			continue
		}
		if l == nil {
			l = &leftover{}
		} else {
			l.occupies = true
		}
		if l.since.IsZero() {
			l.since = now
		}
		if left == nil {
			left = map[attemptKey]*leftover{}
		}
		left[key] = l
		if r.State == protocol.RunningStuck {
			if !l.stuck && now.Sub(s.work.complainedAt) >= stuckSpacing {
				s.work.complainedAt = now
				h.log.Warn("A handler does not stop; its slot stays in use", zap.String("agent", s.agent),
					zap.String("task", r.TaskID), zap.Int("attempt", r.Attempt))
			}
			l.stuck, l.occupies = true, true
			continue
		}
		if due := l.toldAt.IsZero() || now.Sub(l.toldAt) >= s.timing.FailureThreshold; due &&
			s.drop(key, "the attempt no longer counts") {
			l.toldAt = now
		}
	}
	before := s.work.leftovers
	s.work.leftovers = left
	for key, l := range before {
		if left[key] == nil {
			s.resources.reallocated(l.allocation)
			h.freePortsLocked(s, l.allocation, true)
		}
	}
}

// leave records an attempt that ends although its handler runs on: its slot stays in use until the agent no longer
// lists it. Call it before the attempt is forgotten.
func (s *session) leave(key attemptKey, l leftover) {
	if s.work.leftovers == nil {
		s.work.leftovers = map[attemptKey]*leftover{}
	}
	l.occupies = true
	if a := s.work.attempts[key]; a != nil {
		l.allocation = a.Allocation
	}
	s.resources.reallocated(l.allocation)
	s.work.leftovers[key] = &l
}
