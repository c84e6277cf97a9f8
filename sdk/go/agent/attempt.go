package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

// attemptKey names an attempt.
type attemptKey struct {
	task   string
	number int
}

// attempt is one attempt, from its assignment until its result is answered.
type attempt struct {
	attemptKey
	run       *run
	task      *Task
	token     string
	beacon    time.Duration
	startedAt time.Time
	handler   context.Context // what the handler gets
	span      trace.Span
	cancel    context.CancelCauseFunc
	before    *attempt      // an older attempt of the same task, which must end first
	returned  chan struct{} // closed when the handler has returned
	hung      chan struct{} // closed when the handler does not stop although its context has ended
	guard     atomic.Int32  // the process above its command's; 0: it runs none
	signs     signs
	output    taskLog
	elements  []api.Element // of a bundle; nil: it is an attempt of one task
	// resultLimit is how many bytes the result may have, or those of a bundle together.
	resultLimit int
	deadline    *time.Time // when its step or run ends it in any case; nil: never

	// The run's mutex guards the rest.
	acknowledged      bool // the hub has taken a poll that lists it with its token
	progress          *api.Progress
	checkpoint        []byte
	checkpointVersion int
	damaged           bool // the checkpoint that it got is not the one that was saved
	checkpointSent    int  // the version that the hub has
	leaseExpired      bool
	state             protocol.RunningState
	health            api.InstanceHealth // of an instance, by its checks
	healthChanges     int64              // how often that has changed
	healthTurns       int64              // CheckedHealth.Turns
	reported          bool               // its result was answered although its handler has not returned
}

// accept starts the new ones among the assignments and returns their number. Only the loop calls it.
func (r *run) accept(assignments []protocol.Assignment) int {
	began := 0
	for _, a := range assignments {
		if at := r.admit(a); at != nil {
			began++
			at.log().Info("Assigned", "type", a.Type, "transferred_from", a.TransferredFrom)
			r.agent.emit(at.event(EventAssigned))
			r.background.Go(at.execute)
		}
	}
	return began
}

// admit makes the attempt of an assignment, or returns nil when there is nothing to start.
func (r *run) admit(a protocol.Assignment) *attempt {
	key := attemptKey{a.TaskID, a.Attempt}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.attempts[key]; at != nil {
		at.acknowledged = false // delivered twice: the hub missed the acceptance
		return nil
	}
	if r.done.has(key) {
		return nil
	}
	if r.stopping {
		r.giveBack(a, 0)
		return nil
	}
	var before *attempt
	for _, other := range r.attempts {
		if other.attemptKey.task != a.TaskID {
			continue
		}
		if other.number > a.Attempt {
			return nil // delivered late: a newer attempt runs
		}
		if before == nil || other.number > before.number {
			before = other
		}
		other.cancel(ErrDropped)
	}
	if before != nil && before.state == protocol.RunningStuck {
		// The two must not run side by side, and the older one may run for any time.
		r.giveBack(a, 0)
		return nil
	}
	if port := portInUse(a.Allocation); port != 0 {
		r.giveBack(a, port)
		return nil
	}
	at := &attempt{attemptKey: key, run: r, token: a.Token, beacon: a.Beacon.Std(), startedAt: time.Now(),
		before: before, returned: make(chan struct{}), hung: make(chan struct{})}
	at.signs.since, at.elements = at.startedAt, a.Elements
	at.resultLimit = cmp.Or(a.ResultLimit, api.MaxPayloadBytes)
	at.damaged = a.CheckpointDigest != "" && a.CheckpointDigest != api.JSONDigest(a.Checkpoint)
	at.task = &Task{
		ID:          a.TaskID,
		Type:        a.Type,
		Cluster:     a.Cluster,
		Attempt:     a.Attempt,
		Payload:     a.Payload,
		RetrySafety: a.RetrySafety,
		Timeout:     a.Timeout.Std(), Checkpoint: a.Checkpoint, Labels: a.Labels, Tenant: a.Tenant, Shard: a.Shard,
		TransferredFrom: a.TransferredFrom, Element: a.Element, Instance: a.Instance, attempt: at,
		Allocation: a.Allocation, Volumes: volumesOf(r.agent.options.Resources, a.Allocation),
	}
	at.task.IdempotencyKey, at.deadline = cmp.Or(a.IdempotencyKey, a.TaskID), a.DeadlineAt
	at.task.StopGrace = a.StopGrace
	at.handler, at.cancel = context.WithCancelCause(at.startSpan(r.work, a))
	r.attempts[key] = at
	return at
}

