package array

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"mainstay.dev/sdk/api"
)

// Open reports whether elements are under way or to be delivered.
func (s *State) Open() bool { return openOf(&s.Counts) > 0 }

// Held reports whether elements wait for a person.
func (s *State) Held() bool { return s.Counts.Review+s.Counts.DeadLetter > 0 }

// Outcome is how an array with nothing open ends; cancelled: a person has cancelled it.
func (s *State) Outcome(d *Definition, cancelled bool) (api.ArrayStatus, string) {
	failed := s.Counts.Failed + s.Counts.DeadLetter + s.Counts.Review
	switch {
	case cancelled:
		return api.ArrayCancelled, s.Stopped
	case s.Stopped != "":
		return api.ArrayFailed, s.Stopped
	case failed == 0:
		return api.ArrayCompleted, ""
	case d.Tolerate != nil && failed <= *d.Tolerate:
		return api.ArrayPartial, fmt.Sprintf("%d of %d elements failed, %d are tolerated", failed, s.Counts.Total, *d.Tolerate)
	}
	return api.ArrayFailed, fmt.Sprintf("%d of %d elements failed", failed, s.Counts.Total)
}

// MayRetry refuses a retry that would do nothing. elements are numbers; none: all dead letters.
func (s *State) MayRetry(elements []int) error {
	if len(elements) == 0 && s.Counts.DeadLetter == 0 {
		return errors.New("the array has no dead letters: name the elements to run again")
	}
	for _, n := range elements {
		if n < 0 || n >= len(s.Marks) {
			return errors.New("the array has no such element")
		}
		switch s.Marks.status(n) {
		case api.ElementDeadLetter, api.ElementReview, api.ElementFailed:
		default:
			return fmt.Errorf("only dead letters, reviews and failed elements run again: one of them is %s",
				s.Marks.status(n))
		}
	}
	return nil
}

// Retry gives elements a fresh set of attempts: those named, or all dead letters.
func (s *State) Retry(elements []int) {
	s.Base = s.Bundles // beyond the number of any attempt so far
	if len(elements) == 0 {
		for n := range s.Marks {
			if s.Marks.status(n) == api.ElementDeadLetter {
				elements = append(elements, n)
			}
		}
	}
	for _, n := range elements {
		switch s.Marks.status(n) {
		case api.ElementDeadLetter, api.ElementReview, api.ElementFailed: // others were named before
			s.blame(n, "", "")
			s.mark(n, api.ElementQueued)
		}
	}
}

// Elements are at most limit elements from a number on, of a status or of any, and the number to go on from; 0: there
// are no more.
func (s *State) Elements(array string, status api.ElementStatus, from, limit int) (found []api.ElementEntry, next int) {
	for n := max(0, from); n < len(s.Marks); n++ {
		if status != "" && s.Marks.status(n) != status {
			continue
		}
		if len(found) == limit {
			return found, n
		}
		found = append(found, s.element(array, n))
	}
	return found, 0
}

// element describes an element.
func (s *State) element(array string, n int) api.ElementEntry {
	e := api.ElementEntry{Number: n, TaskID: ElementID(array, n), Status: s.Marks.status(n)}
	if i, ok := slices.BinarySearchFunc(s.Causes, n, func(c Cause, n int) int { return c.Number - n }); ok {
		e.Why, e.Type = s.Causes[i].Text, s.Causes[i].Type
	}
	switch e.Status {
	case api.ElementRetryWait:
		if at := s.trouble(n).At; !at.IsZero() {
			e.NextAt = &at
		}
	case api.ElementRunning:
		for _, b := range s.flight {
			if slices.Contains(b.Elements, n) {
				e.Delivery = b.TaskID(array)
				e.Why = fmt.Sprintf("in delivery %d, with %d other elements", b.Number, len(b.Elements)-1)
			}
		}
	case api.ElementQueued:
		e.Why = fmt.Sprintf("%d elements are under way, %d are ahead of it", s.Counts.Running,
			bytes.Count(s.Marks[:n], []byte{'q'}))
	}
	return e
}
