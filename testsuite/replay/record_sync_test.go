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

// recordSync records a state sync that sends what standbys lack, one that finds nothing to do, and one of a cluster
// whose agents keep no state; and a cluster with targets, reduced load and a rebalance.
func recordSync(t *testing.T, c client.Client, node *plane.Node) {
	t.Helper()
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "same", ReplicationMode: api.ActivePassive,
		RoleLease: api.Duration(1250 * time.Millisecond)})
	saveSync := func(name string) { save(t, c, contract.StateSyncWorkflow, name, contract.SyncWorkflowID(cluster)) }
	sync := func(want api.SyncStatus) {
		run,
			err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.SyncWorkflowID(cluster),
			TaskQueue: contract.WorkerQueue},
			contract.StateSyncWorkflow, contract.SyncInput{Cluster: cluster, Reason: "recorded"})
		require.NoError(t, err)
		var report api.SyncReport
		require.NoError(t, run.Get(t.Context(), &report))
		require.Equal(t, want, report.Status, report.Why)
	}
	sync(api.SyncSkipped)
	saveSync("skipped")
	leader, standby := agent.NewState(), agent.NewState()
	stopLeader := runKeeper(t, node, cluster, "s-1", leader)
	awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.RoleOf("s-1") == api.RoleLeader })
	update(t, c, contract.ClusterWorkflowID(cluster), contract.TargetsUpdate.Name,
		contract.TargetsRequest{Add: []string{"host-1"}})
	require.NoError(t, leader.SetConfiguration("retention", 30))
	stopStandby := runKeeper(t, node, cluster, "s-2", standby)
	require.Eventually(t, func() bool {
		return standby.Configuration()["retention"] != nil && standby.Summary() == leader.Summary()
	},
		30*time.Second, 20*time.Millisecond, "the standby has what the leader has")
	closed(t, c, contract.SyncWorkflowID(cluster))
	saveSync("sent")
	sync(api.SyncConsistent)
	saveSync("consistent")
	stopLeader()
	awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.RoleOf("s-2") == api.RoleLeader })
	update(t, c, contract.ClusterWorkflowID(cluster), contract.ReduceLoadUpdate.Name,
		contract.ReduceLoadRequest{AgentID: "s-2", For: api.Duration(time.Second)})
	update(t, c, contract.ClusterWorkflowID(cluster), contract.RebalanceUpdate.Name, contract.RebalanceRequest{})
	awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return len(v.Reductions) == 0 })
	stopStandby()
	update(t, c, contract.ClusterWorkflowID(cluster), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(cluster))
	save(t, c, contract.ClusterWorkflow, "synced-soon", contract.ClusterWorkflowID(cluster))
}

// runKeeper runs an agent that keeps state, until stop is called.
func runKeeper(t *testing.T, node *plane.Node, cluster, id string, state *agent.State) (stop func()) {
	t.Helper()
	a, err := agent.New(agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id, Slots: 2, State: state})
	require.NoError(t, err)
	a.Handle("echo", func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(cancel)
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}
