package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

const (
	// pollMargin is how much longer than the heartbeat interval a poll may take.
	pollMargin = 3 * time.Second
	// checkpointSpacing is the least time between two polls because of a checkpoint.
	checkpointSpacing = 250 * time.Millisecond
	// checkpointBudget bounds the checkpoints of one poll, in bytes. The rest goes with the next poll.
	checkpointBudget = 2 << 20
	// lastPollLimit bounds the wait until a hub has taken the last poll.
	lastPollLimit = 2 * time.Second
	// When a hub keeps answering at once without work, the agent polls more slowly after a few of these answers.
	quickAnswer = 50 * time.Millisecond
	quickFree   = 3
	quickLimit  = time.Second
)

// sentPoll is a poll, and what its answer will confirm.
type sentPoll struct {
	session session
	body    protocol.Poll
	sentAt  time.Time
	listed  []listedAttempt
}

type listedAttempt struct {
	attempt    *attempt
	checkpoint int // version that was sent; 0: none
}

type pollAnswer struct {
	poll   sentPoll
	polled protocol.ReadPolled
	err    error
}

// poll keeps a poll open until one fails or the loop ends. For something urgent, such as a checkpoint, it sends a
// second poll, which makes the hub answer the held one at once. It ignores assignments in answers to superseded polls:
// since the newer poll does not list them, the hub knows that they never began, and delivers them again.
func (r *run) poll(retry *backoff.Backoff) error {
	const most = 2
	answers := make(chan pollAnswer, most+1) // the last poll may come on top
	open := 0
	polls := r.look.ofHub(r.work)
	send := func() (sequence int64) {
		p := r.nextPoll()
		open++
		r.background.Go(func() { answers <- r.send(polls, p) })
		return p.body.Sequence
	}
	early := time.NewTimer(time.Hour)
	defer early.Stop()
	quick, slowDown := 0, backoff.Backoff{First: 2 * quickAnswer, Limit: quickLimit}
	for send(); ; {
		if at, wanted := r.earlyPoll(); wanted && open < most {
			early.Reset(time.Until(at))
		} else {
			early.Stop()
		}
		select {
		case <-r.loopCtx.Done():
			if errors.Is(ended(r.loopCtx), errDrained) {
				awaitTaken(answers, send())
			}
			return ended(r.loopCtx)
		case <-r.wake:
		case found := <-r.look.found:
			if r.leaves(found) {
				return found
			}
		case <-early.C:
			send()
		case answer := <-answers:
			open--
			newest := r.isNewest(answer.poll)
			if heard(answer.err) {
				r.contact()
			}
			if answer.err != nil {
				if newest || endOf(answer.err) != nil {
					r.missed()
					return answer.err
				}
				continue
			}
			retry.Reset()
			r.obey(answer.polled.Commands)
			r.answered = max(r.answered, answer.poll.body.Sequence)
			if !newest {
				continue
			}
			r.confirmed(answer.poll, &answer.polled.Polled)
			if answer.polled.LeaseHeld {
				r.lookElsewhere(answer.poll.session.hub)
			} else {
				r.look.renewed()
			}
			r.returnUnreadable(answer.polled)
			began := r.accept(r.inTime(answer))
			if quick++; began+len(answer.polled.Unreadable) > 0 || time.Since(answer.poll.sentAt) > quickAnswer {
				quick = 0
				slowDown.Reset()
			} else if quick > quickFree {
				slowDown.Pause(r.loopCtx)
			}
			send()
		}
	}
}

// returnUnreadable reports with the next poll which assignments of an answer cannot be read.
func (r *run) returnUnreadable(p protocol.ReadPolled) {
	if p.Ignored > 0 {
		r.agent.log.Error("A part of a hub's answer cannot be read and is ignored; this agent may be too old", "parts",
			p.Ignored)
	}
	for _, u := range p.Unreadable {
		r.agent.log.Error("An assignment cannot be read; it goes back", "task", u.TaskID, "attempt", u.Attempt, "error",
			u.Unreadable)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned = append(r.returned, p.Unreadable...)
}

// awaitTaken waits until a hub has taken the agent's last poll, which lists nothing, so that no assignment is on its
// way at the goodbye. The hub confirms it by answering the poll before it, which it supersedes.
func awaitTaken(answers <-chan pollAnswer, last int64) {
	limit := time.NewTimer(lastPollLimit)
	defer limit.Stop()
	for {
		select {
		case answer := <-answers:
			if answer.poll.body.Sequence >= last-1 && len(answer.polled.Assignments) == 0 {
				return
			}
		case <-limit.C:
			return
		}
	}
}

// nextPoll makes the newest poll.
func (r *run) nextPoll() sentPoll {
	health, note := r.agent.ownHealth()
	providers := r.agent.ownProviders()
	metrics := r.metrics.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	var state *api.StateSummary
	if r.agent.options.State != nil {
		state = r.agent.options.State.summaryUnless(r.stateTold)
	}
	r.sequence++
	r.pollAt = time.Time{}
	p := sentPoll{session: r.session, sentAt: time.Now(), body: protocol.Poll{
		Sequence: r.sequence, Answered: new(r.answered), Metrics: metrics, Counters: r.counters,
		Health:     health,
		HealthNote: note,
		Stopping:   r.stopping,
		Returned:   r.returned,
		Providers:  providers,
		State:      state,
		Lease:      api.Duration(r.session.lease),
	}}
	budget := checkpointBudget
	for _, at := range r.attempts {
		entry, listed := at.listing(!at.acknowledged), listedAttempt{attempt: at}
		switch {
		case at.checkpointVersion == at.checkpointSent:
		case len(at.checkpoint) > budget:
			r.pollAt = p.sentAt.Add(checkpointSpacing)
		default:
			budget -= len(at.checkpoint)
			entry.Checkpoint, listed.checkpoint = at.checkpoint, at.checkpointVersion
			entry.CheckpointDigest = api.JSONDigest(at.checkpoint)
		}
		p.body.Running = append(p.body.Running, entry)
		p.listed = append(p.listed, listed)
	}
	r.polledAt = p.sentAt
	return p
}

func (r *run) send(ctx context.Context, p sentPoll) pollAnswer {
	answer := pollAnswer{poll: p}
	answer.err = r.client.send(ctx, r.client.polls, request{
		hub: p.session.hub, method: http.MethodPost, path: r.client.path(protocol.PollPath, ""), token: p.session.token,
		body: p.body, timeout: p.session.interval + pollMargin,
	}, &answer.polled)
	return answer
}

func (r *run) isNewest(p sentPoll) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.body.Sequence == r.sequence
}

