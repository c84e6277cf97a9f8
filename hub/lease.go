package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
)

const (
	// leaseBeat is how often the hub renews its lease.
	leaseBeat = 2 * time.Second
	// leaseFresh is how long after a renewal the hub may renew agents' leases: half of its own, so that an agent's role
	// lease ends before the hub is given up and its roles go to others.
	leaseFresh = 5 * time.Second
	// leaseLost is how long without a renewal the hub must assume that it was given up.
	leaseLost = 10 * time.Second
)

// startWorker runs the activities that must run in this hub.
func (h *Hub) startWorker() error {
	w := sdkworker.New(h.client, contract.HubQueue(h.id), sdkworker.Options{
		Identity: h.identity(), DisableWorkflowWorker: true, MaxConcurrentActivityTaskPollers: 2,
		MaxHeartbeatThrottleInterval: leaseBeat, DefaultHeartbeatThrottleInterval: leaseBeat,
	})
	w.RegisterActivityWithOptions(h.holdLease, activity.RegisterOptions{Name: contract.HoldLeaseActivity})
	w.RegisterActivityWithOptions(h.directActivity, activity.RegisterOptions{Name: contract.DirectActivity})
	w.RegisterActivityWithOptions(h.evacuate, activity.RegisterOptions{Name: contract.EvacuateActivity})
	w.RegisterActivityWithOptions(h.stopWork, activity.RegisterOptions{Name: contract.StopWorkActivity})
	w.RegisterActivityWithOptions(h.awaitIdle, activity.RegisterOptions{Name: contract.AwaitIdleActivity})
	w.RegisterActivityWithOptions(h.releaseBrake, activity.RegisterOptions{Name: contract.ReleaseBrakeActivity})
	w.RegisterActivityWithOptions(h.readTasks, activity.RegisterOptions{Name: contract.ReadTasksActivity})
	w.RegisterActivityWithOptions(h.readStates, activity.RegisterOptions{Name: contract.ReadStatesActivity})
	w.RegisterActivityWithOptions(h.compareStates, activity.RegisterOptions{Name: contract.CompareStatesActivity})
	w.RegisterActivityWithOptions(h.readEntries, activity.RegisterOptions{Name: contract.ReadEntriesActivity})
	w.RegisterActivityWithOptions(h.applyState, activity.RegisterOptions{Name: contract.ApplyStateActivity})
	w.RegisterActivityWithOptions(h.readHealth, activity.RegisterOptions{Name: contract.ReadHealthActivity})
	w.RegisterActivityWithOptions(h.holdsAttempts, activity.RegisterOptions{Name: contract.HoldsAttemptsActivity})
	w.RegisterActivityWithOptions(h.readLog, activity.RegisterOptions{Name: contract.ReadLogActivity})
	w.RegisterActivityWithOptions(h.readEvents, activity.RegisterOptions{Name: contract.ReadEventsActivity})
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

// holdLease heartbeats for as long as the hub runs. It does so itself, not through the SDK, to know when Temporal took
// the heartbeat.
func (h *Hub) holdLease(ctx context.Context, _ contract.HoldLeaseInput) error {
	token := activity.GetInfo(ctx).TaskToken
	tick := time.NewTicker(leaseBeat)
	defer tick.Stop()
	for {
		if gone := h.renew(ctx, token); gone {
			return nil // the lease is held anew by another activity
		}
		select {
		case <-tick.C:
		case <-h.run.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// renew sends one heartbeat of the hub's lease and notes when Temporal took it.
func (h *Hub) renew(ctx context.Context, token []byte) (gone bool) {
	ctx, cancel := context.WithTimeout(ctx, leaseBeat)
	defer cancel()
	sent := time.Now()
	_, err := h.service.RecordActivityTaskHeartbeat(ctx, &workflowservice.RecordActivityTaskHeartbeatRequest{
		TaskToken: token, Identity: h.identity(), Namespace: h.namespace})
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return true
	}
	if err != nil {
		h.log.Warn("Temporal did not take the heartbeat of the hub's lease", zap.Error(err))
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.renewedAt.IsZero() && sent.Sub(h.renewedAt) > leaseLost {
		h.rejoin()
	}
	h.renewedAt = sent
	return false
}

// watchLease takes the lease anew when it was not renewed for so long that the hub may have been given up: the workflow
// that held it may have ended.
func (h *Hub) watchLease() {
	h.every(leaseFresh, func(now time.Time) {
		h.mu.Lock()
		stale := now.Sub(h.renewedAt) > leaseLost
		h.mu.Unlock()
		if !stale {
			return
		}
		ctx, cancel := context.WithTimeout(h.run, leaseFresh)
		defer cancel()
		if err := h.takeLease(ctx); err != nil {
			h.log.Warn("The hub's lease could not be taken anew; trying again", zap.Error(err))
		}
	})
}

// rejoin makes all agents register again, because the clusters may have given them up together with this hub. Running
// work goes on: the agents bring it back with their registrations. The mutex is held.
func (h *Hub) rejoin() {
	h.log.Warn("The hub was out of touch with Temporal; its agents register again", zap.Int("agents", len(h.sessions)))
	for agent, s := range h.sessions {
		h.returnUndelivered(s, "the hub was out of touch with Temporal")
		delete(h.sessions, agent)
		s.gone = true
		clear(s.attempts)
		h.slotsChanged(s)
		h.serve(s)
		s.signal()
	}
	h.reclaimSoon()
}

// leaseIsFresh reports whether the hub may renew agents' leases. The mutex is held.
func (h *Hub) leaseIsFresh(now time.Time) bool { return now.Sub(h.renewedAt) <= leaseFresh }

// directActivity takes a cluster's directive.
func (h *Hub) directActivity(_ context.Context, d contract.Directive) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.direct(d)
	return nil
}
