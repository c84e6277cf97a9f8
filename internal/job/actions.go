package job

import (
	"mainstay.dev/sdk/api"
)

// Actions are what a person can do to the run now.
func (l *Ledger) Actions() []api.RunAction {
	switch {
	case l.Status.Final():
		return []api.RunAction{api.RetryRun}
	case l.Cancel != nil:
		return nil
	case l.Paused != nil:
		return []api.RunAction{api.ResumeRun, api.CancelRun}
	}
	return []api.RunAction{api.PauseRun, api.CancelRun}
}

// StepActions are what a person can do to the run's steps now, by step: what Refuse does not refuse.
func (l *Ledger) StepActions() map[string][]api.StepAction {
	all := map[string][]api.StepAction{}
	for i := range l.Steps {
		step := l.Steps[i].Step
		for _, action := range []api.StepAction{api.ApproveStep, api.RejectStep, api.RetryStep, api.SkipStep,
			api.CompleteStep, api.FailStep} {
			if l.Refuse(step, action) == "" {
				all[step] = append(all[step], action)
			}
		}
	}
	return all
}
