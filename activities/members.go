package activities

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// Cordon keeps an agent from being given work and says where it is connected. A refusal is final.
func (a *Control) Cordon(ctx context.Context, in contract.ClusterCordon) (contract.Cordoned, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.CordonUpdate, in.Request)
}

// Uncordon lets an agent be given work again. A refusal is final.
func (a *Control) Uncordon(ctx context.Context, in contract.ClusterUncordon) (contract.Cordoned, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.UncordonUpdate, in.Request)
}

// askCluster sends an update to a cluster. A refusal is final. A retried activity asks under the same id, so it gets
// the first answer, and not a refusal of work that is done already.
func askCluster[In, Out any](
	ctx context.Context, c client.Client, cluster string, update contract.Update[In, Out], request In,
) (Out, error) {
	info := activity.GetInfo(ctx)
	id := info.WorkflowExecution.RunID + "/" + info.ActivityID
	answer, err := update.SendOnce(ctx, c, contract.ClusterWorkflowID(cluster), id, request)
	switch kind := store.KindOf(err); {
	case kind == store.Refused:
		return answer, temporal.NewNonRetryableApplicationError(store.Refusal(err), contract.Refused, nil)
	case kind == store.NotFound:
		return answer, temporal.NewNonRetryableApplicationError("the cluster does not exist any more", contract.Refused,
			nil)
	case err != nil:
		return answer, fmt.Errorf("%s in cluster %s: %w", update.Name, cluster, err)
	}
	return answer, nil
}

// FindMember looks where an agent is connected, and changes nothing.
func (a *Control) FindMember(ctx context.Context, in contract.FindMemberInput) (contract.Cordoned, error) {
	view, err := a.view(ctx, in.Cluster)
	if err != nil {
		return contract.Cordoned{}, err
	}
	member := view.Member(in.AgentID)
	if member == nil {
		return contract.Cordoned{}, temporal.NewNonRetryableApplicationError("the agent is not a member of the cluster",
			contract.Refused, nil)
	}
	answer := contract.Cordoned{Version: view.Version}
	if member.Connected() {
		answer.Hub, answer.Instance, answer.Epoch = member.Hub, member.Instance, member.Epoch
	}
	return answer, nil
}

// SyncMembers lists a cluster's members with their hubs.
func (a *Control) SyncMembers(ctx context.Context, cluster string) (contract.SyncMembersResult, error) {
	view, err := a.view(ctx, cluster)
	if store.KindOf(err) == store.NotFound {
		return contract.SyncMembersResult{},
			temporal.NewNonRetryableApplicationError("the cluster does not exist any more", contract.Refused, nil)
	}
	if err != nil {
		return contract.SyncMembersResult{}, err
	}
	result := contract.SyncMembersResult{Mode: view.Config.ReplicationMode, Leader: view.Leader}
	for i := range view.Members {
		m := &view.Members[i]
		member := contract.SyncMember{AgentID: m.AgentID, Role: view.RoleOf(m.AgentID)}
		if m.Connected() {
			member.Hub = m.Hub
		}
		result.Members = append(result.Members, member)
	}
	return result, nil
}

// ReduceLoad lets an agent use fewer of its slots. A refusal is final.
func (a *Control) ReduceLoad(ctx context.Context, in contract.ClusterReduceLoad) (contract.LoadReduced, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.ReduceLoadUpdate, in.Request)
}

// Rebalance spreads shards and targets evenly. A refusal is final.
func (a *Control) Rebalance(ctx context.Context, in contract.ClusterRebalance) (api.Rebalance, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.RebalanceUpdate, in.Request)
}

// ReadLoads returns how many tasks each agent of a cluster runs now, by agent id, as far as that is known.
func (a *Control) ReadLoads(ctx context.Context, cluster string) (map[string]int, error) {
	loads, err := a.store().RunningIn(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("list the workers of cluster %s: %w", cluster, err)
	}
	return loads, nil
}
