package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"

	workerpb "go.temporal.io/api/worker/v1"
)

// notices tells the rest of the system what the hub saw: transitions to the cluster workflows, batched per cluster, and
// ended sessions to the worker registry. It never blocks the hub.
type notices struct {
	hub     *Hub
	mu      sync.Mutex
	waiting map[string][]fleet.Transition // by cluster
	active  map[string]bool
	gone    []*workerpb.WorkerHeartbeat
	publish chan struct{}
	pending sync.WaitGroup
}

func newNotices(h *Hub) *notices {
	return &notices{hub: h, waiting: map[string][]fleet.Transition{}, active: map[string]bool{}, publish: make(chan struct{}, 1)}
}

// transition queues one change of a member.
func (n *notices) transition(cluster string, t fleet.Transition) { n.tell(cluster, t) }

// tell queues changes of members. Without any, the cluster only hears how its brake stands.
func (n *notices) tell(cluster string, changes ...fleet.Transition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting[cluster] = append(n.waiting[cluster], changes...)
	if n.waiting[cluster] == nil {
		n.waiting[cluster] = []fleet.Transition{}
	}
	if !n.active[cluster] {
		n.active[cluster] = true
		n.pending.Go(func() { n.send(cluster) })
	}
}

// send signals a cluster until nothing waits for it. What gathers while a signal is under way is the next batch.
func (n *notices) send(cluster string) {
	for wait := 100 * time.Millisecond; ; {
		n.mu.Lock()
		batch := n.waiting[cluster]
		if batch == nil {
			delete(n.active, cluster)
			delete(n.waiting, cluster)
			n.mu.Unlock()
			return
		}
		n.waiting[cluster] = nil
		n.mu.Unlock()

		ctx, cancel := context.WithTimeout(n.hub.run, 10*time.Second)
		err := n.hub.client.SignalWorkflow(ctx, contract.ClusterWorkflowID(cluster), "", contract.MembersChangedSignal,
			contract.MembersChanged{Hub: n.hub.id, Changes: batch, Brake: n.hub.brakeHold(cluster)})
		cancel()
		var missing *serviceerror.NotFound
		if err == nil {
			n.hub.mu.Lock()
			n.hub.hint(cluster)
			n.hub.mu.Unlock()
		}
		if err == nil || errors.As(err, &missing) {
			wait = 100 * time.Millisecond
			continue
		}
		n.hub.log.Warn("A cluster was not told of its agents' changes; trying again", zap.String("cluster", cluster), zap.Error(err))
		n.mu.Lock()
		n.waiting[cluster] = append(batch, n.waiting[cluster]...)
		n.mu.Unlock()
		n.hub.pause(wait)
		wait = min(2*wait, 5*time.Second)
		if n.hub.run.Err() != nil {
			return
		}
	}
}

// busy reports whether a cluster is being told of changes.
func (n *notices) busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.active) > 0
}

// drain waits until every cluster was told.
func (n *notices) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() { n.pending.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// publishSoon asks for a publication to the worker registry without waiting for the next regular one.
func (n *notices) publishSoon() {
	select {
	case n.publish <- struct{}{}:
	default:
	}
}

// shutdown queues the removal of a session from the worker registry.
func (n *notices) shutdown(s *session) {
	n.mu.Lock()
	n.gone = append(n.gone, s.workerGone())
	n.mu.Unlock()
	n.publishSoon()
}

func (n *notices) takeGone() []*workerpb.WorkerHeartbeat {
	n.mu.Lock()
	defer n.mu.Unlock()
	gone := n.gone
	n.gone = nil
	return gone
}
