package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRedeliver(t *testing.T) {
	t.Parallel()
	lease := Duration(4 * time.Second)
	none := Duration(0)
	tests := []struct {
		name   string
		spec   TaskSpec
		tally  Tally
		end    AttemptEnd
		status TaskStatus
		wait   time.Duration // exact, unless below zero: then any wait above zero
		tallyW Tally
	}{
		{"failure is tried again", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptFailed, Begun: true}, TaskRetryWait,
			-1, Tally{Failures: 1}},
		{"last failure is a dead letter", TaskSpec{}, Tally{Failures: 2},
			AttemptEnd{Outcome: AttemptFailed, Begun: true}, TaskDeadLetter, 0, Tally{Failures: 3}},
		{"own bound", TaskSpec{Retry: RetryPolicy{MaxAttempts: 1}}, Tally{},
			AttemptEnd{Outcome: AttemptFailed, Begun: true}, TaskDeadLetter, 0, Tally{Failures: 1}},
		{"final failure", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptFailed, Begun: true, Final: true}, TaskFailed,
			0, Tally{Failures: 1}},
		{"failure of a type that is not tried again", TaskSpec{Retry: RetryPolicy{NonRetryable: []string{"a",
			"bad_input"}}}, Tally{}, AttemptEnd{Outcome: AttemptFailed, Begun: true, ErrorType: "bad_input"}, TaskFailed, 0,
			Tally{Failures: 1}},
		{"failure of another type", TaskSpec{Retry: RetryPolicy{NonRetryable: []string{"bad_input"}}}, Tally{},
			AttemptEnd{Outcome: AttemptFailed, Begun: true, ErrorType: "bad"}, TaskRetryWait, -1, Tally{Failures: 1}},
		{"failure without a type", TaskSpec{Retry: RetryPolicy{NonRetryable: []string{"bad_input"}}}, Tally{},
			AttemptEnd{Outcome: AttemptFailed, Begun: true}, TaskRetryWait, -1, Tally{Failures: 1}},
		{"a loss has no type", TaskSpec{Retry: RetryPolicy{NonRetryable: []string{"bad_input"}}}, Tally{},
			AttemptEnd{Outcome: AttemptLost, Begun: true, ErrorType: "bad_input"}, TaskQueued, 0, Tally{Losses: 1}},
		{"failure of at_most_once is final", TaskSpec{RetrySafety: AtMostOnce}, Tally{},
			AttemptEnd{Outcome: AttemptFailed, Begun: true}, TaskFailed, 0, Tally{Failures: 1}},
		{"lost idempotent moves at once", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptLost, Begun: true},
			TaskQueued, 0, Tally{Losses: 1}},
		{"taken off by a drain is no loss", TaskSpec{}, Tally{Losses: 3},
			AttemptEnd{Outcome: AttemptLost, Begun: true, Planned: true}, TaskQueued, 0, Tally{Losses: 3}},
		{"at_most_once taken off by a drain goes to review", TaskSpec{RetrySafety: AtMostOnce}, Tally{},
			AttemptEnd{Outcome: AttemptLost, Begun: true, Planned: true}, TaskReview, 0, Tally{}},
		{"moved, once", TaskSpec{RetrySafety: AtMostOnce}, Tally{},
			AttemptEnd{Outcome: AttemptMoved, Begun: true, Planned: true}, TaskReview, 0, Tally{}},
		{"moved", TaskSpec{}, Tally{Losses: 3},
			AttemptEnd{Outcome: AttemptMoved, Begun: true, Planned: true}, TaskQueued, 0, Tally{Losses: 3}},
		{"lost more often than the task allows", TaskSpec{Retry: RetryPolicy{MaxTransfers: 1}}, Tally{Losses: 1},
			AttemptEnd{Outcome: AttemptLost, Begun: true}, TaskDeadLetter, 0, Tally{Losses: 2}},
		{"lost too often", TaskSpec{}, Tally{Losses: 3}, AttemptEnd{Outcome: AttemptLost, Begun: true}, TaskDeadLetter,
			0, Tally{Losses: 4}},
		{"lost fenced waits for the lease", TaskSpec{RetrySafety: Fenced}, Tally{},
			AttemptEnd{Outcome: AttemptLost, Begun: true, LeaseRemaining: &lease}, TaskRetryWait, 4 * time.Second,
			Tally{Losses: 1}},
		{"lost fenced, lease over", TaskSpec{RetrySafety: Fenced}, Tally{},
			AttemptEnd{Outcome: AttemptLost, Begun: true, LeaseRemaining: &none}, TaskQueued, 0, Tally{Losses: 1}},
		{"lost fenced, lease unknown", TaskSpec{RetrySafety: Fenced}, Tally{},
			AttemptEnd{Outcome: AttemptLost, Begun: true}, TaskRetryWait, UnknownLease, Tally{Losses: 1}},
		{"lost at_most_once goes to review", TaskSpec{RetrySafety: AtMostOnce}, Tally{},
			AttemptEnd{Outcome: AttemptLost, Begun: true}, TaskReview, 0, Tally{Losses: 1}},
		{"lost unmarked goes to review", TaskSpec{RetrySafety: Unmarked}, Tally{},
			AttemptEnd{Outcome: AttemptLost, Begun: true}, TaskReview, 0, Tally{Losses: 1}},
		{"timed out unmarked goes to review", TaskSpec{RetrySafety: Unmarked}, Tally{},
			AttemptEnd{Outcome: AttemptTimedOut, Begun: true}, TaskReview, 0, Tally{Failures: 1}},
		{"failed unmarked is tried again", TaskSpec{RetrySafety: Unmarked}, Tally{},
			AttemptEnd{Outcome: AttemptFailed, Begun: true}, TaskRetryWait, -1, Tally{Failures: 1}},
		{"timed out at_most_once goes to review", TaskSpec{RetrySafety: AtMostOnce}, Tally{},
			AttemptEnd{Outcome: AttemptTimedOut, Begun: true}, TaskReview, 0, Tally{Failures: 1}},
		{"timed out is tried again", TaskSpec{}, Tally{Losses: 3}, AttemptEnd{Outcome: AttemptTimedOut, Begun: true},
			TaskRetryWait, -1, Tally{Failures: 1, Losses: 3}},
		{"timed out too often is a dead letter", TaskSpec{}, Tally{Failures: 2},
			AttemptEnd{Outcome: AttemptTimedOut, Begun: true}, TaskDeadLetter, 0, Tally{Failures: 3}},
		{"timed out fenced, its handler may run on", TaskSpec{RetrySafety: Fenced}, Tally{},
			AttemptEnd{Outcome: AttemptTimedOut, Begun: true}, TaskRetryWait, UnknownLease, Tally{Failures: 1}},
		{"timed out fenced, its handler has returned", TaskSpec{RetrySafety: Fenced,
			Retry: RetryPolicy{InitialInterval: Duration(time.Minute),
				MaxInterval: Duration(time.Minute)}}, Tally{}, AttemptEnd{Outcome: AttemptTimedOut,
			Begun:          true,
			LeaseRemaining: &none}, TaskRetryWait, time.Minute, Tally{Failures: 1}},
		{"timed out, which is not tried again", TaskSpec{Retry: RetryPolicy{NonRetryable: []string{"timeout"}}},
			Tally{}, AttemptEnd{Outcome: AttemptTimedOut, Begun: true, ErrorType: "timeout"}, TaskFailed, 0,
			Tally{Failures: 1}},
		{"lost with its newest checkpoint", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptLost, Begun: true,
			CheckpointLost: true}, TaskReview, 0, Tally{Losses: 1}},
		{"timed out at Temporal, and its newest checkpoint is lost", TaskSpec{}, Tally{}, AttemptEnd{
			Outcome: AttemptTimedOut, Begun: true, CheckpointLost: true}, TaskReview, 0, Tally{Failures: 1}},
		{"paused, then lost", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptLost, Begun: true, Paused: true},
			TaskReview, 0, Tally{Losses: 1}},
		{"stopped by a pause", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptMoved, Begun: true, Planned: true,
			Paused: true}, TaskQueued, 0, Tally{}},
		{"paused, then failed", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptFailed, Begun: true, Paused: true},
			TaskRetryWait, -1, Tally{Failures: 1}},
		{"nobody handles it", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptReturned, Unhandled: true}, TaskRetryWait,
			-1, Tally{Returns: 1}},
		{"nobody handles it for long", TaskSpec{}, Tally{Returns: 9},
			AttemptEnd{Outcome: AttemptReturned, Unhandled: true}, TaskRetryWait, 30 * time.Second, Tally{Returns: 10}},
		{"rate limited", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptReturned, RetryAfter: lease}, TaskRetryWait,
			4 * time.Second, Tally{Returns: 1}},
		{"rate limited for long", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptReturned,
			RetryAfter: Duration(time.Hour)}, TaskRetryWait, 10 * time.Minute, Tally{Returns: 1}},
		{"one of many that nobody handles", TaskSpec{}, Tally{}, AttemptEnd{Outcome: AttemptReturned, Unhandled: true,
			RetryAfter: Duration(time.Minute)}, TaskRetryWait, time.Minute, Tally{Returns: 1}},
		{"busy for long", TaskSpec{}, Tally{Returns: 99}, AttemptEnd{Outcome: AttemptReturned}, TaskRetryWait,
			5 * time.Second, Tally{Returns: 100}},
		{"at_most_once that never began is delivered again", TaskSpec{RetrySafety: AtMostOnce}, Tally{},
			AttemptEnd{Outcome: AttemptReturned}, TaskQueued, 0, Tally{Returns: 1}},
		{"lost before it began is no loss", TaskSpec{RetrySafety: AtMostOnce}, Tally{},
			AttemptEnd{Outcome: AttemptLost}, TaskQueued, 0, Tally{Returns: 1}},
		{"many returns are spaced", TaskSpec{}, Tally{Returns: 3}, AttemptEnd{Outcome: AttemptReturned}, TaskRetryWait,
			-1, Tally{Returns: 4}},
		{"not received", TaskSpec{}, Tally{NotReceived: 1, Returns: 1},
			AttemptEnd{Outcome: AttemptReturned, NotReceived: true}, TaskQueued, 0, Tally{NotReceived: 2, Returns: 2}},
		{"not received five times", TaskSpec{}, Tally{NotReceived: 4, Returns: 40},
			AttemptEnd{Outcome: AttemptReturned, NotReceived: true}, TaskDeadLetter, 0,
			Tally{NotReceived: 5, Returns: 41}},
		{"at_most_once not received five times", TaskSpec{RetrySafety: AtMostOnce}, Tally{NotReceived: 4},
			AttemptEnd{Outcome: AttemptReturned, NotReceived: true}, TaskDeadLetter, 0,
			Tally{NotReceived: 5, Returns: 1}},
		{"returned for another reason after four that were not received", TaskSpec{}, Tally{NotReceived: 4},
			AttemptEnd{Outcome: AttemptReturned}, TaskQueued, 0, Tally{NotReceived: 4, Returns: 1}},
		{"a begun attempt was received", TaskSpec{}, Tally{NotReceived: 4, Returns: 4},
			AttemptEnd{Outcome: AttemptLost, Begun: true}, TaskQueued, 0, Tally{Losses: 1}},
		{"a begun attempt ends a row of returns", TaskSpec{}, Tally{Returns: 3},
			AttemptEnd{Outcome: AttemptLost, Begun: true}, TaskQueued, 0, Tally{Losses: 1}},
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
			Outcome: rapid.SampledFrom([]AttemptOutcome{AttemptFailed, AttemptLost, AttemptTimedOut}).Draw(t,
				"outcome"),
			Begun: true, Final: rapid.Bool().Draw(t, "final"),
		}
		tally := Tally{Failures: rapid.IntRange(0, 9).Draw(t, "failures"),
			Losses: rapid.IntRange(0, 9).Draw(t, "losses"), Returns: rapid.IntRange(0, 9).Draw(t, "returns")}
		got := Redeliver(&TaskSpec{RetrySafety: AtMostOnce}, "t-1", tally, end)
		if got.Status != TaskReview && got.Status != TaskFailed {
			t.Fatalf("at_most_once would be delivered again: %+v", got)
		}
	})
}

