package task_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// script plays the hub: the nth entry is the end of the nth delivery.
type script []func(contract.RunTaskInput) (contract.AttemptReport, error)

type taskRun struct {
	*sdktestsuite.TestWorkflowEnvironment
	deliveries []contract.RunTaskInput
	queues     []string                  // of the deliveries
	place      string                    // where an unhandled task goes; empty: where it was
	onPlace    func()                    // nil: nothing
	opened     workflowtest.Sent[string] // agents whose lane it had opened
}

func newTask(t *testing.T, hub script) *taskRun {
	t.Helper()
	run := &taskRun{TestWorkflowEnvironment: workflowtest.NewEnvironment()}
	worker.RegisterWorkflows(run)
	run.onOpenLane(func(agent string) error { run.opened.Add(agent); return nil })
	run.RegisterActivityWithOptions(func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		run.deliveries = append(run.deliveries, in)
		run.queues = append(run.queues, activity.GetInfo(ctx).TaskQueue)
		if len(run.deliveries) > len(hub) {
			return contract.AttemptReport{}, temporal.NewNonRetryableApplicationError("one delivery too many", "Test",
				nil)
		}
		return hub[len(run.deliveries)-1](in)
	}, activity.RegisterOptions{Name: contract.RunTaskActivity.Name})
	run.RegisterActivityWithOptions(func(context.Context, contract.PlaceTaskInput) (contract.TaskPlace, error) {
		if run.onPlace != nil {
			run.onPlace()
		}
		return contract.TaskPlace{Lane: cmp.Or(run.place, "lane/default")}, nil
	}, activity.RegisterOptions{Name: contract.PlaceTaskActivity.Name})
	return run
}

func (r *taskRun) start(spec api.TaskSpec) {
	spec.Type, spec.Cluster = "echo", "default"
	r.ExecuteWorkflow(contract.TaskWorkflow, contract.TaskInput{TaskID: "t-1", Spec: spec, Lane: "lane/default"})
}

// outcome is the task's final state, however the workflow ended.
func (r *taskRun) outcome(t *testing.T) contract.TaskState {
	t.Helper()
	require.True(t, r.IsWorkflowCompleted())
	var state contract.TaskState
	err := r.GetWorkflowError()
	var failed *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case err == nil:
		require.NoError(t, r.GetWorkflowResult(&state))
	case errors.As(err, &failed):
		require.NoError(t, failed.Details(&state))
		require.Equal(t, string(state.Status), failed.Type())
	case errors.As(err, &cancelled):
		require.NoError(t, cancelled.Details(&state))
	default:
		t.Fatalf("the workflow ended with %v", err)
	}
	return state
}

func completed(output string) func(contract.RunTaskInput) (contract.AttemptReport, error) {
	return func(contract.RunTaskInput) (contract.AttemptReport, error) {
		return contract.AttemptReport{AgentID: "a-2", Epoch: 2, Outcome: api.AttemptCompleted,
			Output: json.RawMessage(output)}, nil
	}
}

func ended(report contract.AttemptReport) func(contract.RunTaskInput) (contract.AttemptReport, error) {
	report.AgentID, report.Epoch = "a-1", 1
	return func(contract.RunTaskInput) (contract.AttemptReport, error) {
		return contract.AttemptReport{}, temporal.NewNonRetryableApplicationError("attempt", contract.AttemptFailure,
			nil, report)
	}
}

