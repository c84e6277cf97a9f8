package hub

import (
	"context"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// holdsAttempts reports which attempts are in this hub: with its agents, or waiting. Healing ends those that no hub
// has.
func (c activities) holdsAttempts(
	_ context.Context, in contract.HoldsAttemptsInput,
) (contract.HoldsAttemptsResult, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	held := map[attemptKey]bool{}
	for _, s := range c.hub.sessions {
		if s.cluster != in.Cluster {
			continue
		}
		for key := range s.attempts {
			held[key] = true
		}
	}
	for _, l := range c.hub.lanes {
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
