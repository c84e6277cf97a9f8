package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

const (
	// reconnectFirst and reconnectLimit space attempts to reach a hub.
	reconnectFirst = 100 * time.Millisecond
	reconnectLimit = 2 * time.Second
	// goodbyeTimeout bounds the goodbye: a hub that does not take it notices the closed connection.
	goodbyeTimeout = 2 * time.Second
)

// register opens or re-attaches the session at the first hub that agrees. Before the first session any refusal is
// final. Later only being fenced or revoked is, since the control plane may be starting.
func (r *run) register(first bool) error {
	retry := backoff.Backoff{First: reconnectFirst, Limit: reconnectLimit}
	for {
		hub := r.client.current()
		var answer protocol.Registered
		err := r.client.send(r.loopCtx, r.client.calls, request{
			hub:     hub,
			method:  http.MethodPost,
			path:    protocol.RegisterPath,
			token:   r.agent.options.JoinToken,
			headers: map[string]string{protocol.SessionHeader: r.sessionNow().token}, // empty: it has none yet
			body:    r.registration(),
			timeout: callTimeout,
		}, &answer)
		if !first && code(err) == protocol.CodeUnauthorized {
			err = r.resume(hub, &answer, err)
		}
		if cause := ended(r.loopCtx); cause != nil {
			return cause
		}
		if heard(err) {
			r.contact()
		}
		switch {
		case err == nil:
			r.opened(hub, answer)
			return nil
		case endOf(err) != nil:
			return endOf(err)
		case first && isFinal(err):
			return fmt.Errorf("agent: the hub refused the registration: %w", err)
		}
		r.reconnecting(hub, err)
		r.client.rotate(hub)
		retry.Pause(r.loopCtx)
		if cause := ended(r.loopCtx); cause != nil {
			return cause
		}
	}
}

// resume goes on with the agent's session when its join token no longer counts. It returns refused where that does not
// help.
func (r *run) resume(hub int, answer *protocol.Registered, refused error) error {
	s := r.sessionNow()
	err := r.client.send(r.loopCtx, r.client.calls, request{
		hub:     hub,
		method:  http.MethodPost,
		path:    r.client.path(protocol.SessionPath, ""),
		token:   s.token,
		body:    r.registration(),
		timeout: callTimeout,
	}, answer)
	if err == nil || endOf(err) != nil || !isFinal(err) {
		return err
	}
	return refused // its message names what to do
}

func (r *run) registration() protocol.Register {
	o := r.agent.options
	host, _ := os.Hostname() // only a description: empty is fine
	reg := protocol.Register{
		AgentID:    o.ID,
		InstanceID: r.instance,
		Cluster:    o.Cluster,
		AgentProfile: api.AgentProfile{
			MaxTasks:         o.Slots,
			TaskTypes:        r.agent.taskTypes(),
			Capabilities:     o.Capabilities,
			Host:             host,
			PID:              os.Getpid(),
			Address:          o.Address,
			StartedAt:        r.startedAt.UTC(),
			Zone:             o.Zone,
			Group:            o.Group,
			Version:          o.Version,
			Metadata:         o.Metadata,
			EndsProcessTrees: endsProcessTrees(),
			Reconnects:       true,
			Resources:        o.Resources,
		},
		Providers: r.agent.ownProviders(),
		Bundles:   true,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registrations++
	reg.Registration = r.registrations
	for _, at := range r.attempts {
		if !at.reported {
			reg.Running = append(reg.Running, at.listing(true))
		}
	}
	return reg
}

// opened starts a session. The hub may know nothing, so tokens and checkpoints are sent again.
func (r *run) opened(hub int, answer protocol.Registered) {
	r.mu.Lock()
	r.session = session{
		hub: hub, token: answer.SessionToken, epoch: answer.Epoch, interval: answer.HeartbeatInterval.Std(),
		lease: answer.Lease.Std(), generation: r.session.generation + 1,
	}
	if r.lease > r.session.lease { // the hub counts with the new one as soon as it hears from the session
		r.lease = r.session.lease
		r.leaseChanged()
	}
	r.beat = beat{at: time.Now(), failureThreshold: answer.FailureThreshold.Std(), answered: true}
	for _, at := range r.attempts {
		at.acknowledged = false
		at.checkpointSent = 0
	}
	r.stateTold = ""
	clear(r.unused)
	running := len(r.attempts)
	r.mu.Unlock()
	url := protocol.ShownURL(r.client.url(hub))
	r.reportSession(hub, answer.SessionToken)
	r.agent.log.Info("Registered", "hub", url, "hub_id", answer.HubID, "epoch", answer.Epoch, "running", running)
	r.agent.emit(Event{Kind: EventRegistered, HubURL: url, Epoch: answer.Epoch,
		HeartbeatInterval: answer.HeartbeatInterval.Std(), FailureThreshold: answer.FailureThreshold.Std()})
}

// reconnecting reports that a hub could not be used.
func (r *run) reconnecting(hub int, err error) {
	url := protocol.ShownURL(r.client.url(hub))
	r.sayUnused(url, err)
	r.agent.emit(Event{Kind: EventReconnecting, HubURL: url, Err: err})
}

// sayAgainAfter is how long the same trouble with a hub is not said again.
const sayAgainAfter = time.Minute

// sayUnused logs why a hub cannot be used, and what to do: once, and then at most every minute.
func (r *run) sayUnused(url string, err error) {
	said := url + " " + err.Error()
	r.mu.Lock()
	again := time.Since(r.unused[said]) < sayAgainAfter
	if !again {
		r.unused[said] = time.Now()
	}
	r.mu.Unlock()
	if again {
		return
	}
	log := r.agent.log.With("hub", url, "error", err)
	if what := remedy(err); what != "" {
		log = log.With("remedy", what)
	}
	log.Warn("The hub cannot be used; trying again, work goes on meanwhile")
}

// goodbye ends the session. It is sent only when no handler runs: the hub may then give the work to another agent at
// once.
func (r *run) goodbye() {
	s := r.sessionNow()
	if _, running := r.anyRunning(); s.token == "" || running > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.work, goodbyeTimeout)
	defer cancel()
	err := r.client.send(ctx, r.client.calls, request{
		hub:     s.hub,
		method:  http.MethodDelete,
		path:    r.client.path(protocol.SessionPath, ""),
		token:   s.token,
		timeout: goodbyeTimeout,
	}, nil)
	var refused *refusal
	if err != nil && !errors.As(err, &refused) {
		r.agent.log.Warn("The hub did not hear the goodbye; it will notice the closed connection", "error", err)
	}
}

