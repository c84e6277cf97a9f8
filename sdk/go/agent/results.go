package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

const (
	deliverFirst = 100 * time.Millisecond
	deliverLimit = 5 * time.Second
	// maxError bounds a result's error text, in bytes.
	maxError = 8192
	// mostUnauthorized is how often a result is sent with tokens that a hub does not know. A new session may help the
	// first time; after that the attempt's own token is worthless.
	mostUnauthorized = 5
	// recentMost is how many answered attempts are remembered, so that a late second delivery is not run again.
	recentMost = 1024
)

// attach puts a handler's output into a result; most bounds its bytes.
func attach(result *protocol.Result, output any, most int) {
	if output == nil {
		return
	}
	data, err := json.Marshal(output)
	switch {
	case err != nil:
		fail(result, fmt.Sprintf("the handler's result cannot be written as JSON: %v", err))
	case len(data) > most:
		fail(result, fmt.Sprintf("the result has %d bytes, %d are allowed: store it elsewhere and return where",
			len(data), most))
	case api.CheckJSONDepth(data, api.MaxJSONValueDepth) != nil:
		fail(result, "the result cannot be sent: "+api.ErrJSONDepth.Error())
	default:
		result.Output = data
	}
}

// fail makes a result a final failure.
func fail(result *protocol.Result, why string) {
	result.Outcome, result.Output, result.Error, result.NonRetryable = api.AttemptFailed, nil, why, true
}

// deliver sends a result, to any hub, until it is answered. The attempt keeps its slot until then.
func (r *run) deliver(at *attempt, result protocol.Result) {
	retry := backoff.Backoff{First: deliverFirst, Limit: deliverLimit}
	hub, unauthorized := r.sessionNow().hub, 0
	for r.work.Err() == nil {
		s := r.sessionNow()
		err := r.client.send(r.work, r.client.calls, request{
			hub:    hub,
			method: http.MethodPost,
			path:   r.client.path(protocol.ResultPath, at.attemptKey.task),
			token:  s.token,
			body:   result, timeout: callTimeout, headers: TraceHeaders(at.handler),
		}, nil)
		if heard(err) && r.work.Err() == nil {
			r.contact()
		}
		var refused *refusal
		switch {
		case err == nil:
			r.settled(at, &result, nil)
			return
		case code(err) == protocol.CodeSuperseded:
			r.settled(at, &protocol.Result{}, err)
			return
		case endOf(err) != nil:
			r.end(endOf(err))
			return
		case code(err) == protocol.CodeUnknownSession:
			hub = r.sessionNow().hub // the poll notices this too, and registers again
		case code(err) == protocol.CodeUnauthorized:
			if unauthorized++; unauthorized == mostUnauthorized {
				r.unusable(at, err)
				return
			}
			hub = r.sessionNow().hub
		case errors.As(err, &refused) && refused.status == http.StatusRequestEntityTooLarge && len(result.Output) > 0:
			fail(&result, "the hub refused the result as too large: store it elsewhere and return where")
			continue
		case isFinal(err):
			r.unusable(at, err)
			return
		default:
			hub = r.client.after(hub)
		}
		at.log().Warn("The result is not answered yet; sending it again", "error", err)
		retry.Pause(r.work)
	}
}

// settled records a hub's answer to a result: accepted or, with err, no longer counted.
func (r *run) settled(at *attempt, result *protocol.Result, err error) {
	r.mu.Lock()
	r.done.add(at.attemptKey)
	for outcome := range result.Outcomes() {
		switch outcome {
		case api.AttemptCompleted:
			r.counters.Completed++
		case api.AttemptFailed, api.AttemptTimedOut:
			r.counters.Failed++
		}
	}
	r.mu.Unlock()
	ev := at.event(EventResultAccepted)
	if err != nil {
		ev.Kind, ev.Err = EventResultDropped, err
		at.log().Info("The result no longer counts", "error", err)
	}
	r.agent.emit(ev)
}

// unusable gives up on a result that no hub will take. The hub learns from the next poll that the attempt is gone.
func (r *run) unusable(at *attempt, err error) {
	at.log().Error("The hub refused the result for good; the task's attempt is lost", "error", err)
	ev := at.event(EventResultDropped)
	ev.Err = err
	r.agent.emit(ev)
	r.mu.Lock()
	if at.state != protocol.RunningStuck {
		delete(r.attempts, at.attemptKey)
	}
	r.mu.Unlock()
	r.pollWithin(0)
}

// recentKeys remembers the newest keys.
type recentKeys struct {
	set  map[attemptKey]bool
	ring []attemptKey
	next int
}

func newRecentKeys() recentKeys { return recentKeys{set: map[attemptKey]bool{}} }

func (k *recentKeys) has(key attemptKey) bool { return k.set[key] }

func (k *recentKeys) add(key attemptKey) {
	if k.set[key] {
		return
	}
	if len(k.ring) < recentMost {
		k.ring = append(k.ring, key)
	} else {
		delete(k.set, k.ring[k.next])
		k.ring[k.next] = key
		k.next = (k.next + 1) % recentMost
	}
	k.set[key] = true
}
