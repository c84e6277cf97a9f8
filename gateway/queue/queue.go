// Package queue shows what waits in the lanes of clusters.
package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	taskqueuepb "go.temporal.io/api/taskqueue/v1"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type clusterInput struct {
	rest.ByID
	rest.QueuePageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	const description = "Every lane in which tasks of the cluster can wait; those of single agents only while open " +
		"work is pinned to them, or they are paused. " +
		"Depths, ages and rates are Temporal's: approximate, and some seconds old."
	r := rest.On(routes, "Clusters")
	rest.List(r, "lanes", "get-cluster-queue", "GET /clusters/{id}/queue", "Show what waits in a cluster's lanes",
		description, func(ctx context.Context, in *clusterInput) (rest.Page[api.Lane], error) {
			return h.queue(ctx, in.ID, in.QueuePageInput)
		}, rest.Wide, rest.WithMissing)
	rest.Serve(r, "get-cluster-load", "GET /clusters/{id}/load", "Show how a cluster's work is spread over its agents",
		"What runs is as old as the agents' last heartbeat, and what waits is Temporal's approximate count.", h.load,
		rest.Wide)
	rest.List(r, "lanes", "get-queue", "GET /queue", "Show what waits in the lanes of all clusters", description,
		func(ctx context.Context, in *rest.QueuePageInput) (rest.Page[api.Lane], error) {
			return h.queue(ctx, "", *in)
		},
		rest.Wide, rest.WithMissing)
}

// load shows how the work of a cluster is spread.
func (h *Handlers) load(ctx context.Context, in *rest.ByID) (load api.ClusterLoad, err error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return load, err
	}
	c, live := &view.Cluster, h.Live(ctx)
	pinned, err := h.Store.Tasks().Pinned(ctx, in.ID)
	if err != nil {
		return load, h.Answer(err, "list pinned tasks", protocol.CodeNotFound)
	}
	depths, err := h.depths(ctx, c.Config.Name, c.Lanes(pinned[in.ID]))
	if err != nil {
		return load, err
	}
	load = api.ClusterLoad{Cluster: in.ID, Agents: []api.AgentLoad{}}
	for _, depth := range depths {
		load.Waiting += depth
	}
	running, serving := live.Running(c), 0
	for i := range c.Members {
		m := &c.Members[i]
		a := api.AgentLoad{AgentID: m.AgentID, Slots: c.EffectiveSlots(m),
			QueueLength:  depths[task.AgentLane(m.AgentID)],
			Capabilities: append([]string{}, m.Capabilities...)}
		a.Status, _, _ = live.Status(m)
		if n, known := running[m.AgentID]; known && a.Slots > 0 {
			a.Running, a.Load = n, new(100*float64(n)/float64(a.Slots))
			if load.Running += n; m.Serving() {
				load.Average, serving = load.Average+*a.Load, serving+1
			}
		}
		load.Agents = append(load.Agents, a)
	}
	load.Average /= float64(max(serving, 1))
	load.Total = int64(load.Running) + load.Waiting
	return load, nil
}

// depths are how many tasks wait in lanes, by lane.
func (h *Handlers) depths(ctx context.Context, cluster string, lanes []string) (map[string]int64, error) {
	found, errs := make([]int64, len(lanes)), make([]error, len(lanes))
	parallel.Each(len(lanes), rest.FanOut, func(i int) {
		var stats store.LaneStats
		stats, errs[i] = h.LaneStats(ctx, contract.LaneQueue(cluster, lanes[i]))
		found[i] = stats.Total.GetApproximateBacklogCount()
	})
	depths := map[string]int64{}
	for i, lane := range lanes {
		if errs[i] != nil {
			return nil, errs[i]
		}
		depths[lane] = found[i]
	}
	return depths, nil
}

// queue shows the lanes of one cluster, or of all when only is empty.
func (h *Handlers) queue(
	ctx context.Context, only string, in rest.QueuePageInput,
) (page rest.Page[api.Lane], err error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	var pinned map[string][]string
	var pinnedErr error
	var live store.Live
	var beside sync.WaitGroup
	beside.Go(func() { pinned, pinnedErr = h.Store.Tasks().Pinned(ctx, only) })
	beside.Go(func() { live = h.Live(ctx) })
	views, missing, err := h.Views(ctx, only)
	beside.Wait()
	if err == nil {
		err = h.Answer(pinnedErr, "list pinned tasks", protocol.CodeNotFound)
	}
	if err != nil {
		return page, err
	}
	page, err = h.Lanes(ctx, views, live, pinned, rest.PageInput(in))
	page.Missing = missing
	return page, err
}

