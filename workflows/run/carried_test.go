package run_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// carried is what a run hands over as it continues as new; nil: it has ended.
func (h *harness) carried(t *testing.T) (in contract.RunInput, continues bool) {
	t.Helper()
	var again *workflow.ContinueAsNewError
	if !errors.As(h.GetWorkflowError(), &again) {
		return in, false
	}
	require.NoError(t, contract.Payloads.FromPayloads(again.Input, &in))
	return in, true
}

// A run that is cancelled in Temporal while it looks for services is cancelled, too, if it continues as new just then.
func TestCancelledAsItContinuesAsNew(t *testing.T) {
	t.Parallel()
	h := newHarness(t, nil)
	looks := 0
	h.RegisterActivityWithOptions(func(contract.LookAtInstances) (contract.InstancesSeen, error) {
		if looks++; looks == 2 {
			h.SetContinueAsNewSuggested(true)
			h.CancelWorkflow()
		}
		return contract.InstancesSeen{Missing: []string{"db"}}, nil
	}, activity.RegisterOptions{Name: contract.LookAtInstancesActivity.Name})
	definition := strings.Replace(diamond, "steps:", "deadline: 1h\nrequires: {services: [db]}\nsteps:", 1)
	h.startWith(t, definition, contract.RunInput{Inputs: json.RawMessage(`{"n": 3}`)})
	if in, continues := h.carried(t); continues {
		h = newHarness(t, nil)
		h.startWith(t, definition, in)
	}
	require.Equal(t, api.RunCancelled, h.outcome(t).Status)
}

// The job cancels a run in the workflow task in which the run continues as new.
func TestRefusedByItsJobAsItContinuesAsNew(t *testing.T) {
	t.Parallel()
	definition := strings.Replace(diamond, "steps:", "concurrency: {max_runs: 1}\nsteps:", 1)
	in := contract.RunInput{Inputs: json.RawMessage(`{"n": 3}`)}
	for n, admission := range []contract.Admission{{}, {Cancel: true, Why: "a newer run takes its place"}} {
		h := newHarness(t, map[string]agent{"a": lasts(100*time.Millisecond, nil)})
		h.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).
			Return(nil).Maybe()
		h.RegisterDelayedCallback(func() {
			h.SignalWorkflow(contract.RunAdmittedSignal.Name, admission)
			h.SetContinueAsNewSuggested(true)
		}, time.Duration(1-n)*time.Millisecond) // the second one has it from the beginning
		if n == 1 {
			h.SetContinueAsNewSuggested(true)
		}
		h.startWith(t, definition, in)
		var continues bool
		in, continues = h.carried(t)
		if n == 1 && !continues {
			require.Equal(t, api.RunCancelled, h.outcome(t).Status)
			return
		}
		require.True(t, continues)
	}
	require.NotNil(t, in.Carried.Ledger.Cancel)
	require.Equal(t, "a newer run takes its place", in.Carried.Ledger.Cancel.Reason)
}
