package task_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// TestEachDeliveryToOneAgentOpensItsLane follows requests to open lanes: with each delivery into an agent's own lane,
// and again when the cluster did not take one.
func TestEachDeliveryToOneAgentOpensItsLane(t *testing.T) {
	t.Parallel()
	lost := contract.AttemptReport{Outcome: api.AttemptLost, Begun: true}
	moved := contract.AttemptReport{Outcome: api.AttemptMoved, Begun: true, Planned: true, Target: "b-1"}
	for name, c := range map[string]struct {
		pinned string
		hub    script
		asked  []string
	}{
		"a task of the cluster":  {"", script{ended(lost), completed(`1`)}, nil},
		"a pinned task":          {"a-1", script{ended(lost), completed(`1`)}, []string{"a-1", "a-1"}},
		"a failover to an agent": {"", script{ended(moved), completed(`1`)}, []string{"b-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newTask(t, c.hub)
			run.startIn(api.TaskSpec{Agent: c.pinned})
			require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
			require.Eventually(t, func() bool { return slices.Equal(c.asked, run.opened.All()) }, time.Minute, time.Millisecond,
				"the workflow does not await its last request")
		})
	}
	t.Run("a cluster that refuses at first", func(t *testing.T) {
		t.Parallel()
		run := &taskRun{TestWorkflowEnvironment: workflowtest.NewEnvironment()}
		worker.RegisterWorkflows(run)
		var token []byte
		run.RegisterActivityWithOptions(func(ctx context.Context, _ contract.RunTaskInput) (contract.AttemptReport, error) {
			token = activity.GetInfo(ctx).TaskToken
			return contract.AttemptReport{}, activity.ErrResultPending
		}, activity.RegisterOptions{Name: contract.RunTaskActivity.Name})
		tries := 0
		run.onOpenLane(func(string) error {
			if tries++; tries < 4 {
				return errors.New("too many signals")
			}
			return nil
		})
		run.RegisterDelayedCallback(func() {
			require.NoError(t, run.CompleteActivity(token, contract.AttemptReport{Outcome: api.AttemptCompleted}, nil))
		}, 30*time.Second)
		run.startIn(api.TaskSpec{Agent: "a-1"})
		require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
		require.Equal(t, 4, tries)
	})
}

// onOpenLane answers requests to open the lane of an agent.
func (r *taskRun) onOpenLane(answer func(agent string) error) {
	r.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("default"), "",
		contract.OpenAgentLaneSignal.Name, mock.Anything).Return(
		func(_, _, _, _ string, agent any) error { return answer(agent.(string)) }).Maybe()
}

// startIn starts a task in the lane where it belongs.
func (r *taskRun) startIn(spec api.TaskSpec) {
	spec.Type, spec.Cluster = "echo", "default"
	r.ExecuteWorkflow(contract.TaskWorkflow, contract.TaskInput{TaskID: "t-1", Spec: spec,
		Lane: contract.Lane(&spec, 0, false)})
}
