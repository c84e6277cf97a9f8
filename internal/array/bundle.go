package array

import (
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// bundleTime is how long a bundle should take: neither a tail nor another array's wait is much longer.
	bundleTime = time.Second
	// firstBundle is the size of bundles before it is known how long elements take.
	firstBundle = 4
	// bundleBytes bounds the payloads of a bundle, unless it has one element.
	bundleBytes = 256 << 10
	// mostWaiting is how many elements may wait for another attempt before no new element begins: each one's trouble is
	// carried over continue-as-new. Those under way may join them, MaxParallel·api.MaxBundle at most.
	mostWaiting = 500
	// singlesInARow is how many elements are delivered one by one after a bundle that no agent could take.
	singlesInARow = 64
	// returnsFree is how many deliveries in a row agents may not take before they are tried one at a time.
	returnsFree = 3
)

// Begin takes the next bundle that may begin. It reports false when none may before Wake.
func (s *State) Begin(d *Definition, now time.Time) (Bundle, bool) {
	if s.Stopped != "" || len(s.flight) >= s.parallel(d) || now.Before(s.HoldUntil) {
		return Bundle{}, false
	}
	if s.TakenAt.IsZero() {
		s.TakenAt = now
	}
	elements, suspect := s.due(d, now)
	if len(elements) == 0 && s.Troubles.count < mostWaiting {
		elements = s.fresh(d)
	}
	if len(elements) == 0 {
		return Bundle{}, false
	}
	s.Bundles++
	s.Singles = max(0, s.Singles-1)
	b := Bundle{Number: s.Bundles, Elements: elements, suspect: suspect}
	for _, n := range elements {
		b.Attempts = append(b.Attempts, s.trouble(n).Attempts+1)
		s.mark(n, api.ElementRunning)
	}
	s.flight = append(s.flight, b)
	return b, true
}

// parallel is how many bundles may be under way: one, to try, while agents take none.
func (s *State) parallel(d *Definition) int {
	if s.Returns > returnsFree {
		return 1
	}
	return d.parallel()
}

// size is how many elements the next bundle has at most.
func (s *State) size(d *Definition) int {
	switch {
	case d.oneByOne() || s.Singles > 0:
		return 1
	case !s.Measured:
		return firstBundle
	}
	return int(min(max(bundleTime.Milliseconds()/max(s.Mean, 1), 1), api.MaxBundle))
}

// due are elements that are delivered again together, lowest first, and whether they are a suspect. A suspect is
// delivered when no other element may have ended an agent that has it too.
func (s *State) due(d *Definition, now time.Time) (elements []int, suspect bool) {
	size, limit, bytes := s.size(d), 0, 0
	judging := slices.ContainsFunc(s.flight, func(b Bundle) bool { return b.suspect })
	halved := s.Troubles.halved > 0
	for t := range s.Troubles.all() {
		bound := size
		if t.Size > 0 {
			bound = min(size, t.Size)
		}
		switch {
		case s.Marks.status(t.Number) != api.ElementRetryWait || now.Before(t.At):
			continue
		case t.Suspect && (judging || halved), t.Size > 1 && judging:
			continue
		case len(elements) == 0:
			limit, suspect = bound, t.Suspect
		case bound != limit || bytes+len(d.Payload(t.Number)) > bundleBytes:
			continue
		}
		elements, bytes = append(elements, t.Number), bytes+len(d.Payload(t.Number))
		if len(elements) >= limit {
			break
		}
	}
	return elements, suspect
}

// fresh are elements that are delivered for the first time, or that an agent left undone.
func (s *State) fresh(d *Definition) (elements []int) {
	size, bytes := s.size(d), 0
	for n := s.Low; n < len(s.Marks) && len(elements) < size; n++ {
		if s.Marks.status(n) != api.ElementQueued {
			if n == s.Low {
				s.Low++
			}
			continue
		}
		bytes += len(d.Payload(n))
		if len(elements) > 0 && bytes > bundleBytes {
			break
		}
		elements = append(elements, n)
	}
	return elements
}

// Wake is when Begin may find more without a result; the zero time: not before one.
func (s *State) Wake(d *Definition, now time.Time) (at time.Time) {
	if s.Stopped != "" || s.Counts.Queued == 0 || len(s.flight) >= s.parallel(d) {
		return at
	}
	if now.Before(s.HoldUntil) {
		return s.HoldUntil
	}
	for t := range s.Troubles.all() {
		if s.Marks.status(t.Number) == api.ElementRetryWait && t.At.After(now) && (at.IsZero() || t.At.Before(at)) {
			at = t.At
		}
	}
	return at
}

// UnderWay is the number of bundles that are in lanes or with agents.
func (s *State) UnderWay() int { return len(s.flight) }

// Flying are the bundles that are in lanes or with agents: how many elements each has, by its task id.
func (s *State) Flying(array string) map[string]int {
	flying := make(map[string]int, len(s.flight))
	for i := range s.flight {
		flying[s.flight[i].TaskID(array)] = len(s.flight[i].Elements)
	}
	return flying
}
