package spawner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

const (
	// hostBeat is how often a request under way sends Temporal a heartbeat.
	hostBeat = 3 * time.Second
	// announceTries and announceAgain bound announcing the spawner to the clusters; a cluster that misses it tries
	// again by itself.
	announceTries = 10
	announceAgain = 2 * time.Second
	// proveLimit bounds one try to give a cluster the proof of a death, publishLimit all of them, and the event of it.
	proveLimit   = 2 * time.Second
	publishLimit = time.Minute
	// proofsAtOnce is how many proofs are under way to a cluster. Temporal takes ten updates of a workflow at a time,
	// and hubs have some.
	proofsAtOnce = 4
	// noticeMargin is how long before its end an agent stops its unfinished work.
	noticeMargin = 15 * time.Second
	// describeLimit bounds asking the platform how it is.
	describeLimit = 3 * time.Second
	// endsKept is how many ends of agents are remembered, to be shown.
	endsKept = 20
)

// HostOptions describe the host of a spawner.
type HostOptions struct {
	// Name is the spawner's own, unique in a namespace.
	Name      string
	Client    client.Client
	Namespace string
	Spawner   Spawner
	// MaxAgents bounds the agents that run at a time; 0: nothing does.
	MaxAgents int
	Logger    *zap.Logger // nil: nothing is logged
}

// Host takes the requests of workflows to a spawner.
type Host struct {
	o       HostOptions
	workers []sdkworker.Worker
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	proofs  limit.AtOnce // of deaths, that are under way to a cluster

	mu       sync.Mutex
	starting map[string]bool // by id; List may not know them yet
	ends     []api.SpawnEnd  // newest first
}

// Start takes requests until Stop, and announces the spawner to the clusters that wait for one.
func Start(ctx context.Context, o HostOptions) (*Host, error) {
	if err := api.ValidateID("the spawner's name", o.Name); err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	h := &Host{o: o, starting: map[string]bool{}, proofs: limit.AtOnce{Most: proofsAtOnce}}
	own, shared := contract.SpawnerQueue(o.Name), contract.SpawnersQueue(o.Spawner.Platform())
	for _, queue := range []string{own, shared, contract.PresenceQueue} {
		w := sdkworker.New(o.Client, queue, sdkworker.Options{
			Identity:                         contract.SpawnerIdentity(o.Name),
			DisableWorkflowWorker:            true,
			MaxConcurrentActivityTaskPollers: 2,
		})
		if queue == own {
			w.RegisterActivityWithOptions(h.describe, activity.RegisterOptions{Name: contract.FindSpawnerActivity.Name})
			contract.SpawnAgentActivity.Register(w, h.spawn)
			contract.TerminateAgentActivity.Register(w, contract.NoAnswer(h.terminate))
		} else { // requests about one agent go to the spawner that has it
			w.RegisterActivityWithOptions(h.find, activity.RegisterOptions{Name: contract.FindSpawnerActivity.Name})
		}
		if err := w.Start(); err != nil {
			h.stopWorkers()
			return nil, fmt.Errorf("start the spawner's worker on queue %s: %w", queue, err)
		}
		h.workers = append(h.workers, w)
	}
	announcing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	h.tasks.Go(func() { h.announce(announcing) })
	if watcher, ok := o.Spawner.(Watcher); ok {
		h.tasks.Go(func() { watcher.Watch(announcing, func(end api.SpawnEnd) { h.ended(announcing, end) }) })
	}
	return h, nil
}

// Stop takes no more requests. The spawner's agents run on. It may be called twice.
func (h *Host) Stop() {
	h.cancel()
	h.tasks.Wait()
	h.stopWorkers()
	h.workers = nil
}

func (h *Host) stopWorkers() {
	for _, w := range h.workers {
		w.Stop()
	}
}

// announce sends every cluster that has scaling on the news, so that blocked changes are tried at once.
func (h *Host) announce(ctx context.Context) {
	h.insist(ctx, "The clusters were not told that the spawner is there", func() error { return h.tellClusters(ctx) })
}

