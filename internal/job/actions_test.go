package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

func TestWhatAPersonCanDo(t *testing.T) {
	t.Parallel()
	const approve, reject, retry, skip, complete, fail = api.ApproveStep, api.RejectStep, api.RetryStep, api.SkipStep,
		api.CompleteStep, api.FailStep
	for name, c := range map[string]struct {
		change func(l *job.Ledger, e *api.StepEntry)
		run    []api.RunAction
		step   []api.StepAction
	}{
		"has not begun": {func(*job.Ledger, *api.StepEntry) {}, []api.RunAction{api.PauseRun, api.CancelRun},
			[]api.StepAction{skip, complete, fail}},
		"runs": {func(_ *job.Ledger, e *api.StepEntry) { e.Begun, e.Status = true, api.StepRunning },
			[]api.RunAction{api.PauseRun, api.CancelRun}, nil},
		"failed, of a paused run": {func(l *job.Ledger, e *api.StepEntry) {
			e.Status, l.Paused = api.StepFailed, &api.RunPause{}
		}, []api.RunAction{api.ResumeRun, api.CancelRun}, []api.StepAction{retry, skip, complete}},
		"held": {func(_ *job.Ledger, e *api.StepEntry) {
			e.Begun = true
			job.FailEntry(e, api.FailHold, "out of paper", time.Time{})
		}, []api.RunAction{api.PauseRun, api.CancelRun}, []api.StepAction{retry, skip, complete, fail}},
		"waits for approval": {func(_ *job.Ledger, e *api.StepEntry) {
			e.Begun, e.Approval, e.Status, e.TaskID = true, true, api.StepBlocked, ""
		}, []api.RunAction{api.PauseRun, api.CancelRun}, []api.StepAction{approve, reject, skip, complete, fail}},
		"of a run that is being cancelled": {func(l *job.Ledger, _ *api.StepEntry) { l.Cancel = &api.Decision{} }, nil, nil},
		"of a run that has ended": {func(l *job.Ledger, e *api.StepEntry) {
			l.Status, e.Status = api.RunFailed, api.StepFailed
		}, []api.RunAction{api.RetryRun}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := api.StepEntry{Step: "a", StepWork: api.StepWork{Status: api.StepPending, TaskID: "r~a"}}
			l := &job.Ledger{Status: api.RunRunning, Steps: []api.StepEntry{e}}
			c.change(l, &l.Steps[0])
			require.Equal(t, c.run, l.Actions())
			require.Equal(t, c.step, l.StepActions()["a"])
		})
	}
}
