package store

import (
	"context"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/sdk/api"
)

// pinnedLooks bounds how many agents are looked at for pinned work in one decision.
const pinnedLooks = 200

// LaneStats is what Temporal says of a lane's backlog. All of it is approximate, and as old as the server's cache
// allows: up to 1 s in the embedded one, 5 s by default.
type LaneStats struct {
	Total      *taskqueuepb.TaskQueueStats
	ByPriority map[int32]*taskqueuepb.TaskQueueStats
}

// Ahead is about how many tasks may stand before one of the given priority, which is in the backlog itself.
func (s LaneStats) Ahead(priority int32) int64 {
	if priority == 0 {
		priority = int32(api.DefaultPriority)
	}
	var ahead int64 = -1
	for level, stats := range s.ByPriority {
		if level <= priority {
			ahead += stats.GetApproximateBacklogCount()
		}
	}
	return max(0, ahead)
}

// LaneStats reads the backlog of a lane's task queue.
func (s Store) LaneStats(ctx context.Context, queue string) (LaneStats, error) {
	answer, err := s.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: s.Namespace, ReportStats: true, TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
	return LaneStats{answer.GetStats(), answer.GetStatsByPriorityKey()}, err
}

// CompleteScaling completes facts, which have the agents' loads, for a scaling decision: it adds the backlog, and
// whether work is pinned to the agents that would be stopped.
func (s Clusters) CompleteScaling(
	ctx context.Context, c *cluster.Cluster, facts *scaling.ScalingFacts, decide func() cluster.ScalingDecision,
) (cluster.ScalingDecision, error) {
	for _, lane := range scaling.ScalingLanes(c) {
		stats, err := s.LaneStats(ctx, contract.LaneQueue(c.Config.Name, lane))
		if err != nil {
			return cluster.ScalingDecision{}, fmt.Errorf("read the backlog of lane %s: %w", lane, err)
		}
		facts.Queue += stats.Total.GetApproximateBacklogCount()
	}
	known := map[string]bool{}
	for {
		d := decide()
		if d.Change != api.ScaleDown || d.Rule.Retires() {
			return d, nil
		}
		pinned := false
		for _, agent := range d.Agents {
			if known[agent] {
				continue
			}
			if len(known) >= pinnedLooks {
				return cluster.ScalingDecision{},
					fmt.Errorf("work is pinned to more than %d agents that could be stopped", pinnedLooks)
			}
			known[agent] = true
			// Visibility may be a second behind.
			work, err := s.Count(ctx, contract.PinnedQuery(agent))
			if err == nil && work == 0 { // steps of runs whose agent an expression names
				var stats LaneStats
				stats, err = s.LaneStats(ctx, contract.AgentLane(c.Config.Name, agent))
				work = stats.Total.GetApproximateBacklogCount()
			}
			if err != nil {
				return cluster.ScalingDecision{}, fmt.Errorf("count the work that is pinned to %s: %w", agent, err)
			}
			if work > 0 && facts.Pin(agent) {
				pinned = true
			}
		}
		if !pinned {
			return d, nil
		}
	}
}

// Pollers are those who poll the activities of a queue. Temporal forgets one after some minutes.
func (s Store) Pollers(ctx context.Context, queue string) ([]*taskqueuepb.PollerInfo, error) {
	answer, err := s.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: s.Namespace, TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
	return answer.GetPollers(), err
}
