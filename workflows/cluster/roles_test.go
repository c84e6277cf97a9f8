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

// gone reports to the cluster that an agent's session ended.
func (r *clusterRun) gone(agent string, epoch int64, lease time.Duration, left bool, attempts ...cluster.HeldAttempt) {
	remaining := api.Duration(lease)
	r.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1",
		Changes: []cluster.Transition{{
			AgentID: agent, Instance: agent + "-1", Epoch: epoch, Status: api.AgentOffline, Reason: "gone", At: r.Now(),
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
			cluster.HeldAttempt{TaskID: "t-1", Attempt: 1})
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
	run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive, TransferTimeout: api.Duration(7 * time.Minute)})
	require.NoError(t, run.GetWorkflowError())

	require.Len(t, run.failovers, 1, "a goodbye without work under way is no failover")
	failed := run.failovers[0]
	require.Equal(t, api.Duration(7*time.Minute), failed.Timeout, "the cluster's task_transfer_timeout")
	require.Equal(t, "a", failed.FailedAgent)
	require.Equal(t, "c", failed.Target)
	require.True(t, failed.WasLeader)
	require.Equal(t, []cluster.HeldAttempt{{TaskID: "t-1", Attempt: 1}}, failed.Attempts)
	last := run.directives()[len(run.directives())-1]
	require.Equal(t, "b", last.Leader)
}

// The agent that leads after a failover is the one that the record names, and the strategy's choice. Each strategy has
// another choice here.
func TestClusterElectsByStrategy(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[api.SelectionStrategy]string{
		api.SelectStandby: "b", api.SelectRoundRobin: "c", api.SelectLeastLoaded: "d", api.SelectAffinity: "e",
	} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			run.loads = map[string]int{"b": 1, "c": 1, "e": 2}
			request := joins("h1", "a", "b", "c", "d", "e")
			request.Joins[0].Zone, request.Joins[4].Zone = "z1", "z1"
			run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, request) })
			run.at(2*time.Second, func() {
				require.Equal(t, "a", run.view(t).Leader)
				run.gone("a", 1, 3*time.Second, false)
			})
			run.at(4*time.Second, func() {
				require.Equal(t, want, run.failovers[0].Target)
				run.loads = map[string]int{want: 2} // the choice stands
			})
			run.at(6*time.Second, func() { require.Equal(t, want, run.view(t).Leader) })
			run.deleteAt(7 * time.Second)
			run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive, Selection: strategy})
			require.NoError(t, run.GetWorkflowError())
		})
	}
}

// Nobody succeeds a leader that was the last agent, which is not its own target.
func TestTheLastLeaderHasNoTarget(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.gone("a", 1, 0, false) })
	run.deleteAt(7 * time.Second)
	run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive})
	require.NoError(t, run.GetWorkflowError())
	require.True(t, run.failovers[0].WasLeader)
	require.Empty(t, run.failovers[0].Target)
	require.False(t, run.failovers[0].AnyTarget)
}

// A lost agent without a role names no target: its tasks go to whichever agents serve their lanes.
func TestClusterNamesNoTargetWithoutARole(t *testing.T) {
	t.Parallel()
	for mode, agent := range map[api.ReplicationMode]string{
		api.ActiveActive: "a", api.ActivePassive: "b", api.Sharded: "a",
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
			run.at(2*time.Second, func() { run.gone(agent, map[string]int64{"a": 1, "b": 2}[agent], 0, false) })
			run.deleteAt(7 * time.Second)
			run.start(api.ClusterConfig{ReplicationMode: mode})
			require.NoError(t, run.GetWorkflowError())
			require.Empty(t, run.failovers[0].Target)
			require.True(t, run.failovers[0].AnyTarget)
		})
	}
}

