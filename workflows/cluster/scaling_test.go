package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// TestBlockedStartsAreTriedAgain: by the cluster's own timer, ever later, and at once when a spawner comes up.
func TestBlockedStartsAreTriedAgain(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	begun := env.Now()
	var at []time.Duration
	env.OnWorkflow(contract.ScalingWorkflow, mock.Anything, mock.Anything).Return(func(_ workflow.Context,
		in contract.ScalingInput) (api.ScalingRecord, error) {
		at = append(at, env.Now().Sub(begun).Round(time.Second))
		require.Len(t, in.Starts, 2)
		require.Equal(t, int64(len(at)), in.Number)
		env.RegisterDelayedCallback(func() {
			env.SignalWorkflow(contract.ScaledSignal.Name, scaling.ScalingResult{Number: in.Number, Failed: "no spawner"})
		}, 0)
		return api.ScalingRecord{}, nil
	})
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(contract.SpawnerStartsSignal.Name, contract.SpawnerStarts{Spawner: "another"})
	}, 75*time.Second)
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(contract.SpawnerStartsSignal.Name,
			contract.SpawnerStarts{Spawner: "mine"})
	}, 80*time.Second)
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(contract.DeleteUpdate.Name, "", &workflowtest.Answer{}, contract.DeleteRequest{Force: true})
	}, 85*time.Second)
	env.ExecuteWorkflow(contract.ClusterWorkflow, contract.ClusterInput{Config: api.ClusterConfig{Name: "c",
		MinAgents: 2,
		Scaling: api.ScalingPolicy{Mode: api.ScalingManual,
			Spawn: api.SpawnPolicy{Spawner: "mine"}}}.WithDefaults()})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second, 80 * time.Second}, at)
}
