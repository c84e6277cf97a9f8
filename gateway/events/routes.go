package events

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

type watchInput struct {
	Type        []string  `query:"type,explode" maxItems:"64" maxLength:"256" doc:"Only these types, or what begins with them: agent, task.completed, failover. The prefix dev.mainstay. may be left out; several are separated by commas."`
	Cluster     []string  `query:"cluster,explode" maxItems:"64" maxLength:"63" doc:"Only of these clusters."`
	Agent       rest.Slug `query:"agent" doc:"Only about this agent."`
	Task        string    `query:"task" maxLength:"255" pattern:"^[a-z0-9][a-z0-9._:@~-]*$" doc:"Only about this task."`
	Tenant      rest.Slug `query:"tenant" doc:"Only about this tenant's tasks."`
	Since       string    `query:"since" maxLength:"64" example:"15m" doc:"Begin with what is still known since then: a duration, or a time (RFC 3339). Ignored with Last-Event-ID."`
	Follow      bool      `query:"follow" default:"true" doc:"false: end after what has happened already."`
	LastEventID string    `header:"Last-Event-ID" doc:"The newest id that was received: go on after it. Any gateway understands it."`
	LastID      string    `query:"last_event_id" doc:"The same, for clients that cannot set the header."`
}

// watchRequest is what a listener asks for, as it was understood.
type watchRequest struct {
	filter eventFilter
	from   *position // nil: from now on
	since  time.Time // zero: everything after from
	lost   bool      // Last-Event-ID could not be read
	follow bool
}

// Register adds the operation that streams events to api.
func (f *Feed) Register(routes rest.API) {
	rest.Respond(rest.On(routes, "Events").Scoped(), "watch-events", "GET /events", "Watch what happens in the fleet",
		"Server-sent events, each a CloudEvent (1.0, structured JSON). docs/EVENTS.md lists the types. "+
			"A browser's EventSource reconnects by itself and goes on after the newest id; an event may then come twice, "+
			"with the same id. Where events are missing, an event of type dev.mainstay.gap says so.",
		f.watch, rest.Held, rest.Stream(eventStream, "The stream.", "text/event-stream; data is a CloudEvent"))
}

func (f *Feed) watch(ctx context.Context, in *watchInput) (*huma.StreamResponse, error) {
	if id := access.From(ctx); id.Tenant != "" {
		if in.Tenant != "" && string(in.Tenant) != id.Tenant {
			return nil, httpapi.InvalidField("query.tenant",
				"your token sees only its own tenant's tasks: leave the tenant out")
		}
		in.Tenant = rest.Slug(id.Tenant)
		if tenant, _ := api.CutTenant(in.Task); tenant == "" && in.Task != "" {
			in.Task = api.Qualify(id.Tenant, in.Task)
		}
	}
	request, err := readRequest(in, f.seal, time.Now())
	if err != nil {
		return nil, err
	}
	l, run, err := f.listen(request.filter)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer f.leave(l)
		s := newStreamWriter(hc, f.seal)
		if err := f.stream(hc.Context(), s, l, run, request); err != nil {
			f.logger.Debug("a listener to events has gone")
		}
	}}, nil
}

func readRequest(in *watchInput, s seal, now time.Time) (*watchRequest, error) {
	types, err := parseTypes(in.Type)
	if err != nil {
		return nil, httpapi.InvalidField("query.type", err.Error())
	}
	for _, cluster := range in.Cluster {
		if err := api.ValidateID("cluster", cluster); err != nil {
			return nil, httpapi.InvalidField("query.cluster", err.Error())
		}
	}
	r := &watchRequest{follow: in.Follow, filter: eventFilter{types: types, clusters: in.Cluster,
		agent: string(in.Agent), task: in.Task, tenant: string(in.Tenant)}}
	last := in.LastEventID
	last = cmp.Or(last, in.LastID)
	switch {
	case last != "":
		p, err := parsePosition(s.open(last))
		if r.lost = err != nil; !r.lost {
			r.from = &p
		}
	case in.Since != "":
		if r.since, err = sinceWhen(in.Since, now); err != nil {
			return nil, httpapi.InvalidField("query.since", err.Error())
		}
		p := positionSince(r.since)
		r.from = &p
	}
	return r, nil
}