// Lanes shows a page of the lanes of clusters; pinned are the agents, by cluster, whose lanes are shown too.
func (h *Handlers) Lanes(
	ctx context.Context, views []contract.ClusterView, live store.Live, pinned map[string][]string, in rest.PageInput,
) (rest.Page[api.Lane], error) {
	var lanes []api.Lane
	clusters := make(map[string]*cluster.Cluster, len(views))
	for i := range views {
		c := &views[i].Cluster
		clusters[c.Config.Name] = c
		for _, lane := range c.Lanes(pinned[c.Config.Name]) {
			lanes = append(lanes, api.Lane{
				Cluster:    c.Config.Name,
				Lane:       lane,
				TaskQueue:  contract.LaneQueue(c.Config.Name, lane),
				Priorities: []api.PriorityBacklog{},
				Needs:      c.FitOf(lane),
			})
		}
	}
	page, err := rest.PageAtHand(lanes, in, laneKey)
	if err != nil {
		return page, err
	}
	return page, h.fillLanes(ctx, page.Items, clusters, live)
}

// fillLanes puts in what waits in each lane and who serves it.
func (h *Handlers) fillLanes(
	ctx context.Context, lanes []api.Lane, clusters map[string]*cluster.Cluster, live store.Live,
) error {
	errs := make([]error, len(lanes))
	parallel.Each(len(lanes), rest.FanOut, func(i int) {
		var stats store.LaneStats
		if stats, errs[i] = h.LaneStats(ctx, lanes[i].TaskQueue); errs[i] == nil {
			takeStats(&lanes[i], stats)
		}
	})
	running := map[string]map[string]int{}
	for i := range lanes {
		if errs[i] != nil {
			return errs[i]
		}
		c := clusters[lanes[i].Cluster]
		if running[lanes[i].Cluster] == nil {
			running[lanes[i].Cluster] = live.Running(c)
		}
		takeServers(&lanes[i], c, running[lanes[i].Cluster])
	}
	parallel.Each(len(lanes), rest.FanOut, func(i int) { h.leaveOutEnded(ctx, &lanes[i]) })
	return nil
}

// leaveOutEnded corrects the backlog of a lane that no agent serves: Temporal counts tasks that ended there until
// somebody asks for work.
func (h *Handlers) leaveOutEnded(ctx context.Context, l *api.Lane) {
	if l.Agents > 0 || l.Depth == 0 {
		return
	}
	open, err := h.Store.Count(ctx, contract.LaneTasksQuery(l.Cluster, l.Lane))
	if err != nil || open >= l.Depth {
		return
	}
	if others, err := h.Store.Count(ctx, contract.LaneStepsQuery(l.Cluster, l.Lane)); err != nil || others > 0 {
		return // how many tasks they have there is not known
	}
	if l.Depth, l.Priorities = open, []api.PriorityBacklog{}; open == 0 {
		l.OldestAge = 0
	}
}

// laneKey sorts lanes by cluster, then: the default one, capabilities, shards by number, agents.
func laneKey(l *api.Lane) string {
	kind := "1" + l.Lane
	if shard, ok := task.ShardOfLane(l.Lane); ok {
		kind = fmt.Sprintf("2%06d", shard)
	} else if _, ok := task.AgentOfLane(l.Lane); ok {
		kind = "3" + l.Lane
	} else if l.Lane == task.DefaultLane {
		kind = "0"
	}
	return l.Cluster + " " + kind
}

func takeStats(l *api.Lane, s store.LaneStats) {
	l.Backlog = backlogOf(s.Total)
	for priority, stats := range s.ByPriority {
		l.Priorities = append(l.Priorities, api.PriorityBacklog{Priority: int(priority),
			Name: api.Priority(priority).String(), Backlog: backlogOf(stats)})
	}
	slices.SortFunc(l.Priorities, func(a, b api.PriorityBacklog) int { return a.Priority - b.Priority })
}

func backlogOf(s *taskqueuepb.TaskQueueStats) api.Backlog {
	b := api.Backlog{Depth: s.GetApproximateBacklogCount(), AddRate: rate(s.GetTasksAddRate()),
		DispatchRate: rate(s.GetTasksDispatchRate())}
	if b.Depth > 0 {
		b.OldestAge = api.Duration(s.GetApproximateBacklogAge().AsDuration().Round(time.Millisecond))
	}
	return b
}

// rate has two decimals.
func rate(r float32) float64 { return float64(int(r*100+.5)) / 100 }

func takeServers(l *api.Lane, c *cluster.Cluster, running map[string]int) {
	busy, known := 0, true
	for _, m := range c.ServersOf(l.Lane, task.CapabilitiesOfLane(l.Lane)) {
		n, ok := running[m.AgentID]
		l.Agents, l.Slots, busy, known = l.Agents+1, l.Slots+c.EffectiveSlots(m), busy+n, known && ok
	}
	if known {
		l.BusySlots = &busy
	}
	if p := c.Pauses.Of(l.Lane); p != nil {
		l.Paused = &api.Pause{Since: p.Since.UTC(), Reason: p.Reason}
	}
}
