package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"mainstay.dev/mainstay/api"
)

// maxEvent bounds one line of a stream of events in bytes.
const maxEvent = 1 << 20

// EventReader reads a stream of server-sent events, for programs that are no browsers.
type EventReader struct {
	lines *bufio.Scanner
	// LastID is the newest id that was read. Sent as Last-Event-ID, it has another stream go on after what this one
	// told.
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
