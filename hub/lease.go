package hub

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"mainstay.dev/mainstay/contract"
)

// leaseBeat is how often the hub renews its lease; a third of it.
const leaseBeat = 3 * time.Second

// startWorker runs the activities that must run in this hub.
func (h *Hub) startWorker() error {
	w := sdkworker.New(h.client, contract.HubQueue(h.id), sdkworker.Options{
		Identity: h.identity(), DisableWorkflowWorker: true, MaxConcurrentActivityTaskPollers: 2,
		MaxHeartbeatThrottleInterval: leaseBeat, DefaultHeartbeatThrottleInterval: leaseBeat,
	})
	w.RegisterActivityWithOptions(h.holdLease, activity.RegisterOptions{Name: contract.HoldLeaseActivity})
	w.RegisterActivityWithOptions(h.directActivity, activity.RegisterOptions{Name: contract.DirectActivity})
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the hub's worker on queue %s: %w", contract.HubQueue(h.id), err)
	}
	h.worker = w
	return nil
}

// takeLease starts the Hub workflow, or tells the running one that a new process plays the hub.
func (h *Hub) takeLease(ctx context.Context) error {
	_, err := h.client.SignalWithStartWorkflow(ctx, contract.HubWorkflowID(h.id), contract.HubStartedSignal,
		contract.HubStarted{Instance: h.instance, Host: hostname(), PID: os.Getpid()},
		client.StartWorkflowOptions{TaskQueue: contract.WorkerQueue, StaticSummary: "lease of hub " + h.id},
		contract.HubWorkflow, contract.HubInput{Hub: h.id})
	if err != nil {
		return fmt.Errorf("take the lease of hub %s: %w", h.id, err)
	}
	return nil
}

// holdLease heartbeats for as long as the hub runs. When the workflow has given the hub up all the same, the hub takes
// its lease anew, so a hub that was only cut off comes back by itself.
func (h *Hub) holdLease(ctx context.Context, _ contract.HoldLeaseInput) error {
	tick := time.NewTicker(leaseBeat)
	defer tick.Stop()
	for {
		activity.RecordHeartbeat(ctx)
		select {
		case <-tick.C:
		case <-h.run.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// directActivity takes a cluster's directive.
func (h *Hub) directActivity(_ context.Context, d contract.Directive) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.direct(d)
	return nil
}
