package task_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// startInput starts the task with the gateway's additions to the spec.
func (r *taskRun) startInput(in contract.TaskInput) {
	in.TaskID, in.Lane, in.Spec.Type, in.Spec.Cluster = "t-1", "lane/default", "echo", "default"
	r.ExecuteWorkflow(contract.TaskWorkflow, in)
}

func TestTaskWaitsForItsStart(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{completed(`1`)})
	at := run.Now().Add(48 * time.Hour).UTC()
	run.RegisterDelayedCallback(func() {
		state := run.query(t)
		require.Equal(t, api.TaskQueued, state.Status)
		require.Equal(t, api.StartsAt(at), state.Why)
		require.True(t, at.Equal(*state.NextAttempt))
		require.True(t, at.Add(time.Minute).Equal(*state.ExpiresAt))
		require.Empty(t, run.deliveries)
	}, 47*time.Hour)
	run.start(api.TaskSpec{StartAt: at, ExpiresIn: api.Duration(time.Minute)})
	state := run.outcome(t)
	require.Equal(t, api.TaskCompleted, state.Status, "expires_in counts from the start")
	require.Equal(t, 1, state.ResultAttempt)
	require.Nil(t, state.NextAttempt)
	require.Nil(t, state.ExpiresAt)
	require.False(t, run.Now().Before(at))
}

func TestTaskWhoseStartHasPassedBeginsAtOnce(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{completed(`1`)})
	begun := run.Now()
	run.start(api.TaskSpec{StartAt: begun.Add(-48 * time.Hour), ExpiresIn: api.Duration(time.Minute)})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Less(t, run.Now().Sub(begun), time.Minute)
}

func TestTaskIsCancelledBeforeItsStart(t *testing.T) {
	t.Parallel()
	for name, cancel := range map[string]func(*taskRun){
		"by update": func(r *taskRun) {
			r.update(contract.CancelUpdate.Name,
				contract.CancelRequest{Reason: "not needed"})
		},
		"in the Web UI": func(r *taskRun) { r.CancelWorkflow() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newTask(t, script{})
			begun := run.Now()
			run.RegisterDelayedCallback(func() { cancel(run) }, time.Hour)
			run.start(api.TaskSpec{StartAt: begun.Add(48 * time.Hour)})
			require.Equal(t, api.TaskCancelled, run.outcome(t).Status)
			require.Less(t, run.Now().Sub(begun), 2*time.Hour)
		})
	}
}

func TestDeadLetterIsKeptForItsRetention(t *testing.T) {
	t.Parallel()
	broken := ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true,
		Reason: "disk full " + strings.Repeat("x", 8000), ErrorType: "io"})
	for name, c := range map[string]struct{ set, kept time.Duration }{"default": {0, 7 * 24 * time.Hour},
		"set": {time.Hour, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newTask(t, script{broken})
			begun := run.Now()
			run.startInput(contract.TaskInput{Spec: api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}},
				DeadLetterRetention: api.Duration(c.set)})
			state := run.outcome(t)
			require.Equal(t, api.TaskFailed, state.Status)
			require.Contains(t, state.Why, "not retried within its retention")
			require.Contains(t, state.DeadLetter.Cause, "disk full")
			require.Equal(t, c.kept, state.DeadLetter.Until.Sub(state.DeadLetter.Since))
			require.InDelta(t, c.kept, run.Now().Sub(begun), float64(time.Minute))
			require.Equal(t, "io", state.Attempts[0].ErrorType)
		})
	}
}

func TestDeadLetterIsDiscarded(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true,
		Reason: "disk full"})})
	var early, silent, discarded *workflowtest.Answer
	run.RegisterDelayedCallback(func() {
		early = run.update(contract.DiscardUpdate.Name, contract.DiscardRequest{Reason: "too early"})
	}, 0)
	run.RegisterDelayedCallback(func() {
		silent = run.update(contract.DiscardUpdate.Name, contract.DiscardRequest{})
		discarded = run.update(contract.DiscardUpdate.Name, contract.DiscardRequest{Reason: "the customer is gone"})
	}, time.Hour)
	run.start(api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}})
	state := run.outcome(t)
	require.True(t, early.Refused)
	require.True(t, silent.Refused)
	require.False(t, discarded.Refused)
	require.Equal(t, api.TaskFailed, state.Status)
	require.Equal(t, "discarded: the customer is gone", state.Why)
	require.Contains(t, state.DeadLetter.Cause, "disk full")
	require.Len(t, state.Attempts, 1)
}

func TestRetriedDeadLetterIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true}), completed(`1`)})
	run.RegisterDelayedCallback(func() {
		run.update(contract.RetryUpdate.Name,
			contract.RetryRequest{Reason: "more disk"})
	}, time.Hour)
	run.start(api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}})
	state := run.outcome(t)
	require.Equal(t, api.TaskCompleted, state.Status)
	require.Nil(t, state.DeadLetter)
	require.Equal(t, 2, state.ResultAttempt)
}

func TestFailureOfANonRetryableType(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true,
		Reason: "no such column", ErrorType: "bad_input"})})
	run.start(api.TaskSpec{Retry: api.RetryPolicy{NonRetryable: []string{"bad_input"}}})
	state := run.outcome(t)
	require.Equal(t, api.TaskFailed, state.Status)
	require.Contains(t, state.Why, "bad_input")
	require.Contains(t, state.Why, "no such column")
}

func TestReprioritizeBetweenDeliveries(t *testing.T) {
	t.Parallel()
	failed := ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true})
	run := newTask(t, script{failed, completed(`1`)})
	run.RegisterActivityWithOptions(func(context.Context, contract.ReprioritizeInput) error {
		t.Error("nothing waited in the lane")
		return nil
	}, activity.RegisterOptions{Name: contract.ReprioritizeActivity.Name})
	var wrong, raised *workflowtest.Answer
	run.RegisterDelayedCallback(func() {
		wrong = run.update(contract.ReprioritizeUpdate.Name, contract.ReprioritizeRequest{Priority: 9})
		raised = run.update(contract.ReprioritizeUpdate.Name,
			contract.ReprioritizeRequest{Priority: api.PriorityCritical, Reason: "late"})
	}, time.Second)
	run.start(api.TaskSpec{Priority: api.PriorityLow, Tenant: "acme"})
	state := run.outcome(t)
	require.True(t, wrong.Refused)
	require.False(t, raised.Refused)
	require.NoError(t, raised.Err)
	require.Equal(t, api.PriorityCritical, state.Priority)
}

// Temporal takes 2,000 updates of a workflow. However often the priority was changed, the task can be cancelled.
func TestATaskWhosePriorityWasChangedOftenCanBeCancelled(t *testing.T) {
	t.Parallel()
	const most = 500
	run := newTask(t, script{})
	var changes, same []*workflowtest.Answer
	var cancelled *workflowtest.Answer
	ask := func(p api.Priority) *workflowtest.Answer {
		return run.update(contract.ReprioritizeUpdate.Name, contract.ReprioritizeRequest{Priority: p})
	}
	run.RegisterDelayedCallback(func() {
		for range most / 5 {
			same = append(same, ask(api.DefaultPriority))
		}
		for range most / 2 {
			changes = append(changes, ask(api.PriorityLow), ask(api.PriorityHigh))
		}
		changes = append(changes, ask(api.PriorityLow), ask(api.PriorityLow))
		same = append(same, ask(api.PriorityHigh))
		cancelled = run.update(contract.CancelUpdate.Name, contract.CancelRequest{Reason: "enough"})
	}, time.Hour)
	run.start(api.TaskSpec{StartAt: run.Now().Add(48 * time.Hour)})
	require.Equal(t, api.TaskCancelled, run.outcome(t).Status)
	for _, a := range same {
		require.True(t, a.Refused, "it takes no room in the history")
		require.True(t, contract.IsUnchanged(a.Err), "who asked is told that it is done")
	}
	for i, a := range changes {
		require.Equal(t, i >= most, a.Refused, i)
		require.False(t, contract.IsUnchanged(a.Err), i)
	}
	require.ErrorContains(t, changes[most].Err, "can still be cancelled")
	require.False(t, cancelled.Refused)
}