// insist tries something until it succeeds, but not for long; failed is for the log.
func (h *Host) insist(ctx context.Context, failed string, try func() error) {
	for range announceTries {
		err := try()
		if err == nil || ctx.Err() != nil {
			return
		}
		h.o.Logger.Sugar().Warnw(failed+"; trying again", "error", err)
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

// ended keeps how an agent ended, and reports it to its cluster in the background: many may end at a time.
func (h *Host) ended(ctx context.Context, end api.SpawnEnd) {
	if end.Notice {
		h.tasks.Go(func() {
			h.insist(ctx, "An agent that its platform ends is not drained", func() error { return h.drain(ctx, &end) })
		})
		return
	}
	h.mu.Lock()
	h.ends = slices.Insert(h.ends, 0, end)
	h.ends = h.ends[:min(len(h.ends), endsKept)]
	h.mu.Unlock()
	if end.Gone {
		h.tasks.Go(func() { h.prove(ctx, &end) })
	}
	h.tasks.Go(func() { h.publish(ctx, &end) })
}

// prove gives a cluster the proof of an agent's death. Without it the agent's hub notices the death by itself, but may
// take many for a broken network.
func (h *Host) prove(ctx context.Context, end *api.SpawnEnd) {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	for {
		err := h.tryProof(ctx, end)
		if err == nil {
			return
		}
		kind := store.KindOf(err)
		again := (kind == store.Unavailable || kind == store.Full) && ctx.Err() == nil
		h.o.Logger.Sugar().Infow("The proof of an agent's death was not taken", "agent", end.AgentID, "again", again,
			"error", err)
		if !again {
			return
		}
		_ = Pause(ctx, time.Second)
	}
}

// tryProof gives a cluster the proof when few others are under way there.
func (h *Host) tryProof(ctx context.Context, end *api.SpawnEnd) error {
	done, err := h.proofs.Acquire(ctx, end.Cluster, 1)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, proveLimit)
	defer cancel()
	id := fmt.Sprintf("%s-%d", end.AgentID, end.At.UnixNano()) // so that tries are one update
	_, err = contract.DeadUpdate.SendOnce(ctx, h.o.Client, contract.ClusterWorkflowID(end.Cluster), id,
		cluster.DeathProof{AgentID: end.AgentID, Host: end.Host, PID: end.PID, EndedAt: end.At.UTC(), Spawner: h.o.Name,
			By: "spawner " + h.o.Name, Proof: end.Reason})
	return err
}

// publish makes a cluster keep an event of how an agent ended. The client tries again while Temporal is busy.
func (h *Host) publish(ctx context.Context, end *api.SpawnEnd) {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	event := cluster.Event{Type: api.EventAgentEnded, Time: end.At.UTC(),
		EventData: api.EventData{AgentID: end.AgentID, Reason: end.Reason}}
	if err := contract.AnnounceSignal.Send(ctx, h.o.Client, contract.ClusterWorkflowID(end.Cluster),
		contract.Announcement{Events: []cluster.Event{event}}); err != nil {
		h.o.Logger.Sugar().Warnw("The end of an agent did not reach its cluster", "agent", end.AgentID, "error", err)
	}
}

// drain takes an agent out of service before its platform ends it. Its unfinished work then runs again elsewhere.
func (h *Host) drain(ctx context.Context, end *api.SpawnEnd) error {
	in := contract.DrainInput{ID: contract.DrainID(end.Cluster, scaling.NoticeDrainName(end.AgentID)),
		Cluster: end.Cluster, Agents: []string{end.AgentID},
		Reason:  end.Reason + " at " + end.At.UTC().Format(time.TimeOnly) + " UTC",
		Timeout: api.Duration(max(0, time.Until(end.At)-noticeMargin)), MaxParallel: 1}
	workflowID, _ := contract.DrainWorkflowID(in.ID)
	_, err := store.Store{Client: h.o.Client, Namespace: h.o.Namespace}.Start(ctx, &store.Start{
		Type: contract.DrainWorkflow, ID: workflowID, Summary: "drain " + end.AgentID + ": " + end.Reason,
		Cluster: end.Cluster, Join: true}, in)
	return err
}

// describe says how the spawner and its platform are.
func (h *Host) describe(ctx context.Context) (contract.SpawnerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	info := contract.SpawnerInfo{Name: h.o.Name, Platform: h.o.Spawner.Platform(), MaxAgents: h.o.MaxAgents}
	list, err := h.o.Spawner.List(ctx)
	info.Agents = len(list)
	if sizer, ok := h.o.Spawner.(Sizer); ok && err == nil {
		info.CPUs, info.MemoryBytes, err = sizer.Size(ctx)
	}
	if err != nil {
		info.Problem = err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	info.Ended = slices.Clone(h.ends)
	return info, nil
}

// find answers who took the request, unless it can start no agent now: then another of its platform may take it.
func (h *Host) find(ctx context.Context) (contract.SpawnerInfo, error) {
	info, err := h.describe(ctx)
	if why := info.Refuses(); err == nil && why != "" {
		err = errors.New(why)
	}
	return info, err
}

func (h *Host) spawn(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	defer beating(ctx)()
	release, err := h.reserve(ctx, spec.ID)
	if err != nil {
		return cluster.Spawned{}, err
	}
	defer release()
	spawned, err := h.o.Spawner.Spawn(ctx, spec)
	if errors.Is(err, ErrRefused) {
		return spawned, temporal.NewNonRetryableApplicationError(err.Error(), contract.SpawnRefused, nil)
	}
	return spawned, err
}

// reserve takes a place for an agent while it is being started. One that runs already has its place.
func (h *Host) reserve(ctx context.Context, id string) (release func(), err error) {
	if h.o.MaxAgents == 0 {
		return func() {}, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	list, err := h.o.Spawner.List(ctx)
	if err != nil {
		return nil, err
	}
	places := maps.Clone(h.starting)
	for i := range list {
		places[list[i].ID] = true
	}
	info := contract.SpawnerInfo{Name: h.o.Name, Agents: len(places), MaxAgents: h.o.MaxAgents}
	if why := info.Refuses(); why != "" && !places[id] {
		return nil, temporal.NewNonRetryableApplicationError(why, contract.SpawnRefused, nil)
	}
	h.starting[id] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.starting, id)
	}, nil
}

func (h *Host) terminate(ctx context.Context, in contract.TerminateInput) error {
	defer beating(ctx)()
	list, err := h.o.Spawner.List(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(a cluster.Spawned) bool {
		return a.ID == in.ID && in.Cluster != "" && a.Cluster != in.Cluster
	}) {
		return nil // an agent of in.Cluster only said that it is this one
	}
	return h.o.Spawner.Terminate(ctx, in.ID, in.Graceful)
}

// beating sends Temporal heartbeats for an activity until the returned function is called.
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
