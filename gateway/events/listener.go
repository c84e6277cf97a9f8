package events

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"mainstay.dev/mainstay/fleet"
)

// maxWaiting bounds the events that wait for one listener. One that is slower than that is told of a gap.
const maxWaiting = 2000

// listener is one who listens to events. What it does not take in time is counted and dropped: it holds up nobody.
type listener struct {
	filter eventFilter
	wake   chan struct{} // capacity 1: something waits

	mu       sync.Mutex
	waiting  []told
	missed   int64
	position string // after what waits
	ended    bool
}

func newListener(filter eventFilter, at string) *listener {
	return &listener{filter: filter, wake: make(chan struct{}, 1), position: at}
}

// offer hands over the next events and the position after them. It never waits.
func (l *listener) offer(events []told, at string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.position = at
	news := false
	for i := range events {
		if !l.filter.allows(&events[i].Event) {
			continue
		}
		news = true
		if l.missed > 0 || len(l.waiting) >= maxWaiting {
			l.missed++ // all until the listener has caught up, so that the gap stands in one place
			continue
		}
		l.waiting = append(l.waiting, events[i])
	}
	if news {
		l.signal()
	}
}

// end tells the listener that nothing more comes.
func (l *listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.signal()
}

func (l *listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns what waits, how many were dropped after it, and the position after all of it.
func (l *listener) take() (events []told, missed int64, at string, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, missed = l.waiting, l.missed
	l.waiting, l.missed = nil, 0
	return events, missed, l.position, l.ended
}

// eventFilter is what one listener wants, and may have. It is the one place that decides which events reach it.
type eventFilter struct {
	types               []string // prefixes without fleet.EventPrefix; none: all
	clusters            []string
	agent, task, tenant string
}

// allows reports whether the listener gets an event. A gap concerns everybody whose events may be in it.
func (f *eventFilter) allows(e *fleet.Event) bool {
	if len(f.clusters) > 0 && !slices.Contains(f.clusters, e.Cluster) && (e.Type != fleet.EventGap || e.Cluster != "") {
		return false
	}
	if e.Type == fleet.EventGap {
		return true
	}
	switch {
	case f.tenant != "" && e.Tenant != f.tenant: // what is of no tenant is not for tenants
		return false
	case f.agent != "" && e.AgentID != f.agent && e.PreviousAgentID != f.agent && e.TargetAgentID != f.agent:
		return false
	case f.task != "" && e.TaskID != f.task:
		return false
	}
	return len(f.types) == 0 || slices.ContainsFunc(f.types, func(prefix string) bool { return ofType(e.Type, prefix) })
}

// ofType reports whether a type is the named one, or below it.
func ofType(t fleet.EventType, prefix string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(string(t), fleet.EventPrefix), prefix)
	return ok && (rest == "" || rest[0] == '.' || strings.HasSuffix(prefix, "."))
}

// parseTypes reads the types that a listener asks for: whole ones, or their beginnings.
func parseTypes(list []string) ([]string, error) {
	var prefixes []string
	for _, item := range list {
		for name := range strings.SplitSeq(item, ",") {
			prefix := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(name), fleet.EventPrefix), "*")
			if prefix == "" && name != "*" || !slices.ContainsFunc(fleet.EventTypes,
				func(m fleet.EventMeaning) bool { return prefix == "" || ofType(m.Type, prefix) }) {
				return nil, errors.New(
					"names no type of events, nor the beginning of one, such as agent, task.completed or failover")
			}
			if prefix == "" {
				return nil, nil
			}
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, nil
}
