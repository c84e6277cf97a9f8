package run

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// A run continues as new before its history is longer than Temporal takes.

const (
	// quietEvents and quietBytes are how long the history may be before nothing new begins until the run can continue
	// as new. Temporal terminates a workflow whose history has 50 MiB.
	quietEvents, quietBytes = 10_000, 16 << 20
	// fullEvents and fullBytes are how long it may be while the run cannot continue as new, for what its steps hold.
	// Then a step ends. Temporal terminates a workflow with 51,200 events, too.
	fullEvents, fullBytes = 40_000, 42 << 20
	// attemptBytes is how many bytes the end of an attempt may add to the history, with a result of the default limit.
	// underWayBytes bounds that of all attempts under way, and so does what is left until mostBytes.
	attemptBytes, underWayBytes, mostBytes = 256 << 10, 28 << 20, 46 << 20
	// carriedBytes bounds the results that a run hands over when it continues as new, and mostCarried those of one
	// whose history is large: what Temporal takes.
	carriedBytes, mostCarried = 512 << 10, 2 << 20
	// turnBytes is how large the answer to one workflow task may be before the rest waits for the next: Temporal ends
	// a workflow with an answer of more than 4 MiB.
	turnBytes = 2 << 20
)

// full reports whether the answer to the present workflow task is so large that nothing more may be added to it.
func (r *run) full(ctx workflow.Context) bool {
	if now := workflow.GetInfo(ctx).GetCurrentHistoryLength(); now != r.turnAt {
		r.turnAt, r.turn = now, 0
	}
	return r.turn > turnBytes
}

// nextTurn waits for the next workflow task.
func (r *run) nextTurn(ctx workflow.Context) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Sleep(ctx, time.Millisecond)
	r.turn = 0
}

// long reports whether the history is so long that nothing new begins until the run can continue as new.
func (r *run) long(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetCurrentHistoryLength() > quietEvents || info.GetCurrentHistorySize() > quietBytes
}

// endLargest ends the step that holds most, if the history is nearly full and what steps hold keeps the run from
// continuing as new.
func (r *run) endLargest(ctx workflow.Context) {
	if r.quiet {
		return
	}
	info := workflow.GetInfo(ctx)
	if info.GetCurrentHistorySize() < fullBytes && info.GetCurrentHistoryLength() < fullEvents {
		return
	}
	held := map[string]int{}
	for _, w := range r.open {
		held[w.step] += w.bytes()
	}
	var largest *api.StepEntry
	for i := range r.ledger.Steps {
		e := &r.ledger.Steps[i]
		held[e.Step] += r.kept(e)
		switch {
		case held[e.Step] == 0:
		case r.endedFor[e.Step]:
			if !e.Status.Final() || slices.Contains(r.ended, e.Step) {
				return // that may be enough
			}
		case largest == nil || held[e.Step] > held[largest.Step]:
			largest = e
		}
	}
	if largest == nil {
		return
	}
	r.endedFor[largest.Step] = true
	r.expire(ctx, largest, fmt.Sprintf("its payloads and results of %d KiB are more than the run can hold while attempts "+
		"fail: pass on where large data is, as a path or a key", held[largest.Step]>>10))
}

// mayContinue reports whether the run continues as new now: its history is long, and no task is open.
func (r *run) mayContinue(ctx workflow.Context) bool {
	kept := 0
	for i := range r.ledger.Steps {
		kept += r.kept(&r.ledger.Steps[i])
	}
	info, carried := workflow.GetInfo(ctx), carriedBytes
	if info.GetCurrentHistorySize() > quietBytes || info.GetCurrentHistoryLength() >= 2*quietEvents {
		carried = mostCarried
	}
	r.quiet = r.long(ctx) && kept <= carried
	if len(r.arrays) > 0 {
		return false // their ends would not reach the run that continues
	}
	if !info.GetContinueAsNewSuggested() && !r.quiet || kept > carried || !workflow.AllHandlersFinished(ctx) {
		return false
	}
	payloads := 0
	for _, w := range r.open {
		if payloads += w.bytes(); w.delivery != nil {
			return false
		}
	}
	if payloads > carried || !contract.Fits(r.next(false)) {
		r.quiet = false // they begin first
		return false
	}
	return true
}

// kept is how many bytes of results the run holds for a step that has not ended.
func (r *run) kept(e *api.StepEntry) int {
	bytes := len(r.results[e.Step]) + len(r.results[job.CheckKey(e.Step)])
	for n := range e.Elements {
		bytes += len(r.results[job.ElementKey(e.Step, n)])
	}
	return bytes + r.talks[e.Step].Bytes()
}

// continueAsNew takes the pending messages, which would be lost, and hands all over.
func (r *run) continueAsNew(ctx workflow.Context, waits bool) error {
	r.heedCancellation(ctx)
	r.heedAdmission(ctx)
	return workflow.NewContinueAsNewError(ctx, contract.RunWorkflow, r.next(waits))
}

// next is the input of the run that goes on for this one.
func (r *run) next(waits bool) contract.RunInput {
	next := r.in
	next.Done = nil
	next.Carried = &contract.RunCarried{Ledger: *r.ledger, Ended: r.ended, Results: r.results,
		Talks: r.talks, Bytes: r.bytes, Tasks: map[string]contract.TaskInput{}, Waits: waits}
	for _, w := range r.open {
		next.Carried.Tasks[w.key] = w.task
	}
	return next
}

// Yield stops the delivery before its next attempt when the history of the run is long. Another attempt than its first
// here waits until the answer to a workflow task has room for it: many may begin at once, as after a pause.
func (w *work) Yield(ctx workflow.Context) bool {
	r := w.run
	for w.launched && !r.quiet && r.full(ctx) {
		at := r.turnAt
		if workflow.Sleep(ctx, time.Millisecond) != nil {
			break
		}
		if workflow.GetInfo(ctx).GetCurrentHistoryLength() == at {
			r.turn = 0 // in tests, where histories do not grow
		}
	}
	if w.launched {
		r.turn += w.bytes()
	}
	again := w.launched
	w.launched = true
	return r.quiet || again && r.long(ctx)
}

// answer is how many bytes the end of an attempt may add to the history: a failure with its checkpoint, marks and log,
// or a result with its log.
func (w *work) answer() int {
	return attemptBytes + max(0, int(w.run.in.Plan.Step(w.step).ResultLimit)-job.DefaultResultLimit)
}

// bytes are those of an attempt's input that may be many.
func (w *work) bytes() int {
	task := w.task
	if w.delivery != nil {
		task = w.delivery.Task()
	}
	if task.Carried == nil {
		return len(task.Spec.Payload)
	}
	return len(task.Spec.Payload) + len(task.Carried.Checkpoint)
}