func TestTaskOutcomes(t *testing.T) {
	t.Parallel()
	lost := contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Reason: "its connection closed",
		Checkpoint: json.RawMessage(`7`)}
	failed := contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, Reason: "exit status 1"}
	final := failed
	final.Final = true
	returned := contract.AttemptReport{Outcome: api.AttemptReturned, Reason: "every agent is busy"}
	unreceived := contract.AttemptReport{Outcome: api.AttemptReturned, Reason: "agent a-1 cannot read it",
		NotReceived: true}
	tests := []struct {
		name     string
		spec     api.TaskSpec
		hub      script
		status   api.TaskStatus
		outcomes []api.AttemptOutcome
	}{
		{"completes", api.TaskSpec{}, script{completed(`1`)}, api.TaskCompleted,
			[]api.AttemptOutcome{api.AttemptCompleted}},
		{"moves when its agent is lost", api.TaskSpec{}, script{ended(lost), completed(`1`)}, api.TaskCompleted,
			[]api.AttemptOutcome{api.AttemptLost, api.AttemptCompleted}},
		{"is tried again after a failure", api.TaskSpec{}, script{ended(failed), ended(failed), completed(`1`)},
			api.TaskCompleted,
			[]api.AttemptOutcome{api.AttemptFailed, api.AttemptFailed, api.AttemptCompleted}},
		{"final failure", api.TaskSpec{}, script{ended(final)}, api.TaskFailed,
			[]api.AttemptOutcome{api.AttemptFailed}},
		{"returned is delivered again", api.TaskSpec{RetrySafety: api.AtMostOnce},
			script{ended(returned), completed(`1`)}, api.TaskCompleted,
			[]api.AttemptOutcome{api.AttemptReturned, api.AttemptCompleted}},
		{"not received", api.TaskSpec{}, script{ended(unreceived), ended(unreceived), ended(unreceived),
			ended(unreceived), completed(`1`)}, api.TaskCompleted,
			[]api.AttemptOutcome{api.AttemptReturned, api.AttemptReturned, api.AttemptReturned,
				api.AttemptReturned, api.AttemptCompleted}},
		{"not received five times is a dead letter", api.TaskSpec{},
			script{ended(unreceived), ended(unreceived), ended(unreceived), ended(unreceived), ended(unreceived)},
			api.TaskFailed,
			[]api.AttemptOutcome{api.AttemptReturned, api.AttemptReturned, api.AttemptReturned,
				api.AttemptReturned, api.AttemptReturned}},
		{"what kills agent after agent is a dead letter", api.TaskSpec{},
			script{ended(lost), ended(lost), ended(lost), ended(lost)}, api.TaskFailed,
			[]api.AttemptOutcome{api.AttemptLost, api.AttemptLost, api.AttemptLost, api.AttemptLost}},
		{"a dead letter nobody retries fails in the end", api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}},
			script{ended(failed)}, api.TaskFailed, []api.AttemptOutcome{api.AttemptFailed}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run := newTask(t, tt.hub)
			run.start(tt.spec)
			state := run.outcome(t)
			require.Equal(t, tt.status, state.Status, state.Why)
			var outcomes []api.AttemptOutcome
			for i, a := range state.Attempts {
				require.Equal(t, i+1, a.Number)
				outcomes = append(outcomes, a.Outcome)
			}
			require.Equal(t, tt.outcomes, outcomes)
			require.Len(t, run.deliveries, len(tt.hub))
		})
	}
}

func TestTaskTellsTheNextAgent(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{
		ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Target: "a-9",
			Checkpoint: json.RawMessage(`{"at":7}`)}), completed(`1`)})
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	second := run.deliveries[1]
	require.JSONEq(t, `{"at":7}`, string(second.Checkpoint))
	require.Equal(t, "a-1", second.TransferredFrom)
	require.Equal(t, "a-9", second.PreferAgent)

	t.Log("whom the cluster's strategy chose is preferred, in the task's own lane")
	run = newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Prefer: "a-8"}),
		ended(contract.AttemptReport{Outcome: api.AttemptReturned, AgentID: "a-2"}), completed(`1`)})
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, "a-8", run.deliveries[2].PreferAgent)
	require.Equal(t, []string{"lane/default", "lane/default", "lane/default"}, run.queues)

	t.Log("a delivery that no agent began changes nothing, and the next that one began does")
	run = newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true}),
		ended(contract.AttemptReport{Outcome: api.AttemptReturned, AgentID: "a-2"}),
		ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true}), completed(`1`)})
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	var from []string
	for _, d := range run.deliveries {
		from = append(from, d.TransferredFrom)
	}
	require.Equal(t, []string{"", "a-1", "a-1", ""}, from)
}

