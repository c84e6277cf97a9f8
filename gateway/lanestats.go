package gateway

import (
	"context"

	taskqueuepb "go.temporal.io/api/taskqueue/v1"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// laneStats is contract.LaneStats.
type laneStats struct {
	total      *taskqueuepb.TaskQueueStats
	byPriority map[int32]*taskqueuepb.TaskQueueStats
}

func (g *Gateway) laneStats(ctx context.Context, queue string) (laneStats, error) {
	stats, err := contract.ReadLaneStats(ctx, g.client, g.namespace, queue)
	if err != nil {
		return laneStats{}, g.answer(err, "read a lane's backlog", protocol.CodeNotFound)
	}
	return laneStats{stats.Total, stats.ByPriority}, nil
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
