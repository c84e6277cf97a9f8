package events

import (
	"context"
	"time"

	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

const (
	// hubHold is how long one question waits for an event.
	hubHold = 10 * time.Second
	// hubAgain spaces questions to a hub that does not answer: the first, and the longest pause.
	hubAgain    = 500 * time.Millisecond
	hubAgainMax = 5 * time.Second
)

// hubSource is one hub that the feed follows.
type hubSource struct {
	id    string
	first bool // it was there when the run began: its past is no news
	stop  context.CancelFunc
	begun chan struct{} // closed when the hub was asked for the first time
}

// followHub asks a hub for what it sees, again and again, until ctx ends.
func (r *feedRun) followHub(ctx context.Context, h *hubSource) {
	begun := false
	begin := func() {
		if !begun {
			begun = true
			close(h.begun)
		}
	}
	defer begin()
	ask := contract.ReadEventsInput{From: r.begun}
	if h.first {
		ask = contract.ReadEventsInput{Newest: true}
	}
	silent := false
	for retry := (backoff.Backoff{First: hubAgain, Limit: hubAgainMax}); ctx.Err() == nil; {
		read, answered, err := r.feed.askHub(ctx, h.id, ask)
		if why, never := cannotAsk(err); never {
			r.goDeaf(why)
			return
		}
		if err != nil || !answered {
			begin()
			silent = true
			retry.Pause(ctx)
			continue
		}
		retry.Reset()
		events := ofHub(h.id, &read, ask)
		if silent && ask.Newest {
			events = append(events, gap(time.Now(), "", "hub "+h.id+" did not answer for a while", 0))
		}
		silent = false
		mark := hubMark{process: read.Process, seq: read.Seq, at: time.Now()}
		if len(events) > 0 || len(read.Changed) > 0 {
			r.publishWith(ctx, read.Changed, events, func(p *position) { p.hubs[h.id] = mark })
		}
		ask = contract.ReadEventsInput{Process: read.Process, After: read.Seq, Hints: read.Hints,
			Wait: fleet.Duration(hubHold)}
		begin()
	}
}

// goDeaf notes that this Temporal cannot ask hubs.
func (r *feedRun) goDeaf(why string) {
	r.mu.Lock()
	known := r.deaf
	r.deaf = true
	r.mu.Unlock()
	if !known {
		r.publish([]told{deafness(why)}, nil)
	}
}

// cannotAsk reports whether this Temporal can never ask a hub, and why.
func cannotAsk(err error) (why string, never bool) {
	p, _ := httpapi.Body(err)
	return p.Detail, p.Code == protocol.CodeNotSupported
}

func deafness(why string) told {
	return gap(time.Now(), "", "what only hubs know (running, progress, suspect) cannot be told: "+why, 0)
}
