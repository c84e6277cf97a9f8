package agent

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

// taskLog keeps the newest lines of one attempt, within the protocol's bounds. Its lines never go into the agent's log
// or an error.
type taskLog struct {
	mu   sync.Mutex
	tail api.LogTail

	// While a hub wants lines:
	until    time.Time     // until then lines are sent as they come, because somebody reads them
	every    time.Duration // how often lines are sent that nobody reads; 0: not at all
	sent     int64         // lines up to this number were sent
	sentAt   time.Time     // when lines were last sent
	again    bool          // a new command came: answer even without lines
	shipping bool          // a goroutine sends
	wake     chan struct{} // wakes it for new lines and new commands
}

// goesOn ends a line that is too long and goes on in the next one.
const goesOn = "…"

// splitLine cuts what fits into a line from the beginning of a text that is too long for one.
func splitLine(text string) (line, rest string) {
	n := api.MaxLogLineBytes - len(goesOn)
	for i := n; i > n-utf8.UTFMax; i-- { // between two characters; bytes that are not UTF-8 are cut anywhere
		if utf8.RuneStart(text[i]) {
			n = i
			break
		}
	}
	return text[:n], text[n:]
}

// add keeps a line; a long one as several.
func (l *taskLog) add(stream, text string) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(text) > api.MaxLogLineBytes {
		line, rest := splitLine(text)
		l.addLine(stream, line+goesOn)
		text = rest
	}
	l.addLine(stream, text)
	l.signal()
}

// addLine keeps a line. The mutex is held.
func (l *taskLog) addLine(stream, text string) {
	l.tail.Add(api.LogLine{Number: l.tail.Last() + 1, At: time.Now().UTC(), Stream: stream, Text: text})
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
	// report takes the lines that say how far a command is; nil: there are none.
	report func(api.Progress)
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

// keep adds to the line. One that gets too long becomes several.
func (w *lineWriter) keep(p []byte) {
	w.begun = true
	w.line = append(w.line, p...)
	if len(w.line) <= api.MaxLogLineBytes {
		return
	}
	rest := string(w.line)
	for len(rest) > api.MaxLogLineBytes {
		var line string
		line, rest = splitLine(rest)
		w.attempt.output.add(w.stream, line+goesOn)
	}
	w.line = append(w.line[:0], rest...)
}

func (w *lineWriter) flush() {
	line := string(w.line)
	w.line, w.begun = w.line[:0], false
	if text, is := strings.CutPrefix(line, reportMark); is && w.report != nil {
		p, err := readReport(text)
		if err == nil {
			w.report(p)
			return
		}
		line += "   (not taken: " + err.Error() + ")"
	}
	w.attempt.output.add(w.stream, line)
}

// end adds the last line if nothing ended it.
func (w *lineWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		w.flush()
	}
}

const (
	// shipSpacing gathers the lines of a moment into one request.
	shipSpacing = 100 * time.Millisecond
	shipTimeout = 5 * time.Second
)

// shipLog sends an attempt's log lines to the hub. The command may come again, to start again or to go on for longer.
func (r *run) shipLog(c protocol.Command) {
	r.mu.Lock()
	at := r.attempts[attemptKey{c.TaskID, c.Attempt}]
	r.mu.Unlock()
	if at == nil {
		return
	}
	l := &at.output
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Every > 0 {
		l.every = c.Every.Std()
	} else {
		l.until = time.Now().Add(c.Hold.Std())
	}
	l.sent, l.again = c.After, true
	if l.shipping {
		l.signal()
		return
	}
	l.shipping, l.wake = true, make(chan struct{}, 1)
	r.background.Go(func() { at.ship(l.wake) })
}

// ship sends lines until the hub wants no more, or the handler has returned: its result brings the log. The first
// request may have no lines, to report that there are none yet.
func (at *attempt) ship(wake <-chan struct{}) {
	for {
		wanted := at.send()
		backoff.Pause(at.run.work, shipSpacing)
		for {
			wait, over := at.idle(wanted)
			if over {
				return
			}
			if wait == 0 {
				break
			}
			timer := time.NewTimer(wait)
			select {
			case <-wake:
			case <-timer.C:
			case <-at.returned:
			}
			timer.Stop()
		}
	}
}

// idle is how long to wait for lines; over ends the sending.
func (at *attempt) idle(wanted bool) (wait time.Duration, over bool) {
	l := &at.output
	l.mu.Lock()
	defer l.mu.Unlock()
	read, more := time.Until(l.until), l.tail.Last() > l.sent
	switch {
	case at.hasReturned() || at.run.work.Err() != nil || !l.again && (!wanted || read <= 0 && l.every == 0):
		l.shipping, l.every = false, 0
		return 0, true
	case l.again || more && read > 0:
		return 0, false
	case more:
		return max(0, time.Until(l.sentAt.Add(l.every))), false
	case read > 0:
		return read, false
	default:
		return time.Hour, false // until there is a line
	}
}

// send sends the unsent lines, and reports whether the hub wants more.
func (at *attempt) send() (wanted bool) {
	l := &at.output
	l.mu.Lock()
	body := protocol.Log{Attempt: at.number, Lines: l.tail.After(l.sent)}
	from, to := l.sent, l.tail.Last()
	l.again, l.sentAt = false, time.Now()
	l.mu.Unlock()
	s := at.run.sessionNow()
	var taken protocol.LogTaken
	err := at.run.client.send(at.run.work, at.run.client.calls, request{
		hub:    s.hub,
		method: http.MethodPost,
		path:   at.run.client.path(protocol.LogPath, at.attemptKey.task),
		token:  s.token,
		body:   body, timeout: shipTimeout,
	}, &taken)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		at.log().Debug("The hub did not take log lines", "error", err)
		return l.every > 0 // again with the next lines; a hub with a reader asks again
	}
	if l.sent == from { // no command to start again came meanwhile
		l.sent = to
	}
	return taken.Watching
}
