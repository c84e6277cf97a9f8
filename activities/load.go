package activities

import (
	"context"

	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// LoadChanges asks clusters to change how much their agents do.
type LoadChanges struct {
	Client client.Client
}

// ReduceLoad lets an agent use fewer of its slots. A refusal is final.
func (a *LoadChanges) ReduceLoad(ctx context.Context, in contract.ClusterReduceLoad) (contract.LoadReduced, error) {
	return askCluster[contract.LoadReduced](ctx, a.Client, in.Cluster, contract.ReduceLoadUpdate, in.Request)
}

// RestoreLoad gives an agent its slots back. A refusal is final.
func (a *LoadChanges) RestoreLoad(ctx context.Context, in contract.ClusterRestoreLoad) (contract.LoadReduced, error) {
	return askCluster[contract.LoadReduced](ctx, a.Client, in.Cluster, contract.RestoreLoadUpdate, in.Request)
}

// Rebalance spreads shards and targets evenly. A refusal is final.
func (a *LoadChanges) Rebalance(ctx context.Context, in contract.ClusterRebalance) (fleet.Rebalance, error) {
	return askCluster[fleet.Rebalance](ctx, a.Client, in.Cluster, contract.RebalanceUpdate, in.Request)
}
