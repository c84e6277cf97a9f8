package task_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// TestRecoveryPlacesAttempts is about where the attempts of a task with a recovery go, and when.
func TestRecoveryPlacesAttempts(t *testing.T) {
	t.Parallel()
	failed := ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, Reason: "disk full"})
	lost := ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Reason: "lost"})
	drained := ended(contract.AttemptReport{Outcome: api.AttemptMoved, Begun: true, Planned: true})
	busy := ended(contract.AttemptReport{Outcome: api.AttemptReturned, Unhandled: true})
	const own, lane = "lane/default/agent/a-1", "lane/default"
	few := api.RecoveryPolicy{Attempts: new(2), Delay: api.Duration(time.Second), MaxDelay: api.Duration(time.Hour)}
	for name, c := range map[string]struct {
		recovery api.Recovery
		hub      script
		queues   []string
		after    time.Duration // from the first delivery to the end
		excluded []string      // from the last delivery
	}{
		"restarts, then another agent": {api.Recovery{Restart: &few}, script{failed, failed, failed, completed("1")},
			[]string{lane, own, own, lane}, 8 * time.Second, []string{"a-1"}},
		"another agent": {api.Recovery{}, script{lost, completed("1")}, []string{lane, lane}, 0,
			[]string{"a-1"}},
		"stays excluded while none takes it": {api.Recovery{}, script{lost, busy, busy, completed("1")},
			[]string{lane, lane, lane, lane}, -1, []string{"a-1"}},
		"stays on its agent": {api.Recovery{Mode: api.LocalRestart}, script{lost, failed, drained, completed("1")},
			[]string{lane, own, own, own}, time.Second, nil},
		"goes on after a drain": {api.Recovery{}, script{drained, completed("1")}, []string{lane, lane}, 0, nil},
		"waits for the window": {api.Recovery{Mode: api.LocalRestart, Restart: &api.RecoveryPolicy{Attempts: new(1),
			Interval: api.Duration(10 * time.Second), Mode: api.ExhaustedDelay}},
			script{failed, failed, completed("1")}, []string{lane, own, own}, 11 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newTask(t, c.hub)
			begun := run.Now()
			run.start(api.TaskSpec{Recovery: &c.recovery})
			state := run.outcome(t)
			require.Equal(t, api.TaskCompleted, state.Status, state.Why)
			require.Equal(t, c.queues, run.queues)
			require.Equal(t, c.excluded, run.deliveries[len(run.deliveries)-1].Exclude)
			if c.after >= 0 {
				require.InDelta(t, c.after, run.Now().Sub(begun), float64(50*time.Millisecond))
			}
			require.Equal(t, "a-1", state.PolicyState.Agent)
		})
	}
}

// TestLostOnItsWayToItsOwnAgent: a delivery that is lost before any agent has it says no agent's name. One to a single
// agent goes there again.
func TestLostOnItsWayToItsOwnAgent(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{func(contract.RunTaskInput) (contract.AttemptReport, error) {
		return contract.AttemptReport{}, temporal.NewNonRetryableApplicationError("attempt", contract.AttemptFailure, nil,
			contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Reason: "its hub died"})
	}, completed("1")})
	run.start(api.TaskSpec{Agent: "a-1", RetrySafety: api.Fenced, Recovery: &api.Recovery{Mode: api.LocalRestart}})
	state := run.outcome(t)
	require.Equal(t, api.TaskCompleted, state.Status, state.Why)
	require.Equal(t, "lane/default/agent/a-1", run.queues[1])
}