// An evacuated leader's role is free at once, unless the agent has gone to another hub meanwhile, where it leads again
// until its lease runs out.
func TestClusterWaitsForALeaderThatMovedHubs(t *testing.T) {
	t.Parallel()
	for hub, soon := range map[string]string{"h1": "b", "h2": ""} {
		t.Run(hub, func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
			run.at(2*time.Second, func() {
				require.Equal(t, "a", run.view(t).Leader)
				run.SignalWorkflow(contract.EvacuatedSignal.Name,
					contract.Evacuated{AgentID: "a", Hub: hub, Epoch: 1, Target: "b"})
			})
			run.at(2*time.Second+100*time.Millisecond, func() { require.Equal(t, soon, run.view(t).Leader) })
			run.at(10*time.Second, func() { require.Equal(t, "b", run.view(t).Leader) })
			run.deleteAt(20 * time.Second)
			run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive})
			require.NoError(t, run.GetWorkflowError())
		})
	}
}

// A failover by hand of a shard owner leaves it without shards until a rebalance.
func TestClusterShardsStayAway(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	owned := func() []int {
		view := run.view(t)
		return []int{len(view.ShardsOf("a")), len(view.ShardsOf("b"))}
	}
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	run.at(2*time.Second, func() {
		require.Equal(t, []int{4, 4}, owned())
		run.SignalWorkflow(contract.EvacuatedSignal.Name, contract.Evacuated{AgentID: "a", Epoch: 1})
	})
	run.at(20*time.Second, func() {
		require.Equal(t, []int{0, 8}, owned())
		run.update(contract.RebalanceUpdate.Name, contract.RebalanceRequest{})
	})
	run.at(40*time.Second, func() {
		require.Equal(t, []int{4, 4}, owned())
		run.SignalWorkflow(contract.EvacuatedSignal.Name, contract.Evacuated{AgentID: "a", Epoch: 1})
	})
	run.at(60*time.Second, func() {
		require.Equal(t, []int{0, 8}, owned())
		run.update(contract.CordonUpdate.Name, contract.CordonRequest{AgentID: "a"})
	})
	run.at(70*time.Second, func() {
		run.update(contract.UncordonUpdate.Name, contract.UncordonRequest{AgentID: "a"})
	})
	run.at(90*time.Second, func() { require.Equal(t, []int{4, 4}, owned(), "as after healing took it out of service") })
	run.deleteAt(100 * time.Second)
	run.start(api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 8})
	require.NoError(t, run.GetWorkflowError())
}

// Scaling drains a lost agent, so that it is in maintenance, and then has the cluster forget it.
func TestClusterForgetsALostAgentInMaintenance(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	run.at(2*time.Second, func() {
		run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1",
			Changes: []cluster.Transition{{AgentID: "a", Instance: "a-1", Epoch: 1, Status: api.AgentOffline,
				At: run.Now()}}})
	})
	cordon := func(status api.AgentStatus) func() {
		return func() {
			run.update(contract.CordonUpdate.Name, contract.CordonRequest{AgentID: "a", Status: status, Drain: "d"})
		}
	}
	run.at(3*time.Second, cordon(api.AgentDraining))
	run.at(4*time.Second, cordon(api.AgentMaintenance))
	var retired *workflowtest.Answer
	run.at(5*time.Second, func() {
		view := run.view(t)
		require.Equal(t, api.AgentMaintenance, view.Member("a").Status)
		retired = run.update(contract.RetireUpdate.Name, contract.RetireRequest{AgentID: "a"})
	})
	run.at(6*time.Second, func() {
		view := run.view(t)
		require.Nil(t, view.Member("a"))
	})
	run.deleteAt(7 * time.Second)
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.NoError(t, retired.Err)
}

func TestClusterHubLost(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "b")) })
	run.at(3*time.Second, func() {
		run.SignalWorkflow(contract.HubLostSignal.Name,
			contract.HubLost{Hub: "h1", At: run.Now(), Attempts: map[string][]cluster.HeldAttempt{
				"a": {{TaskID: "t-1", Attempt: 1}}, "b": {{TaskID: "t-2", Attempt: 1}}}})
	})
	run.at(4*time.Second, func() {
		require.Empty(t, run.view(t).Leader, "what the lost hub granted is unknown: a whole lease is waited")
	})
	run.at(9*time.Second, func() { require.Equal(t, "b", run.view(t).Leader) })
	run.deleteAt(10 * time.Second)
	run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers, 1)
	require.Equal(t, api.TriggerHubLost, run.failovers[0].Trigger)
	require.Equal(t, []cluster.HeldAttempt{{TaskID: "t-1", Attempt: 1}}, run.failovers[0].Attempts)
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
	run.start(api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 8})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers[0].Shards, 4)
}

