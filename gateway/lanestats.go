package gateway

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// laneStats is what Temporal says of a lane's backlog. All of it is approximate, and as old as
// the server's cache allows: up to 1 s in the embedded one, 5 s by default.
type laneStats struct {
	total      *taskqueuepb.TaskQueueStats
	byPriority map[int32]*taskqueuepb.TaskQueueStats
}

func (g *Gateway) laneStats(ctx context.Context, queue string) (laneStats, error) {
	answer, err := g.client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: g.namespace, ReportStats: true, TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
	if err != nil {
		return laneStats{}, g.answer(err, "read a lane's backlog", protocol.CodeNotFound)
	}
	return laneStats{answer.GetStats(), answer.GetStatsByPriorityKey()}, nil
}

// ahead is about how many tasks may stand before one of the given priority, which is in the backlog itself.
func (s laneStats) ahead(priority int32) int64 {
	if priority == 0 {
		priority = int32(fleet.DefaultPriority)
	}
	var ahead int64 = -1
	for level, stats := range s.byPriority {
		if level <= priority {
			ahead += stats.GetApproximateBacklogCount()
		}
	}
	return max(0, ahead)
}
