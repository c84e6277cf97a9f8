package gateway

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/store"
)

// explainTimeout bounds saying why the tasks of a list wait. What did not answer by then is left out.
const explainTimeout = time.Second

// explain fills in why a task is not running.
func (g *Gateway) explain(ctx context.Context, t *taskView) {
	switch t.Status {
	case fleet.TaskRetryWait:
		if t.unhandled {
			if view, err := g.view(ctx, t.Cluster); err == nil {
				if why := t.whyUnhandled(&view.Cluster); why != "" {
					t.Why = why
					return
				}
			}
		}
		if t.NextAttemptAt != nil {
			reason := t.Why
			t.Why = "backoff until " + t.NextAttemptAt.UTC().Format(time.RFC3339)
			if reason != "" {
				t.Why += ": " + reason
			}
		}
	case fleet.TaskReview:
		if t.Why != "" {
			t.Why = "in review because " + t.Why
		}
	case fleet.TaskDeadLetter:
		if t.DeadLetter != nil {
			t.Why = whyDeadLetter(t.DeadLetter)
		}
	case fleet.TaskQueued:
		if t.Cluster == "" || t.NextAttemptAt != nil { // the latter waits for its start and says so itself
			return
		}
		view, err := g.view(ctx, t.Cluster)
		if err != nil {
			if t.Why == "" {
				t.Why = "waiting for an agent; the state of its cluster is not known now"
			}
			return
		}
		var stats store.LaneStats
		var beside sync.WaitGroup
		beside.Go(func() { stats = g.laneOfTask(ctx, t) })
		live := g.live(ctx)
		beside.Wait()
		t.Why = t.waiting(&view.Cluster, live, stats)
	}
}

// whyDeadLetter says why a task is a dead letter and how long it can be retried.
func whyDeadLetter(d *fleet.DeadLetter) string {
	return "dead letter because " + d.Cause + "; kept until " + d.Until.UTC().Format(time.RFC3339)
}

// laneOfTask reads the backlog of a waiting task's lane; empty when it cannot be had.
func (g *Gateway) laneOfTask(ctx context.Context, t *taskView) store.LaneStats {
	if t.queue == "" {
		return store.LaneStats{}
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	stats, _ := g.laneStats(ctx, t.queue) // an extra; the failure is in the log
	return stats
}

func (t *taskView) waiting(c *fleet.Cluster, live store.Live, stats store.LaneStats) string {
	_, lane, _ := contract.LaneOfQueue(t.queue)
	return diagnosis.WhyWaiting(c, diagnosis.Waiting{
		Spec: &fleet.TaskSpec{Type: t.Type, Cluster: t.Cluster, Agent: t.Agent, RequiredCapabilities: t.required, RetrySafety: t.safety},
		Lane: lane, Running: live.Running(c), Ahead: stats.Ahead(t.level),
	})
}

// explained reports whether a list says why a task waits.
func (t *taskView) explained() bool {
	return t.Cluster != "" && t.NextAttemptAt == nil && (t.Status == fleet.TaskQueued || t.Status == fleet.TaskRetryWait && t.unhandled)
}

// explainAll says why tasks of a page wait. It asks for each cluster and each lane once.
func (g *Gateway) explainAll(ctx context.Context, tasks []taskView) {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	views, lanes := map[string]*contract.ClusterView{}, map[string]store.LaneStats{}
	var clusters, queues []string
	for i := range tasks {
		t := &tasks[i]
		if !t.explained() {
			continue
		}
		if _, seen := views[t.Cluster]; !seen {
			views[t.Cluster] = nil
			clusters = append(clusters, t.Cluster)
		}
		if _, seen := lanes[t.queue]; !seen && t.queue != "" {
			lanes[t.queue] = store.LaneStats{}
			queues = append(queues, t.queue)
		}
	}
	if len(clusters) == 0 {
		return
	}
	var mu sync.Mutex
	var live store.Live
	var beside sync.WaitGroup
	beside.Go(func() { live = g.live(ctx) })
	parallel.Each(len(clusters)+len(queues), fanOut, func(i int) {
		if i < len(clusters) {
			if view, err := g.view(ctx, clusters[i]); err == nil {
				mu.Lock()
				defer mu.Unlock()
				views[clusters[i]] = &view
			}
			return
		}
		if stats, err := g.laneStats(ctx, queues[i-len(clusters)]); err == nil {
			mu.Lock()
			defer mu.Unlock()
			lanes[queues[i-len(clusters)]] = stats
		}
	})
	beside.Wait()
	for i := range tasks {
		t := &tasks[i]
		switch view := views[t.Cluster]; {
		case view == nil || !t.explained():
		case t.Status == fleet.TaskRetryWait:
			t.Why = t.whyUnhandled(&view.Cluster)
		default:
			t.Why = t.waiting(&view.Cluster, live, lanes[t.queue])
		}
	}
}
