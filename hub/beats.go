package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// Each attempt heartbeat is a write in Temporal, so they are rare: one soon after the attempt begins, so that observers
// see who runs it; one when a checkpoint or progress changed; else one every third of the backstop.
const (
	beatTick       = 250 * time.Millisecond
	beatFirst      = time.Second
	beatCheckpoint = time.Second
	beatProgress   = 5 * time.Second
	beatRenew      = fleet.AttemptBackstop / 3
	beaters        = 8
)

// beat renews the attempts' heartbeats until the hub stops.
func (h *Hub) beat() {
	h.every(beatTick, func(now time.Time) { h.sendBeats(h.dueBeats(now)) })
}

// dueBeat is one heartbeat to send.
type dueBeat struct {
	attempt *attempt
	token   []byte
	report  contract.AttemptReport
}

func (h *Hub) dueBeats(now time.Time) []dueBeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []dueBeat
	for _, s := range h.sessions {
		for _, a := range s.attempts {
			if a.beatDue(now) {
				a.beatAt, a.beatNeeds, a.beatCheck = now, false, false
				due = append(due, dueBeat{a, a.token, a.report(h.id)})
			}
		}
	}
	return due
}

func (a *attempt) beatDue(now time.Time) bool {
	if a.beatAt.IsZero() {
		return now.Sub(a.assignedAt) >= beatFirst
	}
	since := now.Sub(a.beatAt)
	return since >= beatRenew || a.beatCheck && since >= beatCheckpoint || a.beatNeeds && since >= beatProgress
}

func (h *Hub) sendBeats(due []dueBeat) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, beaters)
	for _, d := range due {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			h.sendBeat(d)
		})
	}
	wg.Wait()
}

func (h *Hub) sendBeat(d dueBeat) {
	details, err := payloads(d.report)
	if err != nil {
		h.log.Error("A heartbeat cannot be encoded", zap.Error(err))
		return
	}
	ctx, cancel := context.WithTimeout(h.run, 5*time.Second)
	defer cancel()
	answer, err := h.service.RecordActivityTaskHeartbeat(ctx, &workflowservice.RecordActivityTaskHeartbeatRequest{
		TaskToken: d.token, Details: details, Identity: h.identity(), Namespace: h.namespace,
	})
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		h.drop(d.attempt, "the attempt no longer counts")
	case err != nil:
		h.mu.Lock()
		d.attempt.beatNeeds = true // again in a while; the backstop is long
		h.mu.Unlock()
		h.log.Debug("A heartbeat was not taken", zap.Error(err))
	case answer.GetCancelRequested():
		h.cancelAttempt(d.attempt)
	}
}

// drop tells the agent to stop an attempt whose result no longer counts.
func (h *Hub) drop(a *attempt, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := a.session; s.attempts[a.attemptKey] == a {
		h.forget(a)
		s.command(protocol.Command{Type: protocol.CommandDrop, TaskID: a.task, Attempt: a.number, Reason: why})
	}
}

// cancelAttempt tells the agent to stop an attempt and report; again whenever Temporal asks again, in case the agent did
// not hear it.
func (h *Hub) cancelAttempt(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := a.session; s.attempts[a.attemptKey] == a {
		a.cancelling = true
		s.command(protocol.Command{Type: protocol.CommandCancel, TaskID: a.task, Attempt: a.number, Reason: "the task was cancelled"})
	}
}
