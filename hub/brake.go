package hub

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// reprieveGraces is how many disconnect graces a held session has to come back after the brake was released. An agent
// that cannot connect tries at least every two seconds.
const reprieveGraces = 5

// settleBrakesLocked brings every cluster's mass-loss brake up to date and returns the clusters where it is engaged.
// Agents count as soon as they are suspect, so that the brake knows of the others before the first is given up.
func (d detector) settleBrakesLocked(now time.Time) map[string]bool {
	h := d.hub
	online := map[string]int{}
	for _, s := range h.sessions {
		b := h.brakeLocked(s.cluster)
		stood := s.lastContact.Sub(s.openedAt) // an agent that is held grows no older
		counts := fleet.CountsForBrake(stood, s.worked, h.config.BrakeStanding)
		switch h.judgeLocked(s, now) {
		case fleet.Suspect, fleet.Lost:
			if counts && !s.poisoned() {
				b.Lost(s.agent, now)
			}
		default:
			b.Back(s.agent)
			if counts {
				online[s.cluster]++
			}
		}
	}
	engaged := map[string]bool{}
	for cluster, b := range h.brakes {
		was := !b.EngagedAt.IsZero()
		is := b.Settle(online[cluster], now)
		if is {
			engaged[cluster] = true
		}
		if was && !is {
			d.reprieveLocked(cluster, now)
		}
		if was != is {
			h.notices.Notify(cluster)
			h.log.Warn("The mass-loss brake changed", zap.String("cluster", cluster), zap.Bool("engaged", is),
				zap.Int("lost", len(b.Losses)), zap.Int("online", online[cluster]))
		}
	}
	return engaged
}

// poisoned reports whether the session runs a task that was lost with several agents before.
func (s *session) poisoned() bool {
	for _, a := range s.attempts {
		if a.mayHaveBegun() && a.input.Tally.Poisonous() {
			return true
		}
	}
	return false
}

func (h *Hub) brakeLocked(cluster string) *fleet.Brake {
	b := h.brakes[cluster]
	if b == nil {
		b = &fleet.Brake{}
		h.brakes[cluster] = b
	}
	b.Policy = h.directives[cluster].Brake
	return b
}

// reprieveLocked gives the sessions that the brake held some time to come back after its release: the first returns
// show that the network recovers, and the others may be on their way.
func (d detector) reprieveLocked(cluster string, now time.Time) {
	h := d.hub
	for _, s := range h.sessions {
		if s.cluster == cluster && s.held {
			s.reprieve = now.Add(reprieveGraces * h.config.Timing.DisconnectGrace)
		}
	}
}

// holdLocked keeps a lost session and its attempts while the brake is engaged, and notifies the cluster once.
func (d detector) holdLocked(s *session, now time.Time) {
	h := d.hub
	if s.held {
		return
	}
	s.held = true
	h.slotsChangedLocked(s)
	why := fmt.Sprintf("held by the mass-loss brake: %d agents vanished at once; its %d attempts wait for it",
		len(h.brakeLocked(s.cluster).Losses), len(s.attempts))
	h.notices.Notify(s.cluster, s.transition(fleet.AgentSuspect, why, now))
}

// unholdLocked takes a held session back when its agent polls again.
func (h *Hub) unholdLocked(s *session, now time.Time) {
	if !s.held {
		return
	}
	s.held = false
	h.notices.Notify(s.cluster, s.transition(fleet.AgentOnline, "it is back", now))
}

// releaseBrake gives up the agents that the brake holds, because a person released it.
func (c activities) releaseBrake(_ context.Context, request contract.ReleaseBrakeRequest) error {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.brakeLocked(request.Cluster).Release()
	c.hub.notices.Notify(request.Cluster)
	now := time.Now()
	for _, s := range c.hub.sessions {
		if s.cluster == request.Cluster && s.held {
			e := c.hub.givenUpLocked(s, now)
			e.reason += "; the mass-loss brake was released by hand"
			c.hub.endLocked(s, e)
		}
	}
	return nil
}
