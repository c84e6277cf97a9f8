package api

import (
	"time"
)

// Bounds of the log of one attempt. An agent keeps the newest lines within them.
const (
	MaxLogLines     = 500
	MaxLogBytes     = 64 << 10 // of text, all lines together
	MaxLogLineBytes = 4 << 10  // of text; longer lines become several
)

// LogLine is one line that a running handler, or its command, wrote. It must never go into Mainstay's own log or an
// error.
type LogLine struct {
	// Number counts the lines of an attempt from 1. A gap means that lines were dropped.
	Number int64     `json:"number" minimum:"1"`
	At     time.Time `json:"at"`
	Stream string    `json:"stream,omitempty" maxLength:"16" doc:"stdout or stderr of a command; absent: a line of the handler."`
	Text   string    `json:"text" maxLength:"4096"`
}

// LogTail keeps the newest lines of one attempt within the bounds. The zero LogTail is empty.
type LogTail struct {
	lines []LogLine
	bytes int
	last  int64
}

// Last is the number of the newest line that was added; 0: none yet.
func (t *LogTail) Last() int64 { return t.last }

// Size is the bytes of text that are kept.
func (t *LogTail) Size() int { return t.bytes }

// Add keeps a line, whose number must be greater than the last, and drops the oldest ones that no longer fit.
func (t *LogTail) Add(line LogLine) {
	t.last = line.Number
	t.lines = append(t.lines, line)
	t.bytes += len(line.Text)
	for len(t.lines) > MaxLogLines || t.bytes > MaxLogBytes {
		t.bytes -= len(t.lines[0].Text)
		t.lines[0] = LogLine{} // free its text
		t.lines = t.lines[1:]
	}
}

// After copies the kept lines with a number greater than this.
func (t *LogTail) After(number int64) []LogLine {
	for i := range t.lines {
		if t.lines[i].Number > number {
			return append([]LogLine(nil), t.lines[i:]...)
		}
	}
	return nil
}