func TestClusterManualFailover(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	joined := joins("h1", "a", "b", "c", "d")
	joined.Joins[0].TaskTypes, joined.Joins[3].TaskTypes = []string{"exec"}, []string{"echo"}
	joined.Joins[1].Capabilities, joined.Joins[2].Zone = []string{"gpu"}, "z1"
	run.loads = map[string]int{"b": 1}
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joined) })
	for i, request := range []any{
		contract.ManualFailover{AgentID: "a", TargetAgentID: "c", Reason: "disk"}, // as asked
		contract.ManualFailover{AgentID: "b", TargetAgentID: "nobody"},            // another target is selected
		contract.ManualFailover{AgentID: "unknown"},
		contract.ManualFailover{AgentID: "a", TargetAgentID: "d"}, // which handles none of its work
		contract.ManualFailover{AgentID: "a", RequiredCapabilities: []string{"gpu"}},
		contract.ManualFailover{AgentID: "d", Affinity: []string{"z1"}},
		contract.ManualFailover{AgentID: "NOT A SLUG"}, contract.ManualFailover{}, "a string", 7, // ignored
	} {
		run.at(time.Duration(2+i)*time.Second, func() {
			run.SignalWorkflow(contract.ManualFailoverSignal.Name,
				request)
		})
	}
	run.deleteAt(30 * time.Second)
	run.start(api.ClusterConfig{Selection: api.SelectAffinity})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers, 6)
	require.Equal(t, "c", run.failovers[3].Target)
	require.Equal(t, "b", run.failovers[4].Target)
	require.Equal(t, "c", run.failovers[5].Target)
	require.Equal(t, "c", run.failovers[0].Target)
	require.Equal(t, "disk", run.failovers[0].Reason)
	require.Equal(t, "a", run.failovers[1].Target)
	require.True(t, run.failovers[2].NotInCluster)
}

// An agent that stops gives its roles up at once, and gets none until it comes back. It stays a member.
func TestAStoppingAgentHasNoRole(t *testing.T) {
	t.Parallel()
	for _, mode := range []api.ReplicationMode{api.ActivePassive, api.Sharded} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			stops := func(agent string) {
				view := run.view(t)
				run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1",
					Changes: []cluster.Transition{{AgentID: agent, Instance: agent + "-1", Epoch: view.Member(agent).Epoch,
						Status: api.AgentStopping, At: run.Now(), LeaseRemaining: new(api.Duration)}}})
			}
			hold := func(agent string) bool {
				view := run.view(t)
				return view.Leader == agent || len(view.ShardsOf(agent)) == 4
			}
			run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
			run.at(2*time.Second, func() {
				require.True(t, hold("a"))
				stops("a")
			})
			run.at(3*time.Second, func() {
				require.False(t, hold("a"), "there is nobody else")
				view := run.view(t)
				require.Equal(t, api.AgentOnline, view.Member("a").Status)
				run.update(contract.JoinUpdate.Name, joins("h1", "b"))
			})
			run.at(4*time.Second, func() {
				require.True(t, hold("b"))
				require.Empty(t, run.view(t).Standbys)
				run.update(contract.JoinUpdate.Name, joins("h1", "a"))
				stops("b")
			})
			run.at(8*time.Second, func() { require.True(t, hold("a"), "it has registered again") })
			run.deleteAt(10 * time.Second)
			run.start(api.ClusterConfig{ReplicationMode: mode, Shards: 4})
			require.NoError(t, run.GetWorkflowError())
			require.Empty(t, run.failovers)
		})
	}
}
