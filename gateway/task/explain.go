package task

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// explainTimeout bounds finding out why the tasks of a list wait. Answers that come later are left out.
const explainTimeout = time.Second

// heldTimeout bounds asking hubs for it. Temporal's long polls keep the last second of their time back.
const heldTimeout = 3 * time.Second

// heldBeside asks the hubs what a cluster's agents run, for a task that asks for resources; nil: that is not known.
func (h *Handlers) heldBeside(ctx context.Context, t *store.Task, c *cluster.Cluster) map[string][]api.HeldTask {
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
	held := map[string][]api.HeldTask{}
	for _, answer := range byHub {
		maps.Copy(held, answer.Agents)
	}
	return held
}

func whyWaiting(t *store.Task, c *cluster.Cluster, live store.Live, stats store.LaneStats,
	held map[string][]api.HeldTask,
) string {
	_, lane, _ := contract.LaneOfQueue(t.Queue())
	return diagnosis.WhyWaiting(c, diagnosis.Waiting{
		Spec: &api.TaskSpec{Type: t.Type, Cluster: t.Cluster, Agent: t.Agent,
			RequiredCapabilities: t.RequiredCapabilities, RetrySafety: t.Safety, Place: t.Place},
		Lane: lane, Running: live.Running(c), Ahead: stats.Ahead(t.Level()), Held: held,
	})
}

// explained reports whether only the task's cluster can say why a task waits. A task that waits for its start time says
// so itself, and for an element that was not delivered its array does.
func explained(t *store.Task) bool {
	_, _, element := array.ElementOf(t.ID)
	return t.Cluster != "" && (t.Status == api.TaskRetryWait && t.Unhandled() ||
		t.Status == api.TaskQueued && t.NextAttemptAt == nil && (!element || t.Delivery != nil))
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
	demanding, held := map[string]*store.Task{}, map[string]map[string][]api.HeldTask{}
	var clusters, queues []string
	for i := range tasks {
		t := &tasks[i]
		switch {
		case t.DeadLetter != nil:
			t.Why = diagnosis.WhyDeadLetter(t.DeadLetter)
		case t.Status == api.TaskRetryWait:
			t.Why = diagnosis.WhyRetryWait(t.NextAttemptAt, t.Why)
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
			var had map[string][]api.HeldTask
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
		case !explained(t):
		case view == nil && askHeld && t.Status == api.TaskQueued:
			t.Why = cmp.Or(t.Why, diagnosis.ClusterUnknown)
		case view == nil:
		case !view.Config.IsFor(t.Tenant):
			t.Why = diagnosis.ForOthers
		case t.Status == api.TaskRetryWait:
			task := needsOf(t)
			t.Why = cmp.Or(diagnosis.WhyOfferedAgain(&view.Cluster, &task, t.NextAttemptAt), t.Why)
		default:
			t.Why = whyWaiting(t, &view.Cluster, live, lanes[t.Queue()], held[t.Cluster])
		}
	}
}

// needsOf is what decides whether an agent can run a task.
func needsOf(t *store.Task) diagnosis.UnhandledTask {
	return diagnosis.UnhandledTask{Type: t.Type, Agent: t.Agent, Capabilities: t.RequiredCapabilities, Safety: t.Safety,
		Place: t.Place}
}
