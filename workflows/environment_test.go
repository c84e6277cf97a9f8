package workflows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
)

// newEnvironment makes the SDK's environment for the test of a workflow. On a busy machine a workflow may wait for seconds
// to be run; by default the SDK takes one second for a deadlock, and three without an event for a test that hangs.
func newEnvironment() *sdktestsuite.TestWorkflowEnvironment {
	var suite sdktestsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(sdkworker.Options{DeadlockDetectionTimeout: time.Minute})
	env.SetTestTimeout(time.Minute)
	return env
}

func asError[E error](err error, target *E) bool { return errors.As(err, target) }

func (r *taskRun) query(t *testing.T) contract.TaskState {
	t.Helper()
	value, err := r.QueryWorkflow(contract.StatusQuery.Name)
	require.NoError(t, err)
	var state contract.TaskState
	require.NoError(t, value.Get(&state))
	return state
}

// answer is how an update ended; it is known when the workflow has ended.
type answer struct {
	refused bool
	err     error
	value   any
}

func (a *answer) Accept() {}
func (a *answer) Reject(err error) {
	a.refused, a.err = true, err
}
func (a *answer) Complete(value any, err error) { a.value, a.err = value, err }

func (r *taskRun) update(name string, arg any) *answer {
	a := &answer{}
	r.UpdateWorkflow(name, "", a, arg)
	return a
}

// continuedInput is the input of the run that a continue-as-new asked for.
func continuedInput(t *testing.T, next *workflow.ContinueAsNewError) contract.ClusterInput {
	t.Helper()
	var input contract.ClusterInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &input))
	return input
}
