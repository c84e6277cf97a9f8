package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// firing is a Firing workflow under test, with the deliveries of its task.
type firing struct {
	*sdktestsuite.TestWorkflowEnvironment
	deliveries []contract.RunTaskInput
	asked      []contract.PlaceTaskInput
}

func newFiring(
	t *testing.T, place func() (contract.TaskPlace, error), deliver func() (contract.AttemptReport, error),
) *firing {
	t.Helper()
	f := &firing{TestWorkflowEnvironment: workflowtest.NewEnvironment()}
	worker.RegisterWorkflows(f)
	f.RegisterActivityWithOptions(func(_ context.Context, in contract.PlaceTaskInput) (contract.TaskPlace, error) {
		f.asked = append(f.asked, in)
		return place()
	}, activity.RegisterOptions{Name: contract.PlaceTaskActivity.Name})
	f.RegisterActivityWithOptions(func(_ context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		f.deliveries = append(f.deliveries, in)
		return deliver()
	}, activity.RegisterOptions{Name: contract.RunTaskActivity.Name})
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	f.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.FiringWorkflowID("nightly", at)})
	require.NoError(t, f.SetTypedSearchAttributesOnStart(contract.FiringAttributes("nightly", at)))
	return f
}

func (f *firing) start(spec api.TaskSpec) {
	spec.Type, spec.Cluster = "backup", "default"
	f.ExecuteWorkflow(contract.FiringWorkflow, contract.FiringInput{Spec: spec})
}

func inLane(lane string, sharded bool) func() (contract.TaskPlace, error) {
	return func() (contract.TaskPlace, error) { return contract.TaskPlace{Lane: lane, Sharded: sharded}, nil }
}

func TestFiringMakesItsTask(t *testing.T) {
	t.Parallel()
	const id = "nightly@20261121t030000z"
	f := newFiring(t, inLane("lane/default/shard/1", true), func() (contract.AttemptReport,
		error) {
		return contract.AttemptReport{Begun: true}, nil
	})
	f.start(api.TaskSpec{})
	require.NoError(t, f.GetWorkflowError())
	var result contract.FiringResult
	require.NoError(t, f.GetWorkflowResult(&result))
	require.Equal(t, contract.FiringResult{TaskID: id, Status: api.TaskCompleted}, result)
	require.Len(t, f.deliveries, 1)
	require.Equal(t, id, f.deliveries[0].TaskID)
	require.Equal(t, []contract.PlaceTaskInput{{Cluster: "default", Type: "backup", ShardKey: id}}, f.asked)
	require.Equal(t, id, f.deliveries[0].Spec.ShardKey, "as a submission without a key")
}

func TestFiringEndsAsItsTask(t *testing.T) {
	t.Parallel()
	fails := func(final bool) func() (contract.AttemptReport, error) {
		return func() (contract.AttemptReport, error) {
			return contract.AttemptReport{},
				temporal.NewNonRetryableApplicationError("disk full", contract.AttemptFailure, nil,
					contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, Final: final, Reason: "disk full"})
		}
	}
	for name, c := range map[string]struct {
		place   func() (contract.TaskPlace, error)
		deliver func() (contract.AttemptReport, error)
		kind    string
		says    string
	}{
		"failed": {inLane("lane/default", false), fails(true), "failed", "task nightly@20261121t030000z is failed"},
		"no cluster": {func() (contract.TaskPlace, error) {
			return contract.TaskPlace{},
				temporal.NewNonRetryableApplicationError("there is no cluster default any more",
					contract.UnknownCluster, nil)
		}, nil, contract.UnknownCluster, "there is no cluster default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiring(t, c.place, c.deliver)
			f.start(api.TaskSpec{})
			var failed *temporal.ApplicationError
			require.True(t, errors.As(f.GetWorkflowError(), &failed), "%v", f.GetWorkflowError())
			require.Equal(t, c.kind, failed.Type())
			require.Contains(t, failed.Message(), c.says)
		})
	}
}

