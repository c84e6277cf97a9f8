package contract

import (
	"context"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/fleet"
)

// LaneStats is what Temporal says of a lane's backlog. All of it is approximate, and as old as the server's cache allows:
// up to 1 s in the embedded one, 5 s by default.
type LaneStats struct {
	Total      *taskqueuepb.TaskQueueStats
	ByPriority map[int32]*taskqueuepb.TaskQueueStats
}

// ReadLaneStats reads the backlog of a lane's task queue.
func ReadLaneStats(ctx context.Context, c client.Client, namespace, queue string) (LaneStats, error) {
	answer, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: namespace, ReportStats: true, TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
	if err != nil {
		return LaneStats{}, err
	}
	return LaneStats{answer.GetStats(), answer.GetStatsByPriorityKey()}, nil
}

// ScalingBacklog is about how many tasks wait in a cluster for agents as scaling starts them.
func ScalingBacklog(ctx context.Context, c client.Client, namespace string, cluster *fleet.Cluster) (int64, error) {
	var total int64
	for _, lane := range cluster.ScalingLanes() {
		stats, err := ReadLaneStats(ctx, c, namespace, LaneQueue(cluster.Config.Name, lane))
		if err != nil {
			return 0, fmt.Errorf("read the backlog of lane %s: %w", lane, err)
		}
		total += stats.Total.GetApproximateBacklogCount()
	}
	return total, nil
}
