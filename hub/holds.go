package hub

import (
	"context"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// holdsAttempts says which attempts agents of this hub have, or wait in it: healing ends those that nobody has.
func (h *Hub) holdsAttempts(_ context.Context, in contract.HoldsAttemptsInput) (contract.HoldsAttemptsResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := map[attemptKey]bool{}
	for _, s := range h.sessions {
		if s.cluster != in.Cluster {
			continue
		}
		for key := range s.attempts {
			held[key] = true
		}
	}
	for _, l := range h.lanes {
		for _, p := range l.parked {
			held[p.attempt.attemptKey] = true
		}
	}
	var result contract.HoldsAttemptsResult
	for _, a := range in.Attempts {
		if held[attemptKey{a.TaskID, a.Attempt}] {
			result.Held = append(result.Held, fleet.HeldAttempt{TaskID: a.TaskID, Attempt: a.Attempt})
		}
	}
	return result, nil
}