// sinceWhen reads a duration before now, or a time.
func sinceWhen(text string, now time.Time) (time.Time, error) {
	if d, err := api.ParseDuration(text); err == nil && d >= 0 && d <= maxPast {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || now.Sub(t) > maxPast {
		return t, errors.New("must be a duration such as 15m, or a time (RFC 3339), no longer than a day ago")
	}
	return t, nil
}

// stream sends a listener its events until it leaves, the gateway stops, or no more can come.
func (f *Feed) stream(ctx context.Context, s *streamWriter, l *listener, run *feedRun, r *watchRequest) error {
	select { // what happens once the stream is open is in it
	case <-run.ready:
	case <-run.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.open(); err != nil {
		return err
	}
	repeated := map[string]bool{} // already sent as past
	if r.lost {
		if err := s.send(r.filter, []told{gap(time.Now(), "",
			"Last-Event-ID is not of this API: what happened before is not told", 0)}, ""); err != nil {
			return err
		}
	}
	if r.from != nil {
		done, err := f.turn(ctx)
		if err != nil {
			return err
		}
		events := f.past(ctx, *r.from, &r.filter, time.Now())
		done()
		if !r.since.IsZero() {
			events = notBefore(events, r.since)
		}
		for i := range events {
			repeated[events[i].id] = true
		}
		if err := s.send(r.filter, events, ""); err != nil {
			return err
		}
	}
	if !r.follow {
		return nil
	}
	beat := time.NewTicker(eventBeat)
	defer beat.Stop()
	forget := time.After(positionWindow)
	for tell := true; ; { // tell: also send the position, when there are no events
		events, missed, at, ended := l.take()
		if len(repeated) > 0 {
			events = withoutTold(events, repeated)
		}
		if missed > 0 {
			events = append(events, gap(time.Now(), "", "the listener is too slow: what came meanwhile was dropped",
				missed))
		}
		if tell || len(events) > 0 {
			if err := s.send(r.filter, events, at); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		tell = false
		select {
		case <-l.wake:
		case <-beat.C:
			tell = true
			if err := s.beat(); err != nil {
				return err
			}
		case <-forget:
			repeated = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	eventStream = "text/event-stream"
	// eventBeat is how often an idle stream shows that it is alive, for proxies and for clients.
	eventBeat = 15 * time.Second
	// eventWrite bounds one write. A listener whose connection takes nothing for this long counts as gone.
	eventWrite = 20 * time.Second
)

// streamWriter writes server-sent events.
type streamWriter struct {
	w        *bufio.Writer
	seal     seal
	flush    func() error
	extend   func(time.Time) error
	position string // that the client has
}

// newStreamWriter sends the headers. Nothing on the way may hold events back or keep them.
func newStreamWriter(hc huma.Context, seal seal) *streamWriter {
	hc.SetHeader("Content-Type", eventStream)
	hc.SetHeader("Cache-Control", "no-cache, no-transform")
	hc.SetHeader("X-Accel-Buffering", "no")
	hc.SetStatus(http.StatusOK)
	s := &streamWriter{w: bufio.NewWriterSize(hc.BodyWriter(), 16<<10), seal: seal, flush: func() error { return nil },
		extend: func(time.Time) error { return nil }}
	if w, ok := hc.BodyWriter().(http.ResponseWriter); ok {
		control := http.NewResponseController(w)
		s.flush, s.extend = control.Flush, control.SetWriteDeadline
	}
	return s
}

// open sends the response's first lines, with the time after which to reconnect.
func (s *streamWriter) open() error {
	return s.write(func() { _, _ = s.w.WriteString(": events of the fleet; see docs/EVENTS.md\nretry: 1000\n\n") })
}

// send writes the events that the filter allows. position is the id from which the client continues after a break, once
// it has them all; if it is empty, the id stays the last one.
func (s *streamWriter) send(filter eventFilter, events []told, position string) error {
	events = slices.DeleteFunc(events, func(e told) bool { return !filter.allows(&e.Event) })
	if position == s.position {
		position = ""
	}
	if len(events) == 0 && position == "" {
		return nil
	}
	return s.write(func() {
		for i := range events {
			if i == len(events)-1 {
				s.id(position)
			}
			e := filter.shown(&events[i])
			e.encode(s.seal)
			_, _ = s.w.WriteString("data: ")
			_, _ = s.w.Write(e.json) // JSON has no line ends
			_, _ = s.w.WriteString("\n\n")
		}
		if len(events) == 0 {
			s.id(position)
			_, _ = s.w.WriteString("\n")
		}
	})
}

func (s *streamWriter) id(position string) {
	if position != "" {
		s.position = position
		_, _ = s.w.WriteString("id: " + position + "\n")
	}
}

// beat shows that the stream is alive.
func (s *streamWriter) beat() error {
	return s.write(func() { _, _ = s.w.WriteString(": alive\n\n") })
}

func (s *streamWriter) write(put func()) error {
	if err := s.extend(time.Now().Add(eventWrite)); err != nil {
		s.extend = func(time.Time) error { return nil } // no connection that has deadlines, as in tests
	}
	put()
	if err := s.w.Flush(); err != nil {
		return err
	}
	return s.flush()
}

// withoutTold drops the events that were sent.
func withoutTold(events []told, known map[string]bool) []told {
	return slices.DeleteFunc(events, func(e told) bool { return known[e.id] })
}