func TestMovedPriority(t *testing.T) {
	t.Parallel()
	for priority, want := range map[Priority]Priority{0: 2, 1: 1, 2: 1, 3: 2, 5: 4} {
		require.Equal(t, want, MovedPriority(priority))
	}
}

func TestAttemptsAreCountedSinceTheRetry(t *testing.T) {
	t.Parallel()
	spec := &TaskSpec{Retry: RetryPolicy{MaxAttempts: 1}}
	end := AttemptEnd{Outcome: AttemptFailed, Begun: true, Reason: "disk full"}
	require.Equal(t, "1 of 1 attempts failed since it was retried; last: disk full",
		Redeliver(spec, "t", Tally{Retried: true}, end).Why)
}

func TestKindOfAnEnd(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]AttemptEnd{
		"exit_2":       {Outcome: AttemptFailed, Begun: true, ErrorType: "exit_2"},
		"failed":       {Outcome: AttemptFailed, Begun: true},
		"no_beacon":    {Outcome: AttemptTimedOut, ErrorType: ErrorTypeNoBeacon},
		"timed_out":    {Outcome: AttemptTimedOut},
		"lost":         {Outcome: AttemptMoved, ErrorType: "stopped"},
		"not_received": {Outcome: AttemptReturned, NotReceived: true},
	} {
		require.Equal(t, want, end.Kind())
	}
}
