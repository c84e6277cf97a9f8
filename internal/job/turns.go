package job

import (
	"fmt"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// A step with tools has an element for each call of a tool. Its own task is delivered again for each turn, when those
// of the turn have ended.

// CallOf adds an element for a call of a tool. refused says why it is not made; empty: its task is to begin.
func CallOf(e *api.StepEntry, run, tool, refused string, now time.Time) (element int) {
	element = len(e.Elements)
	e.Elements = append(e.Elements, api.StepWork{Status: api.StepReady, Tool: tool})
	w := &e.Elements[element]
	if refused != "" {
		EndWork(w, api.StepFailed, refused, now)
	} else {
		w.TaskID = TaskID(run, ElementKey(e.Step, element))
	}
	e.Status, e.Why, e.EndedAt = api.StepQueued, "", nil
	return element
}

// TurnOf is how the newest calls of a step have ended: for each, why it brought no result, or nothing. problem is why
// the step fails for it; the model itself learns of errors that a tool reports and of calls that were not made. done is
// false while a call has not ended.
func TurnOf(e *api.StepEntry, calls int) (failures []string, problem string, done bool) {
	failures = make([]string, calls)
	first := len(e.Elements) - calls
	for i := range e.Elements[first:] {
		w := &e.Elements[first+i]
		if !w.Status.Final() {
			return nil, "", false
		}
		if w.Status != api.StepFailed {
			continue
		}
		failures[i] = w.Why
		if n := len(w.Attempts); w.TaskID != "" && (n == 0 || w.Attempts[n-1].ErrorType != task.ErrorTool) {
			problem = fmt.Sprintf("call %d, of the tool %s: %s", first+i, w.Tool, w.Why)
		}
	}
	return failures, problem, true
}

// NextTurn has the step's model asked again.
func NextTurn(e *api.StepEntry) {
	begun := e.StartedAt
	runAgain(e)
	e.Turns, e.StartedAt = e.Turns+1, begun
}

// WhyNoCalls is why the calls that the model asks for now are not made; empty if they are.
func WhyNoCalls(e *api.StepEntry, s *PlannedStep) string {
	if e.Turns+1 < s.Turns {
		return ""
	}
	return fmt.Sprintf("its model still calls tools in turn %d, and max_turns is %d: raise it, or have the step retried, "+
		"which goes on with as many turns again", e.Turns+1, s.Turns)
}
