package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

const (
	// joinBatch and joinBytes bound the joins of one update, and the profiles of their agents. Ten updates from as many
	// hubs may come at once, and the workflow task that accepts them repeats all: Temporal takes 4 MiB.
	joinBatch, joinBytes = 200, 64 << 10
	// joinTimeout bounds one update.
	joinTimeout = 10 * time.Second
)

// joiner sends joins to cluster workflows, many in one update: joins gather while the previous update of their cluster
// is under way, so a fleet that comes back at once costs few events.
type joiner struct {
	hub     *Hub
	mu      sync.Mutex
	waiting map[string][]*pendingJoin // by cluster
	active  map[string]bool
	waking  map[string]bool // clusters whose tasks are offered again; true: once more, since others have joined
}

type pendingJoin struct {
	join   cluster.Join
	answer chan joinAnswer // capacity 1
}

type joinAnswer struct {
	joined cluster.Joined
	err    error
}

func newJoiner(h *Hub) *joiner {
	return &joiner{hub: h, waiting: map[string][]*pendingJoin{}, active: map[string]bool{},
		waking: map[string]bool{}}
}

// join waits for the cluster's answer.
func (j *joiner) join(ctx context.Context, clusterName string, join cluster.Join) (cluster.Joined, error) {
	p := &pendingJoin{join: join, answer: make(chan joinAnswer, 1)}
	j.mu.Lock()
	j.waiting[clusterName] = append(j.waiting[clusterName], p)
	if !j.active[clusterName] {
		j.active[clusterName] = true
		j.hub.wg.Go(func() { j.send(clusterName) })
	}
	j.mu.Unlock()
	select {
	case a := <-p.answer:
		return a.joined, a.err
	case <-ctx.Done():
		return cluster.Joined{}, httpapi.Problem(protocol.CodeUnavailable,
			"the cluster did not answer in time: try again")
	}
}

// send sends batches until none waits.
func (j *joiner) send(cluster string) {
	for {
		j.mu.Lock()
		batch := j.waiting[cluster]
		if len(batch) == 0 {
			delete(j.active, cluster)
			delete(j.waiting, cluster)
			j.mu.Unlock()
			return
		}
		first := firstJoins(batch)
		rest := batch[first:]
		batch = batch[:first]
		j.waiting[cluster] = rest
		j.mu.Unlock()

		response, err := j.update(cluster, batch)
		for i, p := range batch {
			switch {
			case err != nil:
				p.answer <- joinAnswer{err: err}
			case i >= len(response.Results):
				p.answer <- joinAnswer{err: httpapi.Problem(protocol.CodeInternal,
					"the cluster's answer is incomplete")}
			default:
				p.answer <- joinAnswer{joined: response.Results[i]}
			}
		}
	}
}

// firstJoins is how many of the waiting joins fit into one update; at least one.
func firstJoins(waiting []*pendingJoin) int {
	size := func(p **pendingJoin) int { return (*p).join.Size() }
	return part.Fitting(waiting[:min(len(waiting), joinBatch)], joinBytes, size)
}

func (j *joiner) update(cluster string, batch []*pendingJoin) (contract.JoinResponse, error) {
	h := j.hub
	h.mu.Lock()
	known := h.directives[cluster]
	h.mu.Unlock()
	request := contract.JoinRequest{Hub: h.id, HubProcess: h.store.Process,
		Knows: contract.DirectiveVersion{CreatedAt: known.CreatedAt, Version: known.Version}}
	for _, p := range batch {
		request.Joins = append(request.Joins, p.join)
	}
	ctx, cancel := context.WithTimeout(h.run, joinTimeout)
	defer cancel()
	response, err := store.UpdateCluster(ctx, h.store.Clusters(), contract.JoinUpdate, cluster, request)
	if err != nil {
		kind := store.KindOf(err)
		if kind == store.Refused {
			return response, httpapi.Problem(protocol.CodeConflict, store.Refusal(err))
		}
		if kind != store.NotFound {
			h.log.Warn("Agents could not join", zap.String("cluster", cluster), zap.Int("agents", len(batch)),
				zap.Error(err))
		}
		return response, temporalProblem(err)
	}
	if response.Directive != nil {
		h.mu.Lock()
		h.applyDirectiveLocked(*response.Directive)
		h.mu.Unlock()
	}
	h.events.Hint(cluster)
	j.wake(cluster)
	return response, nil
}

const (
	// wakeAfter is how long after agents joined the tasks that no agent could run are offered again: they serve their
	// lanes by then.
	wakeAfter = 500 * time.Millisecond
	// wakeMost bounds the tasks of one look. Before the next one the hub rests for as long as it takes to offer them.
	wakeMost = 200
)

// wake soon has those tasks of a cluster offered again that no agent could run.
func (j *joiner) wake(cluster string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, under := j.waking[cluster]
	j.waking[cluster] = under
	if under {
		return
	}
	j.hub.wg.Go(func() {
		for again := true; again; {
			backoff.Pause(j.hub.run, wakeAfter)
			j.mu.Lock()
			j.waking[cluster] = false // who has joined until now is among those that it wakes for
			j.mu.Unlock()
			j.wakeAll(cluster)
			j.mu.Lock()
			if again = j.waking[cluster]; !again {
				delete(j.waking, cluster)
			}
			j.mu.Unlock()
		}
	})
}

// wakeAll offers the tasks, look by look, until it has been at all of them, or other agents have joined.
func (j *joiner) wakeAll(cluster string) {
	joined := func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.waking[cluster]
	}
	for next := []byte(nil); ; {
		woken, more, err := j.wakeSome(cluster, next)
		if err != nil && j.hub.run.Err() == nil {
			j.hub.log.Warn("Tasks that no agent could run wait on", zap.String("cluster", cluster), zap.Error(err))
		}
		backoff.Pause(j.hub.run, time.Duration(woken)*time.Second/time.Duration(offersPerSecond()))
		if len(more) == 0 || joined() || j.hub.run.Err() != nil {
			return
		}
		next = more
	}
}

// wakeSome offers those of one look, and returns how many they were, and where the next look begins.
func (j *joiner) wakeSome(cluster string, from []byte) (woken int, next []byte, err error) {
	h := j.hub
	ctx, cancel := context.WithTimeout(h.run, joinTimeout)
	defer cancel()
	query := contract.OpenTaskQuery(&api.TaskFilter{Cluster: cluster, Status: contract.TaskUnhandled})
	tasks, next, err := h.store.Page(ctx, query, wakeMost, from)
	for _, info := range tasks {
		id := info.GetExecution().GetWorkflowId()
		err = errors.Join(err, store.Signal(ctx, h.store.Store, contract.WakeSignal, id, contract.None{}))
	}
	return len(tasks), next, err
}
