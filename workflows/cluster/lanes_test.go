package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// TestClusterGivesLanesBack opens as many lanes as a tenant may have. An hour after their tasks have ended there are
// lanes again, also for others, and the hubs have heard.
func TestClusterGivesLanesBack(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.RegisterActivityWithOptions(func(_ context.Context, in contract.UsedLanesInput) ([]string, error) {
		require.Equal(t, "default", in.Cluster)
		return []string{"cap/set-7"}, nil
	}, activity.RegisterOptions{Name: contract.UsedLanesActivity.Name})
	open := func(tenant, set string) *workflowtest.Answer {
		return run.update(contract.OpenLaneUpdate.Name,
			contract.OpenLaneRequest{Tenant: tenant, LaneNeeds: api.LaneNeeds{Capabilities: []string{set}}})
	}
	var last, refused, other, again *workflowtest.Answer
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() {
		for i := range 128 {
			last = open("acme", fmt.Sprintf("set-%d", i))
		}
	})
	run.at(3*time.Second, func() { refused, other = open("acme", "one-more"), open("beta", "one-more") })
	run.at(90*time.Minute, func() {
		require.Equal(t, [][]string{{"set-7"}}, run.view(t).CapabilitySets, "a task uses it")
		again = open("acme", "one-more")
	})
	run.at(91*time.Minute, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.NoError(t, errors.Join(last.Err, other.Err, again.Err))
	require.ErrorContains(t, refused.Err, "no more are free for this tenant")
	sent := run.directives()
	require.Equal(t, [][]string{{"set-7"}, {"one-more"}}, sent[len(sent)-1].CapabilitySets)
}

// TestClusterRefusesALargeAgent joins an agent with more metadata than it may have.
func TestClusterRefusesALargeAgent(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var joined *workflowtest.Answer
	run.at(time.Second, func() {
		request := joins("h1", "large", "plain")
		request.Joins[0].Metadata = map[string]string{"a": strings.Repeat("x", 500_000)}
		joined = run.update(contract.JoinUpdate.Name, request)
	})
	run.at(2*time.Second, func() {
		require.Len(t, run.view(t).Members, 1)
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	results := joined.Value.(contract.JoinResponse).Results
	require.Equal(t, cluster.RefusedProfile, results[0].Refused)
	require.Empty(t, results[1].Refused, "its neighbour in the batch is a member")
}
