package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// A reduction reaches the hubs, stays in the state, and ends by itself step by step.
func TestClusterReducesLoad(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var first, again, one, restored *workflowtest.Answer
	join := joins("h1", "a", "b")
	join.Joins[0].MaxTasks, join.Joins[1].MaxTasks = 8, 1
	var limits []int
	var atEnd contract.ClusterView
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, join) })
	run.at(2*time.Second, func() {
		first = run.update(contract.ReduceLoadUpdate.Name, contract.ReduceLoadRequest{AgentID: "a",
			For: api.Duration(time.Minute), Reason: "slow disk"})
	})
	run.at(3*time.Second, func() {
		again = run.update(contract.ReduceLoadUpdate.Name, contract.ReduceLoadRequest{AgentID: "a",
			For: api.Duration(time.Minute)})
		one = run.update(contract.ReduceLoadUpdate.Name, contract.ReduceLoadRequest{AgentID: "b"})
		view := run.view(t)
		require.Equal(t, 4, view.EffectiveSlots(view.Member("a")))
	})
	run.at(3*time.Minute, func() {
		for _, d := range run.directives() {
			limits = append(limits, d.Slots["a"])
		}
		atEnd = run.view(t)
		run.update(contract.ReduceLoadUpdate.Name, contract.ReduceLoadRequest{AgentID: "a", Slots: 1})
	})
	run.at(4*time.Minute, func() {
		restored = run.update(contract.RestoreLoadUpdate.Name, contract.RestoreLoadRequest{AgentID: "a"})
	})
	run.at(5*time.Minute, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})

	require.NoError(t, run.GetWorkflowError())
	require.True(t, one.Refused, "an agent with one slot cannot do less")
	reduced := first.Value.(contract.LoadReduced)
	require.Equal(t, 4, reduced.EffectiveSlots)
	require.Equal(t, 8, reduced.MaxTasks)
	require.True(t, reduced.Changed)
	require.Equal(t, "slow disk", reduced.Reduction.Reason)
	require.False(t, again.Value.(contract.LoadReduced).Changed)
	require.Equal(t, "slow disk", again.Value.(contract.LoadReduced).Reduction.Reason)
	require.Empty(t, atEnd.Reductions)
	require.Equal(t, []int{4, 6, 0}, limits[len(limits)-3:], "step by step, then no limit")
	require.True(t, restored.Value.(contract.LoadReduced).Changed)
	require.Equal(t, 8, restored.Value.(contract.LoadReduced).EffectiveSlots)
	require.Nil(t, run.directives()[len(run.directives())-1].Slots)
}

// Where health decides, the agent's hub is asked, and nothing else waits for its answer.
func TestClusterRestoresLoadWithHealth(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	level, asked := api.HealthWarning, 0
	run.RegisterActivityWithOptions(func(_ context.Context, in contract.ReadHealthInput) (contract.ReadHealthResult,
		error) {
		asked++
		return contract.ReadHealthResult{Agents: map[string]cluster.Health{in.AgentID: {Level: level}}}, nil
	}, activity.RegisterOptions{Name: contract.ReadHealthActivity.Name})
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() {
		run.update(contract.ReduceLoadUpdate.Name, contract.ReduceLoadRequest{AgentID: "a",
			For: api.Duration(time.Hour), UntilHealthy: true})
	})
	run.at(3*time.Minute, func() {
		require.Len(t, run.view(t).Reductions, 1, "it does not do well yet")
		require.GreaterOrEqual(t, asked, 5)
		level = api.HealthHealthy
	})
	run.at(4*time.Minute, func() {
		require.Empty(t, run.view(t).Reductions)
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}

func TestClusterRebalances(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var targets []string
	for i := 0; len(targets) < 8; i++ { // all in two shards of the four
		if id := "t-" + string(rune('a'+i%26)) + string(rune('a'+i/26)); task.ShardOf(id, 4)%2 == 0 {
			targets = append(targets, id)
		}
	}
	var plan, done, again, nonsense *workflowtest.Answer
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	run.at(2*time.Second, func() {
		run.update(contract.TargetsUpdate.Name, contract.TargetsRequest{Add: targets})
		nonsense = run.update(contract.TargetsUpdate.Name, contract.TargetsRequest{Add: []string{"Not a slug"}})
	})
	run.at(time.Minute, func() {
		plan = run.update(contract.RebalanceUpdate.Name,
			contract.RebalanceRequest{DryRun: true})
	})
	run.at(2*time.Minute, func() { done = run.update(contract.RebalanceUpdate.Name, contract.RebalanceRequest{}) })
	run.at(3*time.Minute, func() { again = run.update(contract.RebalanceUpdate.Name, contract.RebalanceRequest{}) })
	run.at(4*time.Minute, func() {
		view := run.view(t)
		for _, s := range view.Shards {
			require.NotEmpty(t, s.Owner)
		}
		require.NotEmpty(t, view.TargetsOf("a"))
		require.NotEmpty(t, view.TargetsOf("b"))
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 4})
	require.NoError(t, run.GetWorkflowError())
	require.True(t, nonsense.Refused)
	require.NotEmpty(t, plan.Value.(api.Rebalance).Moves)
	require.Equal(t, plan.Value.(api.Rebalance).Moves, done.Value.(api.Rebalance).Moves)
	require.Empty(t, again.Value.(api.Rebalance).Moves)
	require.Len(t, run.directives()[len(run.directives())-1].Targets, 8)
}