// What a failover by hand took off its agent goes to the target's own lane, so that it finds the target at any hub, and
// then to any agent.
func TestTaskGoesToTheTargetsLane(t *testing.T) {
	t.Parallel()
	moved := ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Planned: true, Target: "a-9"})
	away := func(contract.RunTaskInput) (contract.AttemptReport, error) {
		return contract.AttemptReport{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	}
	run := newTask(t, script{moved, away, completed(`1`)})
	run.start(api.TaskSpec{})
	state := run.outcome(t)
	require.Equal(t, api.TaskCompleted, state.Status, state.Why)
	require.Equal(t, []string{"lane/default", "lane/default/agent/a-9", "lane/default"}, run.queues)
	require.Equal(t, api.AttemptReturned, state.Attempts[1].Outcome)
	require.Contains(t, state.Attempts[1].Reason, "a-9 did not take it")

	t.Log("what only one agent may run stays in that agent's lane")
	run = newTask(t, script{moved, completed(`1`)})
	run.start(api.TaskSpec{Agent: "a-1"})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, []string{"lane/default", "lane/default"}, run.queues)
}

// A task is cancelled in Temporal as it looks for another lane, just before it continues as new.
func TestTaskIsCancelledAsItContinuesAsNew(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptReturned, Unhandled: true})})
	run.onPlace = func() {
		run.SetContinueAsNewSuggested(true)
		run.CancelWorkflow()
	}
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCancelled, run.outcome(t).Status)
}

// A run that continues as new after a loss hands on what the next delivery tells of it.
func TestTaskContinuedAsNewTellsTheNextAgent(t *testing.T) {
	t.Parallel()
	noticed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Target: "a-9",
		NoticedAt: &noticed})})
	run.onDelivery(1, func() { run.SetContinueAsNewSuggested(true) })
	run.start(api.TaskSpec{})
	var continued *workflow.ContinueAsNewError
	require.ErrorAs(t, run.GetWorkflowError(), &continued)
	var input contract.TaskInput
	require.NoError(t, contract.Payloads.FromPayloads(continued.Input, &input))

	next := newTask(t, script{completed(`1`)})
	next.startInput(input)
	require.Equal(t, api.TaskCompleted, next.outcome(t).Status)
	second := next.deliveries[0]
	require.Equal(t, 2, second.Attempt)
	require.Equal(t, "a-1", second.TransferredFrom)
	require.Equal(t, "a-9", second.PreferAgent, "the target of a failover by hand")
	require.Equal(t, &noticed, second.LostAt)
}

func TestTaskFencedWaitsForTheLease(t *testing.T) {
	t.Parallel()
	lease := api.Duration(9 * time.Second)
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true,
		LeaseRemaining: &lease}), completed(`1`)})
	begun := run.Now()
	run.start(api.TaskSpec{RetrySafety: api.Fenced})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.GreaterOrEqual(t, run.Now().Sub(begun), 9*time.Second)
}

func TestTaskReview(t *testing.T) {
	t.Parallel()
	lost := ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true})
	tests := []struct {
		decision api.ReviewDecision
		hub      script
		status   api.TaskStatus
		result   string
	}{
		{api.ReviewRerun, script{lost, completed(`"again"`)}, api.TaskCompleted, `"again"`},
		{api.ReviewCompleted, script{lost}, api.TaskCompleted, `"by hand"`},
		{api.ReviewFailed, script{lost}, api.TaskFailed, ``},
		{api.ReviewAccept, script{lost}, api.TaskCompleted, `"late"`},
	}
	for _, tt := range tests {
		t.Run(string(tt.decision), func(t *testing.T) {
			t.Parallel()
			run := newTask(t, tt.hub)
			var retry, review, early, other, late, again *workflowtest.Answer
			run.RegisterDelayedCallback(func() {
				require.Equal(t, api.TaskReview, run.query(t).Status)
				retry = run.update(contract.RetryUpdate.Name, contract.RetryRequest{})
				bring := func(attempt int) *workflowtest.Answer {
					return run.update(contract.LateResultUpdate.Name, contract.LateResultRequest{LateResult: api.LateResult{
						Attempt: attempt, Outcome: api.AttemptCompleted, Result: json.RawMessage(`"late"`)}})
				}
				early = run.update(contract.ReviewUpdate.Name, contract.ReviewRequest{Decision: api.ReviewAccept})
				other, late, again = bring(2), bring(1), bring(1)
			}, 47*time.Hour)
			run.RegisterDelayedCallback(func() {
				require.Equal(t, `"late"`, string(run.query(t).Late.Result))
				review = run.update(contract.ReviewUpdate.Name,
					contract.ReviewRequest{Decision: tt.decision, Result: json.RawMessage(`"by hand"`)})
			}, 48*time.Hour)
			run.start(api.TaskSpec{RetrySafety: api.AtMostOnce})
			require.True(t, retry.Refused, "a task in review is no dead letter")
			require.True(t, early.Refused, "there is nothing to take yet")
			require.True(t, other.Refused, "it had no such attempt")
			require.False(t, late.Refused)
			require.True(t, again.Refused, "one is there")
			require.False(t, review.Refused)
			state := run.outcome(t)
			require.Nil(t, state.Late, "it is decided")
			require.Equal(t, tt.status, state.Status, "an at_most_once task waits for a person for as long as it takes")
			require.Equal(t, tt.result, string(state.Result))
			require.Len(t, run.deliveries, len(tt.hub))
		})
	}
}

