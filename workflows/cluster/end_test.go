package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows/workflowtest"
)

// A run that must end, because the cluster is deleted or its history is long, waits for work outside its loop: an
// update whose hub is slow, or a request about an agent's health. It must wait without spinning, which the worker takes
// for a deadlock, and lose nothing of that work.
func TestClusterEndsWhenNothingIsUnderWay(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*clusterRun){
		"a long history": func(run *clusterRun) {
			run.SetCurrentHistoryLength(10_000)
			run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1"})
		},
		"its deletion": func(run *clusterRun) {
			run.update(contract.DeleteUpdate.Name,
				contract.DeleteRequest{Force: true})
		},
	}
	for name, tt := range map[string]struct {
		update string
		arg    any
		// when it is asked to end, after the update; nothing has been answered then
		end  time.Duration
		left func(t *testing.T, state *fleet.Cluster) // what the next run must know
	}{
		"an update": {
			contract.PauseUpdate.Name, contract.PauseRequest{Reason: "an update"}, 500 * time.Millisecond,
			func(t *testing.T, state *fleet.Cluster) { require.Len(t, state.Pauses, 1) },
		},
		"a look at an agent's health": {
			contract.ReduceLoadUpdate.Name, contract.ReduceLoadRequest{AgentID: "a", UntilHealthy: true},
			fleet.RestoreStep + 2*time.Second,
			func(t *testing.T, state *fleet.Cluster) {
				require.Empty(t, state.Reductions, "it does well, so it has its slots back")
			},
		},
	} {
		for ending, end := range ends {
			t.Run(name+", "+ending, func(t *testing.T) {
				t.Parallel()
				run := newCluster(t)
				run.RegisterActivityWithOptions(func(context.Context,
					contract.ReadHealthInput) (contract.ReadHealthResult, error) {
					return contract.ReadHealthResult{}, nil
				}, activity.RegisterOptions{Name: contract.ReadHealthActivity.Name})
				run.OnActivity(contract.DirectActivity.Name, mock.Anything,
					mock.Anything).After(time.Second).Return(nil)
				run.OnActivity(contract.ReadHealthActivity.Name, mock.Anything,
					mock.Anything).After(4*time.Second).Return(
					contract.ReadHealthResult{Agents: map[string]fleet.Health{"a": {Level: fleet.HealthHealthy}}}, nil)
				var begun *workflowtest.Answer
				run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
				run.at(10*time.Second, func() { begun = run.update(tt.update, tt.arg) })
				run.at(10*time.Second+tt.end, func() { end(run) })
				run.start(fleet.ClusterConfig{})

				require.True(t, run.IsWorkflowCompleted())
				require.NoError(t, begun.Err)
				require.NotNil(t, begun.Value, "the run that took the update answers it")
				if ending == "its deletion" {
					require.NoError(t, run.GetWorkflowError())
					return
				}
				var next *workflow.ContinueAsNewError
				require.ErrorAs(t, run.GetWorkflowError(), &next)
				tt.left(t, continuedInput(t, next).State)
			})
		}
	}
}
