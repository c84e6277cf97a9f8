package job

import (
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// Reopen forgets what a step has done, and all steps that come after it, so that a run that takes the ledger over runs
// them again. It reports whether there is the step.
func (l *Ledger) Reopen(p *Plan, step string) bool {
	again := []string{step}
	for i := range p.Steps { // by level: a step stands behind those that it comes after
		s := &p.Steps[i]
		if slices.ContainsFunc(s.After, func(id string) bool { return slices.Contains(again, id) }) {
			again = append(again, s.ID)
		}
	}
	for _, id := range again {
		if e := l.Entry(id); e != nil {
			e.Status = api.StepPending
		}
	}
	return l.Entry(step) != nil
}

// TakeOver puts in the steps that are through in the ledger of a run that this one repeats.
func (l *Ledger) TakeOver(done *Ledger) {
	for i := range done.Steps {
		d := &done.Steps[i]
		if e := l.Entry(d.Step); e != nil && d.Status.Through() && !strings.HasPrefix(d.Why, runEnded) {
			*e = *d
		}
	}
}
