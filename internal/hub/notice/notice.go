// Package notice notifies clusters of changes of their agents.
package notice

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
)

// Notices signals changes of members to the cluster workflows, batched per cluster. It never blocks the hub.
type Notices struct {
	run     context.Context // ends when the hub stops
	hub     part.Hub
	brake   func(clusterName string) *cluster.BrakeHold
	done    func(cluster string)
	pending *part.Group

	mu      sync.Mutex
	waiting map[string][]cluster.Transition // by cluster
	active  map[string]bool
}

// New makes the notices of a hub that runs until run ends. brake returns the state of a cluster's mass-loss brake, or
// nil when it is not engaged; done is called after a cluster was notified.
func New(run context.Context, hub part.Hub, brake func(string) *cluster.BrakeHold, done func(cluster string)) *Notices {
	return &Notices{run: run, hub: hub, brake: brake, done: done, pending: part.NewGroup(),
		waiting: map[string][]cluster.Transition{}, active: map[string]bool{}}
}

// Notify queues changes of members. Without changes the signal only has the state of the brake.
func (n *Notices) Notify(clusterName string, changes ...cluster.Transition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting[clusterName] = append(n.waiting[clusterName], changes...)
	if n.waiting[clusterName] == nil {
		n.waiting[clusterName] = []cluster.Transition{}
	}
	if !n.active[clusterName] {
		n.active[clusterName] = true
		n.pending.Go(func() { n.send(clusterName) })
	}
}

// send signals a cluster until nothing waits for it. Changes that come during a signal make the next batch.
func (n *Notices) send(cluster string) {
	for retry := (backoff.Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second}); ; {
		n.mu.Lock()
		batch := n.waiting[cluster]
		if batch == nil {
			delete(n.active, cluster)
			delete(n.waiting, cluster)
			n.mu.Unlock()
			return
		}
		n.waiting[cluster] = nil
		if most := fits(batch); most < len(batch) {
			batch, n.waiting[cluster] = batch[:most:most], batch[most:]
		}
		n.mu.Unlock()

		err := n.signal(cluster, batch)
		if err == nil {
			n.done(cluster)
		}
		if err == nil || store.KindOf(err) == store.NotFound {
			retry.Reset()
			continue
		}
		if n.run.Err() != nil {
			return
		}
		n.hub.Logger.Warn("A cluster was not notified of its agents' changes; trying again",
			zap.String("cluster", cluster), zap.Error(err))
		n.mu.Lock()
		n.waiting[cluster] = append(batch, n.waiting[cluster]...)
		n.mu.Unlock()
		retry.Pause(n.run)
	}
}

// fits is how many of the changes go into one signal, which Temporal takes up to 2 MiB.
func fits(changes []cluster.Transition) int {
	const most, change, attempt = 1 << 20, 1 << 10, 256 // bytes of JSON, without notes
	return part.Fitting(changes, most, func(c *cluster.Transition) int {
		size := change + attempt*len(c.Attempts) + api.JSONSize(c.Reason)
		if c.Health != nil {
			size += api.JSONSize(c.Health.Why)
		}
		return size
	})
}

func (n *Notices) signal(clusterName string, batch []cluster.Transition) error {
	ctx, cancel := context.WithTimeout(n.run, 10*time.Second)
	defer cancel()
	return store.Signal(ctx, n.hub.Store, contract.MembersChangedSignal, contract.ClusterWorkflowID(clusterName),
		contract.MembersChanged{Hub: n.hub.ID, Changes: batch, Brake: n.brake(clusterName)})
}

// Busy reports whether changes wait for a cluster.
func (n *Notices) Busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.active) > 0
}

// Wait returns when every cluster is notified or the context ends.
func (n *Notices) Wait(ctx context.Context) { n.pending.Wait(ctx) }
