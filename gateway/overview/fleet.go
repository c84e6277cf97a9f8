package overview

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	// fleetFresh is how old a reading of the fleet may be when the metrics are asked for.
	fleetFresh = 10 * time.Second
	// fleetShare bounds the time that reading takes: of a large fleet it is done less often.
	fleetShare = 10
	// fleetKept is how long the last reading is used when no new one succeeds.
	fleetKept = time.Minute
)

// fleetReading is the fleet as it was at one time.
type fleetReading struct {
	at       time.Time
	live     store.Live
	took     time.Duration
	clusters []clusterReading
	unread   int   // clusters that did not answer
	held     int64 // events in quarantine
	// unmatched are the events that nothing asks for, and that can be replayed.
	unmatched int64
}

// clusterReading is one cluster, with the facts about its tasks that only Temporal has.
type clusterReading struct {
	contract.ClusterView
	waiting     map[api.Priority]int64
	oldest      time.Duration // how long the oldest task has waited
	deadLetters int64
	reviews     int64 // with the runs and arrays that wait for a person
	services    serviceReading
}

// fleetReader reads the fleet when its metrics are asked for, and not more often than needed.
type fleetReader struct {
	handlers *Handlers
	mu       sync.Mutex
	last     *fleetReading
	tried    time.Time
}

// reading is the fleet as it stands; nil when it cannot be read.
func (r *fleetReader) reading(ctx context.Context, counted func(err error)) *fleetReading {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	pause := cmp.Or(r.handlers.Every, fleetFresh)
	if r.last != nil {
		pause = max(pause, fleetShare*r.last.took)
	}
	if now.Sub(r.tried) >= pause {
		r.tried = now
		next, err := r.handlers.readFleet(ctx, now)
		counted(err)
		if err != nil {
			r.handlers.Logger.Warn("The fleet could not be read for its metrics", zap.Error(err))
		} else {
			r.last = next
		}
	}
	if r.last != nil && now.Sub(r.last.at) > max(fleetKept, 2*pause) {
		return nil
	}
	return r.last
}

// readFleet asks all clusters how they stand, and Temporal what waits for them.
func (h *Handlers) readFleet(ctx context.Context, now time.Time) (*fleetReading, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	clusters, err := h.ListClusters(ctx)
	if err != nil {
		return nil, err
	}
	reading := &fleetReading{at: now, live: h.Live(ctx)}
	slices.SortFunc(clusters, func(a, b store.ListedCluster) int { return strings.Compare(a.Name, b.Name) })
	// Visibility may list two runs of one for a moment.
	clusters = slices.CompactFunc(clusters, func(a, b store.ListedCluster) bool { return a.Name == b.Name })
	views, errs := h.ViewEach(ctx, clusters)
	for i := range views {
		if errs[i] == nil {
			reading.clusters = append(reading.clusters, clusterReading{ClusterView: views[i],
				waiting: map[api.Priority]int64{}})
		} else if code, _ := rest.Code(errs[i]); code != protocol.CodeUnknownCluster {
			// not deleted since it was listed
			reading.unread++
		}
	}
	if err := h.readBacklogs(ctx, reading.clusters); err != nil {
		return nil, err
	}
	deadLetters := func(c *clusterReading) *int64 { return &c.deadLetters }
	reviews := func(c *clusterReading) *int64 { return &c.reviews }
	for _, count := range []struct {
		query func(cluster string) string
		of    func(*clusterReading) *int64
	}{
		{tasksWith(api.TaskDeadLetter), deadLetters},
		{tasksWith(api.TaskReview), reviews},
		{contract.UndecidedRuns, reviews},
		{contract.UndecidedArrays, reviews},
	} {
		if err := h.countIn(ctx, reading.clusters, count.query, count.of); err != nil {
			return nil, err
		}
	}
	for status, n := range map[api.InboundStatus]*int64{api.InboundQuarantined: &reading.held,
		api.InboundUnmatched: &reading.unmatched} {
		if *n, err = h.Store.Count(ctx, contract.WaitingEvents(status)); err != nil {
			return nil, err
		}
	}
	if err := h.readServices(ctx, reading.clusters, now); err != nil {
		return nil, err
	}
	reading.took = time.Since(now)
	return reading, nil
}

// readBacklogs reads what waits in all lanes of the clusters.
func (h *Handlers) readBacklogs(ctx context.Context, clusters []clusterReading) error {
	pinned, err := h.Store.Tasks().Pinned(ctx, "")
	if err != nil {
		return err
	}
	type laneOf struct {
		cluster int
		queue   string
	}
	var lanes []laneOf
	for i := range clusters {
		c := &clusters[i].Cluster
		for _, lane := range c.Lanes(pinned[c.Config.Name]) {
			lanes = append(lanes, laneOf{i, contract.LaneQueue(c.Config.Name, lane)})
		}
	}
	stats, errs := make([]store.LaneStats, len(lanes)), make([]error, len(lanes))
	parallel.Each(len(lanes), rest.FanOut, func(i int) { stats[i], errs[i] = h.LaneStats(ctx, lanes[i].queue) })
	for i, l := range lanes {
		if errs[i] != nil {
			return errs[i]
		}
		c := &clusters[l.cluster]
		for priority, s := range stats[i].ByPriority {
			c.waiting[api.Priority(priority)] += s.GetApproximateBacklogCount()
		}
		if s := stats[i].Total; s.GetApproximateBacklogCount() > 0 {
			c.oldest = max(c.oldest, s.GetApproximateBacklogAge().AsDuration())
		}
	}
	return nil
}

// tasksWith makes the queries for a cluster's tasks with a status.
func tasksWith(status api.TaskStatus) func(cluster string) string {
	return func(cluster string) string {
		return contract.TaskQuery(&api.TaskFilter{Cluster: cluster, Status: status})
	}
}

// countIn adds a query's counts by cluster. Most counts are zero, so one question about all clusters comes first.
func (h *Handlers) countIn(
	ctx context.Context, clusters []clusterReading, query func(cluster string) string, of func(*clusterReading) *int64,
) error {
	left, err := h.countWorkflows(ctx, query(""))
	for i := 0; err == nil && left > 0 && i < len(clusters); i++ {
		var n int64
		n, err = h.countWorkflows(ctx, query(clusters[i].Config.Name))
		*of(&clusters[i]) += n
		left -= n
	}
	return err
}
