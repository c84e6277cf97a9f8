package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// endGrace is how long a handler whose context has ended may take to return. After that it counts as stuck. It is
// longer than a command has between SIGTERM and SIGKILL.
const endGrace = 2 * execKillAfter

// signs are the signs of life of a handler. They are cheap: each line of output is one.
type signs struct {
	since time.Time // set before the first use; has the monotonic clock
	begun atomic.Bool
	last  atomic.Int64 // of the last sign, in nanoseconds after since
	count atomic.Int64
}

// begin starts the clock: until then nothing is expected.
func (s *signs) begin() {
	s.last.Store(int64(time.Since(s.since)))
	s.begun.Store(true)
}

func (s *signs) alive() {
	s.last.Store(int64(time.Since(s.since)))
	s.count.Add(1)
}

// age is how long ago the last sign was.
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

// outOfTime reports whether the attempt itself was over its time.
func outOfTime(cause error) bool {
	return errors.Is(cause, ErrNoBeacon) || errors.Is(cause, context.DeadlineExceeded)
}

// overtime makes a result say which time was over.
func (at *attempt) overtime(result *protocol.Result, cause error) {
	result.Outcome = fleet.AttemptTimedOut
	if errors.Is(cause, ErrNoBeacon) {
		result.Error, result.ErrorType = fmt.Sprintf("no beacon for %s", at.beacon), ErrorTypeNoBeacon
		return
	}
	result.Error, result.ErrorType = fmt.Sprintf("timed out after %s", at.task.Timeout), ErrorTypeTimeout
}

func (at *attempt) setState(state protocol.RunningState) {
	at.run.mu.Lock()
	defer at.run.mu.Unlock()
	at.state = state
}

// hangs notes that the handler ignores that its context has ended. Nothing can free its slot but its return.
func (at *attempt) hangs() {
	at.setState(protocol.RunningStuck)
	close(at.hung)
	at.log().Error("The handler ignores that its context has ended; its slot stays in use until it returns", "grace",
		endGrace)
	at.run.agent.emit(at.event(EventStuck))
	at.run.pollWithin(0)
}

// keepSlot waits until a handler has returned whose attempt was reported without it.
func (at *attempt) keepSlot() {
	at.run.mu.Lock()
	at.reported = true
	at.run.mu.Unlock()
	<-at.returned
	at.log().Info("The handler that was stuck has returned; its slot is free")
	at.run.pollWithin(0)
}
