package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
)

// StateSyncs looks at clusters for state syncs.
type StateSyncs struct {
	Client client.Client
}

// SyncMembers lists a cluster's members with their hubs.
func (a *StateSyncs) SyncMembers(ctx context.Context, cluster string) (contract.SyncMembersResult, error) {
	var view contract.ClusterView
	value, err := a.Client.QueryWorkflow(ctx, contract.ClusterWorkflowID(cluster), "", contract.ViewQuery)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return contract.SyncMembersResult{}, temporal.NewNonRetryableApplicationError("the cluster does not exist any more", contract.Refused, nil)
	}
	if err == nil {
		err = value.Get(&view)
	}
	if err != nil {
		return contract.SyncMembersResult{}, fmt.Errorf("look at cluster %s: %w", cluster, err)
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
