package agent

import "time"

// handBackGrace is how long handlers have to return once their context has ended, and their results to be delivered.
const handBackGrace = 10 * time.Second

// stop begins a graceful stop: the agent takes nothing new, finishes running work, and hands back what takes too long.
func (r *run) stop(reason string) {
	r.mu.Lock()
	if r.stopping {
		r.mu.Unlock()
		return
	}
	r.stopping = true
	idle := len(r.attempts) == 0
	if !idle {
		r.stopTimer = time.AfterFunc(r.agent.options.StopTimeout, r.handBack)
	}
	running := len(r.attempts)
	r.mu.Unlock()
	r.agent.log.Info("Stopping", "reason", reason, "running", running)
	r.agent.emit(Event{Kind: EventStopping, Reason: reason})
	if idle {
		r.end(errDrained)
		return
	}
	r.pollWithin(0)
}

// handBack cancels what still runs. Its results hand the work back, so that it runs elsewhere.
func (r *run) handBack() {
	r.mu.Lock()
	r.stopTimer = time.AfterFunc(handBackGrace, func() { r.end(r.stopFailure()) })
	attempts := make([]*attempt, 0, len(r.attempts))
	for _, at := range r.attempts {
		attempts = append(attempts, at)
	}
	r.mu.Unlock()
	for _, at := range attempts {
		at.cancel(ErrStopping)
	}
}

// stopFailure returns why a stop ends with attempts left: handlers that do not return, or results that no hub takes.
// For the latter the goodbye is enough for the hub.
func (r *run) stopFailure() error {
	if _, running := r.anyRunning(); running > 0 {
		return errStuck
	}
	return errDrained
}
