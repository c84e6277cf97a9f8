package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

// run is the state of one call of Agent.Run. The loop goroutine registers and polls; each attempt has a goroutine that
// runs its handler and delivers its result.
type run struct {
	agent     *Agent
	client    *client
	instance  string
	startedAt time.Time

	// loopCtx ends registering and polling; its cause is the reason for Run's end.
	loopCtx context.Context
	end     context.CancelCauseFunc
	// work outlives the caller's context, so that a stop is graceful: it is the parent of handlers, deliveries and
	// polls.
	work    context.Context
	EndWork context.CancelCauseFunc
	// background are polls and attempts.
	background sync.WaitGroup
	// wake reports to the loop that pollAt has changed.
	wake chan struct{}

	mu      sync.Mutex
	session session
	// registrations counts the registrations sent, so that a cluster can refuse one that arrives after a newer one.
	registrations int64
	// of the newest poll; it grows over the life of the process, so no hub takes a new poll for an old one
	sequence  int64
	answered  int64 // the newest poll whose answer was read; only the loop uses it
	look      hubLook
	polledAt  time.Time
	pollAt    time.Time // when to poll although a poll is held; zero: never
	attempts  map[attemptKey]*attempt
	unused    map[string]time.Time // when a trouble with a hub was last said, since the session began
	done      recentKeys           // attempts whose result was answered
	returned  []protocol.RunningAttempt
	counters  protocol.Counters
	metrics   hostMetrics
	role      protocol.Command // the newest role
	stateTold string           // digest of the state that the hub knows
	stopping  bool
	stopTimer *time.Timer

	beat       beat
	leaseFrom  time.Time     // when the newest answered poll was sent
	lease      time.Duration // of that time; a session that was opened since does not make it longer
	leaseTimer *time.Timer
	renewed    chan struct{} // closed when the lease is renewed
	giveUp     *time.Timer
}

// session is a hub's answer to a registration.
type session struct {
	hub        int
	token      string
	epoch      int64
	interval   time.Duration
	lease      time.Duration
	generation int // grows with each registration
}

func newRun(ctx context.Context, a *Agent) *run {
	r := &run{
		agent:     a,
		client:    newClient(a.options),
		instance:  newInstance(),
		startedAt: time.Now(),
		wake:      make(chan struct{}, 1),
		attempts:  map[attemptKey]*attempt{}, unused: map[string]time.Time{}, done: newRecentKeys(),
		renewed: make(chan struct{}),
		look:    newHubLook(),
	}
	outlive := context.WithoutCancel(ctx)
	r.work, r.EndWork = context.WithCancelCause(outlive)
	r.loopCtx, r.end = context.WithCancelCause(outlive)
	if d := a.options.GiveUpAfter; d > 0 {
		r.giveUp = time.AfterFunc(d, func() { r.end(ErrGaveUp) })
	}
	r.watchState()
	return r
}

// newInstance makes a random id for this process.
func newInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// loop registers and polls until there is a reason to end, which it returns.
func (r *run) loop() error {
	if err := r.register(true); err != nil {
		return err
	}
	retry := backoff.Backoff{First: reconnectFirst, Limit: reconnectLimit}
	for {
		err := r.poll(&retry)
		if cause := ended(r.loopCtx); cause != nil {
			return cause
		}
		if end := endOf(err); end != nil {
			return end
		}
		_, moves := errors.AsType[*movedHub](err)
		switch code := code(err); {
		case moves:
			r.reconnecting(r.sessionNow().hub, err)
		case code == protocol.CodeUnknownSession, code == protocol.CodeUnauthorized:
			// The session is gone, and the work goes on: register again at once, then more slowly.
			if r.reconnecting(r.sessionNow().hub, err); retry.Next() > reconnectFirst {
				retry.Pause(r.loopCtx)
			}
		default:
			hub, wait := r.sessionNow().hub, retry.Next()
			r.reconnecting(hub, err)
			if broke(err) && wait <= reconnectFirst {
				continue // at once, and at the same hub, as the registration promises
			}
			r.client.rotate(hub)
			backoff.Pause(r.loopCtx, wait)
			if !isFinal(err) {
				r.moveTo(r.client.current())
				continue // the same session: it may still be good
			}
		}
		if err := r.register(false); err != nil {
			return err
		}
	}
}

func (r *run) sessionNow() session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session
}

// moveTo sends the session's next poll to a hub.
func (r *run) moveTo(hub int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session.hub = hub
}

// contact records that a hub answered.
func (r *run) contact() {
	if r.giveUp != nil {
		r.giveUp.Reset(r.agent.options.GiveUpAfter)
	}
}

// finish ends everything and turns the reason into Run's result.
func (r *run) finish(reason error) error {
	r.end(reason)
	switch {
	case errors.Is(reason, errDrained), errors.Is(reason, errStuck):
		r.goodbye()
	case errors.Is(reason, ErrFenced):
		r.agent.log.Error("A newer process has this agent id: stopping all work")
		r.agent.emit(Event{Kind: EventFenced})
	case errors.Is(reason, ErrRevoked):
		r.agent.log.Error("An admin has revoked this agent's join token and ended its session: stopping all work")
		r.agent.emit(Event{Kind: EventRevoked})
	case errors.Is(reason, ErrGaveUp):
		r.agent.log.Error("No hub has answered for too long: stopping all work", "after", r.agent.options.GiveUpAfter)
		r.agent.emit(Event{Kind: EventGaveUp})
	}
	r.EndWork(reason)
	stuck := r.awaitHandlers(reason)
	r.mu.Lock()
	for _, t := range []*time.Timer{r.stopTimer, r.leaseTimer, r.giveUp} {
		if t != nil {
			t.Stop()
		}
	}
	r.mu.Unlock()
	if stuck == 0 {
		r.background.Wait()
	}
	r.client.close()
	r.agent.emit(Event{Kind: EventStopped, Err: reason})
	if errors.Is(reason, errDrained) {
		return nil
	}
	return reason
}

// awaitHandlers waits a while for handlers whose context has ended, and returns how many still run. After a graceful
// stop it does not wait again.
func (r *run) awaitHandlers(reason error) int {
	grace := handBackGrace
	if errors.Is(reason, errStuck) {
		grace = 0
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	for {
		at, running := r.anyRunning()
		if at == nil {
			return 0
		}
		select {
		case <-at.returned:
		case <-limit.C:
			r.agent.log.Error("Handlers ignore that their context has ended", "handlers", running)
			return running
		}
	}
}

// anyRunning returns one attempt whose handler runs, and their number.
func (r *run) anyRunning() (*attempt, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var one *attempt
	running := 0
	for _, at := range r.attempts {
		if !at.hasReturned() {
			one = at
			running++
		}
	}
	return one, running
}

// currentRole is the role while the lease is good.
func (r *run) currentRole() api.Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaseFrom.IsZero() || time.Since(r.leaseFrom) > r.lease {
		return ""
	}
	return r.role.Role
}

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
