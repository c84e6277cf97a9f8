package activities

import (
	"context"
	"fmt"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
)

// Loads reads the live worker registry.
type Loads struct {
	Client    client.Client
	Namespace string
}

// ReadLoads returns how many tasks each agent of a cluster runs now, by agent id, for those of which it is known.
func (a *Loads) ReadLoads(ctx context.Context, cluster string) (map[string]int, error) {
	loads := map[string]int{}
	var page []byte
	for {
		found, err := a.Client.WorkflowService().ListWorkers(ctx, &workflowservice.ListWorkersRequest{
			Namespace: a.Namespace, PageSize: 1000, NextPageToken: page,
			Query: fmt.Sprintf("TaskQueue = '%s'", contract.ClusterLane(cluster)),
		})
		if err != nil {
			return nil, fmt.Errorf("list the workers of cluster %s: %w", cluster, err)
		}
		//nolint:staticcheck // deprecated, but what replaces it has no load
		for _, worker := range found.GetWorkersInfo() {
			heartbeat := worker.GetWorkerHeartbeat()
			if _, agent, ok := contract.AgentOfIdentity(heartbeat.GetWorkerIdentity()); ok {
				loads[agent] = int(heartbeat.GetActivityTaskSlotsInfo().GetCurrentUsedSlots())
			}
		}
		if page = found.GetNextPageToken(); len(page) == 0 {
			return loads, nil
		}
	}
}
