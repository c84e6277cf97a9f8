package hub

import (
	"context"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

const (
	// evacuateLook is the time between two checks whether the agent has stopped.
	evacuateLook = 50 * time.Millisecond
	// evacuateLimit is how long an agent has to stop.
	evacuateLimit = 45 * time.Second
)

// evacuate takes an agent's work off it for a failover by hand, and returns when the agent has stopped all of it. The
// agent gets nothing new meanwhile.
func (c activities) evacuate(ctx context.Context, in contract.EvacuateInput) (contract.EvacuateResult, error) {
	s, moving, err := c.beginEvacuation(in)
	if err != nil {
		return contract.EvacuateResult{}, err
	}
	defer c.endEvacuation(s)
	var result contract.EvacuateResult
	for _, a := range moving {
		result.Attempts = append(result.Attempts, fleet.HeldAttempt{TaskID: a.task, Attempt: a.number})
	}
	limited, cancel := context.WithTimeout(ctx, evacuateLimit)
	defer cancel()
	switch err := lookEvery(limited, evacuateLook, func() (bool, error) { return c.evacuated(s, moving), nil }); {
	case err == nil:
		return result, nil
	case ctx.Err() != nil: // the hub stops
		return result, noSession()
	}
	return result, temporal.NewNonRetryableApplicationError(
		"the agent does not stop its work: its handlers ignore that they are cancelled", contract.NotStopped, nil)
}

func (c activities) beginEvacuation(in contract.EvacuateInput) (*session, []*attempt, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	s := c.hub.sessionLocked(in.AgentID, in.Instance, in.Epoch)
	if s == nil {
		return nil, nil, noSession()
	}
	s.evacuating = true
	if c.hub.directives[s.cluster].Mode != fleet.ActiveActive {
		in.Target = "" // roles decide who serves the lanes, and move too
	}
	c.hub.slotsChangedLocked(s)
	var moving []*attempt
	for _, a := range s.attempts {
		if !a.mayHaveBegun() {
			c.hub.forgetLocked(a)
			c.hub.giveBackLocked(a, in.Reason)
			continue
		}
		a.evacuation = &in
		moving = append(moving, a)
		s.command(protocol.Command{Type: protocol.CommandDrop, TaskID: a.task, Attempt: a.number, Reason: in.Reason})
	}
	return s, moving, nil
}

// evacuated reports whether the session has none of these attempts any more: the agent no longer lists them, or is
// gone.
func (c activities) evacuated(s *session, moving []*attempt) bool {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for _, a := range moving {
		if s.attempts[a.attemptKey] == a {
			return false
		}
	}
	return true
}

func (c activities) endEvacuation(s *session) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	s.evacuating = false
	c.hub.slotsChangedLocked(s)
	c.hub.registry.Soon() // so that scaling sees that it is idle
}
