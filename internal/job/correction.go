package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// Correct takes a result that the step's check did not accept: its task runs again with what is wrong, or the step
// waits for a person, or fails. A result about which there is no verdict is not corrected. It reports whether a person
// has to decide.
func (l *Ledger) Correct(
	s *PlannedStep, wrong []string, noVerdict bool, result json.RawMessage, now time.Time,
) (escalated bool) {
	e, c := l.Entry(s.ID), api.Correction{Errors: l.brief(wrong), Output: WholeOutput(result), At: now}
	if n := len(e.Attempts); n > 0 {
		c.Attempt = e.Attempts[n-1].Number
	}
	if l.OutputBytes()+len(c.Output) > MaxOutputsBytes {
		c.Output = nil
	}
	e.Corrections = append(e.Corrections, c)
	if !noVerdict && len(e.Corrections)-e.Forgiven <= s.Check.Correct.Attempts {
		runAgain(e)
		e.IdempotencyKey = IdempotencyKey(e.TaskID, fmt.Sprint("c", len(e.Corrections)+1))
		return false
	}
	why := api.Shorten(strings.Join(wrong, "; "), maxErrorLength)
	if !noVerdict {
		why = "its result is not valid: " + why
	}
	if s.Check.Exhausted == api.CheckExhaustedFail {
		FailEntry(e, s.OnFailure, why, now)
		return false
	}
	FailEntry(e, api.FailHold, why, now)
	return true
}

// brief is the part of a verdict's errors that the run keeps: a quarter of the room that is left for all of them, so
// that its ledger fits into a message of Temporal's.
func (l *Ledger) brief(wrong []string) (kept []string) {
	left := errorBytes
	for i := range l.Steps {
		for _, c := range l.Steps[i].Corrections {
			left -= len(strings.Join(c.Errors, ""))
		}
	}
	left = max(left/4, leastErrorBytes)
	for _, e := range wrong {
		if left <= 0 {
			break
		}
		e = api.Shorten(e, left)
		kept, left = append(kept, e), left-len(e)
	}
	return kept
}

// runAgain has the step's task run again.
func runAgain(e *api.StepEntry) {
	e.StepWork = api.StepWork{Status: api.StepPending, TaskID: e.TaskID, Attempts: e.Attempts}
	if e.Counts != nil { // else they are calls of tools, which are not made again
		e.Elements = nil
	}
	e.Begun, e.Counts, e.Array = false, nil, ""
	if e.Verdict != nil {
		*e.Verdict = api.StepWork{Status: api.StepPending, TaskID: e.Verdict.TaskID, Attempts: e.Verdict.Attempts}
	}
}

// Bounds of the errors in a verdict.
const (
	maxErrors      = 32
	maxErrorLength = 1000
	// errorBytes bounds what a run keeps of them together; leastErrorBytes are kept of each result all the same.
	errorBytes, leastErrorBytes = 128 << 10, 100
)

// ReadVerdict reads the result of a task that checked a result, {valid, errors}; that of a model has it as output, that
// of a command as complete_step. problem says why it is no verdict.
//
//workflowcheck:ignore
func ReadVerdict(result json.RawMessage) (wrong []string, problem string) {
	type says struct {
		Valid  *bool    `json:"valid"`
		Errors []string `json:"errors"`
	}
	result, _, legacy := Completion(result)
	if legacy != nil {
		return nil, legacy.Error()
	}
	var model struct {
		says
		Output says `json:"output"`
	}
	err := json.Unmarshal(result, &model)
	verdict := model.says
	if verdict.Valid == nil {
		verdict = model.Output
	}
	switch {
	case err != nil || verdict.Valid == nil:
		return nil, "its result is not {valid, errors}"
	case *verdict.Valid:
		return nil, ""
	case len(verdict.Errors) == 0:
		return []string{"the check did not say what is wrong"}, ""
	}
	for _, e := range verdict.Errors[:min(maxErrors, len(verdict.Errors))] {
		if len(e) > maxErrorLength {
			e = strings.ToValidUTF8(e[:maxErrorLength], "")
		}
		wrong = append(wrong, e)
	}
	return wrong, ""
}

// CorrectionOf is the result that an attempt brought and the check did not accept; nil for none.
func CorrectionOf(e *api.StepEntry, attempt int) *api.Correction {
	for i := range e.Corrections {
		if e.Corrections[i].Attempt == attempt {
			return &e.Corrections[i]
		}
	}
	return nil
}

// WithFeedback is a task's payload with what was wrong with its results so far, as "feedback", and with a person's
// note. A payload that is no object becomes the field "payload" of one.
//
//workflowcheck:ignore
func WithFeedback(e *api.StepEntry, payload json.RawMessage) json.RawMessage {
	if len(e.Corrections) == 0 {
		return payload
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(payload, &object) != nil || object == nil {
		object = map[string]json.RawMessage{}
		if len(payload) > 0 {
			object["payload"] = payload
		}
	}
	feedback := slices.Clone(e.Corrections)
	for i := range feedback[:max(0, len(feedback)-MaxCorrections-1)] {
		feedback[i].Errors, feedback[i].Output = nil, nil // of before a person had it run again; their number counts
	}
	var err error
	if object["feedback"], err = json.Marshal(feedback); err != nil {
		return payload
	}
	if e.Note != "" {
		if object["note"], err = json.Marshal(e.Note); err != nil {
			return payload
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return payload
	}
	return text
}
