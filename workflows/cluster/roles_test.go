package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// gone reports to the cluster that an agent's session ended.
func (r *clusterRun) gone(agent string, epoch int64, lease time.Duration, left bool, attempts ...fleet.HeldAttempt) {
	remaining := fleet.Duration(lease)
	r.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1",
		Changes: []fleet.Transition{{
			AgentID: agent, Instance: agent + "-1", Epoch: epoch, Status: fleet.AgentOffline, Reason: "gone", At: r.Now(),
			Left: left, LeaseRemaining: &remaining, Attempts: attempts}}})
}

func (r *clusterRun) deleteAt(after time.Duration) {
	r.at(after, func() { r.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
}

func TestClusterElection(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.loads = map[string]int{"b": 2, "c": 1}
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() {
		require.Equal(t, "a", run.view(t).Leader)
		run.update(contract.JoinUpdate.Name, joins("h1", "b", "c"))
	})
	run.at(10*time.Second, func() {
		run.gone("a", 1, 3*time.Second, false,
			fleet.HeldAttempt{TaskID: "t-1", Attempt: 1})
	})
	run.at(12*time.Second, func() { require.Empty(t, run.view(t).Leader, "the old leader's lease has not run out") })
	run.at(14*time.Second, func() {
		view := run.view(t)
		require.Equal(t, "c", view.Leader, "the least loaded standby leads")
		require.Greater(t, view.LeaderEpoch, int64(4))
		require.Equal(t, []string{"b"}, view.Standbys)
	})
	run.at(20*time.Second, func() { run.gone("c", 3, 0, true) })
	run.at(21*time.Second, func() {
		require.Equal(t, "c", run.view(t).Leader,
			"the goodbye named another session's epoch")
	})
	run.at(22*time.Second, func() { run.gone("c", 4, 0, true) })
	run.at(22*time.Second+100*time.Millisecond, func() {
		require.Equal(t, "b", run.view(t).Leader,
			"after a goodbye nothing needs to wait")
	})
	run.deleteAt(30 * time.Second)
	run.start(fleet.ClusterConfig{ReplicationMode: fleet.ActivePassive})
	require.NoError(t, run.GetWorkflowError())

	require.Len(t, run.failovers, 1, "a goodbye without work under way is no failover")
	failed := run.failovers[0]
	require.Equal(t, "a", failed.FailedAgent)
	require.Equal(t, "c", failed.Target)
	require.True(t, failed.WasLeader)
	require.Equal(t, []fleet.HeldAttempt{{TaskID: "t-1", Attempt: 1}}, failed.Attempts)
	last := run.directives()[len(run.directives())-1]
	require.Equal(t, "b", last.Leader)
}

func TestClusterHubLost(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "b")) })
	run.at(3*time.Second, func() {
		run.SignalWorkflow(contract.HubLostSignal.Name,
			contract.HubLost{Hub: "h1", At: run.Now()})
	})
	run.at(4*time.Second, func() {
		require.Empty(t, run.view(t).Leader, "what the lost hub granted is unknown: a whole lease is waited")
	})
	run.at(9*time.Second, func() { require.Equal(t, "b", run.view(t).Leader) })
	run.deleteAt(10 * time.Second)
	run.start(fleet.ClusterConfig{ReplicationMode: fleet.ActivePassive})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers, 1)
	require.Equal(t, fleet.TriggerHubLost, run.failovers[0].Trigger)
}

func TestClusterShards(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	owned := func(agent string) int { view := run.view(t); return len(view.ShardsOf(agent)) }
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	run.at(2*time.Second, func() { require.Equal(t, []int{4, 4}, []int{owned("a"), owned("b")}) })
	run.at(3*time.Second, func() { run.gone("a", 1, 2*time.Second, false) })
	run.at(4*time.Second, func() { require.Equal(t, 4, owned("b"), "the lost owner's lease has not run out") })
	run.at(6*time.Second, func() { require.Equal(t, 8, owned("b")) })
	run.at(7*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "c")) })
	run.at(8*time.Second, func() {
		require.Equal(t, []int{4, 0}, []int{owned("b"), owned("c")}, "a living owner's lease is waited out too")
	})
	run.at(13*time.Second, func() { require.Equal(t, []int{4, 4}, []int{owned("b"), owned("c")}) })
	run.deleteAt(20 * time.Second)
	run.start(fleet.ClusterConfig{ReplicationMode: fleet.Sharded, Shards: 8})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers[0].Shards, 4)
}

func TestClusterManualFailover(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b", "c")) })
	for i, request := range []any{
		contract.ManualFailover{AgentID: "a", TargetAgentID: "c", Reason: "disk"}, // as asked
		contract.ManualFailover{AgentID: "b", TargetAgentID: "nobody"},            // another target is selected
		contract.ManualFailover{AgentID: "unknown"},
		contract.ManualFailover{AgentID: "NOT A SLUG"}, contract.ManualFailover{}, "a string", 7, // ignored
	} {
		run.at(time.Duration(2+i)*time.Second, func() {
			run.SignalWorkflow(contract.ManualFailoverSignal.Name,
				request)
		})
	}
	run.deleteAt(30 * time.Second)
	run.start(fleet.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers, 3)
	require.Equal(t, "c", run.failovers[0].Target)
	require.Equal(t, "disk", run.failovers[0].Reason)
	require.Equal(t, "a", run.failovers[1].Target)
	require.True(t, run.failovers[2].NotInCluster)
}
