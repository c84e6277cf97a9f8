package task_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// Lists find a task by the agents that had it. The attribute costs no event of its own while one is written anyway, and
// none for attempts that never began or that one agent had again.
func TestAgentsThatHadATask(t *testing.T) {
	t.Parallel()
	lost := ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true})
	failed := ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true})
	returned := ended(contract.AttemptReport{Outcome: api.AttemptReturned})
	for name, c := range map[string]struct {
		hub   script
		spec  api.TaskSpec
		wants [][]string
	}{
		"completed at once":   {hub: script{completed(`1`)}, wants: [][]string{{"a-2"}}},
		"completed elsewhere": {hub: script{lost, returned, completed(`1`)}, wants: [][]string{{"a-1"}, {"a-1", "a-2"}}},
		"twice the same":      {hub: script{failed, failed, failed}, wants: [][]string{{"a-1"}}},
		"never begun": {hub: script{returned, returned},
			spec: api.TaskSpec{ExpiresIn: api.Duration(time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newTask(t, c.hub)
			var set [][]string
			run.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
				if agents, given := attributes.GetKeywordList(contract.AttrRanOn); given {
					set = append(set, agents)
				}
				return true
			})).Return(nil)
			run.startInput(contract.TaskInput{Spec: c.spec, DeadLetterRetention: api.Duration(time.Minute)})
			require.True(t, run.IsWorkflowCompleted())
			require.Equal(t, c.wants, set)
		})
	}
}

// A cancellation that its agent has not confirmed is seen, with who asked for it.
func TestCancellationUnderWayIsSeen(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	run := newTask(t, script{func(in contract.RunTaskInput) (contract.AttemptReport, error) {
		<-seen
		return completed(`1`)(in)
	}})
	var asked *workflowtest.Answer
	run.RegisterDelayedCallback(func() {
		asked = run.update(contract.CancelUpdate.Name, contract.CancelRequest{Reason: "enough",
			ForTask: contract.ForTask{By: "ops (k-1)"}})
	}, time.Millisecond)
	run.RegisterDelayedCallback(func() {
		defer close(seen)
		require.Equal(t, "ops (k-1)", run.query(t).Cancelling.By)
	}, 2*time.Millisecond)
	run.start(api.TaskSpec{})
	require.False(t, asked.Refused)
	require.Equal(t, contract.Done{}, asked.Value, "answers stay in the history")
	require.Nil(t, run.outcome(t).Cancelling)
}
