package hub

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/hub/lease"
)

// activities are what clusters, failovers, drains and gateways ask of a hub, on its own queue.
type activities struct{ hub *Hub }

// startWorker runs the activities that must run in this hub.
func (h *Hub) startWorker() error {
	own := activities{h}
	w := sdkworker.New(h.client, contract.HubQueue(h.id), sdkworker.Options{
		Identity:                         h.identity(),
		DisableWorkflowWorker:            true,
		MaxConcurrentActivityTaskPollers: 2,
		MaxHeartbeatThrottleInterval:     lease.Beat,
		DefaultHeartbeatThrottleInterval: lease.Beat,
	})
	for name, do := range map[string]any{
		contract.HoldLeaseActivity.Name:     own.holdLease,
		contract.DirectActivity.Name:        own.direct,
		contract.EvacuateActivity.Name:      own.evacuate,
		contract.StopWorkActivity.Name:      own.stopWork,
		contract.AwaitIdleActivity.Name:     own.awaitIdle,
		contract.ReleaseBrakeActivity.Name:  own.releaseBrake,
		contract.ReadTasksActivity.Name:     own.readTasks,
		contract.HoldsAttemptsActivity.Name: own.holdsAttempts,
		contract.ReadStatesActivity.Name:    untilStopped(h, h.states.Read),
		contract.CompareStatesActivity.Name: untilStopped(h, h.states.Compare),
		contract.ReadEntriesActivity.Name:   untilStopped(h, h.states.ReadEntries),
		contract.ApplyStateActivity.Name:    untilStopped(h, h.states.Apply),
		contract.ReadHealthActivity.Name:    h.health.Read,
		contract.ReadLogActivity.Name:       untilStopped(h, h.logs.Read),
		contract.ReadEventsActivity.Name:    untilStopped(h, h.events.Read),
	} {
		w.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
	}
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the hub's worker on queue %s: %w", contract.HubQueue(h.id), err)
	}
	h.worker = w
	return nil
}

// untilStopped makes an activity that ends when the hub stops.
func untilStopped[In, Out any](h *Hub, read func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.run, cancel)()
		return read(ctx, in)
	}
}

// holdLease holds the hub's lease until the hub stops.
func (c activities) holdLease(ctx context.Context, in contract.HoldLeaseInput) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.hub.run, cancel)()
	if err := c.hub.lease.Hold(ctx, in); c.hub.run.Err() == nil {
		return err
	}
	return nil
}

// direct applies a cluster's directive.
func (c activities) direct(_ context.Context, d contract.Directive) error {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.applyDirectiveLocked(d)
	return nil
}