// confirmed records that the hub has taken the newest poll. It renews the lease unless the hub withholds it, as when
// the hub has lost touch with Temporal.
func (r *run) confirmed(p sentPoll, answer *protocol.Polled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned = r.returned[len(p.body.Returned):]
	if p.body.State != nil && p.session.generation == r.session.generation {
		r.stateTold = p.body.State.Digest
	}
	for _, l := range p.listed {
		l.attempt.acknowledged = true
		if l.checkpoint > 0 {
			l.attempt.checkpointSent = l.checkpoint
		}
	}
	r.beat = beat{at: time.Now(), failureThreshold: r.beat.failureThreshold, answered: true,
		storeAway: answer.LeaseHeld}
	if !answer.LeaseHeld {
		r.renewLease(p.sentAt, answer.Lease.Std())
	}
}

// pollWithin requests a poll while one is held, at least spacing after the last one was sent.
func (r *run) pollWithin(spacing time.Duration) {
	r.mu.Lock()
	at := r.polledAt.Add(spacing)
	if r.pollAt.IsZero() || at.Before(r.pollAt) {
		r.pollAt = at
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// earlyPoll is when to supersede the held poll. Only answers to the newest poll renew the lease of fenced work, and a
// hub may hold that poll for the whole interval, so superseding stops early enough before the lease's end.
func (r *run) earlyPoll() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pollAt.IsZero() {
		return time.Time{}, false
	}
	if !r.stopping && r.hasFenced() && !r.leaseFrom.IsZero() {
		last := r.leaseFrom.Add(r.lease*4/5 - r.session.interval)
		if r.pollAt.After(last) || time.Now().After(last) {
			return time.Time{}, false
		}
	}
	return r.pollAt, true
}

// obey carries out the hub's commands. They may arrive twice.
func (r *run) obey(commands []protocol.Command) {
	for _, c := range commands {
		switch c.Type {
		case protocol.CommandCancel:
			r.interrupt(c, ErrCancelled, EventCancelled)
		case protocol.CommandDrop:
			r.interrupt(c, ErrDropped, EventDropped)
		case protocol.CommandRole:
			r.takeRole(c)
		case protocol.CommandLog:
			r.shipLog(c)
		case protocol.CommandState, protocol.CommandSync:
			r.background.Go(func() { r.obeyState(c) })
		default:
			r.agent.log.Warn("A command of an unknown type is ignored; this agent may be too old", "type", c.Type)
		}
	}
}

// interrupt ends the context of one attempt's handler. If the handler has returned, its result is on its way and the
// hub decides whether it counts.
func (r *run) interrupt(c protocol.Command, cause error, kind EventKind) {
	r.mu.Lock()
	at := r.attempts[attemptKey{c.TaskID, c.Attempt}]
	r.mu.Unlock()
	if at == nil || at.handler.Err() != nil {
		return
	}
	at.cancel(cause)
	at.log().Info("Stopping the attempt", "why", kind, "reason", c.Reason)
	ev := at.event(kind)
	ev.Reason = c.Reason
	r.agent.emit(ev)
}

// takeRole keeps the newest role.
func (r *run) takeRole(c protocol.Command) {
	r.mu.Lock()
	old := r.role
	if c.Epoch < old.Epoch {
		r.mu.Unlock()
		return
	}
	r.role = c
	r.mu.Unlock()
	r.takeStateRole(c)
	if old.Role == c.Role && old.Leader == c.Leader && old.Epoch == c.Epoch && slices.Equal(old.Shards, c.Shards) &&
		slices.Equal(old.Targets, c.Targets) {
		return
	}
	r.agent.log.Info("Role", "role", c.Role, "leader", c.Leader, "epoch", c.Epoch, "shards", c.Shards, "targets",
		len(c.Targets))
	r.agent.emit(Event{Kind: EventRole, Role: c.Role, Leader: c.Leader, Epoch: c.Epoch, Shards: c.Shards,
		Targets: c.Targets, Reason: c.Reason})
}
