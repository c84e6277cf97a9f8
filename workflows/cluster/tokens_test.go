package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// TestClusterRevokesAJoinToken revokes a token with which agents joined, ends their sessions, and checks the hubs'
// directives.
func TestClusterRevokesAJoinToken(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	with := func(token cluster.JoinToken, agents ...string) contract.JoinRequest {
		request := joins("h1", agents...)
		for i := range request.Joins {
			request.Joins[i].Token = token
		}
		return request
	}
	token, other := cluster.JoinToken{ID: "t", MaxUses: 2}, cluster.JoinToken{ID: "other"}
	var joined, kept, resumed, ended, late *workflowtest.Answer
	run.at(time.Second, func() {
		joined = run.update(contract.JoinUpdate.Name, with(token, "a", "b", "c"))
		run.update(contract.JoinUpdate.Name, with(other, "d"))
	})
	run.at(2*time.Second, func() {
		kept = run.update(contract.RevokeJoinTokenUpdate.Name, contract.RevokeJoinTokenRequest{ID: "t"})
	})
	run.at(3*time.Second, func() {
		require.Empty(t, run.directives(), "sessions go on")
		request := with(cluster.JoinToken{ID: "t"}, "a")
		request.Joins[0].Resume = true
		resumed = run.update(contract.JoinUpdate.Name, request)
	})
	run.at(4*time.Second, func() {
		ended = run.update(contract.RevokeJoinTokenUpdate.Name,
			contract.RevokeJoinTokenRequest{ID: "t", EndSessions: true})
	})
	run.at(5*time.Second, func() { late = run.update(contract.JoinUpdate.Name, with(token, "a", "e")) })
	run.at(6*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})

	require.NoError(t, run.GetWorkflowError())
	refusals := func(a *workflowtest.Answer) (list []string) {
		for _, r := range a.Value.(contract.JoinResponse).Results {
			list = append(list, r.Refused)
		}
		return list
	}
	require.Equal(t, []string{"", "", cluster.RefusedUses}, refusals(joined))
	require.Empty(t, kept.Value.(contract.RevokedJoinToken).Agents)
	require.Equal(t, []string{""}, refusals(resumed))
	require.Equal(t, []string{"a", "b"}, ended.Value.(contract.RevokedJoinToken).Agents)
	require.Equal(t, []string{cluster.RefusedRevoked, cluster.RefusedToken}, refusals(late))
	require.Len(t, run.directives(), 1)
	require.Equal(t, []string{"t"}, run.directives()[0].EndedTokens)
	require.True(t, run.directives()[0].Ended("t"))
	require.False(t, run.directives()[0].Ended("other") || run.directives()[0].Ended(""))
}
