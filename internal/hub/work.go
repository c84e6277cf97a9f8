package hub

import (
	"time"

	"mainstay.dev/sdk/api"
)

// work is what an agent has to do, and what it has not let go of.
type work struct {
	attempts  map[attemptKey]*attempt
	outbox    []*attempt // assigned, not yet in a poll's answer
	leftovers map[attemptKey]*leftover
	// complainedAt is when the log last got a warning that a handler does not stop.
	complainedAt time.Time
	busy         bool
	ever         bool      // it has ever reported an attempt of its own
	lastAt       time.Time // when it last had work, or its session was opened
}

// mark records when there last was work.
func (w *work) mark(now time.Time) {
	had := w.busy
	w.busy = len(w.attempts)+w.occupied() > 0
	if had || w.busy {
		w.lastAt = now
	}
}

// occupied is how many slots the leftovers keep.
func (w *work) occupied() int {
	n := 0
	for _, l := range w.leftovers {
		if l.occupies {
			n++
		}
	}
	return n
}

// stuck counts the handlers that do not stop although the agent was commanded to: as it reports, or as its lists show.
func (w *work) stuck(now time.Time) int {
	n := 0
	for _, l := range w.leftovers {
		if l.stuck || l.occupies && !l.since.IsZero() && now.Sub(l.since) > endingAllowance {
			n++
		}
	}
	return n
}

// eachAllocation calls do with what each attempt, and each handler that is left over, has of the agent's resources.
func (w *work) eachAllocation(do func(*api.Allocation)) {
	for _, a := range w.attempts {
		if a.Allocation != nil {
			do(a.Allocation)
		}
	}
	for _, l := range w.leftovers {
		if l.allocation != nil {
			do(l.allocation)
		}
	}
}

// poisoned reports whether the agent runs a task that was lost with several agents before.
func (w *work) poisoned() bool {
	for _, a := range w.attempts {
		if a.mayHaveBegun() && a.input.Tally.Poisonous() {
			return true
		}
	}
	return false
}

// awaited reports whether the agent has an attempt that its drain waits for.
func (w *work) awaited(includeSystem bool) bool {
	for _, a := range w.attempts {
		if includeSystem || !a.JobInstance.OfEachAgent() {
			return true
		}
	}
	return false
}
