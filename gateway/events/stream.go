package events

import (
	"bufio"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

const (
	eventStream = "text/event-stream"
	// eventBeat is how often an idle stream shows that it is alive, for proxies and for clients.
	eventBeat = 15 * time.Second
	// eventWrite bounds one write: a listener whose connection takes nothing for so long has gone.
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

// open tells how soon to come back after a break.
func (s *streamWriter) open() error {
	return s.write(func() { _, _ = s.w.WriteString(": events of the fleet; see docs/EVENTS.md\nretry: 1000\n\n") })
}

// send writes the events that the filter allows. position is the id from which on the client goes on after a break,
// once it has them all; empty: the one it had.
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
			e := &events[i]
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

// withoutTold drops the events that were told.
func withoutTold(events []told, known map[string]bool) []told {
	return slices.DeleteFunc(events, func(e told) bool { return known[e.id] })
}
