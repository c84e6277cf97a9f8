package task_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

func TestTimedOutAttemptIsTriedAgain(t *testing.T) {
	t.Parallel()
	hang := ended(contract.AttemptReport{Outcome: api.AttemptTimedOut, Begun: true, Reason: "no beacon for 45s",
		Checkpoint: []byte(`7`)})
	run := newTask(t, script{hang, completed(`1`)})
	run.start(api.TaskSpec{})
	state := run.outcome(t)
	require.Equal(t, api.TaskCompleted, state.Status, state.Why)
	require.Equal(t, api.AttemptTimedOut, state.Attempts[0].Outcome)
	require.JSONEq(t, `7`, string(run.deliveries[1].Checkpoint))
	require.Empty(t, run.deliveries[1].TransferredFrom, "its agent was not lost")

	run = newTask(t, script{hang, hang})
	run.RegisterDelayedCallback(func() {
		require.Equal(t, api.TaskDeadLetter, run.query(t).Status)
		require.Equal(t, "2 of 2 attempts failed; last: no beacon for 45s", run.query(t).Why)
		run.CancelWorkflow()
	}, time.Hour)
	run.start(api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 2}})
	require.Equal(t, api.TaskCancelled, run.outcome(t).Status)
}

func TestTaskThatNobodyHandlesIsDeliveredRarely(t *testing.T) {
	t.Parallel()
	var hub script
	for range 400 {
		hub = append(hub, ended(contract.AttemptReport{Outcome: api.AttemptReturned,
			Reason: "no agent here has a handler", Unhandled: true}))
	}
	run := newTask(t, hub)
	run.RegisterDelayedCallback(func() {
		state := run.query(t)
		require.Equal(t, api.TaskRetryWait, state.Status)
		require.Contains(t, state.Why, "no agent here has a handler")
		require.NotNil(t, state.NextAttempt)
	}, 10*time.Minute)
	run.start(api.TaskSpec{ExpiresIn: api.Duration(time.Hour)})
	require.Equal(t, api.TaskExpired, run.outcome(t).Status)
	require.Less(t, len(run.deliveries), 150, "every 30 s")
}
