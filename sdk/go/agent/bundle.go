package agent

import (
	"context"
	"errors"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	// bundleTime is how long a bundle may run before the agent reports the elements done: that bounds the work done
	// again when the agent is lost. The rest comes back in another bundle.
	bundleTime = 2 * time.Second
)

// mostOutput bounds a handler's output, in bytes of JSON.
func (at *attempt) mostOutput() int {
	if at.elements != nil {
		return min(at.resultLimit, api.MaxElementOutput)
	}
	return api.MaxPayloadBytes
}

// performBundle runs the handler for one element after another, until all are done, one is stuck, the bundle must stop
// or enough is done to report it.
func (at *attempt) performBundle() (protocol.Result, bool) {
	at.signs.begin()
	var done []api.ElementResult
	size, enough, stuck := 0, at.mostOutput()/2, false // as much again may come from the next element
	for i := range at.elements {
		if ended(at.handler) != nil || i > 0 && (size > enough || time.Since(at.startedAt) > bundleTime) {
			break
		}
		result, report, hung := at.performElement(&at.elements[i])
		if report {
			done = append(done, result)
			size += len(result.Output) + len(result.Error)
		}
		if stuck = hung; stuck || !report {
			break
		}
	}
	if !stuck {
		close(at.returned)
	}
	if _, report := at.result(at.handler, nil, ended(at.handler)); !report {
		<-at.returned
		return protocol.Result{}, false // nobody wants it any more
	}
	if len(done) == 0 {
		return at.handedBack("the agent stopped before an element of the bundle was done"), true
	}
	bundle := at.newResult()
	bundle.Outcome, bundle.Elements, bundle.Stuck = api.AttemptCompleted, done, stuck
	return bundle, true
}

// performElement runs the handler for one element. report is false when the element did not end and is not to be
// reported; hung is true when the handler ignores that it must end.
func (at *attempt) performElement(e *api.Element) (result api.ElementResult, report, hung bool) {
	ctx, cancel := at.handler, context.CancelFunc(func() {})
	if at.task.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, at.task.Timeout)
	}
	defer cancel()
	task := *at.task
	task.ID, task.Attempt, task.Payload, task.Element = e.ID, e.Attempt, e.Payload, new(e.Number)
	task.IdempotencyKey = e.ID
	began := time.Now()
	ends := make(chan handlerEnd, 1)
	at.run.background.Go(func() {
		end := handlerEnd{err: errors.New("the handler ended its goroutine")} // unless it returns
		defer func() { ends <- end }()
		end.output, end.err = at.call(ctx, &task)
	})
	end, hung := at.awaitElement(ctx, ends)
	whole := at.newResult()
	switch {
	case hung && reportsStuck(ended(ctx)) && !at.leaseIsOver():
		at.overtime(&whole, ended(ctx))
	case hung:
		<-at.returned
		return result, false, true
	default:
		whole, report = at.result(ctx, end.output, end.err)
		if !report || whole.Outcome == api.AttemptCancelled {
			return result, false, false
		}
	}
	return api.ElementResult{
		Number:       e.Number,
		Outcome:      whole.Outcome,
		Output:       whole.Output,
		Error:        whole.Error,
		ErrorType:    whole.ErrorType,
		NonRetryable: whole.NonRetryable,
		Stuck:        hung,
		Milliseconds: time.Since(began).Milliseconds(),
	}, true, hung
}

// awaitElement waits until a handler has returned, or is stuck. The slot of a stuck one stays in use until it returns.
func (at *attempt) awaitElement(ctx context.Context, ends <-chan handlerEnd) (end handlerEnd, hung bool) {
	select {
	case end = <-ends:
		return end, false
	case <-ctx.Done():
	}
	grace := time.NewTimer(at.task.endGrace(ended(ctx)))
	defer grace.Stop()
	select {
	case end = <-ends:
		return end, false
	case <-grace.C:
	}
	at.hangs()
	at.run.background.Go(func() {
		<-ends
		close(at.returned)
	})
	return end, true
}
