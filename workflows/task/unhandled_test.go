package task_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// marks records each change of the task's mark.
func (r *taskRun) marks() *[]string {
	var marks []string
	r.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		mark, _ := attributes.GetKeyword(contract.AttrStatus)
		if _, since := attributes.GetTime(contract.AttrStatusAt); since {
			mark += " since"
		}
		if mark != "" || len(marks) > 0 && marks[len(marks)-1] != "" {
			marks = append(marks, mark)
		}
		return true
	})).Return(nil)
	return &marks
}

func TestTaskThatNobodyHandlesIsMarkedUntilAnAgentHadIt(t *testing.T) {
	t.Parallel()
	nobody := ended(contract.AttemptReport{Outcome: api.AttemptReturned, Reason: "no agent here has a handler",
		Unhandled: true})
	busy := ended(contract.AttemptReport{Outcome: api.AttemptReturned, Reason: "every agent that can run it is busy"})
	failed := ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, Reason: "exit code 1"})
	for name, c := range map[string]struct {
		hub    script
		status api.TaskStatus
		marks  []string
	}{
		"soon handled": {script{nobody, nobody, completed(`1`)}, api.TaskCompleted, nil},
		"marked once": {script{nobody, nobody, nobody, nobody, nobody, completed(`1`)}, api.TaskCompleted,
			[]string{"unhandled since", ""}},
		"busy does not handle it": {script{nobody, nobody, nobody, busy, nobody, completed(`1`)}, api.TaskCompleted,
			[]string{"unhandled since", ""}},
		"busy": {script{busy, busy, busy, busy, busy, completed(`1`)}, api.TaskCompleted, nil},
		"an agent had it": {script{nobody, nobody, nobody, failed, completed(`1`)}, api.TaskCompleted,
			[]string{"unhandled since", ""}},
		"again": {script{nobody, nobody, nobody, failed, nobody, nobody, nobody, completed(`1`)},
			api.TaskCompleted, []string{"unhandled since", "", "unhandled since", ""}},
		"failed": {script{nobody, nobody, nobody,
			ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true,
				Final: true})}, api.TaskFailed, []string{"unhandled since", "", "failed since"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newTask(t, c.hub)
			marks := run.marks()
			run.start(api.TaskSpec{ExpiresIn: api.Duration(time.Hour)})
			require.Equal(t, c.status, run.outcome(t).Status)
			require.Equal(t, c.marks, *marks)
		})
	}
}

// TestWokenTask is offered again as soon as an agent joined, not when its wait is over.
func TestWokenTask(t *testing.T) {
	t.Parallel()
	no := ended(contract.AttemptReport{Outcome: api.AttemptReturned, Unhandled: true})
	run := newTask(t, script{no, no, no, no, no, no, no, no, completed("1")})
	begun := run.Now()
	const joined = 55 * time.Second
	run.RegisterDelayedCallback(func() {
		require.Len(t, run.deliveries, 7, "it waits 30 s now")
		run.SignalWorkflow(contract.WakeSignal.Name, contract.None{})
	}, joined)
	run.RegisterDelayedCallback(func() {
		require.Len(t, run.deliveries, 8)
		run.SignalWorkflow(contract.WakeSignal.Name, contract.None{})
	}, joined+time.Second)
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, joined+time.Second, run.Now().Sub(begun).Round(time.Second))
}

// TestOneOfManyThatNobodyHandles waits for its turn, is marked at once, and expires in time.
func TestOneOfManyThatNobodyHandles(t *testing.T) {
	t.Parallel()
	turn := func(wait time.Duration) func(contract.RunTaskInput) (contract.AttemptReport, error) {
		return ended(contract.AttemptReport{Outcome: api.AttemptReturned, Unhandled: true,
			RetryAfter: api.Duration(wait)})
	}
	run := newTask(t, script{turn(3 * time.Minute), turn(9 * time.Minute)})
	marks, begun := run.marks(), run.Now()
	run.start(api.TaskSpec{ExpiresIn: api.Duration(5 * time.Minute)})
	require.Equal(t, api.TaskExpired, run.outcome(t).Status)
	require.Len(t, run.deliveries, 2)
	require.Equal(t, 5*time.Minute, run.Now().Sub(begun).Round(time.Second))
	require.Equal(t, "unhandled since", (*marks)[0])
}

// TestUnhandledTaskIsPlacedAgain waits in the lane of its type once that has one.
func TestUnhandledTaskIsPlacedAgain(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptReturned, Unhandled: true}),
		ended(contract.AttemptReport{Outcome: api.AttemptReturned}), completed("1")})
	run.place = "lane/default/type/echo"
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, []string{"lane/default", run.place, run.place}, run.queues)
}
