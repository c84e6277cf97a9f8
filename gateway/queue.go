package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/store"
)

type clusterQueueInput struct {
	ID string `path:"id" doc:"The cluster's name."`
	QueuePageInput
}

type lanesOutput struct {
	Body struct {
		Lanes         []api.Lane `json:"lanes"`
		NextPageToken string     `json:"next_page_token,omitempty"`
	}
}

func (g *Gateway) registerQueue(routes huma.API) {
	const description = "Every lane in which tasks of the cluster can wait; those of single agents only while open work is pinned to them, or they are paused. " +
		"Depths, ages and rates are Temporal's: approximate, and some seconds old."
	operation := clusterOperation("get-cluster-queue", http.MethodGet, "/{id}/queue", "Show what waits in a cluster's lanes", http.StatusOK)
	operation.Description = description
	httpapi.Register(routes, access.View, operation, func(ctx context.Context, in *clusterQueueInput) (*lanesOutput, error) {
		return g.queue(ctx, in.ID, &in.QueuePageInput)
	})
	httpapi.Register(routes, access.View, huma.Operation{
		OperationID: "get-queue", Method: http.MethodGet, Path: "/api/v1/agents/queue", Tags: []string{"Clusters"},
		Summary: "Show what waits in the lanes of all clusters", Description: description,
	}, func(ctx context.Context, in *QueuePageInput) (*lanesOutput, error) { return g.queue(ctx, "", in) })
}

// queue shows the lanes of one cluster, or of all when only is empty.
func (g *Gateway) queue(ctx context.Context, only string, in *QueuePageInput) (*lanesOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := openToken(byKey, in.PageToken)
	if err != nil {
		return nil, err
	}
	var pinned map[string][]string
	var pinnedErr error
	var live store.Live
	var beside sync.WaitGroup
	beside.Go(func() { pinned, pinnedErr = g.pinnedAgents(ctx, only) })
	beside.Go(func() { live = g.live(ctx) })
	views, err := g.views(ctx, only)
	beside.Wait()
	if err == nil {
		err = pinnedErr
	}
	if err != nil {
		return nil, err
	}
	var lanes []api.Lane
	clusters := make(map[string]*fleet.Cluster, len(views))
	for i := range views {
		c := &views[i].Cluster
		clusters[c.Config.Name] = c
		lanes = append(lanes, lanesOf(c, pinned[c.Config.Name])...)
	}
	lanes, next := page(lanes, string(after), in.PageSize, laneKey)
	if err := g.fillLanes(ctx, lanes, clusters, live); err != nil {
		return nil, err
	}
	out := &lanesOutput{}
	out.Body.Lanes, out.Body.NextPageToken = lanes, next
	if lanes == nil {
		out.Body.Lanes = []api.Lane{}
	}
	return out, nil
}

// fillLanes puts in what waits in each lane and who serves it.
func (g *Gateway) fillLanes(ctx context.Context, lanes []api.Lane, clusters map[string]*fleet.Cluster, live store.Live) error {
	errs := make([]error, len(lanes))
	parallel.Each(len(lanes), fanOut, func(i int) {
		var stats store.LaneStats
		if stats, errs[i] = g.laneStats(ctx, lanes[i].TaskQueue); errs[i] == nil {
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
	return nil
}

// lanesOf are the lanes of a cluster; those of agents are the ones named, and those that are paused.
func lanesOf(c *fleet.Cluster, pinned []string) []api.Lane {
	var lanes []api.Lane
	add := func(name string) {
		lanes = append(lanes, api.Lane{Cluster: c.Config.Name, Lane: name, TaskQueue: contract.LaneQueue(c.Config.Name, name),
			Priorities: []api.PriorityBacklog{}})
	}
	if c.Config.ReplicationMode == fleet.Sharded {
		for shard := range c.Config.Shards {
			add(fleet.ShardLane(shard))
		}
	} else {
		add(fleet.DefaultLane)
		for _, set := range c.CapabilitySets {
			add(fleet.CapabilityLane(set))
		}
	}
	for i := range c.Pauses {
		if agent, ok := fleet.AgentOfLane(c.Pauses[i].Lane); ok {
			pinned = append(pinned, agent)
		}
	}
	slices.Sort(pinned)
	for _, agent := range slices.Compact(pinned) {
		add(fleet.AgentLane(agent))
	}
	return lanes
}

// laneKey sorts lanes by cluster, then: the default one, capabilities, shards by number, agents.
func laneKey(l *api.Lane) string {
	kind := "1" + l.Lane
	if shard, ok := fleet.ShardOfLane(l.Lane); ok {
		kind = fmt.Sprintf("2%06d", shard)
	} else if _, ok := fleet.AgentOfLane(l.Lane); ok {
		kind = "3" + l.Lane
	} else if l.Lane == fleet.DefaultLane {
		kind = "0"
	}
	return l.Cluster + " " + kind
}

func takeStats(l *api.Lane, s store.LaneStats) {
	l.Backlog = backlogOf(s.Total)
	for priority, stats := range s.ByPriority {
		l.Priorities = append(l.Priorities, api.PriorityBacklog{Priority: int(priority), Name: fleet.Priority(priority).String(), Backlog: backlogOf(stats)})
	}
	slices.SortFunc(l.Priorities, func(a, b api.PriorityBacklog) int { return a.Priority - b.Priority })
}

func backlogOf(s *taskqueuepb.TaskQueueStats) api.Backlog {
	b := api.Backlog{Depth: s.GetApproximateBacklogCount(), AddRate: rate(s.GetTasksAddRate()), DispatchRate: rate(s.GetTasksDispatchRate())}
	if b.Depth > 0 {
		b.OldestAge = fleet.Duration(s.GetApproximateBacklogAge().AsDuration().Round(time.Millisecond))
	}
	return b
}

// rate has two decimals.
func rate(r float32) float64 { return float64(int(r*100+.5)) / 100 }

func takeServers(l *api.Lane, c *fleet.Cluster, running map[string]int) {
	busy, known := 0, true
	for _, m := range c.ServersOf(l.Lane, fleet.CapabilitiesOfLane(l.Lane)) {
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