// execute runs the handler, delivers its result and frees the slot.
func (at *attempt) execute() {
	r := at.run
	defer at.cancel(nil)
	perform := at.perform
	if at.elements != nil {
		perform = at.performBundle
	}
	result, report := perform()
	at.endSpan(&result)
	if !report {
		// The hub may wait for the attempt's stop before it gives the work to another agent.
		r.remove(at)
		r.pollWithin(0)
		return
	}
	defer r.remove(at)
	ev := at.event(EventFinished)
	ev.Outcome, ev.Reason = result.Outcome, result.Error
	at.log().Info("Finished", "outcome", result.Outcome, "error", result.Error)
	r.agent.emit(ev)
	if result.Outcome != api.AttemptCompleted {
		at.awaitCheckpoint()
	}
	r.deliver(at, result)
	if result.Stuck {
		at.keepSlot()
	}
}

// awaitCheckpoint waits until the hub has the newest checkpoint, with which the next attempt begins, before the result.
// It does not wait for long for a hub that is away.
func (at *attempt) awaitCheckpoint() {
	for range checkpointLooks {
		at.run.mu.Lock()
		sent := at.checkpointSent == at.checkpointVersion
		at.run.mu.Unlock()
		if sent || at.run.work.Err() != nil {
			return
		}
		at.run.pollWithin(0)
		backoff.Pause(at.run.work, checkpointLook)
	}
}

// checkpointLook is the pause between looks whether a checkpoint has reached the hub; checkpointLooks bounds them.
const (
	checkpointLook  = 20 * time.Millisecond
	checkpointLooks = 50
)

// perform runs the handler until it returns, or is stuck.
func (at *attempt) perform() (protocol.Result, bool) {
	ctx, cancel := at.handler, context.CancelFunc(func() {})
	if at.task.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, at.task.Timeout)
	}
	defer cancel()
	if !at.awaitBefore() {
		close(at.returned)
		return at.handedBack("an older attempt of the task is stuck on this agent"), true
	}
	done := at.begin(ctx)
	select {
	case end := <-done:
		return at.result(ctx, end.output, end.err)
	case <-ctx.Done():
	}
	at.setState(protocol.RunningEnding)
	grace := time.NewTimer(at.task.endGrace(ended(ctx)))
	defer grace.Stop()
	select {
	case end := <-done:
		return at.result(ctx, end.output, end.err)
	case <-grace.C:
	}
	at.hangs()
	if cause := ended(ctx); reportsStuck(cause) && !at.leaseIsOver() {
		result := at.newResult()
		at.overtime(&result, cause)
		result.Stuck = true
		return result, true
	}
	end := <-done
	return at.result(ctx, end.output, end.err)
}

// awaitBefore waits until an older attempt of the task has returned; false when it is stuck.
func (at *attempt) awaitBefore() bool {
	if at.before == nil {
		return true
	}
	defer func() { at.before = nil }()
	select {
	case <-at.before.returned:
	case <-at.run.work.Done():
	case <-at.before.hung:
		return false
	}
	return true
}

// handlerEnd is what a handler returned.
type handlerEnd struct {
	output any
	err    error
}

// begin starts the handler and the watch over its beacons. The channel gets what the handler returned.
func (at *attempt) begin(ctx context.Context) <-chan handlerEnd {
	done := make(chan handlerEnd, 1)
	at.signs.begin()
	if at.beacon > 0 {
		at.run.background.Go(func() { at.watchBeacons(ctx) })
	}
	if i := at.task.Instance; i != nil && i.Health != nil {
		at.run.background.Go(func() { at.watchHealth(ctx, i.Health) })
	}
	at.run.background.Go(func() {
		end := handlerEnd{err: errors.New("the handler ended its goroutine")} // unless it returns
		defer func() {
			close(at.returned)
			done <- end
		}()
		end.output, end.err = at.call(ctx, at.task)
	})
	return done
}

// call calls the handler of the task's type; a panic becomes an error.
func (at *attempt) call(ctx context.Context, task *Task) (output any, err error) {
	handler := at.run.agent.handlers[task.Type]
	if handler == nil {
		return nil, NonRetryable(fmt.Errorf("no handler for the task's type; this agent handles %q",
			at.run.agent.taskTypes()))
	}
	if cause := ended(ctx); cause != nil {
		return nil, cause
	}
	if at.damaged {
		return nil, Typed(api.ErrorTypeCheckpoint,
			errors.New("the checkpoint of the attempt before is not the one that its agent saved"))
	}
	defer func() {
		if p := recover(); p != nil {
			at.log().Error("Handler panicked", "panic", p, "stack", string(debug.Stack()))
			output, err = nil, Typed(ErrorTypePanic, fmt.Errorf("the handler panicked: %v", p))
		}
	}()
	return handler(ctx, task)
}

