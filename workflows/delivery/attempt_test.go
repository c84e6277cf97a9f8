package delivery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

// What a pause took off an agent that does not confirm it was moved, not lost, and does not count as a loss.
func TestUnconfirmedPauseIsNoLoss(t *testing.T) {
	t.Parallel()
	report, how := unconfirmed(true)
	require.Equal(t, attemptUnfinished, how)
	require.Equal(t, fleet.AttemptMoved, report.Outcome)
	next := fleet.Redeliver(&fleet.TaskSpec{}, "t-1", fleet.Tally{Losses: 3}, report.End())
	require.Equal(t, fleet.TaskQueued, next.Status)
	require.Equal(t, 3, next.Tally.Losses)

	report, how = unconfirmed(false)
	require.Equal(t, attemptCancelled, how)
	require.Equal(t, fleet.AttemptCancelled, report.Outcome)
}
