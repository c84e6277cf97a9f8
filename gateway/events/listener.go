package events

import (
	"sync"
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
