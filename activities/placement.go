package activities

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
)

// IsMadeBy tells whether a task is one that a schedule made.
func (a *Control) IsMadeBy(ctx context.Context, in contract.IsMadeByInput) (bool, error) {
	task, err := a.tasks().Describe(ctx, in.TaskID)
	if err != nil {
		return false, fmt.Errorf("describe task %s: %w", in.TaskID, err)
	}
	return task.MadeBy(in.Schedule), nil
}

// PlaceTask asks the cluster as it is now for a task's lane, and opens that lane if nobody polls it yet. A cluster that
// is not there fails with contract.UnknownCluster.
func (a *Control) PlaceTask(ctx context.Context, in contract.PlaceTaskInput) (contract.TaskPlace, error) {
	view, err := a.view(ctx, in.Cluster)
	if store.KindOf(err) == store.NotFound {
		return contract.TaskPlace{}, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("there is no cluster %s any more, so no task was made",
				in.Cluster), contract.UnknownCluster, nil)
	}
	if err != nil {
		return contract.TaskPlace{}, err
	}
	shards := view.Config.ShardCount()
	spec := fleet.TaskSpec{Cluster: in.Cluster, Agent: in.Agent, ShardKey: in.ShardKey,
		RequiredCapabilities: in.RequiredCapabilities}
	place := contract.TaskPlace{Lane: contract.Lane(&spec, shards), Sharded: shards > 0,
		TenantWeight:        view.Config.TenantWeights[in.Tenant],
		Defaults:            view.Config.WithDefaults().TaskDefaults,
		DeadLetterRetention: view.Config.WithDefaults().DeadLetterRetention}
	if place.Lane != contract.CapabilityLane(in.Cluster, in.RequiredCapabilities) {
		return place, nil
	}
	if err := a.clusters().OpenLane(ctx, &view, in.RequiredCapabilities); err != nil {
		return place, fmt.Errorf("open a lane in cluster %s: %w", in.Cluster, err)
	}
	return place, nil
}
