package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/mesh"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
)

// An event that waits for others of its tenant uses up none of its tries, and holds no place of the worker.
func TestAnEventWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	calls := 0
	env.RegisterActivityWithOptions(func(context.Context, contract.DispatchEvent) (contract.EventDispatched, error) {
		if calls++; calls <= 10 {
			return contract.EventDispatched{}, temporal.NewApplicationError("others go first", contract.NotTheirTurn)
		}
		return contract.EventDispatched{Dispatches: []mesh.Dispatch{{Kind: mesh.KindTask, ID: "acme:t"}}}, nil
	}, activity.RegisterOptions{Name: contract.DispatchEventActivity.Name})
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{
		ID: contract.InboundWorkflowID(fleet.Qualify("acme", "e")), TaskQueue: contract.WorkerQueue})
	began := env.Now()
	env.RegisterDelayedCallback(func() {
		value, err := env.QueryWorkflow(contract.InboundQuery.Name)
		require.NoError(t, err)
		var e mesh.InboundEvent
		require.NoError(t, value.Get(&e))
		require.Equal(t, "others go first", e.Why)
	}, time.Minute)
	env.ExecuteWorkflow(contract.InboundWorkflow, contract.InboundInput{
		Event: mesh.Envelope{Attributes: map[string]string{"id": "e", "tenant": "acme", "type": "t"}}})
	require.NoError(t, env.GetWorkflowError())
	var e mesh.InboundEvent
	require.NoError(t, env.GetWorkflowResult(&e))
	require.Equal(t, mesh.Dispatched, e.Status)
	require.Empty(t, e.Tries)
	require.Empty(t, e.Why)
	require.Equal(t, 11, calls)
	require.Greater(t, env.Now().Sub(began), 2*time.Minute)
}
