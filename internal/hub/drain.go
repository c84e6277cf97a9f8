package hub

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// idleLook is the time between two checks whether a drained agent has finished.
const idleLook = 100 * time.Millisecond

// leavingFor is how long after the last look of a drain its agent counts as one that is being left.
const leavingFor = time.Second

// stopWork stops new work for the agent, takes back the tasks that no answer has carried to it, and lists what the
// agent has once it has confirmed all deliveries. Nothing arrives at the agent afterwards. It may be repeated.
func (c activities) stopWork(ctx context.Context, in contract.StopWorkInput) (contract.StopWorkResult, error) {
	var result contract.StopWorkResult
	return result, lookEvery(ctx, idleLook, func() (settled bool, err error) {
		result, settled, err = c.tryStopWork(in)
		return settled || in.DryRun, err
	})
}

// lookEvery looks again and again, with a heartbeat each time, until it is done or ctx ends.
func lookEvery(ctx context.Context, interval time.Duration, look func() (done bool, err error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		activity.RecordHeartbeat(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c activities) tryStopWork(in contract.StopWorkInput) (result contract.StopWorkResult, settled bool, err error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	s := c.hub.sessionLocked(in.AgentID, in.Instance, in.Epoch)
	if s == nil {
		return result, false, noSession()
	}
	if !in.DryRun {
		s.leaving.cordonedUntil = in.Version
		c.hub.serveLocked(s)
		c.hub.returnUndeliveredLocked(s, "the agent is being drained")
	}
	settled = true
	for _, a := range s.work.attempts {
		settled = settled && a.accepted
		result.Work = append(result.Work, a.drainWork(in.IncludeSystem))
	}
	slices.SortFunc(result.Work, func(a, b api.DrainWork) int { return strings.Compare(a.TaskID, b.TaskID) })
	result.Work = result.Work[:min(len(result.Work), api.MaxDrainWork)]
	return result, settled, nil
}

// awaitIdle returns when the agent has nothing in flight.
func (c activities) awaitIdle(ctx context.Context, in contract.AwaitIdleInput) error {
	var left []cluster.HeldAttempt
	return lookEvery(ctx, idleLook, func() (idle bool, err error) {
		left, idle, err = c.whatIsLeft(in, left)
		return idle, err
	})
}

// whatIsLeft returns what the agent has in flight. before is the result of the last look: the error has it, if the
// agent has gone with it.
func (c activities) whatIsLeft(
	in contract.AwaitIdleInput, before []cluster.HeldAttempt,
) (left []cluster.HeldAttempt, idle bool, err error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	s := c.hub.sessionLocked(in.AgentID, in.Instance, in.Epoch)
	switch {
	case s == nil:
		return before, false, temporal.NewNonRetryableApplicationError(noSessionText, contract.NoSession, nil, before)
	case s.work.awaited(in.IncludeSystem):
		s.leaving.drainedUntil = time.Now().Add(leavingFor)
		for _, a := range s.work.attempts {
			left = append(left, a.held())
		}
		return left, false, nil
	}
	c.hub.registry.Changed(s.agent) // so that scaling sees that it is idle
	return nil, true, nil
}

// drainWork is a drain's entry about an attempt. After a restart of the hub the task's type is unknown.
func (a *attempt) drainWork(includeSystem bool) api.DrainWork {
	work := api.DrainWork{TaskID: a.Task, Attempt: a.Attempt}
	if spec := &a.input.Spec; spec.Type != "" {
		work.Type, work.Safety = spec.Type, spec.Safety()
	}
	work.AtDeadline = cluster.AtDeadline(work.Safety)
	switch i := a.JobInstance; {
	case i == nil:
	case i.OfEachAgent() && !includeSystem:
		work.Kind, work.Ignored, work.AtDeadline = i.Kind, true, cluster.DrainsNot
	case i.Kind != "" && !i.OfEachAgent():
		work.Kind, work.AtDeadline = i.Kind, cluster.DrainsService
	default:
		work.Kind = i.Kind
	}
	if !a.startedAt.IsZero() {
		work.StartedAt = new(a.startedAt.UTC())
	}
	return work
}

const noSessionText = "the agent has no session on this hub any more"

func noSession() error {
	return temporal.NewNonRetryableApplicationError(noSessionText, contract.NoSession, nil)
}
