package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// An event that waits for others of its tenant uses up none of its tries, and holds no place of the worker. If its turn
// never comes, a person decides: before, it waited until its history was too long, and was lost.
func TestAnEventWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		turnless int // how often it is not its turn
		at       time.Duration
		then     api.InboundStatus // at that time
		calls    int
		tries    int
	}{
		"its turn comes":       {10, time.Minute, api.InboundReceived, 11, 0},
		"its turn never comes": {1 << 20, 7 * 24 * time.Hour, api.InboundQuarantined, 5 * 500, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := workflowtest.NewEnvironment()
			worker.RegisterWorkflows(env)
			calls, replay := 0, workflowtest.Answer{}
			env.RegisterActivityWithOptions(func(context.Context, contract.DispatchEvent) (contract.EventDispatched, error) {
				if calls++; calls <= tt.turnless {
					return contract.EventDispatched{}, temporal.NewApplicationError("others go first", contract.NotTheirTurn)
				}
				return contract.EventDispatched{Dispatches: []api.Dispatch{{Kind: api.DispatchTask, ID: "acme:t"}}}, nil
			}, activity.RegisterOptions{Name: contract.DispatchEventActivity.Name})
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{
				ID: contract.InboundWorkflowID(api.Qualify("acme", "e")), TaskQueue: contract.WorkerQueue})
			env.RegisterDelayedCallback(func() {
				value, err := env.QueryWorkflow(contract.InboundQuery.Name)
				require.NoError(t, err)
				var e api.InboundEvent
				require.NoError(t, value.Get(&e))
				require.Equal(t, tt.then, e.Status)
				require.Equal(t, "others go first", e.Why)
				if tt.then == api.InboundQuarantined {
					env.SetCurrentHistorySize(24<<20 + 1) // of replays, each with data
					env.UpdateWorkflow(contract.ReplayEventUpdate.Name, "r", &replay, contract.ReplayEvent{})
					env.UpdateWorkflowNoRejection(contract.DiscardEventUpdate.Name, "d", t, contract.RunRequest{By: "ann"})
				}
			}, tt.at)
			env.ExecuteWorkflow(contract.InboundWorkflow, contract.InboundInput{
				Event: api.Envelope{Attributes: map[string]string{"id": "e", "tenant": "acme", "type": "t"}}})
			require.NoError(t, env.GetWorkflowError())
			var e api.InboundEvent
			require.NoError(t, env.GetWorkflowResult(&e))
			require.Equal(t, tt.then == api.InboundQuarantined, replay.Refused, "a full history takes no replay")
			require.Len(t, e.Tries, tt.tries)
			require.Equal(t, tt.calls, calls)
			if tt.tries == 0 {
				require.Equal(t, api.InboundDispatched, e.Status)
				require.Empty(t, e.Why)
			}
		})
	}
}
