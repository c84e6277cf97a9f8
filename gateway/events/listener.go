package events

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/sdk/api"
)

// maxWaiting bounds the events that wait for one listener. A slower one gets a gap instead of the rest.
const maxWaiting = 2000

// listener is one client that listens. Events that it does not take in time are counted and dropped; it delays nobody.
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

// end says to the listener that nothing more comes.
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

// take returns the waiting events, how many were dropped after them, and the position after all.
func (l *listener) take() (events []told, missed int64, at string, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, missed = l.waiting, l.missed
	l.waiting, l.missed = nil, 0
	return events, missed, l.position, l.ended
}

// eventFilter is what one listener wants, and may have. It is the one place that decides which events reach it.
type eventFilter struct {
	types               []string // prefixes without api.EventPrefix, some with @ and a task's type; none: all
	clusters            []string
	agent, task, tenant string
}

// allows reports whether the listener gets an event. Everybody whose events may be missing gets a gap. A tenant gets
// every gap: otherwise a filter would reveal which clusters others have.
func (f *eventFilter) allows(e *cluster.Event) bool {
	elsewhere := len(f.clusters) > 0 && !slices.Contains(f.clusters, e.Cluster)
	if e.Type == api.EventGap {
		return !elsewhere || e.Cluster == "" || f.tenant != ""
	}
	switch {
	case elsewhere:
		return false
	case f.tenant != "" && e.Tenant != f.tenant: // tenants do not get events that belong to no tenant
		return false
	case f.agent != "" && e.AgentID != f.agent && e.PreviousAgentID != f.agent && e.TargetAgentID != f.agent:
		return false
	case f.task != "" && e.TaskID != f.task:
		return false
	}
	return len(f.types) == 0 || slices.ContainsFunc(f.types, func(wanted string) bool {
		prefix, task, only := strings.Cut(wanted, "@")
		return ofType(e.Type, prefix) && (!only || e.TaskType == task && endsAttempt(e))
	})
}

// endsAttempt reports whether an event is the end of an attempt that an agent had.
func endsAttempt(e *cluster.Event) bool {
	return e.Type == api.EventTaskCompleted || e.AttemptEnd != "" && e.AttemptEnd != api.AttemptReturned
}

// shown is an event as the listener may see it. In a gap, a tenant sees neither the names of hubs and clusters nor how
// many events are missing.
func (f *eventFilter) shown(e *told) *told {
	if f.tenant == "" || e.Type != api.EventGap {
		return e
	}
	g := gap(e.Time, "", "some events are not known", 0)
	g.id = e.id
	return &g
}

// ofType reports whether a type is the named one, or below it.
func ofType(t api.EventType, prefix string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(string(t), api.EventPrefix), prefix)
	return ok && (rest == "" || rest[0] == '.' || strings.HasSuffix(prefix, "."))
}

// parseTypes reads the types that a listener asks for: whole ones, or their beginnings.
func parseTypes(list []string) ([]string, error) {
	var prefixes []string
	for _, item := range list {
		for name := range strings.SplitSeq(item, ",") {
			if aliased := api.EventAliases[strings.TrimSpace(name)]; aliased != nil {
				prefixes = append(prefixes, aliased...)
				continue
			}
			prefix := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(name), api.EventPrefix), "*")
			if prefix == "" && name != "*" || !slices.ContainsFunc(api.EventTypes,
				func(m api.EventMeaning) bool { return prefix == "" || ofType(m.Type, prefix) }) {
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

const (
	// placesEvery is how often the feed looks which clusters and hubs there are.
	placesEvery = 5 * time.Second
	// readyLimit bounds how long listeners wait until every source has said where it stands.
	readyLimit = 5 * time.Second
)

// watch runs the feed's loops until ctx ends.
func (r *feedRun) watch(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	r.begin(ctx, &loops)
	close(r.ready)
	loops.Go(func() { every(ctx, clusterEvery, func() { r.lookAtClusters(ctx) }) })
	loops.Go(func() { every(ctx, taskEvery, func() { r.lookAtTasks(ctx) }) })
	every(ctx, placesEvery, func() { r.findPlaces(ctx, &loops, false) })
}

// begin learns where every source stands, so that listeners miss nothing from then on.
func (r *feedRun) begin(ctx context.Context, loops *sync.WaitGroup) {
	limited, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	var wait sync.WaitGroup
	wait.Go(func() { r.beginTasks(limited) })
	if !r.findPlaces(ctx, loops, true) {
		r.publish([]told{gap(time.Now(), "", "Temporal does not answer: what happens is told as soon as it does", 0)},
			nil)
	}
	r.mu.Lock()
	clusters := make([]*clusterSource, 0, len(r.clusters))
	for _, c := range r.clusters {
		clusters = append(clusters, c)
	}
	hubs := make([]*hubSource, 0, len(r.hubs))
	for _, h := range r.hubs {
		hubs = append(hubs, h)
	}
	r.mu.Unlock()
	parallel.Each(len(clusters), atOnce, func(i int) { r.readCluster(limited, clusters[i]) })
	for _, h := range hubs {
		select {
		case <-h.begun:
		case <-limited.Done():
		}
	}
	wait.Wait()
}

// findPlaces lists the clusters and hubs. Those found at the start begin without their past; those found later begin at
// the start of the run.
func (r *feedRun) findPlaces(ctx context.Context, loops *sync.WaitGroup, first bool) bool {
	clusters, hubs, err := r.feed.places(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.feed.logger.Warn("the clusters and hubs to watch were not listed", zap.Error(err))
		}
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range clusters {
		if r.clusters[name] == nil {
			r.clusters[name] = &clusterSource{name: name, unread: first}
		}
	}
	present := make(map[string]bool, len(hubs))
	for _, id := range hubs {
		present[id] = true
		if r.hubs[id] == nil && !r.deaf {
			own, stop := context.WithCancel(ctx)
			h := &hubSource{id: id, first: first, stop: stop, begun: make(chan struct{})}
			r.hubs[id] = h
			loops.Go(func() { defer stop(); r.followHub(own, h) })
		}
	}
	for id, h := range r.hubs {
		if !present[id] && !first {
			h.stop()
			delete(r.hubs, id)
		}
	}
	return true
}

// places lists the open clusters and the hubs.
func (f *Feed) places(ctx context.Context) (clusters, hubs []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	query := "(" + contract.Equals("WorkflowType", contract.ClusterWorkflow) +
		" OR " + contract.Equals("WorkflowType", contract.HubWorkflow) + ") AND " +
		contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	for info, err := range f.store.Workflows(ctx, query) {
		if err != nil {
			return nil, nil, err
		}
		id := info.GetExecution().GetWorkflowId()
		if name, ok := contract.ClusterOfWorkflowID(id); ok {
			clusters = append(clusters, name)
		} else if hub, ok := contract.HubOfWorkflowID(id); ok {
			hubs = append(hubs, hub)
		}
	}
	return clusters, hubs, nil
}

// every calls do at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}
