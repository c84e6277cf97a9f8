package task

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/array"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/store"
)

// explainTimeout bounds saying why the tasks of a list wait. What did not answer by then is left out.
const explainTimeout = time.Second

// heldTimeout bounds asking hubs for it. Temporal's long polls keep the last second of their time back.
const heldTimeout = 3 * time.Second

// explain fills in why a task is not running.
func (h *Handlers) explain(ctx context.Context, t *store.Task) {
	switch t.Status {
	case fleet.TaskRetryWait:
		if t.Unhandled() {
			if view, err := h.View(ctx, t.Cluster); err == nil {
				if why := whyUnhandled(t, &view.Cluster); why != "" {
					t.Why = why
					return
				}
			}
		}
		t.Why = whyBackoff(&t.Task)
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
		if _, _, element := array.ElementOf(t.ID); element && t.Delivery == nil {
			return // its array has said why
		}
		view, err := h.View(ctx, t.Cluster)
		if err != nil {
			t.Why = cmp.Or(t.Why, "waiting for an agent; the state of its cluster is not known now")
			return
		}
		var stats store.LaneStats
		var beside sync.WaitGroup
		beside.Go(func() { stats = h.laneOfTask(ctx, t) })
		live := h.Live(ctx)
		held := h.heldBeside(ctx, t, &view.Cluster)
		beside.Wait()
		t.Why = whyWaiting(t, &view.Cluster, live, stats, held)
	}
}

// whyBackoff says until when a task waits before its next attempt, and why.
func whyBackoff(t *api.Task) string {
	if t.NextAttemptAt == nil {
		return t.Why
	}
	why := "backoff until " + t.NextAttemptAt.UTC().Format(time.RFC3339)
	if t.Why != "" {
		why += ": " + t.Why
	}
	return why
}

// whyDeadLetter says why a task is a dead letter and how long it can be retried.
func whyDeadLetter(d *fleet.DeadLetter) string {
	return "dead letter because " + d.Cause + "; kept until " + d.Until.UTC().Format(time.RFC3339)
}

// laneOfTask reads the backlog of a waiting task's lane; empty when it cannot be had.
func (h *Handlers) laneOfTask(ctx context.Context, t *store.Task) store.LaneStats {
	if t.Queue() == "" {
		return store.LaneStats{}
	}
	ctx, cancel := context.WithTimeout(ctx, rest.LiveTimeout)
	defer cancel()
	stats, _ := h.LaneStats(ctx, t.Queue()) // an extra; the failure is in the log
	return stats
}

// heldBeside asks the hubs what a cluster's agents run, for a task that asks for resources; nil: that is not known.
func (h *Handlers) heldBeside(ctx context.Context, t *store.Task, c *fleet.Cluster) map[string][]fleet.HeldTask {
	if t.Place.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, heldTimeout)
	defer cancel()
	byHub, err := rest.AskHubs(ctx, h.Core, contract.ReadTasksActivity, c, "", "tasks", contract.ReadTasksID,
		contract.ReadTasksInput{Cluster: c.Config.Name})
	if err != nil {
		return nil
	}
	held := map[string][]fleet.HeldTask{}
	for _, answer := range byHub {
		maps.Copy(held, answer.Agents)
	}
	return held
}

// whyForOthers is all that a tenant hears of a cluster that is not for it: how that stands is not for it to know.
const whyForOthers = "its cluster is for others now: it fails as soon as an agent of the cluster is asked"

func whyWaiting(t *store.Task, c *fleet.Cluster, live store.Live, stats store.LaneStats,
	held map[string][]fleet.HeldTask,
) string {
	if !c.Config.IsFor(t.Tenant) {
		return whyForOthers
	}
	_, lane, _ := contract.LaneOfQueue(t.Queue())
	return diagnosis.WhyWaiting(c, diagnosis.Waiting{
		Spec: &fleet.TaskSpec{Type: t.Type, Cluster: t.Cluster, Agent: t.Agent,
			RequiredCapabilities: t.RequiredCapabilities, RetrySafety: t.Safety, Place: t.Place},
		Lane: lane, Running: live.Running(c), Ahead: stats.Ahead(t.Level()), Held: held,
	})
}

