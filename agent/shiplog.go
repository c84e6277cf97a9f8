package agent

import (
	"net/http"
	"time"

	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/protocol"
)

const (
	// shipSpacing gathers the lines of a moment into one request.
	shipSpacing = 100 * time.Millisecond
	shipTimeout = 5 * time.Second
	// flushTimeout bounds sending the last lines before the result, which matters more.
	flushTimeout = time.Second
)

// shipLog sends an attempt's log lines to the hub for a while. The command may come again, to start again or to go on
// for longer.
func (r *run) shipLog(c protocol.Command) {
	r.mu.Lock()
	at := r.attempts[attemptKey{c.TaskID, c.Attempt}]
	r.mu.Unlock()
	if at == nil {
		return
	}
	l := &at.output
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.sent, l.again = time.Now().Add(c.Hold.Std()), c.After, true
	if l.shipping {
		l.signal()
		return
	}
	l.shipping, l.wake = true, make(chan struct{}, 1)
	r.background.Go(func() { at.ship(l.wake) })
}

// ship sends lines as they come, until nobody watches. The first request may have no lines, to report that there are
// none yet.
func (at *attempt) ship(wake <-chan struct{}) {
	for {
		wanted := at.send(shipTimeout)
		backoff.Pause(at.run.work, shipSpacing)
		for {
			wait, over := at.idle(wanted)
			if over {
				return
			}
			if wait == 0 {
				break
			}
			timer := time.NewTimer(wait)
			select {
			case <-wake:
			case <-timer.C:
			case <-at.returned:
				wanted = false // flushLog sends the rest before the result
			}
			timer.Stop()
		}
	}
}

// idle is how long to wait for lines; over ends the sending.
func (at *attempt) idle(wanted bool) (wait time.Duration, over bool) {
	l := &at.output
	l.mu.Lock()
	defer l.mu.Unlock()
	switch left := time.Until(l.until); {
	case l.again && !at.hasReturned():
		return 0, false
	case !wanted || left <= 0:
		l.shipping = false
		return 0, true
	case l.tail.Last() > l.sent:
		return 0, false
	default:
		return left, false
	}
}

// send sends the unsent lines, and reports whether the hub wants more.
func (at *attempt) send(timeout time.Duration) bool {
	l := &at.output
	l.mu.Lock()
	body := protocol.Log{Attempt: at.number, Lines: l.tail.After(l.sent)}
	from, to := l.sent, l.tail.Last()
	l.again = false
	l.mu.Unlock()
	s := at.run.sessionNow()
	var taken protocol.LogTaken
	err := at.run.client.send(at.run.work, at.run.client.calls, request{
		hub:    s.hub,
		method: http.MethodPost,
		path:   at.run.client.path(protocol.LogPath, at.attemptKey.task),
		token:  s.token,
		body:   body, timeout: timeout,
	}, &taken)
	if err != nil {
		at.log().Debug("The hub did not take log lines; it asks again if it wants them", "error", err)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent == from { // no command to start again came meanwhile
		l.sent = to
	}
	return taken.Watching
}

// flushLog sends the last lines before the result, if somebody watches.
func (at *attempt) flushLog() {
	at.output.mu.Lock()
	due := time.Until(at.output.until) > 0 && at.output.tail.Last() > at.output.sent
	at.output.mu.Unlock()
	if due {
		at.send(flushTimeout)
	}
}
