package spawner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
)

const (
	// hostBeat is how often a request under way tells Temporal that it is.
	hostBeat = 3 * time.Second
	// announceTries and announceAgain bound telling the clusters that the spawner is there; those that do not hear try
	// again by themselves.
	announceTries = 10
	announceAgain = 2 * time.Second
)

// HostOptions describe the host of a spawner.
type HostOptions struct {
	// Name is the spawner's own, unique in a namespace.
	Name      string
	Client    client.Client
	Namespace string
	Spawner   Spawner
	Logger    *zap.Logger // nil: nothing is logged
}

// Host takes what workflows ask of a spawner.
type Host struct {
	o       HostOptions
	workers []sdkworker.Worker
	cancel  context.CancelFunc
	done    chan struct{}
}

// Start takes requests until Stop, and tells the clusters that wait for a spawner.
func Start(ctx context.Context, o HostOptions) (*Host, error) {
	if err := fleet.ValidateID("the spawner's name", o.Name); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	h := &Host{o: o, done: make(chan struct{})}
	for _, queue := range []string{contract.SpawnerQueue(o.Name), contract.SpawnerQueue("")} {
		w := sdkworker.New(o.Client, queue, sdkworker.Options{
			Identity:                         contract.SpawnerIdentity(o.Name),
			DisableWorkflowWorker:            true,
			MaxConcurrentActivityTaskPollers: 2,
		})
		w.RegisterActivityWithOptions(h.find, activity.RegisterOptions{Name: contract.FindSpawnerActivity.Name})
		if queue != contract.SpawnerQueue("") { // what is about one agent goes to the spawner that has it
			contract.SpawnAgentActivity.Register(w, h.spawn)
			contract.TerminateAgentActivity.Register(w, contract.NoAnswer(h.terminate))
		}
		if err := w.Start(); err != nil {
			h.stopWorkers()
			return nil, fmt.Errorf("start the spawner's worker on queue %s: %w", queue, err)
		}
		h.workers = append(h.workers, w)
	}
	announcing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	go h.announce(announcing)
	return h, nil
}

// Stop takes no more requests. What the spawner runs is not touched. It may be called twice.
func (h *Host) Stop() {
	h.cancel()
	<-h.done
	h.stopWorkers()
	h.workers = nil
}

func (h *Host) stopWorkers() {
	for _, w := range h.workers {
		w.Stop()
	}
}

// announce tells every cluster that has scaling on: what is blocked is tried at once.
func (h *Host) announce(ctx context.Context) {
	defer close(h.done)
	for range announceTries {
		err := h.tellClusters(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		h.o.Logger.Sugar().Warnw("The clusters were not told that the spawner is there; trying again", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(announceAgain):
		}
	}
}

func (h *Host) tellClusters(ctx context.Context) error {
	clusters, err := store.Store{Client: h.o.Client, Namespace: h.o.Namespace}.Clusters().Scaled(ctx)
	if err != nil {
		return err
	}
	for _, cluster := range clusters {
		err := contract.SpawnerStartsSignal.Send(ctx, h.o.Client, contract.ClusterWorkflowID(cluster),
			contract.SpawnerStarts{Spawner: h.o.Name})
		if err != nil && store.KindOf(err) != store.NotFound {
			return fmt.Errorf("tell cluster %s: %w", cluster, err)
		}
	}
	return nil
}

// find says who took the request.
func (h *Host) find(context.Context) (contract.SpawnerInfo, error) {
	return contract.SpawnerInfo{Name: h.o.Name, Platform: h.o.Spawner.Platform()}, nil
}

func (h *Host) spawn(ctx context.Context, spec fleet.SpawnSpec) (fleet.Spawned, error) {
	defer beating(ctx)()
	spawned, err := h.o.Spawner.Spawn(ctx, spec)
	if errors.Is(err, ErrRefused) {
		return spawned, temporal.NewNonRetryableApplicationError(err.Error(), contract.SpawnRefused, nil)
	}
	return spawned, err
}

func (h *Host) terminate(ctx context.Context, in contract.TerminateInput) error {
	defer beating(ctx)()
	return h.o.Spawner.Terminate(ctx, in.ID, in.Graceful)
}

// beating tells Temporal that an activity is under way until the returned function is called.
func beating(ctx context.Context) (stop func()) {
	beats, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(hostBeat)
		defer tick.Stop()
		for {
			activity.RecordHeartbeat(beats)
			select {
			case <-beats.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return cancel
}
