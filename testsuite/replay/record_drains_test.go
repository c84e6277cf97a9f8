package replay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// recordDrains records a drain that moves work at its deadline, one that is cancelled, and a dry run.
func recordDrains(t *testing.T, c client.Client, node *plane.Node) {
	t.Helper()
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "rested"})
	hold := map[string]agent.Handler{"wait": func(ctx context.Context, _ *agent.Task) (any,
		error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	stopFirst := runAgent(t, node, cluster, "r-1", hold)
	start(t, c, "rested-1", api.TaskSpec{Type: "wait", Cluster: cluster})
	started(t, c, "rested-1")
	stopSecond := runAgent(t, node, cluster, "r-2", hold)
	awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.ServingCount() == 2 })
	for _, d := range []contract.DrainInput{
		{ID: contract.DrainID(cluster, "planned"), Agents: []string{"r-1"}, DryRun: true},
		{ID: contract.DrainID(cluster, "moved"), Agents: []string{"r-1"}},
	} {
		startDrain(t, c, cluster, d)
		closed(t, c, drainWorkflowID(t, d.ID))
	}
	started(t, c, "rested-1")
	kept := contract.DrainInput{ID: contract.DrainID(cluster, "cancelled"), Agents: []string{"r-2", "r-1"},
		Timeout: api.Duration(time.Hour), MaxParallel: 1}
	startDrain(t, c, cluster, kept)
	awaitView(t, c, cluster,
		func(v *contract.ClusterView) bool { return v.Member("r-2").Status == api.AgentDraining })
	require.NoError(t, c.CancelWorkflow(t.Context(), drainWorkflowID(t, kept.ID), ""))
	closed(t, c, drainWorkflowID(t, kept.ID))
	update(t, c, contract.ClusterWorkflowID(cluster), contract.UncordonUpdate.Name,
		contract.UncordonRequest{AgentID: "r-1"})
	stopFirst()
	stopSecond()
	for _, name := range []string{"planned", "moved", "cancelled"} {
		save(t, c, contract.DrainWorkflow, name, drainWorkflowID(t, contract.DrainID(cluster, name)))
	}
	update(t, c, contract.ClusterWorkflowID(cluster), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(cluster))
	save(t, c, contract.ClusterWorkflow, "drained", contract.ClusterWorkflowID(cluster))
}

func startDrain(t *testing.T, c client.Client, cluster string, in contract.DrainInput) {
	t.Helper()
	in.Cluster = cluster
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: drainWorkflowID(t, in.ID),
		TaskQueue: contract.WorkerQueue}, contract.DrainWorkflow, in)
	require.NoError(t, err)
}

func drainWorkflowID(t *testing.T, id string) string {
	t.Helper()
	workflowID, ok := contract.DrainWorkflowID(id)
	require.True(t, ok)
	return workflowID
}
