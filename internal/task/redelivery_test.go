package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

func TestRedeliver(t *testing.T) {
	t.Parallel()
	lease := api.Duration(4 * time.Second)
	none := api.Duration(0)
	tests := []struct {
		name   string
		spec   api.TaskSpec
		tally  Tally
		end    AttemptEnd
		status api.TaskStatus
		wait   time.Duration // exact, unless below zero: then any wait above zero
		tallyW Tally
	}{
		{"failure is tried again", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptFailed, Begun: true}, api.TaskRetryWait,
			-1, Tally{Failures: 1}},
		{"last failure is a dead letter", api.TaskSpec{}, Tally{Failures: 2},
			AttemptEnd{Outcome: api.AttemptFailed, Begun: true}, api.TaskDeadLetter, 0, Tally{Failures: 3}},
		{"own bound", api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}}, Tally{},
			AttemptEnd{Outcome: api.AttemptFailed, Begun: true}, api.TaskDeadLetter, 0, Tally{Failures: 1}},
		{"final failure", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptFailed, Begun: true, Final: true}, api.TaskFailed,
			0, Tally{Failures: 1}},
		{"failure of a type that is not tried again", api.TaskSpec{Retry: api.RetryPolicy{NonRetryable: []string{"a",
			"bad_input"}}}, Tally{}, AttemptEnd{Outcome: api.AttemptFailed, Begun: true, ErrorType: "bad_input"}, api.TaskFailed, 0,
			Tally{Failures: 1}},
		{"failure of another type", api.TaskSpec{Retry: api.RetryPolicy{NonRetryable: []string{"bad_input"}}}, Tally{},
			AttemptEnd{Outcome: api.AttemptFailed, Begun: true, ErrorType: "bad"}, api.TaskRetryWait, -1, Tally{Failures: 1}},
		{"failure without a type", api.TaskSpec{Retry: api.RetryPolicy{NonRetryable: []string{"bad_input"}}}, Tally{},
			AttemptEnd{Outcome: api.AttemptFailed, Begun: true}, api.TaskRetryWait, -1, Tally{Failures: 1}},
		{"a loss has no type", api.TaskSpec{Retry: api.RetryPolicy{NonRetryable: []string{"bad_input"}}}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true, ErrorType: "bad_input"}, api.TaskQueued, 0, Tally{Losses: 1}},
		{"failure of at_most_once is final", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{},
			AttemptEnd{Outcome: api.AttemptFailed, Begun: true}, api.TaskFailed, 0, Tally{Failures: 1}},
		{"lost idempotent moves at once", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptLost, Begun: true},
			api.TaskQueued, 0, Tally{Losses: 1}},
		{"taken off by a drain is no loss", api.TaskSpec{}, Tally{Losses: 3},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true, Planned: true}, api.TaskQueued, 0, Tally{Losses: 3}},
		{"at_most_once taken off by a drain goes to review", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true, Planned: true}, api.TaskReview, 0, Tally{}},
		{"moved, once", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{},
			AttemptEnd{Outcome: api.AttemptMoved, Begun: true, Planned: true}, api.TaskReview, 0, Tally{}},
		{"moved", api.TaskSpec{}, Tally{Losses: 3},
			AttemptEnd{Outcome: api.AttemptMoved, Begun: true, Planned: true}, api.TaskQueued, 0, Tally{Losses: 3}},
		{"lost more often than the task allows", api.TaskSpec{Retry: api.RetryPolicy{MaxTransfers: 1}}, Tally{Losses: 1},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true}, api.TaskDeadLetter, 0, Tally{Losses: 2}},
		{"lost too often", api.TaskSpec{}, Tally{Losses: 3}, AttemptEnd{Outcome: api.AttemptLost, Begun: true}, api.TaskDeadLetter,
			0, Tally{Losses: 4}},
		{"lost fenced waits for the lease", api.TaskSpec{RetrySafety: api.Fenced}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true, LeaseRemaining: &lease}, api.TaskRetryWait, 4 * time.Second,
			Tally{Losses: 1}},
		{"lost fenced, lease over", api.TaskSpec{RetrySafety: api.Fenced}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true, LeaseRemaining: &none}, api.TaskQueued, 0, Tally{Losses: 1}},
		{"lost fenced, lease unknown", api.TaskSpec{RetrySafety: api.Fenced}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true}, api.TaskRetryWait, UnknownLease, Tally{Losses: 1}},
		{"lost at_most_once goes to review", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true}, api.TaskReview, 0, Tally{Losses: 1}},
		{"lost unmarked goes to review", api.TaskSpec{RetrySafety: api.Unmarked}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true}, api.TaskReview, 0, Tally{Losses: 1}},
		{"timed out unmarked goes to review", api.TaskSpec{RetrySafety: api.Unmarked}, Tally{},
			AttemptEnd{Outcome: api.AttemptTimedOut, Begun: true}, api.TaskReview, 0, Tally{Failures: 1}},
		{"failed unmarked is tried again", api.TaskSpec{RetrySafety: api.Unmarked}, Tally{},
			AttemptEnd{Outcome: api.AttemptFailed, Begun: true}, api.TaskRetryWait, -1, Tally{Failures: 1}},
		{"timed out at_most_once goes to review", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{},
			AttemptEnd{Outcome: api.AttemptTimedOut, Begun: true}, api.TaskReview, 0, Tally{Failures: 1}},
		{"timed out is tried again", api.TaskSpec{}, Tally{Losses: 3}, AttemptEnd{Outcome: api.AttemptTimedOut, Begun: true},
			api.TaskRetryWait, -1, Tally{Failures: 1, Losses: 3}},
		{"timed out too often is a dead letter", api.TaskSpec{}, Tally{Failures: 2},
			AttemptEnd{Outcome: api.AttemptTimedOut, Begun: true}, api.TaskDeadLetter, 0, Tally{Failures: 3}},
		{"timed out fenced, its handler may run on", api.TaskSpec{RetrySafety: api.Fenced}, Tally{},
			AttemptEnd{Outcome: api.AttemptTimedOut, Begun: true}, api.TaskRetryWait, UnknownLease, Tally{Failures: 1}},
		{"timed out fenced, its handler has returned", api.TaskSpec{RetrySafety: api.Fenced,
			Retry: api.RetryPolicy{InitialInterval: api.Duration(time.Minute),
				MaxInterval: api.Duration(time.Minute)}}, Tally{}, AttemptEnd{Outcome: api.AttemptTimedOut,
			Begun:          true,
			LeaseRemaining: &none}, api.TaskRetryWait, time.Minute, Tally{Failures: 1}},
		{"timed out, which is not tried again", api.TaskSpec{Retry: api.RetryPolicy{NonRetryable: []string{"timeout"}}},
			Tally{}, AttemptEnd{Outcome: api.AttemptTimedOut, Begun: true, ErrorType: "timeout"}, api.TaskFailed, 0,
			Tally{Failures: 1}},
		{"lost with its newest checkpoint", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptLost, Begun: true,
			CheckpointLost: true}, api.TaskReview, 0, Tally{Losses: 1}},
		{"timed out at Temporal, and its newest checkpoint is lost", api.TaskSpec{}, Tally{}, AttemptEnd{
			Outcome: api.AttemptTimedOut, Begun: true, CheckpointLost: true}, api.TaskReview, 0, Tally{Failures: 1}},
		{"paused, then lost", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptLost, Begun: true, Paused: true},
			api.TaskReview, 0, Tally{Losses: 1}},
		{"stopped by a pause", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptMoved, Begun: true, Planned: true,
			Paused: true}, api.TaskQueued, 0, Tally{}},
		{"paused, then failed", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptFailed, Begun: true, Paused: true},
			api.TaskRetryWait, -1, Tally{Failures: 1}},
		{"nobody handles it", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptReturned, Unhandled: true}, api.TaskRetryWait,
			-1, Tally{Returns: 1}},
		{"nobody handles it for long", api.TaskSpec{}, Tally{Returns: 9},
			AttemptEnd{Outcome: api.AttemptReturned, Unhandled: true}, api.TaskRetryWait, 30 * time.Second, Tally{Returns: 10}},
		{"rate limited", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptReturned, RetryAfter: lease}, api.TaskRetryWait,
			4 * time.Second, Tally{Returns: 1}},
		{"rate limited for long", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptReturned,
			RetryAfter: api.Duration(time.Hour)}, api.TaskRetryWait, 10 * time.Minute, Tally{Returns: 1}},
		{"one of many that nobody handles", api.TaskSpec{}, Tally{}, AttemptEnd{Outcome: api.AttemptReturned, Unhandled: true,
			RetryAfter: api.Duration(time.Minute)}, api.TaskRetryWait, time.Minute, Tally{Returns: 1}},
		{"busy for long", api.TaskSpec{}, Tally{Returns: 99}, AttemptEnd{Outcome: api.AttemptReturned}, api.TaskRetryWait,
			5 * time.Second, Tally{Returns: 100}},
		{"at_most_once that never began is delivered again", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{},
			AttemptEnd{Outcome: api.AttemptReturned}, api.TaskQueued, 0, Tally{Returns: 1}},
		{"lost before it began is no loss", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{},
			AttemptEnd{Outcome: api.AttemptLost}, api.TaskQueued, 0, Tally{Returns: 1}},
		{"many returns are spaced", api.TaskSpec{}, Tally{Returns: 3}, AttemptEnd{Outcome: api.AttemptReturned}, api.TaskRetryWait,
			-1, Tally{Returns: 4}},
		{"not received", api.TaskSpec{}, Tally{NotReceived: 1, Returns: 1},
			AttemptEnd{Outcome: api.AttemptReturned, NotReceived: true}, api.TaskQueued, 0, Tally{NotReceived: 2, Returns: 2}},
		{"not received five times", api.TaskSpec{}, Tally{NotReceived: 4, Returns: 40},
			AttemptEnd{Outcome: api.AttemptReturned, NotReceived: true}, api.TaskDeadLetter, 0,
			Tally{NotReceived: 5, Returns: 41}},
		{"at_most_once not received five times", api.TaskSpec{RetrySafety: api.AtMostOnce}, Tally{NotReceived: 4},
			AttemptEnd{Outcome: api.AttemptReturned, NotReceived: true}, api.TaskDeadLetter, 0,
			Tally{NotReceived: 5, Returns: 1}},
		{"returned for another reason after four that were not received", api.TaskSpec{}, Tally{NotReceived: 4},
			AttemptEnd{Outcome: api.AttemptReturned}, api.TaskQueued, 0, Tally{NotReceived: 4, Returns: 1}},
		{"a begun attempt was received", api.TaskSpec{}, Tally{NotReceived: 4, Returns: 4},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true}, api.TaskQueued, 0, Tally{Losses: 1}},
		{"a begun attempt ends a row of returns", api.TaskSpec{}, Tally{Returns: 3},
			AttemptEnd{Outcome: api.AttemptLost, Begun: true}, api.TaskQueued, 0, Tally{Losses: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Redeliver(&tt.spec, "t-1", tt.tally, tt.end)
			require.Equal(t, tt.status, got.Status, got.Why)
			require.Equal(t, tt.tallyW, got.Tally)
			if tt.wait < 0 {
				require.Positive(t, got.Wait)
			} else {
				require.Equal(t, tt.wait, got.Wait)
			}
		})
	}
}

