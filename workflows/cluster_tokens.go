package workflows

import (
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
)

// revokeToken keeps agents out that come with a join token. Where their sessions end as well, it answers when the hubs have
// heard: they end them.
func (r *clusterRun) revokeToken(ctx workflow.Context, req contract.RevokeJoinTokenRequest) (contract.RevokedJoinToken, error) {
	ended := r.state.RevokeToken(req.ID, req.EndSessions)
	if req.EndSessions {
		r.state.Version++
		version := r.state.Version
		_, _ = workflow.AwaitWithOptions(ctx, named(heardTimeout, "until the hubs have heard of a revoked token"), func() bool { return r.heard >= version })
	}
	return contract.RevokedJoinToken{Agents: ended}, nil
}
