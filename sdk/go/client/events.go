package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
)

const (
	// eventSilence is how long a stream may say nothing, not even that it is alive, before another is opened.
	eventSilence = 45 * time.Second
	// eventRetry and eventRetryMax space the attempts to reach the control plane again.
	eventRetry    = 250 * time.Millisecond
	eventRetryMax = 5 * time.Second
	// eventsSeen is how many events are remembered, to drop those that come again after a reconnect.
	eventsSeen = 20_000
)

// EventQuery selects events; all that is set must hold.
type EventQuery struct {
	Types               []string // these, or what begins with them: agent, task.completed, failover
	Clusters            []string
	Agent, Task, Tenant string
	// Since is how far back to begin: 15m, or a time (RFC 3339). Empty: now.
	Since string
	// Once ends the events with what has happened already. Without it, they go on until the context ends.
	Once bool
	// Reached is called when a stream that goes on cannot be opened again at once (false), and when it is open again.
	Reached func(bool)
}

// Events yields what happens in the fleet. When the control plane is away, they continue after the last one once it is
// back; an event of type dev.mainstay.gap says where some are missing. An error ends them, at last that of ctx.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[*api.CloudEvent, error] {
	return func(yield func(*api.CloudEvent, error) bool) {
		w := &watch{client: c, query: q, seen: map[string]bool{}, yield: yield}
		if err := w.run(ctx); err != nil && !w.left {
			yield(nil, err)
		}
	}
}

// watch is where a listener to events is.
type watch struct {
	client *Client
	query  EventQuery
	yield  func(*api.CloudEvent, error) bool
	left   bool // the listener has had enough
	away   bool // the listener knows that the control plane does not answer

	last string // the newest id
	seen map[string]bool
	old  []string // of seen, oldest first
}

// run reads one stream, or one after the other.
func (w *watch) run(ctx context.Context) error {
	reached := false
	for retry := (backoff.Backoff{First: eventRetry, Limit: eventRetryMax}); ; {
		connected, err := w.read(ctx)
		var unreachable *UnreachableError
		switch {
		case w.left:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case w.query.Once || !reached && !connected:
			return err
		case err != nil && !errors.As(err, &unreachable) && !isAway(err):
			return err
		}
		if reached = true; connected {
			retry.Reset()
		} else {
			w.reach(false)
		}
		if err := w.client.pause(ctx, retry.Next()); err != nil {
			return err
		}
	}
}

// isAway reports whether the API answered that it cannot now.
func isAway(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code != "" && refused.Status == http.StatusServiceUnavailable
}

// reach reports a change to the listener.
func (w *watch) reach(reached bool) {
	if w.away == reached && w.query.Reached != nil {
		w.query.Reached(reached)
	}
	w.away = !reached
}

// read yields the events of one stream to its end. It reports whether it got a stream.
func (w *watch) read(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(eventSilence, func() { cancel(fmt.Errorf("silent for %s", eventSilence)) })
	defer silence.Stop()
	q := &w.query
	query := values("type", q.Types, "cluster", q.Clusters, "agent", q.Agent, "task", q.Task, "tenant", q.Tenant)
	header := http.Header{"Accept": {"text/event-stream"}}
	if q.Once {
		query.Set("follow", "false")
	}
	if w.last != "" {
		header.Set("Last-Event-ID", w.last)
	} else if q.Since != "" {
		query.Set("since", q.Since)
	}
	response, err := w.client.open(ctx, &request{method: http.MethodGet, path: path("events"), query: query,
		header: header}, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	w.reach(true)
	reader := NewEventReader(&sounding{response.Body, func() { silence.Reset(eventSilence) }})
	reader.LastID = w.last
	for {
		raw, event, err := reader.Next()
		w.last = reader.LastID
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return true, w.client.unreachable(ctx, err)
		case w.again(event.ID):
			continue
		}
		if w.client.raw != nil {
			*w.client.raw = raw
		}
		if w.left = !w.yield(event, nil); w.left {
			return true, nil
		}
	}
}

// again reports whether an event was yielded before, and remembers it.
func (w *watch) again(id string) bool {
	if w.seen[id] {
		return true
	}
	w.seen[id] = true
	if w.old = append(w.old, id); len(w.old) > eventsSeen {
		delete(w.seen, w.old[0])
		w.old = w.old[1:]
	}
	return false
}

// sounding calls heard whenever something is read.
type sounding struct {
	io.Reader
	heard func()
}

func (s *sounding) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 {
		s.heard()
	}
	return n, err
}

// maxEvent bounds one line of a stream of events in bytes.
const maxEvent = 1 << 20

// EventReader reads a stream of server-sent events, for programs that are no browsers.
type EventReader struct {
	lines *bufio.Scanner
	// LastID is the newest id that was read. Sent as Last-Event-ID, it makes another stream continue after this one's
	// last event.
	LastID string
}

// NewEventReader reads from the body of an answer.
func NewEventReader(body io.Reader) *EventReader {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	return &EventReader{lines: lines}
}

// Next returns the next event as it came, and decoded. It answers io.EOF when the stream has ended.
func (r *EventReader) Next() (json.RawMessage, *api.CloudEvent, error) {
	var data bytes.Buffer
	id := r.LastID
	for r.lines.Scan() {
		line := r.lines.Text()
		if line == "" {
			r.LastID = id
			if data.Len() == 0 {
				continue
			}
			event := &api.CloudEvent{}
			if err := json.Unmarshal(data.Bytes(), event); err != nil {
				return nil, nil, fmt.Errorf("read an event: %w", err)
			}
			return data.Bytes(), event, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			if data.Len() > 0 {
				data.WriteByte('\n')
			}
			data.WriteString(value)
		case "id":
			id = value
		}
	}
	if err := r.lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("read events: %w", err)
	}
	return nil, nil, io.EOF
}
