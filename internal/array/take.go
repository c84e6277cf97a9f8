package array

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// End is how a bundle ended.
type End struct {
	task.AttemptEnd
	// Results are of the elements that ended on the agent.
	Results []api.ElementResult
	// Expired: no agent took it in time.
	Expired bool
}

// Take takes the end of a bundle. Each element's result counts once, and only from the bundle that it was in.
func (s *State) Take(d *Definition, array string, number int, end End, now time.Time) {
	i := slices.IndexFunc(s.flight, func(b Bundle) bool { return b.Number == number })
	if i < 0 {
		s.Duplicates += len(end.Results)
		return
	}
	b := s.flight[i]
	s.flight = slices.Delete(s.flight, i, i+1)
	if len(s.Stopped) > 0 && end.Outcome != api.AttemptCompleted {
		s.cancelRunning(b)
		return
	}
	unbegun := end.Outcome == api.AttemptReturned || !end.Begun && end.Outcome.Gone()
	switch {
	case end.Expired:
		for _, n := range b.Elements {
			s.end(n, api.ElementFailed, expired, "")
		}
		s.expire(d, now)
	case unbegun && !end.NotReceived:
		s.undelivered(d, array, b, end.AttemptEnd, now)
	case end.Outcome == api.AttemptCompleted:
		s.accept(d, array, b, end.Results, now)
	case b.Single():
		s.settle(d, array, b.Elements[0], end.AttemptEnd, now)
	default:
		s.undone(d, array, b, end.AttemptEnd, now)
	}
	if failed := s.Counts.Failed + s.Counts.DeadLetter; d.Tolerate != nil && failed > *d.Tolerate {
		s.Cancel(fmt.Sprintf("more than %d elements failed", *d.Tolerate))
	}
}

// accept takes the results of a bundle. Elements without a result were not done, and are delivered again.
func (s *State) accept(d *Definition, array string, b Bundle, results []api.ElementResult, now time.Time) {
	took, ended := int64(0), 0
	for i := range results {
		r := &results[i]
		if !slices.Contains(b.Elements, r.Number) || s.Marks.status(r.Number) != api.ElementRunning {
			s.Duplicates++
			continue
		}
		ended++
		took += r.Milliseconds
		if r.Outcome == api.AttemptCompleted {
			s.end(r.Number, api.ElementCompleted, "", "")
			continue
		}
		s.settle(d, array, r.Number, task.EndOfElement(r), now)
	}
	for _, n := range b.Elements {
		switch {
		case s.Marks.status(n) != api.ElementRunning:
		case s.Stopped != "":
			s.end(n, api.ElementCancelled, "", "")
		default:
			s.again(n, now)
		}
	}
	if ended == 0 {
		s.returned(d, array, task.AttemptEnd{Reason: "an agent handed a bundle back"}, now)
		return
	}
	s.taken(now)
	s.measure(took / int64(ended))
}

// taken notes that agents take deliveries.
func (s *State) taken(now time.Time) { s.Returns, s.HoldWhy, s.TakenAt = 0, "", now }

// undelivered delivers elements again that no agent took.
func (s *State) undelivered(d *Definition, array string, b Bundle, end task.AttemptEnd, now time.Time) {
	for _, n := range b.Elements {
		if b.Single() { // the next delivery has another number
			t := s.trouble(n)
			t.Attempts++
			s.Troubles.keep(t)
		}
		s.again(n, now)
	}
	if end.Unhandled && !b.Single() {
		s.Singles = singlesInARow // an agent that does not know bundles may take them
		return
	}
	s.returned(d, array, end, now)
}

// measure takes a time of elements into their mean.
func (s *State) measure(ms int64) {
	if s.Measured {
		ms = (3*s.Mean + ms) / 4
	}
	s.Mean, s.Measured = ms, true
}

// undone delivers the elements of a bundle of several that brought no results again.
func (s *State) undone(d *Definition, array string, b Bundle, end task.AttemptEnd, now time.Time) {
	gone := end.Outcome.Gone() || end.Outcome == api.AttemptTimedOut
	switch {
	case end.Outcome == api.AttemptFailed:
		for _, n := range b.Elements {
			s.settle(d, array, n, end, now)
		}
	case end.NotReceived, gone && end.Begun && !end.Planned && end.Outcome != api.AttemptMoved:
		s.halve(d, b, end, now)
	case gone && end.Begun:
		at := now
		if d.Spec.Safety() == api.Fenced {
			at = now.Add(end.Lease())
		}
		for _, n := range b.Elements {
			t := s.trouble(n)
			t.Attempts++
			t.At = at
			s.wait(t)
		}
	default:
		for _, n := range b.Elements {
			s.again(n, now)
		}
		s.returned(d, array, end, now)
	}
}

