package events

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

const (
	// clusterEvery is how often the feed reads a cluster that has changed recently, because one change often leads to
	// another. It reads the others every clusterCalm rounds. Hubs report most changes sooner.
	clusterEvery = 250 * time.Millisecond
	clusterCalm  = 4
	// clusterHot is how long after an event a cluster counts as changed recently.
	clusterHot = 3 * time.Second
	// clustersAtOnce bounds how many clusters one round reads; the others take turns.
	clustersAtOnce = 10
)

// clusterSource is what the feed knows of one cluster. Its mutex makes its events come in order.
type clusterSource struct {
	name string
	// The run's mutex guards these.
	turn int64     // the round in which it was read last
	news time.Time // when it had an event last

	mu      sync.Mutex
	unread  bool // where it stands is not known yet, and its past is no news
	created time.Time
	seq     int64
	run     string // the workflow's run and the length of its history, when it was looked at last
	length  int64
}

// lookAtClusters looks at the clusters whose turn it is.
func (r *feedRun) lookAtClusters(ctx context.Context) {
	r.mu.Lock()
	r.looks++
	var due []*clusterSource
	for _, c := range r.clusters {
		if r.looks-c.turn >= clusterCalm || time.Since(c.news) < clusterHot {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, func(a, b *clusterSource) int { return cmp.Compare(a.turn, b.turn) })
	due = due[:min(len(due), clustersAtOnce)]
	for _, c := range due {
		c.turn = r.looks
	}
	r.mu.Unlock()
	parallel.Each(len(due), atOnce, func(i int) { r.lookAtCluster(ctx, due[i]) })
}

// lookAtCluster reads a cluster's events if its workflow has done anything since the last look.
func (r *feedRun) lookAtCluster(ctx context.Context, c *clusterSource) {
	callCtx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	info, err := r.feed.store.Describe(callCtx, contract.ClusterWorkflowID(c.name))
	if store.KindOf(err) == store.NotFound {
		r.dropCluster(c)
		return
	}
	if err != nil {
		return // the next look reports the changes
	}
	c.mu.Lock()
	same := !c.unread && c.run == info.GetExecution().GetRunId() && c.length == info.GetHistoryLength()
	c.mu.Unlock()
	closed := info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	if same && !closed {
		return
	}
	if r.readCluster(ctx, c) {
		c.mu.Lock()
		c.run, c.length = info.GetExecution().GetRunId(), info.GetHistoryLength()
		c.mu.Unlock()
	}
	if closed {
		r.dropCluster(c)
	}
}

func (r *feedRun) dropCluster(c *clusterSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clusters[c.name] == c {
		delete(r.clusters, c.name)
	}
}

// readCluster asks a cluster for its new events and publishes them. It reports whether the cluster answered.
func (r *feedRun) readCluster(ctx context.Context, c *clusterSource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	events, advance, ok := r.fetch(ctx, c)
	if ok && len(events) > 0 {
		r.publish(events, advance)
	}
	return ok
}

// publishWith publishes events together with those of the clusters that changed at the same time, so that they come in
// the order in which they happened.
func (r *feedRun) publishWith(ctx context.Context, changed []string, events []told, advance func(*position)) {
	slices.Sort(changed) // two hubs must not wait for each other
	sources := make([]*clusterSource, len(changed))
	r.mu.Lock()
	for i, name := range changed {
		if r.clusters[name] == nil {
			r.clusters[name] = &clusterSource{name: name}
		}
		sources[i] = r.clusters[name]
	}
	r.mu.Unlock()
	for _, c := range sources {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	fetched, advances := make([][]told, len(sources)), make([]func(*position), len(sources))
	parallel.Each(len(sources), atOnce, func(i int) { fetched[i], advances[i], _ = r.fetch(ctx, sources[i]) })
	r.publish(slices.Concat(append([][]told{events}, fetched...)...), func(p *position) {
		advance(p)
		for _, also := range advances {
			if also != nil {
				also(p)
			}
		}
	})
}

// fetch asks a cluster for its new events. Its mutex is held until they are published.
func (r *feedRun) fetch(ctx context.Context, c *clusterSource) (events []told, advance func(*position), ok bool) {
	since := contract.EventsSince{After: c.seq}
	if c.created.IsZero() {
		since = contract.EventsSince{From: r.begun}
		if c.unread {
			since = contract.EventsSince{After: math.MaxInt64}
		}
	}
	answer, err := r.feed.clusterEvents(ctx, c.name, since)
	// deleted, and made anew under the same name
	if err == nil && !c.created.IsZero() && !c.created.Equal(answer.CreatedAt) {
		since = contract.EventsSince{}
		answer, err = r.feed.clusterEvents(ctx, c.name, since)
	}
	if err != nil {
		if store.KindOf(err) == store.NotFound {
			r.dropCluster(c)
		} else if ctx.Err() == nil {
			r.feed.logger.Debug("a cluster did not tell its events", zap.String("cluster", c.name), zap.Error(err))
		}
		return nil, nil, false
	}
	events = ofCluster(c.name, &answer, since)
	c.created, c.seq, c.unread = answer.CreatedAt, answer.Seq, false
	if len(events) > 0 {
		r.mu.Lock()
		c.news = time.Now()
		r.mu.Unlock()
	}
	name, mark := c.name, clusterMark{created: c.created, seq: c.seq, at: time.Now()}
	return events, func(p *position) { p.clusters[name] = mark }, true
}

// clusterEvents asks a cluster's workflow for events.
func (f *Feed) clusterEvents(
	ctx context.Context, name string, since contract.EventsSince,
) (contract.ClusterEvents, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	return f.store.Clusters().Events(ctx, name, since)
}

const (
	// hubHold is how long one question waits for an event.
	hubHold = 10 * time.Second
	// hubAgain is the first pause before asking a silent hub again, and hubAgainMax the longest.
	hubAgain    = 500 * time.Millisecond
	hubAgainMax = 5 * time.Second
)

// hubSource is one hub that the feed follows.
type hubSource struct {
	id    string
	first bool // it was there when the run began: its past is no news
	stop  context.CancelFunc
	begun chan struct{} // closed when the hub was asked for the first time
}

// followHub asks a hub for what it sees, again and again, until ctx ends.
func (r *feedRun) followHub(ctx context.Context, h *hubSource) {
	begun := false
	begin := func() {
		if !begun {
			begun = true
			close(h.begun)
		}
	}
	defer begin()
	ask := contract.ReadEventsInput{From: r.begun}
	if h.first {
		ask = contract.ReadEventsInput{Newest: true}
	}
	silent := false
	for retry := (backoff.Backoff{First: hubAgain, Limit: hubAgainMax}); ctx.Err() == nil; {
		read, answered, err := r.feed.askHub(ctx, h.id, ask)
		if why, never := cannotAsk(err); never {
			r.goDeaf(why)
			return
		}
		if err != nil || !answered {
			begin()
			silent = true
			retry.Pause(ctx)
			continue
		}
		retry.Reset()
		events := ofHub(h.id, &read, ask)
		if silent && ask.Newest {
			events = append(events, gap(time.Now(), "", "hub "+h.id+" did not answer for a while", 0))
		}
		silent = false
		r.touch(events)
		mark := hubMark{process: read.Process, seq: read.Seq, at: time.Now()}
		if len(events) > 0 || len(read.Changed) > 0 {
			r.publishWith(ctx, read.Changed, events, func(p *position) { p.hubs[h.id] = mark })
		}
		ask = contract.ReadEventsInput{Process: read.Process, After: read.Seq, Hints: read.Hints,
			Wait: api.Duration(hubHold)}
		begin()
	}
}

// goDeaf notes that this Temporal cannot ask hubs.
func (r *feedRun) goDeaf(why string) {
	r.mu.Lock()
	known := r.deaf
	r.deaf = true
	r.mu.Unlock()
	if !known {
		r.publish([]told{deafness(why)}, nil)
	}
}

// cannotAsk reports whether this Temporal can never ask a hub, and why.
func cannotAsk(err error) (why string, never bool) {
	p, _ := httpapi.Body(err)
	return p.Detail, p.Code == protocol.CodeNotSupported
}

func deafness(why string) told {
	return gap(time.Now(), "", "what only hubs know (running, progress, suspect) cannot be told: "+why, 0)
}
