// Package event keeps the newest events of one hub in memory, for gateways that ask for them.
package event

import (
	"context"
	"slices"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
)

const (
	// kept is how many events stay for new or returning readers.
	kept = 4096
	// gather is how long a reading that waited collects events after the first.
	gather = 20 * time.Millisecond
	// settle is how much longer a reading waits while the hub notifies clusters, so that the clusters' events come in
	// order.
	settle = 200 * time.Millisecond
	// interest is how long after a reading the log counts as read.
	interest = time.Minute
)

// Log has the newest events of one process of a hub. Its methods may be called from any goroutine.
type Log struct {
	hub       part.Hub
	notifying func() bool

	mu       sync.Mutex
	events   cluster.EventLog
	hints    int64            // counts the hints
	changed  map[string]int64 // the newest hint at each cluster that may have events of its own
	wanted   time.Time        // until when the log counts as read
	appended chan struct{}    // closed and replaced when something is new
}

// NewLog makes the log of a hub. notifying reports whether the hub is notifying clusters of changes.
func NewLog(hub part.Hub, notifying func() bool) *Log {
	return &Log{hub: hub, notifying: notifying, changed: map[string]int64{}, appended: make(chan struct{})}
}

// Process names the hub's process to listeners.
func (l *Log) Process() string { return l.hub.Process[:8] }

// Publish adds an event for the listeners.
func (l *Log) Publish(e cluster.Event) {
	e.Hub, e.Time = l.hub.ID, e.Time.UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events.Add(e, kept)
	l.wake()
}

// Hint records that a cluster may have new events of its own.
func (l *Log) Hint(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hints++
	l.changed[cluster] = l.hints
	l.wake()
}

func (l *Log) wake() {
	close(l.appended)
	l.appended = make(chan struct{})
}

// Wanted reports whether a gateway reads the log; some events are only made then.
func (l *Log) Wanted(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.wanted)
}

// Read returns the events since the last reading. It waits for something new if there is nothing.
func (l *Log) Read(ctx context.Context, in contract.ReadEventsInput) (contract.ReadEventsResult, error) {
	wait := time.NewTimer(in.Wait.Std())
	defer wait.Stop()
	over := in.Wait <= 0
	var news time.Time // when the first event was there
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		now := time.Now()
		l.wanted = now.Add(interest)
		result := l.read(&in)
		if over || in.Newest || ctx.Err() != nil {
			return result, nil
		}
		appended, again := l.appended, make(<-chan time.Time)
		if len(result.Events) > 0 || len(result.Changed) > 0 || result.Missing != 0 {
			if news.IsZero() {
				news = now
			}
			passed := now.Sub(news)
			if passed >= gather && (passed >= settle || !l.notifying()) {
				return result, nil
			}
			appended, again = nil, time.After(gather)
		}
		l.mu.Unlock()
		select {
		case <-appended:
		case <-again:
		case <-wait.C:
			over = true
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
}

// answerBytes bounds the events of one answer, which Temporal bounds.
const answerBytes = 1 << 20

// size counts what agents and tenants write with the most that it may take as JSON.
func size(e *cluster.Event) int {
	const names, escaped = 1 << 10, 6
	bytes := names + escaped*len(e.Reason)
	if p := e.Progress; p != nil {
		bytes += escaped * (len(p.Step) + len(p.Message))
	}
	return bytes
}

func (l *Log) read(in *contract.ReadEventsInput) contract.ReadEventsResult {
	r := contract.ReadEventsResult{Process: l.Process(), Seq: l.events.Seq, Hints: l.hints}
	switch {
	case in.Newest:
		return r
	case in.Process != "" && in.Process != l.Process():
		r.Events, _ = l.events.After(0)
		r.Missing = -1
	case !in.From.IsZero():
		var missing bool
		if r.Events, missing = l.events.Since(in.From); missing {
			r.Missing = 1
		}
	default:
		r.Events, r.Missing = l.events.After(in.After)
	}
	if n := part.Fitting(r.Events, answerBytes, size); n < len(r.Events) {
		r.Events, r.More, r.Seq = r.Events[:n], true, r.Events[n-1].Seq
	}
	for cluster, hint := range l.changed {
		if hint > in.Hints {
			r.Changed = append(r.Changed, cluster)
		}
	}
	slices.Sort(r.Changed)
	return r
}
