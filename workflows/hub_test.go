package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
)

func TestHubLease(t *testing.T) {
	t.Parallel()
	silent := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)
	noAnswer := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	tests := []struct {
		name   string
		leases []error // how the leases end, in order
	}{
		{"a hub that does not answer is lost", []error{silent, noAnswer}},
		{"a hub that answers goes on", []error{silent, silent, noAnswer}},
		{"a hub that stops is lost when it does not come back", []error{nil, noAnswer}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := workflowtest.NewEnvironment()
			worker.RegisterWorkflows(env)
			held, announced := 0, 0
			env.RegisterActivityWithOptions(func(context.Context, contract.HoldLeaseInput) error {
				held++
				return tt.leases[held-1]
			}, activity.RegisterOptions{Name: contract.HoldLeaseActivity.Name})
			env.RegisterActivityWithOptions(func(_ context.Context, lost contract.HubLost) error {
				require.Equal(t, "h1", lost.Hub)
				announced++
				return nil
			}, activity.RegisterOptions{Name: contract.AnnounceHubLostActivity.Name})
			env.ExecuteWorkflow(contract.HubWorkflow, contract.HubInput{Hub: "h1"})
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, len(tt.leases), held)
			require.Equal(t, 1, announced)
		})
	}
}

// TestHubStartsWhileItsLossIsAnnounced: the clusters give up the agents that the new process has taken by then, so it
// must hear of it. Otherwise it renews the leases of agents whose roles go to others.
func TestHubStartsWhileItsLossIsAnnounced(t *testing.T) {
	t.Parallel()
	noAnswer := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	var told []bool
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.HoldLeaseInput) error {
		told = append(told, in.Lost)
		if len(told) == 3 {
			return nil // held; then the hub ends
		}
		return noAnswer
	}, activity.RegisterOptions{Name: contract.HoldLeaseActivity.Name})
	announced := 0
	env.RegisterActivityWithOptions(func(context.Context, contract.HubLost) error {
		if announced++; announced == 1 {
			env.SignalWorkflow(contract.HubStartedSignal.Name, contract.HubStarted{Instance: "new"})
		}
		return nil
	}, activity.RegisterOptions{Name: contract.AnnounceHubLostActivity.Name})
	env.ExecuteWorkflow(contract.HubWorkflow, contract.HubInput{Hub: "h1"})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []bool{false, true}, told[:2])
	require.GreaterOrEqual(t, announced, 2, "the workflow goes on")
}
