package hub

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
)

const (
	// failers bounds the concurrent reports of ends without a result. One that failed holds none while it pauses.
	failers = 16
	// failGiveUp is when to stop reporting an end: by then the backstop has ended the attempt.
	failGiveUp = 2 * time.Minute
)

// responder reports the ends of attempts to Temporal. A result is reported within its request. An end without a result
// is queued and repeated until Temporal has it, or the backstop has ended the attempt.
type responder struct {
	hub     *Hub
	pending *part.Group
	slots   chan struct{}
}

func newResponder(h *Hub) *responder {
	return &responder{hub: h, pending: part.NewGroup(), slots: make(chan struct{}, failers)}
}

// fail queues the end of an attempt without a result. taken is called once Temporal has it.
func (r *responder) fail(a *attempt, report contract.AttemptReport, log []api.LogLine, taken func()) {
	noted, ended := time.Now(), a.session != nil && a.session.gone
	inTouch := r.hub.lease.Fresh(noted)
	try := func(ctx context.Context) (err error) {
		r.slots <- struct{}{}
		defer func() { <-r.slots }()
		counts := true
		if inTouch = inTouch && r.hub.lease.Fresh(time.Now()); ended || !inTouch {
			counts, err = r.counts(ctx, a, noted, inTouch)
		}
		if counts {
			err = r.hub.store.Fail(ctx, a.Temporal, report, log)
			inTouch = inTouch && err == nil
		}
		if counts && err == nil {
			taken()
		}
		return err
	}
	r.pending.Go(func() {
		ctx, cancel := context.WithTimeout(r.hub.run, failGiveUp)
		defer cancel()
		for retry := (backoff.Backoff{First: 50 * time.Millisecond, Limit: 2 * time.Second}); ; retry.Pause(ctx) {
			err := try(ctx)
			if err == nil || store.KindOf(err) == store.NotFound {
				return
			}
			if ctx.Err() != nil {
				r.hub.log.Warn("The end of an attempt was not reported; its backstop ends it", zap.Error(err))
				return
			}
		}
	})
}

// errUnsure: the newest heartbeat of an attempt is this hub's, but Temporal took it after its end here. It was late,
// and may hide one of another hub, which sends more.
var errUnsure = errors.New("it is not known yet whether another hub has the attempt")

// counts reports whether an attempt is still this hub's to end. An agent whose session ended here, or that was here
// while the hub was out of touch with Temporal, may have taken it to another hub. In touch, no heartbeat was late.
func (r *responder) counts(ctx context.Context, a *attempt, noted time.Time, inTouch bool) (bool, error) {
	holder, seen, open, err := r.hub.store.Tasks().HolderOf(ctx, a.Task, a.Attempt)
	switch {
	case err != nil:
		return false, err
	case !open || holder != "" && holder != r.hub.id: // without a heartbeat it is here
		r.hub.log.Info("An attempt goes on at another hub, or has ended", zap.String("task", a.Task),
			zap.Int("attempt", a.Attempt))
		return false, nil
	case !inTouch && seen.After(noted):
		return false, errUnsure
	}
	return true, nil
}

// boundLog is the end of a log with at most most bytes of JSON.
func boundLog(log []api.LogLine, most int) []api.LogLine {
	for len(log) > 0 {
		if data, err := json.Marshal(log); err == nil && len(data) <= most {
			break
		}
		log = log[len(log)/4+1:] // control characters take six bytes each
	}
	return log
}
