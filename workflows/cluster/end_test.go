package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
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
		left func(t *testing.T, state *cluster.Cluster) // what the next run must know
	}{
		"an update": {
			contract.PauseUpdate.Name, contract.PauseRequest{Reason: "an update"}, 500 * time.Millisecond,
			func(t *testing.T, state *cluster.Cluster) { require.Len(t, state.Pauses, 1) },
		},
		"a look at an agent's health": {
			contract.ReduceLoadUpdate.Name, contract.ReduceLoadRequest{AgentID: "a", UntilHealthy: true},
			cluster.RestoreStep + 2*time.Second,
			func(t *testing.T, state *cluster.Cluster) {
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
					contract.ReadHealthResult{Agents: map[string]cluster.Health{"a": {Level: api.HealthHealthy}}}, nil)
				var begun *workflowtest.Answer
				run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
				run.at(10*time.Second, func() { begun = run.update(tt.update, tt.arg) })
				run.at(10*time.Second+tt.end, func() { end(run) })
				run.start(api.ClusterConfig{})

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

// A run whose history is long ends only when nothing is left of what it was told or has decided: the next one knows of
// it no other way.
func TestClusterLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	lose := func(run *clusterRun, hub, agent, instance string, epoch int64) (string, contract.MembersChanged) {
		return contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: hub, Changes: []cluster.Transition{
			{AgentID: agent, Instance: instance, Epoch: epoch, Status: api.AgentOffline, At: run.Now()}}}
	}
	for name, tt := range map[string]struct {
		config api.ClusterConfig
		act    func(run *clusterRun) (check func(t *testing.T, state *cluster.Cluster))
	}{
		"a scaling action": {
			config: api.ClusterConfig{Scaling: api.ScalingPolicy{Mode: api.ScalingManual,
				Spawn: api.SpawnPolicy{Spawner: "mine"}}},
			act: func(run *clusterRun) func(*testing.T, *cluster.Cluster) {
				var begun []contract.ScalingInput
				run.OnWorkflow(contract.ScalingWorkflow, mock.Anything, mock.Anything).Return(func(_ workflow.Context,
					in contract.ScalingInput) (api.ScalingRecord, error) {
					begun = append(begun, in)
					return api.ScalingRecord{}, nil
				})
				run.OnActivity(contract.DirectActivity.Name, mock.Anything, mock.Anything).After(time.Second).Return(nil)
				run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
				run.at(10*time.Second, func() { // the loop tells the hub of a lane
					run.update(contract.OpenLaneUpdate.Name, contract.OpenLaneRequest{
						LaneNeeds: api.LaneNeeds{Capabilities: []string{"gpu"}}})
				})
				run.at(10*time.Second+500*time.Millisecond, func() {
					run.SetCurrentHistoryLength(10_000)
					run.update(contract.ScaleUpdate.Name, contract.ScaleRequest{To: new(3)})
				})
				return func(t *testing.T, state *cluster.Cluster) {
					require.NotNil(t, state.Scaling)
					require.Len(t, state.Scaling.Active, 1)
					require.Len(t, begun, 1, "the action is begun")
				}
			},
		},
		"a signal": {
			config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
			act: func(run *clusterRun) func(*testing.T, *cluster.Cluster) {
				run.OnWorkflow(contract.StateSyncWorkflow, mock.Anything, mock.Anything).Return(func(workflow.Context,
					contract.SyncInput) (api.SyncReport, error) {
					run.SetCurrentHistoryLength(10_000)
					run.SignalWorkflowSkippingWorkflowTask(lose(run, "h1", "b", "b-1", 2))
					return api.SyncReport{}, nil
				})
				run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
				run.at(10*time.Second, func() {
					run.SignalWorkflow(contract.StatesSignal.Name,
						contract.StatesChanged{Hub: "h1", Digests: []string{"d1", "d2"}})
				})
				return func(t *testing.T, state *cluster.Cluster) {
					require.Equal(t, api.AgentOffline, state.Member("b").Status, "the signal is taken")
				}
			},
		},
		"a former hub": {
			act: func(run *clusterRun) func(*testing.T, *cluster.Cluster) {
				run.OnActivity(contract.ReadLoadsActivity.Name, mock.Anything,
					mock.Anything).After(500*time.Millisecond).Return(map[string]int{}, nil)
				run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
				run.at(10*time.Second, func() { // the loop reads loads for b's failover
					name, lost := lose(run, "h1", "b", "b-1", 2)
					lost.Changes[0].Attempts = []cluster.HeldAttempt{{TaskID: "t"}}
					run.SignalWorkflow(name, lost)
				})
				run.at(10*time.Second+100*time.Millisecond, func() { // a moves from h1 to h2, and says goodbye
					run.SetCurrentHistoryLength(10_000)
					moved := joins("h2", "a")
					moved.Joins[0].Instance = "a-2"
					run.update(contract.JoinUpdate.Name, moved)
					name, left := lose(run, "h2", "a", "a-2", 3)
					left.Changes[0].Left = true
					run.SignalWorkflow(name, left)
				})
				return func(t *testing.T, state *cluster.Cluster) {
					require.Empty(t, state.Hubs(), "there is no other hub to wait for")
					require.Len(t, run.directives(), 1, "h1 is told")
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			check := tt.act(run)
			run.start(tt.config)
			var next *workflow.ContinueAsNewError
			require.ErrorAs(t, run.GetWorkflowError(), &next)
			check(t, continuedInput(t, next).State)
		})
	}
}

// While agents join without end, the hubs always lack something. A run with a large history leaves that to the next
// one.
func TestClusterGoesOnThoughHubsAreNeverUpToDate(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.OnActivity(contract.DirectActivity.Name, mock.Anything, mock.Anything).After(time.Second).Return(nil)
	takeOver := func(run *clusterRun, hub string, n int) {
		join := joins(hub, "a")
		join.Joins[0].Instance = fmt.Sprint("a-", n)
		run.update(contract.JoinUpdate.Name, join)
	}
	for n := range 100 {
		run.at(time.Second+time.Duration(n)*300*time.Millisecond, func() { takeOver(run, fmt.Sprint("h", n%2), n) })
	}
	run.at(10*time.Second, func() { run.SetCurrentHistorySize(11 << 20) })
	run.start(api.ClusterConfig{})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, run.GetWorkflowError(), &next)
	input := continuedInput(t, next)
	require.Less(t, input.State.LastEpoch, int64(100), "it did not wait for the last")
	require.True(t, input.Resend)
	require.NotEmpty(t, input.FormerHubs)

	again := newCluster(t)
	again.at(2*time.Second, func() {
		told := again.directives()
		require.Len(t, told, 2, "the hub with the agent, and the one that had it")
		require.Equal(t, input.State.Version, told[0].Version)
		again.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	again.ExecuteWorkflow(contract.ClusterWorkflow, input)
	require.NoError(t, again.GetWorkflowError())
}

// A hub that misses a directive, as while it is too busy, is sent it again, by the next run too.
func TestHubsAreToldAgainWhatTheyMissed(t *testing.T) {
	t.Parallel()
	away := func(run *clusterRun, until int) *int {
		times := new(int)
		run.OnActivity(contract.DirectActivity.Name, mock.Anything, mock.Anything).Return(
			func(context.Context, contract.Directive) error {
				if *times++; *times <= until {
					return errors.New("too busy")
				}
				return nil
			})
		return times
	}
	run := newCluster(t)
	times := away(run, 6) // it is tried three times at once
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.update(contract.PauseUpdate.Name, contract.PauseRequest{Reason: "x"}) })
	run.at(time.Minute, func() {
		require.Equal(t, 7, *times, "sent, again, and again")
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())

	run = newCluster(t)
	away(run, 99)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.update(contract.PauseUpdate.Name, contract.PauseRequest{Reason: "x"}) })
	run.at(20*time.Second, func() {
		run.SetCurrentHistoryLength(10_000)
		run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1"})
	})
	run.start(api.ClusterConfig{})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, run.GetWorkflowError(), &next)
	again := newCluster(t)
	again.at(2*time.Second, func() {
		require.Len(t, again.directives(), 1)
		again.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	again.ExecuteWorkflow(contract.ClusterWorkflow, continuedInput(t, next))
	require.NoError(t, again.GetWorkflowError())
}