// result decides which result to report; false means none.
func (at *attempt) result(ctx context.Context, output any, err error) (protocol.Result, bool) {
	cause := ended(ctx)
	result := at.newResult()
	switch {
	case errors.Is(cause, ErrDropped), errors.Is(cause, ErrFenced), errors.Is(cause, ErrRevoked), errors.Is(cause,
		ErrGaveUp):
		return result, false
	case at.leaseIsOver():
		// Not the handler's failure: the hub takes this, too, as work handed back.
		result.Outcome, result.Error = api.AttemptCancelled, "stopped: no hub could be reached for as long as the lease, so another agent may have the task"
	case errors.Is(cause, ErrUnhealthy):
		result.Outcome, result.Error, result.ErrorType = api.AttemptFailed, cause.Error(), api.ErrorTypeUnhealthy
	case err == nil:
		result.Outcome = api.AttemptCompleted
		attach(&result, output, at.mostOutput())
	case errors.Is(cause, ErrCancelled):
		result.Outcome, result.Error = api.AttemptCancelled, err.Error()
	case errors.Is(cause, ErrStopping):
		// The hub did not ask for it, so it takes this as work handed back, which runs elsewhere.
		result.Outcome, result.Error = api.AttemptCancelled, "the agent stopped before the attempt was done"
	case outOfTime(cause):
		at.overtime(&result, cause)
	default:
		result.Outcome, result.Error = api.AttemptFailed, err.Error()
		result.ErrorType, result.NonRetryable = errorType(err), isNonRetryable(err)
	}
	result.Error = cutMiddle(result.Error, maxError)
	return result, true
}

func (at *attempt) newResult() protocol.Result {
	at.output.mu.Lock()
	defer at.output.mu.Unlock()
	return protocol.Result{Token: at.token, Attempt: at.number, StartedAt: at.startedAt.UTC(),
		EndedAt: time.Now().UTC(), Log: at.output.tail.After(0)}
}

// handedBack is the result of an attempt that should run on another agent.
func (at *attempt) handedBack(why string) protocol.Result {
	result := at.newResult()
	result.Outcome, result.Error = api.AttemptCancelled, why
	return result
}

// leaseIsOver reports whether a fenced attempt has outlived its lease, even if the timer has not fired yet.
func (at *attempt) leaseIsOver() bool {
	at.run.mu.Lock()
	defer at.run.mu.Unlock()
	return at.leaseExpired || at.task.RetrySafety == api.Fenced && at.run.leaseOver()
}

func (at *attempt) hasReturned() bool {
	select {
	case <-at.returned:
		return true
	default:
		return false
	}
}

// report changes what the next poll reports about the attempt; every change is also a beacon.
func (at *attempt) report(change func(*attempt)) {
	at.run.mu.Lock()
	change(at)
	at.signs.alive()
	at.run.mu.Unlock()
	if at.beacon > 0 {
		at.run.pollWithin(at.beacon / 3)
	}
}

// listing is the attempt as polls and registrations list it. The run's mutex is held.
func (at *attempt) listing(withToken bool) protocol.RunningAttempt {
	started := at.startedAt.UTC()
	entry := protocol.RunningAttempt{
		TaskID: at.attemptKey.task, Attempt: at.number, StartedAt: &started, Progress: at.progress,
		Beacons: at.signs.count.Load(), State: at.state, Health: at.health, HealthChanges: at.healthChanges,
		HealthTurns: at.healthTurns,
	}
	if at.beacon > 0 {
		age := api.Duration(at.signs.age().Round(time.Millisecond))
		entry.BeaconAge = &age
	}
	if withToken {
		entry.Token = at.token
	}
	return entry
}

// remove frees the attempt's slot; the last one ends a graceful stop.
func (r *run) remove(at *attempt) {
	r.mu.Lock()
	delete(r.attempts, at.attemptKey)
	drained := r.stopping && len(r.attempts) == 0
	r.mu.Unlock()
	if drained {
		r.end(errDrained)
	}
}

func (at *attempt) log() *slog.Logger {
	return at.run.agent.log.With("task", at.attemptKey.task, "attempt", at.number)
}

func (at *attempt) event(kind EventKind) Event {
	return Event{Kind: kind, TaskID: at.attemptKey.task, Attempt: at.number}
}
