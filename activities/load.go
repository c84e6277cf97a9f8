package activities

import (
	"context"
	"fmt"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// ReduceLoad lets an agent use fewer of its slots. A refusal is final.
func (a *Control) ReduceLoad(ctx context.Context, in contract.ClusterReduceLoad) (contract.LoadReduced, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.ReduceLoadUpdate, in.Request)
}

// Rebalance spreads shards and targets evenly. A refusal is final.
func (a *Control) Rebalance(ctx context.Context, in contract.ClusterRebalance) (fleet.Rebalance, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.RebalanceUpdate, in.Request)
}

// ReadLoads returns how many tasks each agent of a cluster runs now, by agent id, for those of which it is known.
func (a *Control) ReadLoads(ctx context.Context, cluster string) (map[string]int, error) {
	loads, err := a.store().RunningIn(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("list the workers of cluster %s: %w", cluster, err)
	}
	return loads, nil
}
