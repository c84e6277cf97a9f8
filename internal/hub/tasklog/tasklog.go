// Package tasklog keeps the newest log lines of attempts: while somebody reads them, and for attempts that run for a
// while, so that something is left when their agent is lost.
package tasklog

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
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
	// keepEvery is how often agents send lines that nobody reads.
	keepEvery = 5 * time.Second
	// mostWaiting is how many readings wait at a time; more get what is there. A reading whose client has gone goes on
	// waiting, and all requests to a hub share the places of its worker.
	mostWaiting = 200
	// maxKept bounds the text, in bytes, that a hub keeps unread. While it is reached, agents send only what is read.
	maxKept = 64 << 20
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

// Logs keeps lines. Its methods may be called from any goroutine; only Read asks its Facts.
type Logs struct {
	facts Facts

	waiting atomic.Int64 // readings under way

	mu      sync.Mutex
	watches map[key]*watch
	size    int // bytes of text that are kept
}

type key struct {
	task    string
	attempt int
}

// watch has the lines of one attempt's log.
type watch struct {
	agent    string
	tail     api.LogTail
	kept     bool // the agent was asked to send unread lines too
	answered bool // the agent sent lines, or reported that there are none
	askedAt  time.Time
	read     time.Time     // until when somebody reads
	until    time.Time     // until when the lines are kept
	changed  chan struct{} // closed and replaced when lines came
}

// New makes the logs of a hub.
func New(facts Facts) *Logs { return &Logs{facts: facts, watches: map[key]*watch{}} }

// Run drops the lines of logs that are no longer wanted.
func (l *Logs) Run(ctx context.Context) {
	part.Every(ctx, forgetEvery, func(now time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for key, w := range l.watches {
			if now.After(w.until) {
				l.size -= w.tail.Size()
				delete(l.watches, key)
			}
		}
	})
}

// Keep keeps an attempt's lines for another while, and returns the command that asks the agent for them; nil: it was
// asked. It must be repeated within Interest while the attempt runs.
func (l *Logs) Keep(agent, task string, attempt int, now time.Time) *protocol.Command {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watches[key{task, attempt}]
	asked := w != nil && w.kept
	if w == nil {
		w = l.watchLocked(agent, task, attempt)
	}
	w.until, w.kept = now.Add(Interest), true
	if asked {
		return nil
	}
	c := w.ask(task, attempt)
	c.Every = api.Duration(keepEvery)
	return c
}

func (l *Logs) watchLocked(agent, task string, attempt int) *watch {
	w := &watch{agent: agent, changed: make(chan struct{})}
	l.watches[key{task, attempt}] = w
	return w
}

// ask is the command for the lines that come after those that are here.
func (w *watch) ask(task string, attempt int) *protocol.Command {
	return &protocol.Command{Type: protocol.CommandLog, TaskID: task, Attempt: attempt, After: w.tail.Last()}
}

// Tail is what the agent has sent of an attempt's log.
func (l *Logs) Tail(task string, attempt int) []api.LogLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watches[key{task, attempt}]; w != nil {
		return w.tail.After(0)
	}
	return nil
}

// Whole is the end of an attempt's log as its result brings it, within the bounds, or else what was sent before.
func (l *Logs) Whole(task string, r *protocol.Result) []api.LogLine {
	if len(r.Log) == 0 {
		return l.Tail(task, r.Attempt)
	}
	var tail api.LogTail
	addLines(&tail, r.Log)
	return tail.After(0)
}

// addLines adds the lines that are new.
func addLines(tail *api.LogTail, lines []api.LogLine) {
	slices.SortStableFunc(lines, func(a, b api.LogLine) int { return cmp.Compare(a.Number, b.Number) })
	for _, line := range lines {
		if line.Number > tail.Last() && api.ValidateTime("at", line.At) == nil { // else a duplicate, or not to be kept
			tail.Add(line)
		}
	}
}

// Read returns lines of an attempt's log after a number. It waits for a line, the attempt's end, or the time limit; not
// while too many wait.
func (l *Logs) Read(ctx context.Context, in contract.ReadLogInput) (contract.ReadLogResult, error) {
	begun, wait := time.Now(), in.Wait.Std()
	full := l.waiting.Add(1) > mostWaiting
	defer l.waiting.Add(-1)
	look := time.NewTicker(Look)
	defer look.Stop()
	for {
		result, answered, changed := l.look(&in)
		passed := time.Since(begun)
		if full {
			result.Silent = false // not yet
			return result, nil
		}
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
		w = l.watchLocked(holder, in.TaskID, in.Attempt)
	}
	w.read = now.Add(Interest)
	w.until = w.read
	if holder != "" && now.Sub(w.askedAt) >= askAgain {
		w.askedAt = now
		ask = w.ask(in.TaskID, in.Attempt)
		ask.Hold = api.Duration(Interest)
	}
	return contract.ReadLogResult{
		AgentID: w.agent,
		Lines:   w.tail.After(in.After),
		Gone:    holder == "",
		Silent:  !w.answered,
	}, w.answered, w.changed
}

// Add keeps lines that an agent sends. It reports whether more are wanted.
func (l *Logs) Add(agent, task string, sent protocol.Log) (watching bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watches[key{task, sent.Attempt}]
	now := time.Now()
	if w == nil || w.agent != agent || now.After(w.until) {
		return false
	}
	if l.size >= maxKept && now.After(w.read) {
		w.kept = false // it is asked again later
		return false
	}
	l.size -= w.tail.Size()
	addLines(&w.tail, sent.Lines)
	l.size += w.tail.Size()
	w.answered = true
	close(w.changed)
	w.changed = make(chan struct{})
	return true
}
