package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// TestDrainThatIsRefused: a cluster refuses a drain by healing. It gets the facts of healing's decision, and the agent
// stays unchanged.
func TestDrainThatIsRefused(t *testing.T) {
	t.Parallel()
	var suite sdktestsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	var asked []contract.CordonRequest
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.ClusterCordon) (contract.Cordoned, error) {
		asked = append(asked, in.Request)
		return contract.Cordoned{}, temporal.NewNonRetryableApplicationError("an operator has it", contract.Refused,
			nil)
	}, activity.RegisterOptions{Name: contract.CordonActivity.Name})
	env.RegisterWorkflowWithOptions(workflows.Drain, workflow.RegisterOptions{Name: contract.DrainWorkflow})
	env.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("c"), "", contract.AnnounceSignal.Name,
		mock.Anything).Return(nil)
	decided := &healing.HealingCheck{Type: api.HealDrain, Epoch: 7}
	env.ExecuteWorkflow(contract.DrainWorkflow, contract.DrainInput{ID: "c:healing-1", Cluster: "c",
		Agents: []string{"a"}, Healing: decided})
	require.NoError(t, env.GetWorkflowError())
	var record api.DrainRecord
	require.NoError(t, env.GetWorkflowResult(&record))
	require.Equal(t, api.DrainFailed, record.Status)
	require.Equal(t, "an operator has it", record.Agents[0].Error)
	require.True(t, record.Agents[0].Refused)
	require.Equal(t, []contract.CordonRequest{{AgentID: "a", Status: api.AgentDraining, Drain: "c:healing-1",
		Healing: decided}}, asked,
		"it is asked once, and nothing is done to the agent after the refusal")
}

// Agents may have more work than a record can list.
func TestDrainOfMuchWork(t *testing.T) {
	t.Parallel()
	var suite sdktestsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterActivityWithOptions(func(context.Context, contract.FindMemberInput) (contract.Cordoned, error) {
		return contract.Cordoned{Hub: "h1"}, nil
	}, activity.RegisterOptions{Name: contract.FindMemberActivity.Name})
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.StopWorkInput) (contract.StopWorkResult, error) {
		var stopped contract.StopWorkResult
		for n := range 3000 {
			stopped.Work = append(stopped.Work, api.DrainWork{TaskID: fmt.Sprintf("%s-%d-%s", in.AgentID, n,
				strings.Repeat("x", 100)), Attempt: 1, AtDeadline: cluster.AtDeadline(api.AtMostOnce)})
		}
		return stopped, nil
	}, activity.RegisterOptions{Name: contract.StopWorkActivity.Name})
	env.RegisterWorkflowWithOptions(workflows.Drain, workflow.RegisterOptions{Name: contract.DrainWorkflow})
	env.ExecuteWorkflow(contract.DrainWorkflow, contract.DrainInput{ID: "c:d", Cluster: "c", DryRun: true,
		Agents: []string{"a", "b", "c", "d"}})
	var record api.DrainRecord
	require.NoError(t, env.GetWorkflowResult(&record))
	require.True(t, contract.Fits(record))
	for _, a := range record.Agents {
		require.Equal(t, 3000, len(a.Work)+a.MoreWork)
		require.NotEmpty(t, a.Work)
	}
}

// What an agent has when it vanishes is lost, not finished; what had ended before is finished.
func TestDrainOfAnAgentThatVanishes(t *testing.T) {
	t.Parallel()
	work := []api.DrainWork{{TaskID: "t1", Attempt: 1}, {TaskID: "t2", Attempt: 3}, {TaskID: "t3", Attempt: 1}}
	first := contract.Cordoned{Hub: "h1", Instance: "i1", Epoch: 1}
	for name, c := range map[string]struct {
		then contract.Cordoned // where it is found when its hub has lost it
		left any
		lost []string
	}{
		"it is gone":                   {left: []cluster.HeldAttempt{{TaskID: "t2", Attempt: 3}}, lost: []string{"t2"}},
		"it was idle just before":      {left: []cluster.HeldAttempt{}},
		"nobody knows what it had":     {lost: []string{"t1", "t2", "t3"}},
		"another process is there":     {then: contract.Cordoned{Hub: "h1", Instance: "i2", Epoch: 2}, left: []cluster.HeldAttempt{{TaskID: "t2", Attempt: 3}}, lost: []string{"t2"}},
		"it has moved to another hub":  {then: contract.Cordoned{Hub: "h2", Instance: "i1", Epoch: 1}, left: []cluster.HeldAttempt{{TaskID: "t2", Attempt: 3}}},
		"it has moved, hub unanswered": {then: contract.Cordoned{Hub: "h2", Instance: "i1", Epoch: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var suite sdktestsuite.WorkflowTestSuite
			env := suite.NewTestWorkflowEnvironment()
			cordoned := 0
			env.RegisterActivityWithOptions(func(context.Context, contract.ClusterCordon) (contract.Cordoned, error) {
				if cordoned++; cordoned == 1 {
					return first, nil
				}
				return c.then, nil
			}, activity.RegisterOptions{Name: contract.CordonActivity.Name})
			env.RegisterActivityWithOptions(func(context.Context, contract.StopWorkInput) (contract.StopWorkResult, error) {
				return contract.StopWorkResult{Work: slices.Clone(work)}, nil
			}, activity.RegisterOptions{Name: contract.StopWorkActivity.Name})
			env.RegisterActivityWithOptions(func(_ context.Context, in contract.AwaitIdleInput) error {
				switch {
				case cordoned > 1:
					return nil
				case c.left == nil:
					return temporal.NewNonRetryableApplicationError("gone", contract.NoSession, nil)
				}
				return temporal.NewNonRetryableApplicationError("gone", contract.NoSession, nil, c.left)
			}, activity.RegisterOptions{Name: contract.AwaitIdleActivity.Name})
			env.RegisterWorkflowWithOptions(workflows.Drain, workflow.RegisterOptions{Name: contract.DrainWorkflow})
			env.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("c"), "", contract.AnnounceSignal.Name,
				mock.Anything).Return(nil)
			env.ExecuteWorkflow(contract.DrainWorkflow, contract.DrainInput{ID: "c:d", Cluster: "c", Agents: []string{"a"},
				Timeout: api.Duration(time.Minute)})
			require.NoError(t, env.GetWorkflowError())
			var record api.DrainRecord
			require.NoError(t, env.GetWorkflowResult(&record))
			require.Equal(t, api.DrainCompleted, record.Status, record.Error)
			var lost []string
			for _, w := range record.Agents[0].Work {
				if w.Lost {
					lost = append(lost, w.TaskID)
				}
			}
			require.Equal(t, c.lost, lost)
			require.Equal(t, []int{3 - len(lost), 0, len(lost)},
				[]int{record.Agents[0].Finished, record.Agents[0].Moved, record.Agents[0].Lost})
		})
	}
}
