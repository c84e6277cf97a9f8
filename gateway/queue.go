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
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
)

// Lane is a lane of a cluster as clients see it: what waits in it, and who takes it.
type Lane struct {
	Cluster   string `json:"cluster"`
	Lane      string `json:"lane" doc:"default, cap/<capability>+<capability>, shard/<number> or agent/<id>."`
	TaskQueue string `json:"task_queue" doc:"Its activity task queue in Temporal."`
	Backlog
	Priorities []PriorityBacklog `json:"priorities" doc:"The same by priority, first ones first. Priorities that were not used of late are left out."`
	Agents     int               `json:"agents" doc:"Online agents that serve it, or would if it were not paused."`
	Slots      int               `json:"slots" doc:"Tasks that they run at a time, of all lanes that they serve."`
	BusySlots  *int              `json:"busy_slots,omitempty" doc:"Of those, in use now. Absent when not known of every agent."`
	Paused     *Pause            `json:"paused,omitempty" doc:"What holds it back: its own pause or its cluster's."`

	capabilities []string
}

// Backlog is what waits in a lane. It is approximate.
type Backlog struct {
	Depth        int64          `json:"depth" doc:"About how many tasks wait."`
	OldestAge    fleet.Duration `json:"oldest_age,omitempty" doc:"About how long the first of them waits."`
	AddRate      float64        `json:"add_rate" doc:"Tasks that came, a second, over the last 30 s."`
	DispatchRate float64        `json:"dispatch_rate" doc:"Tasks that were taken, a second, over the last 30 s."`
}

// PriorityBacklog is the part of a lane's backlog with one priority.
type PriorityBacklog struct {
	Priority int    `json:"priority"`
	Name     string `json:"name"`
	Backlog
}

type clusterQueueInput struct {
	ID string `path:"id" doc:"The cluster's name."`
	QueuePageInput
}

type lanesOutput struct {
	Body struct {
		Lanes         []Lane `json:"lanes"`
		NextPageToken string `json:"next_page_token,omitempty"`
	}
}

func (g *Gateway) registerQueue(api huma.API) {
	const description = "Every lane in which tasks of the cluster can wait; those of single agents only while open work is pinned to them, or they are paused. " +
		"Depths, ages and rates are Temporal's: approximate, and some seconds old."
	operation := clusterOperation("get-cluster-queue", http.MethodGet, "/{id}/queue", "Show what waits in a cluster's lanes", http.StatusOK)
	operation.Description = description
	httpapi.Register(api, access.View, operation, func(ctx context.Context, in *clusterQueueInput) (*lanesOutput, error) {
		return g.queue(ctx, in.ID, &in.QueuePageInput)
	})
	httpapi.Register(api, access.View, huma.Operation{
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
	var live liveAgents
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
	var lanes []Lane
	clusters := make(map[string]*fleet.Cluster, len(views))
	for i := range views {
		c := &views[i].Cluster
		clusters[c.Config.Name] = c
		lanes = append(lanes, lanesOf(c, pinned[c.Config.Name])...)
	}
	lanes, next := page(lanes, string(after), in.PageSize, (*Lane).key)
	if err := g.fillLanes(ctx, lanes, clusters, live); err != nil {
		return nil, err
	}
	out := &lanesOutput{}
	out.Body.Lanes, out.Body.NextPageToken = lanes, next
	if lanes == nil {
		out.Body.Lanes = []Lane{}
	}
	return out, nil
}

// fillLanes puts in what waits in each lane and who serves it.
func (g *Gateway) fillLanes(ctx context.Context, lanes []Lane, clusters map[string]*fleet.Cluster, live liveAgents) error {
	errs := make([]error, len(lanes))
	parallel.Each(len(lanes), fanOut, func(i int) {
		var stats laneStats
		if stats, errs[i] = g.laneStats(ctx, lanes[i].TaskQueue); errs[i] == nil {
			lanes[i].takeStats(stats)
		}
	})
	running := map[string]map[string]int{}
	for i := range lanes {
		if errs[i] != nil {
			return errs[i]
		}
		c := clusters[lanes[i].Cluster]
		if running[lanes[i].Cluster] == nil {
			running[lanes[i].Cluster] = live.running(c)
		}
		lanes[i].takeServers(c, running[lanes[i].Cluster])
	}
	return nil
}

// lanesOf are the lanes of a cluster; those of agents are the ones named, and those that are paused.
func lanesOf(c *fleet.Cluster, pinned []string) []Lane {
	var lanes []Lane
	add := func(name string, capabilities ...string) {
		lanes = append(lanes, Lane{Cluster: c.Config.Name, Lane: name, TaskQueue: contract.LaneQueue(c.Config.Name, name),
			Priorities: []PriorityBacklog{}, capabilities: capabilities})
	}
	if c.Config.ReplicationMode == fleet.Sharded {
		for shard := range c.Config.Shards {
			add(fleet.ShardLane(shard))
		}
	} else {
		add(fleet.DefaultLane)
		for _, set := range c.CapabilitySets {
			add(fleet.CapabilityLane(set), set...)
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

// key sorts lanes by cluster, then: the default one, capabilities, shards by number, agents.
func (l *Lane) key() string {
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

func (l *Lane) takeStats(s laneStats) {
	l.Backlog = backlogOf(s.total)
	for priority, stats := range s.byPriority {
		l.Priorities = append(l.Priorities, PriorityBacklog{Priority: int(priority), Name: fleet.Priority(priority).String(), Backlog: backlogOf(stats)})
	}
	slices.SortFunc(l.Priorities, func(a, b PriorityBacklog) int { return a.Priority - b.Priority })
}

func backlogOf(s *taskqueuepb.TaskQueueStats) Backlog {
	b := Backlog{Depth: s.GetApproximateBacklogCount(), AddRate: rate(s.GetTasksAddRate()), DispatchRate: rate(s.GetTasksDispatchRate())}
	if b.Depth > 0 {
		b.OldestAge = fleet.Duration(s.GetApproximateBacklogAge().AsDuration().Round(time.Millisecond))
	}
	return b
}

// rate has two decimals.
func rate(r float32) float64 { return float64(int(r*100+.5)) / 100 }

func (l *Lane) takeServers(c *fleet.Cluster, running map[string]int) {
	busy, known := 0, true
	for _, m := range c.ServersOf(l.Lane, l.capabilities) {
		n, ok := running[m.AgentID]
		l.Agents, l.Slots, busy, known = l.Agents+1, l.Slots+c.EffectiveSlots(m), busy+n, known && ok
	}
	if known {
		l.BusySlots = &busy
	}
	if p := c.Pauses.Of(l.Lane); p != nil {
		l.Paused = &Pause{Since: p.Since.UTC(), Reason: p.Reason}
	}
}