// halve delivers the elements of a lost bundle in smaller ones: nobody knows which of them ended the agent, if any did.
// A single element is a suspect, and may be lost once more before it is a dead letter.
func (s *State) halve(d *Definition, b Bundle, end task.AttemptEnd, now time.Time) {
	size := max(1, len(b.Elements)/4)
	at := now
	if d.Spec.Safety() == api.Fenced && end.Begun {
		at = now.Add(end.Lease())
	}
	for _, n := range b.Elements {
		t := s.trouble(n)
		t.Attempts++
		t.Size, t.At = size, at
		if size == 1 && end.Begun {
			t.Suspect, t.Tally.Losses = true, max(t.Tally.Losses, maxTransfers(d)-1)
		}
		s.blame(n, end.Reason, end.ErrorType)
		s.wait(t)
	}
}

// maxTransfers is how many losses an element survives.
func maxTransfers(d *Definition) int {
	return cmp.Or(d.Spec.Retry.MaxTransfers, api.DefaultMaxTransfers)
}

// settle decides about one element that did not complete.
func (s *State) settle(d *Definition, array string, n int, end task.AttemptEnd, now time.Time) {
	t := s.trouble(n)
	t.Attempts++
	next := task.Redeliver(&d.Spec, ElementID(array, n), t.Tally, end)
	t.Tally = next.Tally
	if end.Outcome == api.AttemptFailed || end.Outcome == api.AttemptTimedOut {
		t.Size, t.Suspect = 0, false // its agent lives
	}
	if end.Begun {
		s.taken(now)
	}
	switch next.Status {
	case api.TaskReview:
		s.end(n, api.ElementReview, next.Why, end.ErrorType)
		return
	case api.TaskDeadLetter:
		if t.Suspect && t.Tally.Losses > maxTransfers(d) { // that was set, not counted
			next.Why = fmt.Sprintf("lost with its agent again and again, at last alone, in %d attempts: it is taken for the "+
				"cause; last: %s", t.Attempts, end.Reason)
		}
		s.end(n, api.ElementDeadLetter, next.Why, end.ErrorType)
		return
	case api.TaskFailed:
		s.end(n, api.ElementFailed, next.Why, end.ErrorType)
		return
	}
	if t.Tally.Losses > 0 && t.Tally.Losses >= maxTransfers(d)-1 {
		t.Suspect, t.Size = true, 1
	}
	t.At = now.Add(next.Wait)
	s.blame(n, next.Why, end.ErrorType)
	s.wait(t)
}

// wait makes an element wait for another attempt.
func (s *State) wait(t trouble) {
	s.Troubles.keep(t)
	s.mark(t.Number, api.ElementRetryWait)
}

// again queues an element that an agent did not begin.
func (s *State) again(n int, now time.Time) {
	if t := s.Troubles.find(n); t != nil {
		t.At = now
		s.mark(n, api.ElementRetryWait)
		return
	}
	s.mark(n, api.ElementQueued)
}

// returned holds all deliveries for a while after bundles that no agent took.
func (s *State) returned(d *Definition, array string, end task.AttemptEnd, now time.Time) {
	end.Outcome = api.AttemptReturned
	next := task.Redeliver(&api.TaskSpec{}, array, task.Tally{Returns: s.Returns}, end)
	s.Returns = next.Tally.Returns
	s.HoldUntil, s.HoldWhy = now.Add(next.Wait), end.Reason
	s.expire(d, now)
}

// expired is why elements fail that no agent took.
const expired = "no agent took it in time"

// expire ends the waiting elements, if no agent has taken any for as long as they may wait.
func (s *State) expire(d *Definition, now time.Time) {
	if now.Sub(s.TakenAt) < d.Spec.ExpiresIn.Or(api.DefaultExpiration) {
		return
	}
	for n := range s.Marks {
		switch s.Marks.status(n) {
		case api.ElementQueued, api.ElementRetryWait:
			s.end(n, api.ElementFailed, expired, "")
		}
	}
}

// Resume restarts, after a pause, the time for which elements may wait for an agent.
func (s *State) Resume(now time.Time) { s.TakenAt = now }

// end ends an element, unless a person runs it again.
func (s *State) end(n int, status api.ElementStatus, why, kind string) {
	s.mark(n, status)
	s.Troubles.forget(n)
	s.blame(n, why, kind)
}

// Cancel ends what is not under way; the rest ends with its bundle.
func (s *State) Cancel(why string) {
	if s.Stopped != "" {
		return
	}
	s.Stopped = why
	for n := range s.Marks {
		switch s.Marks.status(n) {
		case api.ElementQueued, api.ElementRetryWait:
			s.end(n, api.ElementCancelled, "", "")
		}
	}
}

// CancelHeld ends the elements that wait for a person.
func (s *State) CancelHeld(why string) {
	s.Stopped = cmp.Or(s.Stopped, why)
	for n := range s.Marks {
		switch s.Marks.status(n) {
		case api.ElementReview, api.ElementDeadLetter:
			s.end(n, api.ElementCancelled, why, "")
		}
	}
}

// Abandon ends the elements under way of a cancelled array.
func (s *State) Abandon() {
	for _, b := range s.flight {
		s.cancelRunning(b)
	}
	s.flight = nil
}

// cancelRunning ends the elements of a bundle that was stopped.
func (s *State) cancelRunning(b Bundle) {
	for _, n := range b.Elements {
		s.end(n, api.ElementCancelled, "", "")
	}
}
