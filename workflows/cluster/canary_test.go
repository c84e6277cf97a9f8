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

// TestCanaryIsStartedBesideAndReverted: the canary comes online, and a person takes it back.
func TestCanaryIsStartedBesideAndReverted(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	begun := env.Now()
	config := api.ClusterConfig{Name: "c", DesiredAgents: 1, Scaling: api.ScalingPolicy{Mode: api.ScalingManual,
		Rollout: &api.RolloutPolicy{Canary: 1}}}.WithDefaults()
	state := &cluster.Cluster{Config: config}
	facts := scaling.ScalingFacts{}
	spawned := func(id string) cluster.Join {
		facts.Agents = append(facts.Agents, scaling.AgentActivity{AgentID: id, IdleSince: begun})
		return cluster.Join{AgentID: id, Instance: id, AgentProfile: api.AgentProfile{MaxTasks: 1,
			Metadata: map[string]string{api.MetadataSpawner: "s", api.MetadataSpawnID: id}}}
	}
	state.Join(spawned("a"), "h", begun)
	env.RegisterActivityWithOptions(func(string) (scaling.ScalingFacts, error) { return facts, nil },
		activity.RegisterOptions{Name: contract.ReadScalingActivity.Name})
	env.RegisterActivityWithOptions(func(contract.Directive) error { return nil },
		activity.RegisterOptions{Name: contract.DirectActivity.Name})
	var actions []contract.ScalingInput
	env.OnWorkflow(contract.ScalingWorkflow, mock.Anything, mock.Anything).Return(func(_ workflow.Context,
		in contract.ScalingInput) (api.ScalingRecord, error) {
		actions = append(actions, in)
		return api.ScalingRecord{}, nil
	})
	update := func(after time.Duration, name string, request any) *workflowtest.Answer {
		answer := &workflowtest.Answer{}
		env.RegisterDelayedCallback(func() { env.UpdateWorkflow(name, "", answer, request) }, after)
		return answer
	}
	next := config
	next.Scaling.Spawn.Slots = 7
	update(time.Second, contract.ConfigureUpdate.Name, contract.ConfigureRequest{ClusterConfig: next})
	early := update(2*time.Second, contract.PromoteRolloutUpdate.Name, contract.RunRequest{})
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(contract.JoinUpdate.Name, "", &workflowtest.Answer{},
			contract.JoinRequest{Hub: "h", HubProcess: "p", Joins: []cluster.Join{spawned(actions[0].Starts[0])}})
		env.SignalWorkflow(contract.ScaledSignal.Name, scaling.ScalingResult{Number: 1})
	}, 3*time.Second)
	var waiting contract.ClusterView
	env.RegisterDelayedCallback(func() {
		value, err := env.QueryWorkflow(contract.ViewQuery.Name)
		require.NoError(t, err)
		require.NoError(t, value.Get(&waiting))
	}, time.Hour)
	update(time.Hour+time.Second, contract.RevertRolloutUpdate.Name, contract.RunRequest{By: "ann", Reason: "slow"})
	update(2*time.Hour, contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	env.ExecuteWorkflow(contract.ClusterWorkflow, contract.ClusterInput{Config: config, State: state, CreatedAt: begun})
	require.NoError(t, env.GetWorkflowError())
	require.ErrorContains(t, early.Err, "not healthy yet")
	require.Equal(t, api.RolloutWaiting, waiting.Scaling.Rollout.Status)
	require.Len(t, actions, 2)
	require.Equal(t, 7, actions[0].Spawn.Slots)
	require.Equal(t, actions[0].Starts[0], actions[1].Stops[0].AgentID)
	require.Zero(t, actions[1].Spawn.Slots)
}
