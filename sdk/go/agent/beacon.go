package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// stopGrace is how long the task's work has to end when it is stopped for a cause. An agent that stops has waited for
// it before, and is soon killed itself.
func (t *Task) stopGrace(cause error) time.Duration {
	grace := api.GraceOf(t.Type, t.StopGrace)
	if i := t.Instance; i != nil {
		grace = i.StopGrace.Or(api.DefaultStopGrace)
	}
	if errors.Is(cause, ErrStopping) {
		return min(grace, api.DefaultStopGrace)
	}
	return grace
}

// endGrace is how long a handler may take to return after its context has ended. After that it is stuck. It is longer
// than a command has between SIGTERM and SIGKILL.
func (t *Task) endGrace(cause error) time.Duration {
	return t.stopGrace(cause) + api.DefaultStopGrace
}

// signs has a handler's signs of life. They are cheap, since each line of output is one.
type signs struct {
	since time.Time // set before the first use; has the monotonic clock
	begun atomic.Bool
	last  atomic.Int64 // of the last sign, in nanoseconds after since
	count atomic.Int64
}

// begin starts the clock.
func (s *signs) begin() {
	s.last.Store(int64(time.Since(s.since)))
	s.begun.Store(true)
}

func (s *signs) alive() {
	s.last.Store(int64(time.Since(s.since)))
	s.count.Add(1)
}

// age is the time since the last sign.
func (s *signs) age() time.Duration {
	if !s.begun.Load() {
		return 0
	}
	return time.Since(s.since) - time.Duration(s.last.Load())
}

// watchBeacons ends the handler's context when it has given no sign of life for the task's beacon timeout.
func (at *attempt) watchBeacons(ctx context.Context) {
	timer := time.NewTimer(at.beacon)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-at.returned:
			return
		case <-timer.C:
		}
		age := at.signs.age()
		if age >= at.beacon {
			at.cancel(fmt.Errorf("%w for %s", ErrNoBeacon, at.beacon))
			at.log().Warn("The handler gives no sign of life: stopping the attempt", "beacon_timeout", at.beacon)
			return
		}
		timer.Reset(at.beacon - age)
	}
}

// outOfTime reports whether the attempt exceeded its timeout or beacon timeout.
func outOfTime(cause error) bool {
	return errors.Is(cause, ErrNoBeacon) || errors.Is(cause, context.DeadlineExceeded)
}

// reportsStuck reports whether the attempt's end is reported although its handler does not return.
func reportsStuck(cause error) bool { return outOfTime(cause) || errors.Is(cause, errLivesOn) }

// overtime makes the result that of an attempt which is out of time or stuck, with its cause.
func (at *attempt) overtime(result *protocol.Result, cause error) {
	result.Outcome = api.AttemptTimedOut
	switch {
	case errors.Is(cause, errLivesOn): // no failure: retry safety must hold for work that may go on
		result.Error = cause.Error()
	case errors.Is(cause, ErrNoBeacon):
		result.Error, result.ErrorType = fmt.Sprintf("no beacon for %s", at.beacon), ErrorTypeNoBeacon
	default:
		result.Error, result.ErrorType = fmt.Sprintf("timed out after %s", at.task.Timeout), ErrorTypeTimeout
	}
}

// livesOn ends an attempt whose command has left processes that cannot be killed: unless they end soon, the attempt is
// stuck. It reports false outside of an agent's attempt.
func (t *Task) livesOn() bool {
	if t.attempt == nil {
		return false
	}
	t.attempt.cancel(errLivesOn)
	return true
}

func (at *attempt) setState(state protocol.RunningState) {
	at.run.mu.Lock()
	defer at.run.mu.Unlock()
	at.state = state
}

// hangs records that the handler is stuck. Only its return frees the slot.
func (at *attempt) hangs() {
	at.setState(protocol.RunningStuck)
	close(at.hung)
	at.log().Error("The handler ignores that its context has ended; its slot stays in use until it returns", "grace",
		at.task.endGrace(ended(at.handler)))
	at.run.agent.emit(at.event(EventStuck))
	at.run.pollWithin(0)
}

// keepSlot waits until a stuck handler has returned.
func (at *attempt) keepSlot() {
	at.run.mu.Lock()
	at.reported = true
	at.run.mu.Unlock()
	<-at.returned
	at.log().Info("The handler that was stuck has returned; its slot is free")
	at.run.pollWithin(0)
}
