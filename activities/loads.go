package activities

import (
	"context"
	"fmt"

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
	for heartbeat, err := range contract.LiveAgents(ctx, a.Client, a.Namespace, fmt.Sprintf("TaskQueue = '%s'", contract.ClusterLane(cluster))) {
		if err != nil {
			return nil, fmt.Errorf("list the workers of cluster %s: %w", cluster, err)
		}
		_, agent, _ := contract.AgentOfIdentity(heartbeat.GetWorkerIdentity())
		loads[agent] = int(heartbeat.GetActivityTaskSlotsInfo().GetCurrentUsedSlots())
	}
	return loads, nil
}
