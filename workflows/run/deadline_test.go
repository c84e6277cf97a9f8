package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// The deadline of a run counts from its start, and holds while it waits for another run.
func TestDeadlineOfARunThatWaits(t *testing.T) {
	t.Parallel()
	const definition = head + "deadline: 10m\nsteps:\n  a: {task: {type: echo}}\n"
	h := newHarness(t, nil)
	begins := h.Now().Add(time.Hour)
	h.startWith(t, definition, contract.RunInput{StartAt: begins})
	l := h.outcome(t)
	require.Equal(t, api.RunCompleted, l.Status)
	require.True(t, begins.Add(10*time.Minute).Equal(*l.DeadlineAt), l.DeadlineAt)

	h = newHarness(t, nil)
	var told []string
	h.OnSignalExternalWorkflow(mock.Anything, contract.JobWorkflowID("build"), mock.Anything, mock.Anything,
		mock.Anything).Return(func(_, _, _, signal string, _ any) error { told = append(told, signal); return nil })
	began := h.Now()
	h.start(t, strings.Replace(definition, "steps:", "concurrency: {max_runs: 1}\nsteps:", 1), "")
	l = h.outcome(t)
	require.Equal(t, api.RunFailed, l.Status)
	require.Equal(t, "the run's deadline of 10m0s passed", l.Why)
	require.InDelta(t, 10*time.Minute, l.EndedAt.Sub(began), float64(time.Minute))
	require.Empty(t, h.begun)
	require.Equal(t, []string{contract.RunBeginsSignal.Name, contract.RunEndedSignal.Name}, told, "it gives its place up")
}
