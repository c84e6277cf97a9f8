package agent

import (
	"bytes"
	"sync"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// taskLog keeps the newest lines of one attempt, within the protocol's bounds. Its lines never go into the agent's log
// or an error.
type taskLog struct {
	mu   sync.Mutex
	tail fleet.LogTail

	// While a hub wants lines:
	until    time.Time     // until then lines are sent as they come, because somebody reads them
	every    time.Duration // how often lines are sent that nobody reads; 0: not at all
	sent     int64         // lines up to this number were sent
	sentAt   time.Time     // when lines were last sent
	again    bool          // a new command came: answer even without lines
	shipping bool          // a goroutine sends
	wake     chan struct{} // wakes it for new lines and new commands
}

// add keeps a line.
func (l *taskLog) add(stream, text string) {
	text = cutText(text, fleet.MaxLogLineBytes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail.Add(fleet.LogLine{Number: l.tail.Last() + 1, At: time.Now().UTC(), Stream: stream, Text: text})
	l.signal()
}

// signal wakes the goroutine that sends, if there is one. The mutex is held.
func (l *taskLog) signal() {
	if !l.shipping {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// lines is a writer whose lines go to the attempt's log.
func (at *attempt) lines(stream string) *lineWriter { return &lineWriter{attempt: at, stream: stream} }

// lineWriter cuts its input into lines. A carriage return ends a line too, as in progress bars.
type lineWriter struct {
	attempt *attempt
	mu      sync.Mutex // processes left behind by a command may write while its handler ends
	stream  string
	line    []byte // begun and not ended
	begun   bool   // the line has begun, perhaps with no text
	after   byte   // the byte that ended the last line
}

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	w.attempt.signs.alive()
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\n\r")
		if i < 0 {
			w.keep(p)
			break
		}
		if i == 0 && p[0] == '\n' && w.after == '\r' && !w.begun {
			w.after, p = '\n', p[1:] // one line end in two bytes
			continue
		}
		w.keep(p[:i])
		w.flush()
		w.after, p = p[i], p[i+1:]
	}
	return n, nil
}

// keep adds what fits into the line, and drops the rest.
func (w *lineWriter) keep(p []byte) {
	w.begun = true
	w.line = append(w.line, p[:min(len(p), fleet.MaxLogLineBytes-len(w.line))]...)
}

func (w *lineWriter) flush() {
	w.attempt.output.add(w.stream, string(w.line))
	w.line, w.begun = w.line[:0], false
}

// end adds the last line if nothing ended it.
func (w *lineWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		w.flush()
	}
}
