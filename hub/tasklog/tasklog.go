// Package tasklog keeps the log lines of attempts while somebody reads them.
package tasklog

import (
	"context"
	"slices"
	"sync"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub/part"
	"mainstay.dev/mainstay/protocol"
)

const (
	// Interest is how long after a reading the agent goes on sending lines and the hub keeps them.
	Interest = time.Minute
	// Answer is how long an agent has to answer the first command that asks for lines.
	Answer = 3 * time.Second
	// Gather is how long a reading that waited collects lines after the first.
	Gather = 250 * time.Millisecond
	// Look is the time between a reading's checks that the attempt still exists.
	Look = 200 * time.Millisecond
	// askAgain is the time between two commands that ask an agent for lines.
	askAgain = 10 * time.Second
	// forgetEvery is the time between two searches for unread logs.
	forgetEvery = time.Second
)

// Facts are what the logs need of the hub.
type Facts interface {
	// HolderOf returns the agent that has an attempt; empty when none has.
	HolderOf(task string, attempt int) (agent string)
	// Command sends an agent a command with the answer of its poll, if it has a session.
	Command(agent string, c protocol.Command)
}

// Logs keeps lines while they are read. Its methods may be called from any goroutine.
type Logs struct {
	facts Facts

	mu      sync.Mutex
	watches map[key]*watch
}

type key struct {
	task    string
	attempt int
}

// watch has the lines of one attempt's log.
type watch struct {
	agent    string
	tail     fleet.LogTail
	answered bool // the agent sent lines, or reported that there are none
	askedAt  time.Time
	until    time.Time
	changed  chan struct{} // closed and replaced when lines came
}

// New makes the logs of a hub.
func New(facts Facts) *Logs { return &Logs{facts: facts, watches: map[key]*watch{}} }

// Run drops the lines of logs that are no longer read.
func (l *Logs) Run(ctx context.Context) {
	part.Every(ctx, forgetEvery, func(now time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for key, w := range l.watches {
			if now.After(w.until) {
				delete(l.watches, key)
			}
		}
	})
}

// Read returns lines of an attempt's log after a number. It waits for a line, the attempt's end, or the time limit.
func (l *Logs) Read(ctx context.Context, in contract.ReadLogInput) (contract.ReadLogResult, error) {
	begun := time.Now()
	look := time.NewTicker(Look)
	defer look.Stop()
	for {
		result, answered, changed := l.look(&in)
		passed, wait := time.Since(begun), in.Wait.Std()
		enough := len(result.Lines) > 0 && (in.After == 0 || passed >= min(Gather, wait))
		if result.Gone || enough || passed >= wait && (answered || passed >= Answer) {
			return result, nil
		}
		if len(result.Lines) > 0 {
			changed = nil // collect further lines for one answer
			look.Reset(max(time.Millisecond, min(Gather, wait)-passed))
		}
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			return contract.ReadLogResult{AgentID: result.AgentID, Gone: true}, nil
		}
	}
}

// look returns what a reading gets now, and asks the agent for the rest. changed is closed when there is more.
func (l *Logs) look(in *contract.ReadLogInput) (result contract.ReadLogResult, answered bool, changed <-chan struct{}) {
	now := time.Now()
	holder := l.facts.HolderOf(in.TaskID, in.Attempt)
	var ask *protocol.Command
	defer func() {
		if ask != nil {
			l.facts.Command(holder, *ask)
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watches[key{in.TaskID, in.Attempt}]
	if w == nil && holder == "" {
		return contract.ReadLogResult{Gone: true}, false, nil
	}
	if w == nil {
		w = &watch{agent: holder, changed: make(chan struct{})}
		l.watches[key{in.TaskID, in.Attempt}] = w
	}
	w.until = now.Add(Interest)
	if holder != "" && now.Sub(w.askedAt) >= askAgain {
		w.askedAt = now
		ask = &protocol.Command{
			Type:    protocol.CommandLog,
			TaskID:  in.TaskID,
			Attempt: in.Attempt,
			After:   w.tail.Last(),
			Hold:    fleet.Duration(Interest),
		}
	}
	return contract.ReadLogResult{
		AgentID: w.agent,
		Lines:   w.tail.After(in.After),
		Gone:    holder == "",
		Silent:  !w.answered,
	}, w.answered, w.changed
}

// Add keeps lines that an agent sends. It reports whether somebody reads them.
func (l *Logs) Add(agent, task string, sent protocol.Log) (watching bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watches[key{task, sent.Attempt}]
	if w == nil || w.agent != agent || time.Now().After(w.until) {
		return false
	}
	slices.SortStableFunc(sent.Lines, func(a, b fleet.LogLine) int { return int(min(1, max(-1, a.Number-b.Number))) })
	for _, line := range sent.Lines {
		if line.Number > w.tail.Last() { // else a duplicate
			w.tail.Add(line)
		}
	}
	w.answered = true
	close(w.changed)
	w.changed = make(chan struct{})
	return true
}