// TestFiringWhoseTaskIsThere has another task, or one of an earlier firing, under the id of the firing's task.
func TestFiringWhoseTaskIsThere(t *testing.T) {
	t.Parallel()
	const schedule, id = "acme:nightly", "acme:nightly@20261121t030000z"
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for name, own := range map[string]bool{"of an earlier firing": true, "of somebody else": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiring(t, inLane("lane/default", false), nil)
			var asked []contract.IsMadeByInput
			f.RegisterActivityWithOptions(func(_ context.Context, in contract.IsMadeByInput) (bool, error) {
				asked = append(asked, in)
				return own, nil
			}, activity.RegisterOptions{Name: contract.IsMadeByActivity.Name})
			f.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil },
				workflow.RegisterOptions{Name: "Other"})
			var result contract.FiringResult
			fire := func(ctx workflow.Context) error {
				other := workflow.WithChildOptions(ctx,
					workflow.ChildWorkflowOptions{WorkflowID: contract.TaskWorkflowID(id)})
				if err := workflow.ExecuteChildWorkflow(other, "Other").Get(ctx, nil); err != nil {
					return err
				}
				firing := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
					WorkflowID:            contract.FiringWorkflowID(schedule, at),
					TypedSearchAttributes: contract.FiringAttributes(schedule, at),
				})
				return workflow.ExecuteChildWorkflow(firing, contract.FiringWorkflow, contract.FiringInput{
					Spec: api.TaskSpec{Type: "backup", Cluster: "default", Tenant: "acme"},
				}).Get(ctx, &result)
			}
			f.RegisterWorkflowWithOptions(fire, workflow.RegisterOptions{Name: "Fire"})
			var told []cluster.Event
			f.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("default"), "",
				contract.AnnounceSignal.Name, mock.Anything).
				Return(func(_, _, _, _ string, a any) error {
					told = append(told, a.(contract.Announcement).Events...)
					return nil
				}).Maybe()
			f.ExecuteWorkflow("Fire")
			require.Equal(t, []contract.IsMadeByInput{{TaskID: id, Schedule: schedule,
				Spec: api.TaskSpec{Type: "backup", Cluster: "default", Tenant: "acme"}}}, asked)
			require.Empty(t, f.deliveries)
			if own {
				require.NoError(t, f.GetWorkflowError())
				require.Equal(t, contract.FiringResult{TaskID: id, Repeated: true}, result)
				require.Empty(t, told)
				return
			}
			var failed *temporal.ApplicationError
			require.True(t, errors.As(f.GetWorkflowError(), &failed), "%v", f.GetWorkflowError())
			require.Equal(t, contract.IDTaken, failed.Type())
			require.Len(t, told, 1)
			require.Equal(t, api.EventScheduleFailed, told[0].Type)
			require.Equal(t, api.EventData{Tenant: "acme", ID: schedule, Reason: failed.Message()}, told[0].EventData)
		})
	}
}

// The task reports that it waits for a person; the firing does not wait for that person.
func TestFiringDoesNotWaitForAPerson(t *testing.T) {
	t.Parallel()
	f := newFiring(t, inLane("lane/default", false), func() (contract.AttemptReport, error) {
		return contract.AttemptReport{},
			temporal.NewNonRetryableApplicationError("disk full", contract.AttemptFailure, nil,
				contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, Reason: "disk full"})
	})
	f.start(api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}})
	var failed *temporal.ApplicationError
	require.True(t, errors.As(f.GetWorkflowError(), &failed), "%v", f.GetWorkflowError())
	require.Equal(t, "dead_letter", failed.Type(), "without the task's word it would have waited until that is failed")
	require.Contains(t, failed.Message(), "1 of 1 attempts failed")
}

func TestOnlyAScheduleFires(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	env.ExecuteWorkflow(contract.FiringWorkflow, contract.FiringInput{})
	var failed *temporal.ApplicationError
	require.True(t, errors.As(env.GetWorkflowError(), &failed))
	require.Equal(t, contract.Refused, failed.Type())
}
