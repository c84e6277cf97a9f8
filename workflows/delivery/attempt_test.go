package delivery

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// What a pause took off an agent that does not confirm it was moved, not lost, and does not count as a loss.
func TestUnconfirmedPauseIsNoLoss(t *testing.T) {
	t.Parallel()
	report, how := unconfirmed(true)
	require.Equal(t, attemptUnfinished, how)
	require.Equal(t, api.AttemptMoved, report.Outcome)
	next := task.Redeliver(&api.TaskSpec{}, "t-1", task.Tally{Losses: 3}, report.End())
	require.Equal(t, api.TaskQueued, next.Status)
	require.Equal(t, 3, next.Tally.Losses)

	report, how = unconfirmed(false)
	require.Equal(t, attemptCancelled, how)
	require.Equal(t, api.AttemptCancelled, report.Outcome)
}

// What a task hands over and leaves fits into a message of Temporal's, whatever its agents said.
func TestWhatAgentsSaidFits(t *testing.T) {
	t.Parallel()
	said := strings.Repeat("\x01", 8192)
	large := json.RawMessage(`"` + strings.Repeat("x", api.MaxPayloadBytes-2) + `"`)
	d := New(contract.TaskInput{Spec: api.TaskSpec{Payload: large}}, time.Unix(0, 0), nil)
	d.carried.Checkpoint = json.RawMessage(`"` + strings.Repeat("x", api.MaxCheckpointBytes-2) + `"`)
	for n := range 30 {
		d.record(n+1, contract.AttemptReport{Reason: said, ErrorType: said[:128],
			Progress: &api.Progress{Percent: 7, Step: said[:200], Message: said[:1000]}}, nil)
	}
	d.end(api.TaskCompleted, said)
	d.result = large
	state := d.State()
	require.Len(t, state.Attempts, attemptsKept)
	require.Equal(t, said, state.Attempts[attemptsKept-1].Reason, "the newest says all")
	require.Equal(t, 7, state.Attempts[0].Progress.Percent)
	require.True(t, contract.Fits(state))
	require.True(t, contract.Fits(d.Task()))
}
