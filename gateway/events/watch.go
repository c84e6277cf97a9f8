package events

import (
	"context"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/parallel"
)

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

// findPlaces looks which clusters and hubs there are. At the start all are known places whose past is no news; what is
// found later tells from the start of the run on.
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