// TestCancelledInstanceMayGoOn: a job learns until when fenced work may go on that was cancelled after its agent was
// lost.
func TestCancelledInstanceMayGoOn(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true,
		Reason: "its hub died"})})
	begun := run.Now()
	var told contract.InstanceEnded
	run.OnSignalExternalWorkflow(mock.Anything, contract.JobWorkflowID("j"), "", contract.InstanceEndedSignal.Name,
		mock.Anything).Run(func(args mock.Arguments) { told = args.Get(4).(contract.InstanceEnded) }).Return(nil)
	run.RegisterDelayedCallback(func() { run.update(contract.CancelUpdate.Name, contract.CancelRequest{}) }, time.Second)
	run.ExecuteWorkflow(contract.TaskWorkflow, contract.TaskInput{TaskID: "t-1", Lane: "lane/default",
		Spec:     api.TaskSpec{Type: "echo", Cluster: "default", RetrySafety: api.Fenced, KeepRunning: true},
		Instance: &api.InstanceOf{Job: "j", Name: "a", Kind: "system"}})
	require.Equal(t, api.TaskCancelled, run.outcome(t).Status)
	require.InDelta(t, task.UnknownLease, told.GoesOnUntil.Sub(begun), float64(50*time.Millisecond))
}

// TestServiceBeginsAgain: work without end begins again when it ends, on its agent, for as long as it takes.
func TestServiceBeginsAgain(t *testing.T) {
	t.Parallel()
	hub := script{completed("1"), completed("2"), completed("3")}
	run := newTask(t, append(hub, ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, Final: true,
		Reason: "no such command"})))
	run.start(api.TaskSpec{KeepRunning: true})
	state := run.outcome(t)
	require.Equal(t, api.TaskFailed, state.Status, "a final failure ends it")
	require.Equal(t, []string{"lane/default", "lane/default/agent/a-2", "lane/default/agent/a-2",
		"lane/default/agent/a-2"}, run.queues)
	require.Len(t, state.PolicyState.Restarts, 3)
	require.Empty(t, state.Result)
}

// TestManualRecovery waits for a person, who may have it run again.
func TestManualRecovery(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true}), completed("1")})
	run.RegisterDelayedCallback(func() {
		state := run.query(t)
		require.Equal(t, api.TaskReview, state.Status)
		require.Equal(t, api.ActionReview, state.PolicyState.NextAction)
		run.update(contract.ReviewUpdate.Name, contract.ReviewRequest{Decision: api.ReviewRerun})
	}, time.Hour)
	run.start(api.TaskSpec{Recovery: &api.Recovery{Mode: api.ManualRecover}})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
}

// TestDamagedCheckpoint waits for a person; when it runs again, it begins anew.
func TestDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{
		ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Checkpoint: json.RawMessage("7"),
			CheckpointDigest: "other"}),
		ended(contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, ErrorType: api.ErrorTypeCheckpoint}),
		completed("1"),
	})
	run.RegisterDelayedCallback(func() {
		require.Equal(t, api.TaskReview, run.query(t).Status)
		run.update(contract.ReviewUpdate.Name, contract.ReviewRequest{Decision: api.ReviewRerun})
	}, time.Hour)
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, "other", run.deliveries[1].CheckpointDigest)
	require.Empty(t, run.deliveries[2].Checkpoint)
	require.Empty(t, run.deliveries[2].CheckpointDigest)
}

// TestLostCheckpoint waits for a person; when it runs again, it begins with the one that is left.
func TestLostCheckpoint(t *testing.T) {
	t.Parallel()
	run := newTask(t, script{
		ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Checkpoint: json.RawMessage("7"),
			CheckpointDigest: "seven"}),
		ended(contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, CheckpointDigest: "large"}),
		completed("1"),
	})
	run.RegisterDelayedCallback(func() {
		state := run.query(t)
		require.Equal(t, api.TaskReview, state.Status)
		require.Contains(t, state.Why, "its newest checkpoint was lost")
		run.update(contract.ReviewUpdate.Name, contract.ReviewRequest{Decision: api.ReviewRerun})
	}, time.Hour)
	run.start(api.TaskSpec{})
	require.Equal(t, api.TaskCompleted, run.outcome(t).Status)
	require.Equal(t, "7", string(run.deliveries[2].Checkpoint))
	require.Equal(t, "seven", run.deliveries[2].CheckpointDigest)
}
