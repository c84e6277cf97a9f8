package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
)

// Cordons asks clusters to keep work from agents.
type Cordons struct {
	Client client.Client
}

// Cordon keeps an agent from being given work and says where it is connected. A refusal is final.
func (a *Cordons) Cordon(ctx context.Context, in contract.ClusterCordon) (contract.Cordoned, error) {
	return a.update(ctx, in.Cluster, contract.CordonUpdate, in.Request)
}

// Uncordon lets an agent be given work again. A refusal is final.
func (a *Cordons) Uncordon(ctx context.Context, in contract.ClusterUncordon) (contract.Cordoned, error) {
	return a.update(ctx, in.Cluster, contract.UncordonUpdate, in.Request)
}

func (a *Cordons) update(ctx context.Context, cluster, name string, request any) (contract.Cordoned, error) {
	return askCluster[contract.Cordoned](ctx, a.Client, cluster, name, request)
}

// askCluster sends an update to a cluster. A refusal is final. An activity that is tried again asks under the same id: it gets the
// answer of the first time, and not a refusal of what it has done already.
func askCluster[T any](ctx context.Context, c client.Client, cluster, name string, request any) (T, error) {
	var answer T
	info := activity.GetInfo(ctx)
	handle, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		UpdateID:   info.WorkflowExecution.RunID + "/" + info.ActivityID,
		WorkflowID: contract.ClusterWorkflowID(cluster), UpdateName: name, Args: []any{request}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	var refused *temporal.ApplicationError
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &refused) && refused.Type() == contract.Refused:
		return answer, temporal.NewNonRetryableApplicationError(refused.Message(), contract.Refused, nil)
	case errors.As(err, &missing):
		return answer, temporal.NewNonRetryableApplicationError("the cluster does not exist any more", contract.Refused, nil)
	case err != nil:
		return answer, fmt.Errorf("%s in cluster %s: %w", name, cluster, err)
	}
	return answer, nil
}

// FindMember looks where an agent is connected, and changes nothing.
func (a *Cordons) FindMember(ctx context.Context, in contract.FindMemberInput) (contract.Cordoned, error) {
	value, err := a.Client.QueryWorkflow(ctx, contract.ClusterWorkflowID(in.Cluster), "", contract.ViewQuery)
	if err != nil {
		return contract.Cordoned{}, fmt.Errorf("look at cluster %s: %w", in.Cluster, err)
	}
	var view contract.ClusterView
	if err := value.Get(&view); err != nil {
		return contract.Cordoned{}, fmt.Errorf("read the view of cluster %s: %w", in.Cluster, err)
	}
	member := view.Member(in.AgentID)
	if member == nil {
		return contract.Cordoned{}, temporal.NewNonRetryableApplicationError("the agent is not a member of the cluster", contract.Refused, nil)
	}
	answer := contract.Cordoned{Version: view.Version}
	if member.Connected() {
		answer.Hub, answer.Instance, answer.Epoch = member.Hub, member.Instance, member.Epoch
	}
	return answer, nil
}
