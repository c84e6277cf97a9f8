package activities

import (
	"context"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
)

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
