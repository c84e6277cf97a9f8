package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

func TestClusterPauses(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var paused, again, late, shard, nonsense *workflowtest.Answer
	var heardBefore int
	var since time.Time
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() {
		paused = run.update(contract.PauseUpdate.Name, contract.PauseRequest{Lane: "cap/gpu+arm", Reason: "driver"})
	})
	run.at(3*time.Second, func() {
		heardBefore, since = len(run.directives()), run.view(t).Pauses[0].Since
		again = run.update(contract.PauseUpdate.Name, contract.PauseRequest{Lane: "cap/arm+gpu",
			Reason: "a newer driver"})
		shard = run.update(contract.PauseUpdate.Name, contract.PauseRequest{Lane: "shard/1"})
		nonsense = run.update(contract.PauseUpdate.Name, contract.PauseRequest{Lane: "gpu"})
	})
	run.at(4*time.Second, func() {
		require.Len(t, run.directives(), heardBefore, "lanes are served as before")
		require.Equal(t, cluster.Pauses{{Lane: "cap/arm+gpu", Since: since, Reason: "a newer driver"}},
			run.view(t).Pauses)
		run.update(contract.PauseUpdate.Name, contract.PauseRequest{Reason: "all"})
	})
	run.at(5*time.Second, func() { late = run.update(contract.JoinUpdate.Name, joins("h2", "b")) })
	run.at(6*time.Second, func() {
		run.update(contract.ResumeUpdate.Name, contract.PauseRequest{})
		run.update(contract.ResumeUpdate.Name, contract.PauseRequest{Lane: "default"})
	})
	run.at(7*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})

	require.NoError(t, run.GetWorkflowError())
	require.False(t, paused.Refused || again.Refused)
	require.True(t, shard.Refused && nonsense.Refused)
	require.True(t, late.Value.(contract.JoinResponse).Directive.Paused, "an agent that joins takes nothing")

	type told struct {
		all   bool
		lanes []string
	}
	var heard []told
	for _, d := range run.directives() {
		heard = append(heard, told{d.Paused, d.PausedLanes})
		require.False(t, d.CreatedAt.IsZero())
	}
	lane := []string{"cap/arm+gpu"}
	// Both hubs hear that they are two, and get the last directive.
	require.Equal(t, []told{{false, lane}, {true, lane}, {true, lane}, {true, lane}, {false, lane}, {false, lane}}, heard)
}

// A pause waits for the hubs, but not for one that is away.
func TestClusterPauseWaitsForHubs(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.OnActivity(contract.DirectActivity.Name, mock.Anything, mock.Anything).After(5 * time.Second).Return(nil)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	var paused *workflowtest.Answer
	run.at(2*time.Second, func() { paused = run.update(contract.PauseUpdate.Name, contract.PauseRequest{}) })
	run.at(3900*time.Millisecond, func() { require.Nil(t, paused.Value) })
	run.at(4100*time.Millisecond, func() { require.NotNil(t, paused.Value) })
	run.at(20*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}

// Pauses and brakes survive continue-as-new.
func TestClusterPauseIsCarriedOn(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.update(contract.PauseUpdate.Name, contract.PauseRequest{Reason: "disks"}) })
	run.at(3*time.Second, func() {
		run.SignalWorkflow(contract.MembersChangedSignal.Name,
			contract.MembersChanged{Hub: "h1", Brake: &cluster.BrakeHold{Hub: "h1", Process: "p", Since: run.Now(),
				Lost: 4}})
	})
	run.at(4*time.Second, func() {
		run.SetCurrentHistoryLength(10_000)
		run.SignalWorkflow(contract.HubLostSignal.Name, contract.HubLost{Hub: "another", At: run.Now()})
	})
	run.start(api.ClusterConfig{})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, run.GetWorkflowError(), &next)

	again := newCluster(t)
	var joined *workflowtest.Answer
	again.at(time.Second, func() {
		view := again.view(t)
		require.Equal(t, "disks", view.Pauses.Of("default").Reason)
		require.Equal(t, 4, view.BrakeHolds[0].Lost)
		request := joins("h1", "b")
		request.HubProcess = "q"
		joined = again.update(contract.JoinUpdate.Name, request)
	})
	again.at(2*time.Second, func() { require.Empty(t, again.view(t).BrakeHolds, "another process plays the hub") })
	again.at(3*time.Second, func() { again.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	again.ExecuteWorkflow(contract.ClusterWorkflow, continuedInput(t, next))
	require.NoError(t, again.GetWorkflowError())
	require.True(t, joined.Value.(contract.JoinResponse).Directive.Paused)
}
