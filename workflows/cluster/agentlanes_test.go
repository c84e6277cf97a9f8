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

// TestClusterOpensAgentLanes asks for lanes of an agent that is away and of one that is there. Hubs hear of each new
// one, and only a hub that knows the newest request closes one.
func TestClusterOpensAgentLanes(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	ask := func(agent string) { run.SignalWorkflow(contract.OpenAgentLaneSignal.Name, agent) }
	lanes := func() (lanes contract.AgentLanes) {
		value, err := run.QueryWorkflow(contract.AgentLanesQuery.Name)
		require.NoError(t, err)
		require.NoError(t, value.Get(&lanes))
		return lanes
	}
	var joined, early, closed *workflowtest.Answer
	var known []cluster.OpenLane
	run.at(time.Second, func() { ask("away") })
	run.at(2*time.Second, func() { joined = run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(3*time.Second, func() { ask("a") })
	run.at(4*time.Second, func() {
		known = lanes().Open
		require.Equal(t, []cluster.OpenLane{{AgentID: "a", Asked: 1}, {AgentID: "away", Asked: 1}}, known)
		ask("a")
		early = run.update(contract.CloseAgentLanesUpdate.Name, known[:1])
	})
	run.at(5*time.Second, func() { closed = run.update(contract.CloseAgentLanesUpdate.Name, lanes().Open[:1]) })
	run.at(6*time.Second, func() {
		require.Equal(t, known[1:], lanes().Open)
		ask("a")
	})
	run.at(7*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.EqualValues(t, 1, joined.Value.(contract.JoinResponse).Directive.AgentLanes)
	require.Len(t, early.Value.(contract.AgentLanes).Open, 2, "a request came since the hub has heard")
	require.Len(t, closed.Value.(contract.AgentLanes).Open, 1)
	var heard []int64
	for _, d := range run.directives() {
		heard = append(heard, d.AgentLanes)
	}
	require.Equal(t, []int64{1, 2, 4}, heard, "hubs hear of what opens, not of what closes")
}
