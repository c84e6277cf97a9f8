package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/job"
)

func TestWhatAPersonCanDo(t *testing.T) {
	t.Parallel()
	const approve, reject, retry, skip, complete, fail = job.ApproveStep, job.RejectStep, job.RetryStep, job.SkipStep,
		job.CompleteStep, job.FailStep
	for name, c := range map[string]struct {
		change func(l *job.Ledger, e *job.Entry)
		run    []job.RunAction
		step   []job.StepAction
	}{
		"has not begun": {func(*job.Ledger, *job.Entry) {}, []job.RunAction{job.PauseRun, job.CancelRun},
			[]job.StepAction{skip, complete, fail}},
		"runs": {func(_ *job.Ledger, e *job.Entry) { e.Begun, e.Status = true, job.StepRunning },
			[]job.RunAction{job.PauseRun, job.CancelRun}, nil},
		"failed, of a paused run": {func(l *job.Ledger, e *job.Entry) {
			e.Status, l.Paused = job.StepFailed, &job.RunPause{}
		}, []job.RunAction{job.ResumeRun, job.CancelRun}, []job.StepAction{retry, skip, complete}},
		"held": {func(_ *job.Ledger, e *job.Entry) {
			e.Begun = true
			job.FailEntry(e, job.FailHold, "out of paper", time.Time{})
		}, []job.RunAction{job.PauseRun, job.CancelRun}, []job.StepAction{retry, skip, complete, fail}},
		"waits for approval": {func(_ *job.Ledger, e *job.Entry) {
			e.Begun, e.Approval, e.Status, e.TaskID = true, true, job.StepBlocked, ""
		}, []job.RunAction{job.PauseRun, job.CancelRun}, []job.StepAction{approve, reject, skip, complete, fail}},
		"of a run that is being cancelled": {func(l *job.Ledger, _ *job.Entry) { l.Cancel = &job.Decision{} }, nil, nil},
		"of a run that has ended": {func(l *job.Ledger, e *job.Entry) {
			l.Status, e.Status = job.RunFailed, job.StepFailed
		}, []job.RunAction{job.RetryRun}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := job.Entry{Step: "a", Work: job.Work{Status: job.StepPending, TaskID: "r~a"}}
			l := &job.Ledger{Status: job.RunRunning, Steps: []job.Entry{e}}
			c.change(l, &l.Steps[0])
			require.Equal(t, c.run, l.Actions())
			require.Equal(t, c.step, l.StepActions()["a"])
		})
	}
}
