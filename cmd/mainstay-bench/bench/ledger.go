package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// workType is the type of tasks that go on for a while and leave a trace in the ledger.
const workType = "bench-work"

// workPayload says to a handler how long to go on.
type workPayload struct {
	Run api.Duration `json:"run"`
}

// The kinds of a ledger's entries.
const (
	ledgerOnline = "online" // the agent has registered
	ledgerLeads  = "leads"  // it has become the leader
	ledgerBegin  = "begin"  // the first instruction of an attempt
	ledgerEnd    = "end"    // it came to its end
	ledgerStop   = "stop"   // it was stopped before; the last instruction
)

// ledgerEntry is one line of a ledger.
type ledgerEntry struct {
	Event   string `json:"event"`
	Agent   string `json:"agent"`
	PID     int    `json:"pid"`
	Task    string `json:"task,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	At      int64  `json:"at"` // wall clock, nanoseconds since 1970; all processes are on one machine
}

func (e *ledgerEntry) time() time.Time { return time.Unix(0, e.At) }

// ledger is an agent's side of a ledger: a file to which all agents append.
type ledger struct {
	file  *os.File
	agent string
}

// openLedger opens a ledger to write to for an agent.
func openLedger(path, agentID string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &ledger{file, agentID}, nil
}

// event notes registrations and leads; it is for agent.Options.OnEvent. The run that waits for one that is not written
// says so.
func (l *ledger) event(e agent.Event) {
	switch {
	case e.Kind == agent.EventRegistered:
		_ = l.write(ledgerEntry{Event: ledgerOnline, At: time.Now().UnixNano()})
	case e.Kind == agent.EventRole && e.Role == api.RoleLeader:
		_ = l.write(ledgerEntry{Event: ledgerLeads, At: time.Now().UnixNano()})
	}
}

// handle goes on for as long as the payload says, or until it is stopped.
func (l *ledger) handle(ctx context.Context, t *agent.Task) (any, error) {
	entry := ledgerEntry{Event: ledgerBegin, At: time.Now().UnixNano(), Task: t.ID, Attempt: t.Attempt}
	var payload workPayload
	if err := errors.Join(l.write(entry), t.Decode(&payload)); err != nil {
		return nil, err
	}
	end := time.NewTimer(payload.Run.Std())
	defer end.Stop()
	var cause error
	select {
	case <-end.C:
		entry.Event = ledgerEnd
	case <-ctx.Done():
		entry.Event, cause = ledgerStop, context.Cause(ctx)
	}
	entry.At = time.Now().UnixNano()
	return nil, errors.Join(cause, l.write(entry))
}

// write appends a line in one system call, so that lines of several processes do not mix.
func (l *ledger) write(e ledgerEntry) error {
	e.Agent, e.PID = l.agent, os.Getpid()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// ledgerReader reads a ledger while it grows.
type ledgerReader struct {
	path    string
	offset  int64
	entries []ledgerEntry
}

// more reads what was appended.
func (r *ledgerReader) more() error {
	file, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nobody has written yet
	}
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(file, r.offset, 1<<40))
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	for line := range bytes.Lines(data[:whole]) {
		var e ledgerEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("a line of the ledger: %w", err)
		}
		r.entries = append(r.entries, e)
	}
	r.offset += int64(whole)
	return nil
}

// ledgerPoll is how often a reader looks. Times come from the entries, so it does not blur them.
const ledgerPoll = 20 * time.Millisecond

// await reads until done says that the entries suffice.
func (r *ledgerReader) await(
	ctx context.Context, what string, limit time.Duration, done func([]ledgerEntry) bool,
) error {
	return eventually(ctx, what+" in the ledger", limit, ledgerPoll, func(context.Context) (bool, error) {
		err := r.more()
		return err == nil && done(r.entries), err
	})
}

// running are the tasks in progress by agent, and when they began. forget lists killed processes, whose tasks ended.
func running(entries []ledgerEntry, forget map[int]bool) map[string]map[string]ledgerEntry {
	by := map[string]map[string]ledgerEntry{}
	for _, e := range entries {
		switch {
		case e.Event == ledgerBegin && !forget[e.PID]:
			if by[e.Agent] == nil {
				by[e.Agent] = map[string]ledgerEntry{}
			}
			by[e.Agent][e.Task] = e
		case e.Event == ledgerEnd || e.Event == ledgerStop:
			delete(by[e.Agent], e.Task)
		}
	}
	return by
}

func allBegun(entries []ledgerEntry, tasks []string) bool {
	begun := make(map[string]bool, len(entries))
	for _, e := range entries {
		if e.Event == ledgerBegin {
			begun[e.Task] = true
		}
	}
	return !slices.ContainsFunc(tasks, func(task string) bool { return !begun[task] })
}

// reruns counts the begins of tasks beyond the first.
func reruns(entries []ledgerEntry, tasks []string) int {
	begins := make(map[string]int, len(tasks))
	for _, e := range entries {
		if e.Event == ledgerBegin {
			begins[e.Task]++
		}
	}
	again := 0
	for _, task := range tasks {
		again += max(0, begins[task]-1)
	}
	return again
}
