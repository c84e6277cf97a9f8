package hub

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	// evacuateLook is the time between two checks whether the agent has stopped.
	evacuateLook = 50 * time.Millisecond
	// evacuateLimit is how long an agent has to stop.
	evacuateLimit = 45 * time.Second
	// relievedFor is how long an agent gets nothing new after tasks were moved off it.
	relievedFor = 5 * time.Second
)

// evacuate takes an agent's work off it for a failover by hand, and returns when the agent has stopped all of it. The
// agent gets nothing new meanwhile.
func (c activities) evacuate(ctx context.Context, in contract.EvacuateInput) (contract.EvacuateResult, error) {
	if len(in.Moves) > 0 {
		return c.moveTasks(&in)
	}
	s, moving, err := c.beginEvacuation(in)
	if err != nil {
		return contract.EvacuateResult{}, err
	}
	stopped := false
	defer func() { c.endEvacuation(s, in.Roles, stopped) }()
	var result contract.EvacuateResult
	for _, a := range moving {
		result.Attempts = append(result.Attempts, a.held())
	}
	limited, cancel := context.WithTimeout(ctx, evacuateLimit)
	defer cancel()
	var gone *temporal.ApplicationError
	switch err := lookEvery(limited, evacuateLook, func() (bool, error) { return c.evacuated(s, in.Roles, moving) }); {
	case err == nil:
		stopped = true
		return result, nil
	case errors.As(err, &gone):
		return result, gone
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
	s.leaving.evacuating = true
	if c.hub.directives[s.cluster].Mode != api.ActiveActive {
		in.Target = "" // roles decide who serves the lanes, and move too
		if in.Roles {
			c.hub.resignLocked(s)
		}
	}
	c.hub.slotsChangedLocked(s)
	var moving []*attempt
	for _, a := range s.work.attempts {
		if in.KeepSystem && a.JobInstance.OfEachAgent() {
			continue
		}
		if c.hub.takeOffLocked(a, &in) {
			moving = append(moving, a)
		}
	}
	return s, moving, nil
}

// takeOffLocked takes an attempt off its agent. It reports whether the agent has to stop it first.
func (h *Hub) takeOffLocked(a *attempt, in *contract.EvacuateInput) (stops bool) {
	if !a.mayHaveBegun() {
		h.forgetLocked(a)
		h.giveBackLocked(a, in.Reason)
		return false
	}
	a.evacuation = in
	a.command(protocol.CommandDrop, in.Reason)
	return true
}

// moveTasks takes single attempts off an agent, and returns the ones that it has and that may move. The agent gets
// nothing new for a while, so that others take them.
func (c activities) moveTasks(in *contract.EvacuateInput) (contract.EvacuateResult, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	s := c.hub.sessionLocked(in.AgentID, in.Instance, in.Epoch)
	if s == nil {
		return contract.EvacuateResult{}, noSession()
	}
	var result contract.EvacuateResult
	for _, m := range in.Moves {
		a := s.work.attempts[attemptKey{m.Task, m.Attempt}]
		if a == nil || !a.movable() {
			continue
		}
		result.Attempts = append(result.Attempts, a.held())
		c.hub.takeOffLocked(a, &contract.EvacuateInput{AgentID: in.AgentID, Target: m.To, Reason: in.Reason})
	}
	if len(result.Attempts) > 0 {
		s.leaving.relievedUntil = time.Now().Add(relievedFor)
		c.hub.slotsChangedLocked(s)
		time.AfterFunc(relievedFor, func() {
			c.hub.mu.Lock()
			defer c.hub.mu.Unlock()
			c.hub.slotsChangedLocked(s)
		})
	}
	return result, nil
}

// movable reports whether a rebalance may move the attempt: it may run again, on any agent that can run it, and nobody
// else moves or cancels it.
func (a *attempt) movable() bool {
	spec := &a.input.Spec
	return spec.Type != "" && spec.Agent == "" && !spec.Safety().NeedsPerson() && a.JobInstance == nil &&
		a.evacuation == nil && !a.cancelling && a.Allocation == nil && elementNumbers(&a.input) == nil
}

// evacuated reports whether the session has none of these attempts any more: the agent no longer lists them, or is
// gone. One that has resigned for it must have read so: of one that is gone the leases run on.
func (c activities) evacuated(s *session, roles bool, moving []*attempt) (bool, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for _, a := range moving {
		if s.work.attempts[a.key()] == a {
			return false, nil
		}
	}
	switch {
	case !roles || s.leaving.resigned == 0:
		return true, nil
	case s.gone:
		return false, noSession()
	}
	return s.orders.toldRole(), nil
}

// endEvacuation lets the agent have work again. If it did not stop, it keeps its roles; else its cluster gives them to
// others.
func (c activities) endEvacuation(s *session, roles, stopped bool) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	s.leaving.evacuating = false
	if roles && !stopped && s.leaving.resigned != 0 && !s.gone {
		s.leaving.resigned = 0
		c.hub.serveLocked(s)
		c.hub.sendRoleLocked(s)
	}
	c.hub.slotsChangedLocked(s)
	c.hub.registry.Changed(s.agent) // so that scaling sees that it is idle
}