// explained reports whether a list says why a task waits.
func explained(t *store.Task) bool {
	return t.Cluster != "" && (t.Status == fleet.TaskQueued && t.NextAttemptAt == nil ||
		t.Status == fleet.TaskRetryWait && t.Unhandled())
}

// Explain says why tasks wait, also for resources that others have.
func (h *Handlers) Explain(ctx context.Context, tasks []store.Task) {
	ctx, cancel := context.WithTimeout(ctx, heldTimeout)
	defer cancel()
	h.explainAll(ctx, tasks, true)
}

// explainAll says why tasks wait. It asks for each cluster and each lane once, and hubs only where askHeld says so.
func (h *Handlers) explainAll(ctx context.Context, tasks []store.Task, askHeld bool) {
	views, lanes := map[string]*contract.ClusterView{}, map[string]store.LaneStats{}
	demanding, held := map[string]*store.Task{}, map[string]map[string][]fleet.HeldTask{}
	var clusters, queues []string
	for i := range tasks {
		t := &tasks[i]
		switch {
		case t.DeadLetter != nil:
			t.Why = whyDeadLetter(t.DeadLetter)
		case t.Status == fleet.TaskRetryWait && !t.Unhandled():
			t.Why = whyBackoff(&t.Task)
		}
		if !explained(t) {
			continue
		}
		if _, seen := views[t.Cluster]; !seen {
			views[t.Cluster] = nil
			clusters = append(clusters, t.Cluster)
		}
		if askHeld && !t.Place.IsZero() {
			demanding[t.Cluster] = t
		}
		if _, seen := lanes[t.Queue()]; !seen && t.Queue() != "" {
			lanes[t.Queue()] = store.LaneStats{}
			queues = append(queues, t.Queue())
		}
	}
	if len(clusters) == 0 {
		return
	}
	var mu sync.Mutex
	var live store.Live
	var beside sync.WaitGroup
	beside.Go(func() { live = h.Live(ctx) })
	parallel.Each(len(clusters)+len(queues), rest.FanOut, func(i int) {
		if i < len(clusters) {
			view, err := h.View(ctx, clusters[i])
			if err != nil {
				return
			}
			var had map[string][]fleet.HeldTask
			if t := demanding[clusters[i]]; t != nil {
				had = h.heldBeside(ctx, t, &view.Cluster)
			}
			mu.Lock()
			defer mu.Unlock()
			views[clusters[i]], held[clusters[i]] = &view, had
			return
		}
		if stats, err := h.LaneStats(ctx, queues[i-len(clusters)]); err == nil {
			mu.Lock()
			defer mu.Unlock()
			lanes[queues[i-len(clusters)]] = stats
		}
	})
	beside.Wait()
	for i := range tasks {
		t := &tasks[i]
		switch view := views[t.Cluster]; {
		case view == nil || !explained(t):
		case t.Status == fleet.TaskRetryWait:
			t.Why = cmp.Or(whyUnhandled(t, &view.Cluster), whyBackoff(&t.Task))
		default:
			t.Why = whyWaiting(t, &view.Cluster, live, lanes[t.Queue()], held[t.Cluster])
		}
	}
}

// whyUnhandled says why a task is in retry_wait that no agent could run when it was last offered; "" when one can by
// now, or when it is no such task.
func whyUnhandled(t *store.Task, c *fleet.Cluster) string {
	if t.Status != fleet.TaskRetryWait || !t.Unhandled() {
		return ""
	}
	if !c.Config.IsFor(t.Tenant) {
		return whyForOthers
	}
	task := needsOf(t)
	why := diagnosis.WhyUnhandled(c, &task)
	if why != "" && t.NextAttemptAt != nil {
		why += "; it is offered again at " + t.NextAttemptAt.UTC().Format(time.RFC3339)
	}
	return why
}

// needsOf is what decides whether an agent can run a task.
func needsOf(t *store.Task) diagnosis.UnhandledTask {
	return diagnosis.UnhandledTask{Type: t.Type, Agent: t.Agent, Capabilities: t.RequiredCapabilities, Safety: t.Safety,
		Place: t.Place}
}