// renewLease starts the lease anew from when an answered poll was sent. length is its new one; 0: as before. The mutex
// is held.
func (r *run) renewLease(sentAt time.Time, length time.Duration) {
	if length > 0 {
		r.session.lease = length
	}
	if sentAt.After(r.leaseFrom) {
		r.leaseFrom, r.lease = sentAt, r.session.lease
		r.leaseChanged()
	}
}

// leaseChanged makes those who wait for the lease's end look again. The mutex is held.
func (r *run) leaseChanged() {
	close(r.renewed)
	r.renewed = make(chan struct{})
	r.watchLease()
}

// leaseEnd returns the present end of the lease, zero for never, and a channel that is closed when that changes.
func (r *run) leaseEnd() (time.Time, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease <= 0 || r.leaseFrom.IsZero() {
		return time.Time{}, r.renewed
	}
	return r.leaseFrom.Add(r.lease), r.renewed
}

// watchLease sets the timer to the lease's end. The mutex is held.
func (r *run) watchLease() {
	if r.lease <= 0 || r.leaseFrom.IsZero() {
		return
	}
	left := time.Until(r.leaseFrom.Add(r.lease))
	if r.leaseTimer == nil {
		r.leaseTimer = time.AfterFunc(left, r.checkLease)
		return
	}
	r.leaseTimer.Reset(left)
}

// checkLease stops fenced work when the lease has run out. Times are monotonic.
func (r *run) checkLease() {
	var expired []*attempt
	r.mu.Lock()
	if r.leaseOver() {
		for _, at := range r.attempts {
			if at.task.RetrySafety == api.Fenced && !at.leaseExpired {
				at.leaseExpired = true
				expired = append(expired, at)
			}
		}
	} else {
		r.watchLease()
	}
	r.mu.Unlock()
	for _, at := range expired {
		at.cancel(ErrLeaseExpired)
		at.log().Warn("The lease has run out: stopping a fenced attempt")
		r.agent.emit(at.event(EventLeaseExpired))
	}
}

// leaseOver reports whether the lease has run out. The mutex is held.
func (r *run) leaseOver() bool {
	return r.lease > 0 && !r.leaseFrom.IsZero() && time.Since(r.leaseFrom) >= r.lease
}

// inTime returns the assignments of an answer that may begin, and hands the others back: all when the answer took
// longer than the lease, as in a process that was frozen, because the hub may have given them to others; and without a
// lease fenced work.
func (r *run) inTime(answer pollAnswer) []protocol.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	late, over := r.lease > 0 && time.Since(answer.poll.sentAt) >= r.lease, r.leaseOver()
	return slices.DeleteFunc(answer.polled.Assignments, func(a protocol.Assignment) bool {
		no := late || over && a.RetrySafety == api.Fenced
		if no {
			r.giveBack(a, 0)
		}
		return no
	})
}

// giveBack returns an assignment that has not begun with the next poll. portInUse is a port of its allocation that
// another process has, else 0. The mutex is held.
func (r *run) giveBack(a protocol.Assignment, portInUse int) {
	r.returned = append(r.returned, protocol.RunningAttempt{TaskID: a.TaskID, Attempt: a.Attempt, Token: a.Token,
		PortInUse: portInUse})
}

// hasFenced reports whether fenced work runs. The mutex is held.
func (r *run) hasFenced() bool {
	for _, at := range r.attempts {
		if at.task.RetrySafety == api.Fenced {
			return true
		}
	}
	return false
}
