package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// TestClusterJudgesLossesOverHubs has two of three agents vanish at each of two hubs, and a person release the brake.
func TestClusterJudgesLossesOverHubs(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var released workflowtest.Sent[string] // both hubs are told at once
	run.RegisterActivityWithOptions(func(_ context.Context, r contract.ReleaseBrakeRequest) error {
		released.Add(r.Cluster)
		return nil
	}, activity.RegisterOptions{Name: contract.ReleaseBrakeActivity.Name})
	var first, second *workflowtest.Answer
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b", "d")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "e", "f", "g")) })
	miss := func(hub string, agents ...string) *workflowtest.Answer {
		return run.update(contract.MissUpdate.Name, contract.Missing{Hub: hub, Agents: agents})
	}
	run.at(3*time.Second, func() { first = miss("h1", "a", "b") })
	run.at(4*time.Second, func() { second = miss("h2", "e", "f") })
	run.at(5*time.Second, func() {
		require.Equal(t, []cluster.BrakeHold{{Since: run.view(t).Vanished.EngagedAt, Lost: 4}}, run.view(t).BrakeHolds)
		run.update(contract.ReleaseBrakeUpdate.Name, contract.ReleaseBrakeRequest{})
	})
	run.at(6*time.Second, func() {
		require.Empty(t, run.view(t).BrakeHolds)
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.False(t, first.Value.(contract.Directive).Braked, "two of six")
	require.True(t, second.Value.(contract.Directive).Braked, "four of six")
	require.Equal(t, []string{"default", "default"}, released.All())
	var judges, braked []bool
	for _, d := range run.directives() {
		judges, braked = append(judges, d.JudgesLosses), append(braked, d.Braked)
	}
	require.True(t, judges[0], "the first hub hears of the second")
	require.Contains(t, braked, true, "the first hub hears of the brake")
	require.False(t, braked[len(braked)-1])
}

// TestClusterHoldsTheAgentsOfALostHub has a hub lost with most of the cluster's agents, which work: the brake holds them
// until Temporal has ended their work.
func TestClusterHoldsTheAgentsOfALostHub(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var announced []contract.HubLost
	work := map[string][]cluster.HeldAttempt{}
	for _, agent := range []string{"a", "b", "d"} {
		work[agent] = []cluster.HeldAttempt{{TaskID: "of-" + agent, Attempt: 1}}
	}
	run.RegisterActivityWithOptions(func(_ context.Context, lost contract.HubLost) error {
		announced = append(announced, lost)
		lost.Attempts = work
		run.SignalWorkflow(contract.HubLostSignal.Name, lost)
		return nil
	}, activity.RegisterOptions{Name: contract.AnnounceHubLostActivity.Name})
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b", "d")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "e")) })
	var lostAt time.Time
	run.at(time.Hour, func() {
		lostAt = run.Now()
		run.SignalWorkflow(contract.HubLostSignal.Name, contract.HubLost{Hub: "h1", At: run.Now(), Attempts: work})
	})
	run.at(time.Hour+api.AttemptBackstop-time.Second, func() {
		view := run.view(t)
		require.Equal(t, api.AgentSuspect, view.Member("a").Status)
		require.Contains(t, view.Member("a").StatusReason, "mass-loss brake")
		require.Len(t, view.BrakeHolds, 1)
		require.Empty(t, run.failovers)
	})
	run.at(time.Hour+api.AttemptBackstop+time.Second, func() {
		view := run.view(t)
		require.Equal(t, api.AgentOffline, view.Member("a").Status)
		require.Empty(t, view.BrakeHolds, "it holds nobody any more")
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, announced, 1)
	require.True(t, announced[0].Held)
	require.Equal(t, "default", announced[0].Cluster)
	require.WithinDuration(t, lostAt.Add(api.AttemptBackstop), announced[0].At, time.Second)
	require.Len(t, run.failovers, 3)
	for _, f := range run.failovers { // side by side, so in any order
		require.Equal(t, work[f.FailedAgent], f.Attempts)
	}
}

// A goodbye of before the newest registration is ignored, also where the same process registered without a number since.
func TestClusterIgnoresAGoodbyeOfBefore(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	for i, number := range []int64{1, 5, 0} {
		join := joins("h1", "a")
		join.Joins[0].Registration = number
		run.at(time.Duration(i+1)*time.Second, func() { run.update(contract.JoinUpdate.Name, join) })
	}
	run.at(4*time.Second, func() {
		run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1", Changes: []cluster.Transition{
			{AgentID: "a", Instance: "a-1", Epoch: 1, Registration: 1, Status: api.AgentOffline, Left: true, At: run.Now()}}})
	})
	run.at(5*time.Second, func() {
		require.Len(t, run.view(t).Members, 1)
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}

// The brake lets go when nobody waits for it any more, whoever gave them up: here their hub's next process.
func TestClusterReleasesABrakeThatHoldsNobody(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b", "d")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "e", "f")) })
	run.at(3*time.Second, func() {
		run.update(contract.MissUpdate.Name, contract.Missing{Hub: "h1", Agents: []string{"a", "b", "d"}})
		run.update(contract.MissUpdate.Name, contract.Missing{Hub: "h2", Agents: []string{"e"}, Idle: []string{"e"}})
	})
	run.at(4*time.Second, func() {
		view := run.view(t)
		require.Len(t, view.BrakeHolds, 1)
		var changes []cluster.Transition
		for _, agent := range []string{"a", "b", "d"} {
			changes = append(changes, cluster.Transition{AgentID: agent, Instance: agent + "-1", Epoch: view.Member(agent).Epoch,
				Status: api.AgentOffline, Evidence: api.EvidenceHubLost, At: run.Now()})
		}
		run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1", Changes: changes})
	})
	run.at(5*time.Second, func() {
		require.Empty(t, run.view(t).BrakeHolds)
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}

// Members without work are not held with their lost hub, and one whose session a person ended holds nobody back.
func TestClusterHoldsNoFailoversForOthers(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b", "d")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "e", "f", "g")) })
	run.at(time.Hour, func() {
		run.SignalWorkflow(contract.HubLostSignal.Name, contract.HubLost{Hub: "h1", At: run.Now()})
	})
	run.at(time.Hour+time.Minute, func() {
		view := run.view(t)
		require.Empty(t, view.BrakeHolds)
		require.Equal(t, api.AgentOffline, view.Member("a").Status)
		run.update(contract.MissUpdate.Name, contract.Missing{Hub: "h2", Agents: []string{"e", "f", "g"}})
	})
	run.at(time.Hour+2*time.Minute, func() {
		view := run.view(t)
		require.Len(t, view.BrakeHolds, 1, "three of three")
		var changes []cluster.Transition
		for _, agent := range []string{"e", "f"} {
			m := view.Member(agent)
			changes = append(changes, cluster.Transition{AgentID: agent, Instance: m.Instance, Epoch: m.Epoch,
				Status: api.AgentOffline, Reason: "its join token was revoked", At: run.Now()})
		}
		run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h2", Changes: changes})
		run.update(contract.JoinUpdate.Name, joins("h2", "i"))
	})
	run.at(time.Hour+3*time.Minute, func() {
		require.Empty(t, run.view(t).BrakeHolds, "one of two is not more than half")
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}
