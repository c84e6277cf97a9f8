package activities

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
)

// Cordon keeps an agent from being given work and says where it is connected. A refusal is final.
func (a *Control) Cordon(ctx context.Context, in contract.ClusterCordon) (contract.Cordoned, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.CordonUpdate, in.Request)
}

// Uncordon lets an agent be given work again. A refusal is final.
func (a *Control) Uncordon(ctx context.Context, in contract.ClusterUncordon) (contract.Cordoned, error) {
	return askCluster(ctx, a.Client, in.Cluster, contract.UncordonUpdate, in.Request)
}

// askCluster sends an update to a cluster. A refusal is final. An activity that is tried again asks under the same id:
// it gets the answer of the first time, and not a refusal of what it has done already.
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
