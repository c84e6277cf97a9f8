package job

// Actions are what a person can do to the run now.
func (l *Ledger) Actions() []RunAction {
	switch {
	case l.Status.Final():
		return []RunAction{RetryRun}
	case l.Cancel != nil:
		return nil
	case l.Paused != nil:
		return []RunAction{ResumeRun, CancelRun}
	}
	return []RunAction{PauseRun, CancelRun}
}

// StepActions are what a person can do to the run's steps now, by step: what Refuse does not refuse.
func (l *Ledger) StepActions() map[string][]StepAction {
	all := map[string][]StepAction{}
	for i := range l.Steps {
		step := l.Steps[i].Step
		for _, action := range []StepAction{ApproveStep, RejectStep, RetryStep, SkipStep, CompleteStep, FailStep} {
			if l.Refuse(step, action) == "" {
				all[step] = append(all[step], action)
			}
		}
	}
	return all
}
