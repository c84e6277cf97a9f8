package gateway

import (
	"context"
	"time"

	"github.com/google/uuid"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

const (
	// hubHold is how long one question waits for an event, and hubLate how much later an answer counts: a hub that was killed
	// is asked again after both.
	hubHold = 10 * time.Second
	hubLate = 3 * time.Second
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
	for pause := hubAgain; ctx.Err() == nil; {
		read, answered, err := r.feed.gateway.hubEvents(ctx, h.id, ask)
		if code, _ := httpapi.Code(err); code == protocol.CodeNotSupported {
			r.goDeaf()
			return
		}
		if err != nil || !answered {
			begin()
			silent = true
			_ = r.feed.gateway.pause(ctx, pause)
			pause = min(2*pause, hubAgainMax)
			continue
		}
		pause = hubAgain
		events := ofHub(h.id, &read, ask)
		if silent && ask.Newest {
			events = append(events, gap(time.Now(), "", "hub "+h.id+" did not answer for a while", 0))
		}
		silent = false
		mark := hubMark{process: read.Process, seq: read.Seq, at: time.Now()}
		if len(events) > 0 || len(read.Changed) > 0 {
			r.publishWith(ctx, read.Changed, events, func(p *position) { p.hubs[h.id] = mark })
		}
		ask = contract.ReadEventsInput{Process: read.Process, After: read.Seq, Hints: read.Hints, Wait: fleet.Duration(hubHold)}
		begin()
	}
}

// goDeaf notes that this Temporal has no standalone activities, so that hubs cannot be asked.
func (r *feedRun) goDeaf() {
	r.mu.Lock()
	known := r.deaf
	r.deaf = true
	r.mu.Unlock()
	if !known {
		r.publish([]told{gap(time.Now(), "", "what only hubs know (running, progress, suspect) cannot be told: "+noStandaloneActivities, 0)}, nil)
	}
}

// hubEvents asks a hub for events. answered is false when it does not answer in time.
func (g *Gateway) hubEvents(ctx context.Context, hub string, in contract.ReadEventsInput) (read contract.ReadEventsResult, answered bool, err error) {
	answered, err = g.ask(ctx, hubQuestion{
		hub: hub, activity: contract.ReadEventsActivity, id: contract.ReadEventsID(hub, uuid.NewString()), summary: "events at hub " + hub,
		input: in, wait: in.Wait.Std(), margin: hubLate,
	}, &read)
	return read, answered, err
}