// onDelivery calls do when the nth delivery has been handed out.
func (r *taskRun) onDelivery(number int, do func()) {
	begun := 0
	r.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if info.ActivityType.Name != contract.RunTaskActivity.Name {
			return
		}
		if begun++; begun == number {
			do()
		}
	})
}

func TestReprioritizeMovesWhatWaits(t *testing.T) {
	t.Parallel()
	lost := ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true})
	moved := make(chan struct{})
	run := newTask(t, script{lost, func(in contract.RunTaskInput) (contract.AttemptReport, error) {
		<-moved
		return completed(`1`)(in)
	}})
	var moves []contract.ReprioritizeInput
	run.RegisterActivityWithOptions(func(_ context.Context, in contract.ReprioritizeInput) error {
		moves = append(moves, in)
		close(moved)
		return nil
	}, activity.RegisterOptions{Name: contract.ReprioritizeActivity.Name})
	var raised *workflowtest.Answer
	run.onDelivery(2, func() {
		raised = run.update(contract.ReprioritizeUpdate.Name,
			contract.ReprioritizeRequest{Priority: api.PriorityHigh})
	})
	run.start(api.TaskSpec{Priority: api.PriorityBackground})
	state := run.outcome(t)
	require.Equal(t, api.TaskCompleted, state.Status)
	require.Equal(t, api.PriorityHigh, state.Priority)
	require.False(t, raised.Refused)
	require.NoError(t, raised.Err)
	require.Len(t, moves, 1)
	require.Equal(t, "attempt-2", moves[0].ActivityID)
	require.Equal(t, api.PriorityCritical, moves[0].Priority, "what was lost with its agent stays one level ahead")
	require.NotEmpty(t, moves[0].RunID)
}

// An update that is still under way when the task ends is answered all the same.
func TestTaskEndsWhileItsPriorityIsChanged(t *testing.T) {
	t.Parallel()
	asked, over := make(chan struct{}), make(chan struct{})
	run := newTask(t, script{func(in contract.RunTaskInput) (contract.AttemptReport, error) {
		<-asked
		return completed(`1`)(in)
	}})
	run.RegisterActivityWithOptions(func(context.Context, contract.ReprioritizeInput) error {
		close(asked)
		<-over
		return nil
	}, activity.RegisterOptions{Name: contract.ReprioritizeActivity.Name})
	run.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == contract.RunTaskActivity.Name {
			t.Cleanup(func() { close(over) })
		}
	})
	var raised *workflowtest.Answer
	run.onDelivery(1, func() {
		raised = run.update(contract.ReprioritizeUpdate.Name,
			contract.ReprioritizeRequest{Priority: api.PriorityHigh})
	})
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.NoError(t, raised.Err)
	require.NotNil(t, raised.Value)
}

// A change of the priority that did not reach the lane can be asked for again.
func TestAPriorityThatDidNotReachTheLaneIsChangedAgain(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	run := newTask(t, script{func(in contract.RunTaskInput) (contract.AttemptReport, error) {
		<-over
		return completed(`1`)(in)
	}})
	moves := 0
	run.RegisterActivityWithOptions(func(context.Context, contract.ReprioritizeInput) error {
		if moves++; moves == 1 {
			return temporal.NewNonRetryableApplicationError("no", "", nil)
		}
		return nil
	}, activity.RegisterOptions{Name: contract.ReprioritizeActivity.Name})
	var answers []*workflowtest.Answer
	ask := func() {
		answers = append(answers, run.update(contract.ReprioritizeUpdate.Name,
			contract.ReprioritizeRequest{Priority: api.PriorityHigh}))
	}
	run.onDelivery(1, func() {
		ask()
		run.RegisterDelayedCallback(ask, time.Second)
		run.RegisterDelayedCallback(ask, 2*time.Second)
		run.RegisterDelayedCallback(func() { close(over) }, 3*time.Second)
	})
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, 2, moves)
	require.False(t, answers[1].Refused)
	require.True(t, answers[2].Refused)
}
