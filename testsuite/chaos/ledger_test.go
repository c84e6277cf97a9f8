//go:build linux

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The kinds of ledger lines.
const (
	lineBegin      = "begin"      // a handler begins an attempt
	lineEnd        = "end"        // it has ended; Note is done, failed or stopped
	lineAccepted   = "accepted"   // a hub accepted the attempt's result; Note is its outcome
	lineStale      = "stale"      // a hub refused it as superseded
	lineRegistered = "registered" // a process has a session; Epoch is its own
	lineLead       = "lead"       // a process leads its cluster from here; Epoch is the leadership's
	lineLeadEnd    = "lead-end"   // and knows until here that it does
	lineIll        = "ill"        // a process says from here that it is not well; Note is the level that it was told
	lineLeafBegin  = "leaf-begin" // a process of a command begins; Note is which one
	lineLeaf       = "leaf"       // and lives
	lineWell       = "well"       // and says from here that it is
)

// line is one line of the ledger.
type line struct {
	Kind    string `json:"k"`
	Task    string `json:"t,omitempty"`
	Attempt int    `json:"n,omitempty"`
	Epoch   int64  `json:"e,omitempty"`
	Agent   string `json:"a"`
	PID     int    `json:"p"`
	NS      int64  `json:"ns"` // CLOCK_MONOTONIC, the same in all processes of a machine
	Note    string `json:"note,omitempty"`
	// Got is what a step was given of those before it.
	Got map[string]json.RawMessage `json:"got,omitempty"`
}

// monotonic is the machine's monotonic clock in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("no monotonic clock: %v", err))
	}
	return ts.Nano()
}

// ledgerWriter appends lines. Each is one synchronous write, so a killed process leaves whole lines.
type ledgerWriter struct {
	file *os.File
	pid  int
}

// openLedger opens the ledger to append to it. With os.O_SYNC lines are on disk when they are written.
func openLedger(path string, sync int) (*ledgerWriter, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|sync, 0o600)
	if err != nil {
		return nil, err
	}
	return &ledgerWriter{file: file, pid: os.Getpid()}, nil
}

func (w *ledgerWriter) write(l line) {
	l.PID = w.pid
	if l.NS == 0 {
		l.NS = monotonic()
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = w.file.Write(append(text, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("the ledger cannot be written: %v", err))
	}
}

// ledger reads the file as it grows.
type ledger struct {
	path string

	mu     sync.Mutex
	offset int64
	lines  []line
}

// read returns all lines so far. The slice is not changed afterwards.
func (g *ledger) read() ([]line, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	file, err := os.Open(g.path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	fresh := make([]byte, info.Size()-g.offset)
	if _, err := file.ReadAt(fresh, g.offset); err != nil && len(fresh) > 0 {
		return nil, err
	}
	whole := bytes.LastIndexByte(fresh, '\n') + 1
	for _, text := range bytes.Split(bytes.TrimSuffix(fresh[:whole], []byte("\n")), []byte("\n")) {
		if len(text) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("a line of the ledger is damaged: %w", err)
		}
		g.lines = append(g.lines, l)
	}
	g.offset += int64(whole)
	return g.lines[:len(g.lines):len(g.lines)], nil
}