// A task that may have begun and is at_most_once is never delivered again, whatever happened before.
func TestRedeliverNeverRepeatsAtMostOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		end := AttemptEnd{
			Outcome: rapid.SampledFrom([]api.AttemptOutcome{api.AttemptFailed, api.AttemptLost, api.AttemptTimedOut}).Draw(t,
				"outcome"),
			Begun: true, Final: rapid.Bool().Draw(t, "final"),
		}
		tally := Tally{Failures: rapid.IntRange(0, 9).Draw(t, "failures"),
			Losses: rapid.IntRange(0, 9).Draw(t, "losses"), Returns: rapid.IntRange(0, 9).Draw(t, "returns")}
		got := Redeliver(&api.TaskSpec{RetrySafety: api.AtMostOnce}, "t-1", tally, end)
		if got.Status != api.TaskReview && got.Status != api.TaskFailed {
			t.Fatalf("at_most_once would be delivered again: %+v", got)
		}
	})
}

func TestMovedPriority(t *testing.T) {
	t.Parallel()
	for priority, want := range map[api.Priority]api.Priority{0: 2, 1: 1, 2: 1, 3: 2, 5: 4} {
		require.Equal(t, want, MovedPriority(priority))
	}
}

func TestAttemptsAreCountedSinceTheRetry(t *testing.T) {
	t.Parallel()
	spec := &api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}}
	end := AttemptEnd{Outcome: api.AttemptFailed, Begun: true, Reason: "disk full"}
	require.Equal(t, "1 of 1 attempts failed since it was retried; last: disk full",
		Redeliver(spec, "t", Tally{Retried: true}, end).Why)
}

func TestKindOfAnEnd(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]AttemptEnd{
		"exit_2":       {Outcome: api.AttemptFailed, Begun: true, ErrorType: "exit_2"},
		"failed":       {Outcome: api.AttemptFailed, Begun: true},
		"no_beacon":    {Outcome: api.AttemptTimedOut, ErrorType: api.ErrorTypeNoBeacon},
		"timed_out":    {Outcome: api.AttemptTimedOut},
		"lost":         {Outcome: api.AttemptMoved, ErrorType: "stopped"},
		"not_received": {Outcome: api.AttemptReturned, NotReceived: true},
	} {
		require.Equal(t, want, end.Kind())
	}
}
