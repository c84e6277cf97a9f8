package hub

import (
	"context"
	"fmt"

	sdkworker "go.temporal.io/sdk/worker"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/lease"
)

// activities are the requests of clusters, failovers, drains and gateways to a hub, on its own queue.
type activities struct{ hub *Hub }

// startWorker runs the activities that must run in this hub.
func (h *Hub) startWorker() error {
	own := activities{h}
	w := sdkworker.New(h.store.Client, contract.HubQueue(h.id), sdkworker.Options{
		Identity:                         h.store.Identity,
		DisableWorkflowWorker:            true,
		MaxConcurrentActivityTaskPollers: 2,
		MaxHeartbeatThrottleInterval:     lease.Beat,
		DefaultHeartbeatThrottleInterval: lease.Beat,
	})
	contract.HoldLeaseActivity.Register(w, untilStopped(h, contract.NoAnswer(h.lease.Hold)))
	contract.DirectActivity.Register(w, contract.NoAnswer(own.direct))
	contract.EvacuateActivity.Register(w, own.evacuate)
	contract.StopWorkActivity.Register(w, own.stopWork)
	contract.AwaitIdleActivity.Register(w, contract.NoAnswer(own.awaitIdle))
	contract.ReleaseBrakeActivity.Register(w, contract.NoAnswer(own.releaseBrake))
	contract.ReadTasksActivity.Register(w, own.readTasks)
	contract.ReadInstancesActivity.Register(w, own.readInstances)
	contract.HoldsAttemptsActivity.Register(w, own.holdsAttempts)
	contract.ReadStatesActivity.Register(w, untilStopped(h, h.states.Read))
	contract.CompareStatesActivity.Register(w, untilStopped(h, h.states.Compare))
	contract.ReadEntriesActivity.Register(w, untilStopped(h, h.states.ReadEntries))
	contract.ApplyStateActivity.Register(w, untilStopped(h, h.states.Apply))
	contract.ReadHealthActivity.Register(w, h.health.Read)
	contract.ReadLogActivity.Register(w, untilStopped(h, h.logs.Read))
	contract.ReadEventsActivity.Register(w, untilStopped(h, h.events.Read))
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the hub's worker on queue %s: %w", contract.HubQueue(h.id), err)
	}
	h.worker = w
	return nil
}

// untilStopped makes an activity that ends when the hub stops.
func untilStopped[In, Out any](
	h *Hub, read func(context.Context, In) (Out, error),
) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.run, cancel)()
		return read(ctx, in)
	}
}

// direct applies a cluster's directive.
func (c activities) direct(_ context.Context, d contract.Directive) error {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.applyDirectiveLocked(d)
	return nil
}
