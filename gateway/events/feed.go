// Package events streams what happens in the fleet to listeners, as server-sent events. A Feed asks clusters, hubs and
// visibility while somebody listens; a position says how far a listener is in all of them.
package events

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/protocol"
)

const (
	// maxListeners bounds the listeners of one gateway.
	maxListeners = 1000
	// lingers is how long the feed runs on after the last listener left, because most come back.
	lingers = 5 * time.Second
	// callLimit bounds the calls to Temporal for one purpose, and queryLimit one query of a workflow: a query needs a
	// worker, and there may be none.
	callLimit  = 4500 * time.Millisecond
	queryLimit = 3 * time.Second
	// atOnce bounds the calls to Temporal at the same time.
	atOnce = 32
	// pastOfOne and pastOfAll bound how many requests read the past at once, of one token and in all: each may take
	// hundreds of calls.
	pastOfOne, pastOfAll = 2, 8
	// toldKept is how many ids of sent events are kept, so that an event that two sources report is sent once.
	toldKept = 32 << 10
)

// Options are what a feed needs.
type Options struct {
	Store  store.Store
	Logger *zap.Logger
	// Key hides from listeners what event ids are made of; all gateways have the same one. Empty: ids are readable.
	Key []byte
	// AskHub asks a hub for what it saw. answered is false when it does not answer in time. An error with the code
	// not_supported says that this Temporal cannot ask hubs at all.
	AskHub func(ctx context.Context, hub string, in contract.ReadEventsInput) (read contract.ReadEventsResult,
		answered bool, err error)
}

// Feed streams what happens in the fleet. It asks only while somebody listens, and once for all listeners.
type Feed struct {
	store  store.Store
	logger *zap.Logger
	seal   seal
	askHub func(context.Context, string, contract.ReadEventsInput) (contract.ReadEventsResult, bool, error)

	callers limit.AtOnce // who reads the past, by identity
	reading limit.AtOnce // who does, in all

	mu        sync.Mutex
	listeners map[*listener]struct{}
	run       *feedRun // nil: nobody listens
	closed    bool
}

// feedRun is the feed from the first listener to the last.
type feedRun struct {
	feed   *Feed
	cancel context.CancelFunc
	ready  chan struct{} // closed when every source has said where it stands
	ended  chan struct{} // closed when all of it has stopped
	idle   *time.Timer   // ends the run when nobody has come back; nil: somebody listens
	begun  time.Time

	// The feed's mutex guards these.
	position position
	known    map[string]struct{} // ids of events that were sent
	order    []string            // of known, oldest first from next on
	next     int

	mu       sync.Mutex // guards the rest
	clusters map[string]*clusterSource
	hubs     map[string]*hubSource
	deaf     bool                 // this Temporal cannot ask hubs
	touched  map[string]time.Time // runs whose tasks have changed, and when
	looks    int64                // rounds of looks at clusters
	rounds   int                  // of looks at tasks
	read     time.Time            // when tasks were looked at last
	readFar  time.Time            // and, as far back as changes may come late
}

// New makes a feed. It asks for nothing until somebody listens.
func New(o Options) *Feed {
	return &Feed{store: o.Store, logger: o.Logger, seal: newSeal(o.Key), askHub: o.AskHub,
		reading: limit.AtOnce{Most: pastOfAll}, callers: limit.AtOnce{Most: pastOfOne},
		listeners: map[*listener]struct{}{}}
}

// turn waits until the caller may read the past, which it has done when it calls done.
func (f *Feed) turn(ctx context.Context) (done func(), err error) {
	id := access.From(ctx)
	own, err := f.callers.Acquire(ctx, id.Sharer(), 1)
	if err != nil {
		return nil, err
	}
	all, err := f.reading.Acquire(ctx, "", 1)
	if err != nil {
		own()
		return nil, err
	}
	return func() {
		all()
		own()
	}, nil
}

// listen registers a listener, which gets what happens from now on: everything after the run is ready.
func (f *Feed) listen(filter eventFilter) (*listener, *feedRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, nil, httpapi.Problem(protocol.CodeUnavailable, "this gateway is stopping: try another or try again")
	case len(f.listeners) >= maxListeners:
		return nil, nil, httpapi.Problem(protocol.CodeUnavailable,
			"too many listen to events here already: try again later, or at another gateway")
	}
	if f.run == nil {
		f.run = f.start()
	}
	run := f.run
	if run.idle != nil {
		run.idle.Stop()
		run.idle = nil
	}
	l := newListener(filter, f.seal.close(run.position.String()))
	f.listeners[l] = struct{}{}
	return l, run, nil
}

// leave forgets a listener. The run ends a little after the last has left.
func (f *Feed) leave(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.listeners, l)
	run := f.run
	if len(f.listeners) > 0 || run == nil || run.idle != nil {
		return
	}
	run.idle = time.AfterFunc(lingers, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.run == run && len(f.listeners) == 0 {
			f.run = nil
			run.cancel()
		}
	})
}

// Close ends all listeners and the run, and returns when it has stopped. It may be called twice.
func (f *Feed) Close() {
	f.mu.Lock()
	f.closed = true
	for l := range f.listeners {
		l.end()
	}
	run := f.run
	f.run = nil
	if run != nil && run.idle != nil {
		run.idle.Stop()
	}
	f.mu.Unlock()
	if run != nil {
		run.cancel()
		<-run.ended
	}
}

// start begins a run. The mutex is held.
func (f *Feed) start() *feedRun {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the run is of all listeners
	now := time.Now()
	r := &feedRun{
		feed: f, cancel: cancel, ready: make(chan struct{}), ended: make(chan struct{}), begun: now,
		position: position{at: now, tasks: now.Add(-taskOverlap), clusters: map[string]clusterMark{},
			hubs: map[string]hubMark{}},
		known:    map[string]struct{}{},
		read:     now,
		readFar:  now,
		clusters: map[string]*clusterSource{},
		hubs:     map[string]*hubSource{},
		touched:  map[string]time.Time{},
	}
	go func() {
		defer close(r.ended)
		r.watch(ctx)
	}()
	return r
}

// publish hands events to the listeners in the order of their times, each once, and moves the position by advance,
// which may be nil.
func (r *feedRun) publish(events []told, advance func(p *position)) {
	slices.SortStableFunc(events, func(a, b told) int { return a.Time.Compare(b.Time) })
	for i := range events {
		events[i].encode(r.feed.seal)
	}
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run != r {
		return // it has ended
	}
	r.position.at = time.Now()
	if advance != nil {
		advance(&r.position)
	}
	fresh := events[:0]
	for _, e := range events {
		if r.isNew(e.id) {
			fresh = append(fresh, e)
		}
	}
	at := f.seal.close(r.position.String())
	for l := range f.listeners {
		l.offer(fresh, at)
	}
}

// isNew remembers an id, and reports whether it was not known. The feed's mutex is held.
func (r *feedRun) isNew(id string) bool {
	if _, told := r.known[id]; told {
		return false
	}
	r.known[id] = struct{}{}
	if len(r.order) < toldKept {
		r.order = append(r.order, id)
		return true
	}
	delete(r.known, r.order[r.next])
	r.order[r.next] = id
	r.next = (r.next + 1) % toldKept
	return true
}