func TestTaskDeadLetterIsRetried(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true,
		Reason: "disk full"}), completed(`1`)})
	run.RegisterDelayedCallback(func() {
		state := run.query(t)
		require.Equal(t, api.TaskDeadLetter, state.Status)
		require.Contains(t, state.Why, "disk full")
		run.update(contract.RetryUpdate.Name, contract.RetryRequest{})
	}, 24*time.Hour)
	run.start(api.TaskSpec{Retry: api.RetryPolicy{MaxAttempts: 1}})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, 2, run.deliveries[1].Attempt, "attempts are numbered on")
}

func TestTaskCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true})})
	run.RegisterDelayedCallback(func() {
		run.update(contract.CancelUpdate.Name,
			contract.CancelRequest{Reason: "not needed"})
	}, time.Second)
	run.start(api.TaskSpec{})
	state := run.outcome(t)
	require.Equal(t, api.TaskCancelled, state.Status)
	require.Equal(t, "not needed", state.Why)
}

func TestTaskExpires(t *testing.T) {
	t.Parallel()
	returned := ended(contract.AttemptReport{Outcome: api.AttemptReturned})
	run := newTask(t, script{returned, returned, returned, returned, returned, returned, returned, returned, returned,
		returned})
	run.start(api.TaskSpec{ExpiresIn: api.Duration(time.Second)})
	require.Equal(t, api.TaskExpired, run.outcome(t).Status)
}

// Only the wait for an agent expires: not the time an attempt ran, and not the backoff after it.
func TestTaskThatRanLongDoesNotExpire(t *testing.T) {
	t.Parallel()
	failed := ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true})
	run := newTask(t, script{failed, failed, completed(`1`)})
	run.start(api.TaskSpec{ExpiresIn: api.Duration(time.Second)})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status,
		"the backoffs of 2 s and 4 s are longer than expires_in")
}

// An expires_at holds between attempts too, until a person has the task run again.
func TestTaskExpiresAtItsTime(t *testing.T) {
	t.Parallel()
	failed := ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true})
	returned := ended(contract.AttemptReport{Outcome: api.AttemptReturned})
	run := newTask(t, script{returned, failed, failed, failed})
	begun := run.Now()
	run.start(api.TaskSpec{ExpiresAt: begun.Add(7 * time.Second)})
	state := run.outcome(t)
	require.Equal(t, api.TaskExpired, state.Status, "the backoffs of 2 s and 4 s end later")
	require.Equal(t, 2, state.Tried, "one was returned, and of two failures the second was too late for another")
	require.Contains(t, state.Why, "expired before an agent took it again")
	require.WithinDuration(t, begun.Add(7*time.Second), run.Now(), 2*time.Second)

	run = newTask(t, script{failed, failed, completed(`1`)})
	run.RegisterDelayedCallback(func() {
		run.update(contract.RetryUpdate.Name, contract.RetryRequest{})
	}, time.Minute)
	run.start(api.TaskSpec{ExpiresAt: run.Now().Add(30 * time.Second), Retry: api.RetryPolicy{MaxAttempts: 2}})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status, "retried after its time")
}

func (r *taskRun) query(t *testing.T) contract.TaskState {
	t.Helper()
	value, err := r.QueryWorkflow(contract.StatusQuery.Name)
	require.NoError(t, err)
	var state contract.TaskState
	require.NoError(t, value.Get(&state))
	return state
}

func (r *taskRun) update(name string, arg any) *workflowtest.Answer {
	a := &workflowtest.Answer{}
	r.UpdateWorkflow(name, "", a, arg)
	return a
}
