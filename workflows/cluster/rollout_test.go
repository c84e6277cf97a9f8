package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// TestRolloutIsRevertedByItsOwnTimer: a drain hangs, and nobody tells the cluster anything.
func TestRolloutIsRevertedByItsOwnTimer(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	begun := env.Now()
	config := api.ClusterConfig{Name: "c", DesiredAgents: 2, Scaling: api.ScalingPolicy{Mode: api.ScalingManual,
		Rollout: &api.RolloutPolicy{AutoRevert: true}}}.WithDefaults()
	state := &cluster.Cluster{Config: config}
	facts := scaling.ScalingFacts{}
	for _, id := range []string{"a", "b"} {
		state.Join(cluster.Join{AgentID: id, Instance: id, AgentProfile: api.AgentProfile{MaxTasks: 1,
			Metadata: map[string]string{api.MetadataSpawner: "s", api.MetadataSpawnID: id}}}, "h", begun)
		facts.Agents = append(facts.Agents, scaling.AgentActivity{AgentID: id, IdleSince: begun})
	}
	env.RegisterActivityWithOptions(func(string) (scaling.ScalingFacts, error) { return facts, nil },
		activity.RegisterOptions{Name: contract.ReadScalingActivity.Name})
	var rules []api.ScalingRule
	env.OnWorkflow(contract.ScalingWorkflow, mock.Anything, mock.Anything).Return(func(_ workflow.Context,
		in contract.ScalingInput) (api.ScalingRecord, error) {
		rules = append(rules, in.Decision.Rule)
		return api.ScalingRecord{}, nil
	})
	var view contract.ClusterView
	env.RegisterDelayedCallback(func() {
		value, err := env.QueryWorkflow(contract.ViewQuery.Name)
		require.NoError(t, err)
		require.NoError(t, value.Get(&view))
	}, 11*time.Minute)
	env.RegisterDelayedCallback(func() {
		next := config
		next.Scaling.Spawn.Slots = 7
		env.UpdateWorkflow(contract.ConfigureUpdate.Name, "", &workflowtest.Answer{},
			contract.ConfigureRequest{ClusterConfig: next})
	}, time.Second)
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(contract.DeleteUpdate.Name, "", &workflowtest.Answer{}, contract.DeleteRequest{Force: true})
	}, 12*time.Minute)
	env.ExecuteWorkflow(contract.ClusterWorkflow, contract.ClusterInput{Config: config, State: state, CreatedAt: begun})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []api.ScalingRule{api.RuleRollout}, rules)
	require.Zero(t, view.Config.Scaling.Spawn.Slots)
	require.True(t, view.Scaling.Rollout.Revert)
	require.Contains(t, view.Scaling.Rollout.Reason, "rollout 1 failed: it did not get on for 10m")
}
