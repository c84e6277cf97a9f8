package hub

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub/part"
	"mainstay.dev/mainstay/store"
)

// returnTime is how long an agent that promises to reconnect has to come back after a hub's start: its tries are two
// seconds apart at most.
const returnTime = 3 * time.Second

// reclaimer gives up the members that the clusters count on this hub and that have no session with it: those that did
// not come back after it started, or after it was out of touch with Temporal, and those whose registration ended half
// way. No other part would notice that they died meanwhile. It also ends the attempts that the hub had before and that
// no agent brought back.
type reclaimer struct {
	hub  *Hub
	mu   sync.Mutex
	next map[string]bool // the clusters of the next look; everyCluster: all
	soon part.Signal     // asks for it
}

// everyCluster stands for all clusters.
const everyCluster = ""

func newReclaimer(h *Hub) *reclaimer {
	return &reclaimer{hub: h, next: map[string]bool{}, soon: part.NewSignal()}
}

// ask asks for a look at a cluster.
func (r *reclaimer) ask(cluster string) {
	r.mu.Lock()
	r.next[cluster] = true
	r.mu.Unlock()
	r.soon.Send()
}

func (r *reclaimer) take() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.next
	r.next = map[string]bool{}
	return taken
}

// Run looks when agents that promise to reconnect had the time for it, when the others had the failure threshold, and,
// for those that the brake held, when the backstop has ended their work; and so again after each request. By the
// threshold, what came of a registration that ended half way is known too.
func (r *reclaimer) Run(ctx context.Context) {
	for {
		select {
		case <-r.soon:
		case <-ctx.Done():
			return
		}
		began, clusters := time.Now(), r.take()
		if len(clusters) == 0 {
			continue
		}
		failure, reason := r.hub.config.Timing.FailureThreshold, "it did not come back after its hub restarted"
		looks := []time.Duration{min(returnTime, failure), failure, fleet.AttemptBackstop}
		if !clusters[everyCluster] {
			failure, reason = max(failure, joinTimeout), "it registered, and did not come for the answer"
			looks = []time.Duration{failure, fleet.AttemptBackstop}
		}
		for i, after := range looks {
			backoff.Pause(ctx, time.Until(began.Add(after)))
			l := look{hub: r.hub, reason: reason, began: began, promisesOnly: after < failure, last: i == len(looks)-1}
			until := began.Add(after + lastTries)
			if !l.last {
				until = began.Add(looks[i+1])
			}
			if clusters = l.try(ctx, clusters, until); len(clusters) == 0 {
				break
			}
		}
		for cluster := range clusters {
			r.ask(cluster)
		}
	}
}

const (
	// clusterLook bounds the look at one cluster: one that does not answer keeps the others waiting for so long only.
	clusterLook = 10 * time.Second
	// lastTries is for how long the last look tries clusters again that it could not look at.
	lastTries = 30 * time.Second
)

// look is one look for members without a session.
type look struct {
	hub          *Hub
	reason       string    // of those it gives up
	began        time.Time // of the hub, or when it was in touch with Temporal again
	promisesOnly bool      // give up only agents that promise to reconnect
	last         bool      // the brake holds nobody any more
	waits        bool      // it left members or attempts of a cluster for the next look
}

// try looks at clusters, and until some time again at those that fail. It returns those for the next look.
func (l *look) try(ctx context.Context, clusters map[string]bool, until time.Time) map[string]bool {
	retry, waiting := backoff.Backoff{First: time.Second, Limit: 30 * time.Second}, map[string]bool{}
	for {
		failed, err := l.all(ctx, clusters, waiting)
		if err == nil || ctx.Err() != nil {
			return waiting
		}
		l.hub.log.Warn("The members of an earlier run were not looked at; trying again", zap.Error(err))
		if retry.Pause(ctx); !time.Now().Before(until) {
			maps.Copy(waiting, failed)
			return waiting
		}
		clusters = failed
	}
}

// all looks at each cluster once, and adds to waiting those that it left something in. One that fails keeps no other
// from its look; err is of the last that did.
func (l *look) all(ctx context.Context, clusters, waiting map[string]bool) (failed map[string]bool, err error) {
	all := store.Store{Client: l.hub.client, Namespace: l.hub.namespace}
	names := slices.Sorted(maps.Keys(clusters))
	if clusters[everyCluster] {
		if names, err = l.names(ctx, all.Clusters()); err != nil {
			return clusters, err
		}
	}
	failed = map[string]bool{}
	for _, name := range names {
		l.waits = false
		if oneErr := l.cluster(ctx, all, name); oneErr != nil {
			failed[name], err = true, fmt.Errorf("cluster %s: %w", name, oneErr)
		} else if l.waits {
			waiting[name] = true
		}
	}
	return failed, err
}

func (l *look) names(ctx context.Context, clusters store.Clusters) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterLook)
	defer cancel()
	return clusters.Names(ctx)
}

// cluster gives up missing members, and ends the attempts of these and those that nobody has.
func (l *look) cluster(ctx context.Context, all store.Store, name string) error {
	ctx, cancel := context.WithTimeout(ctx, clusterLook)
	defer cancel()
	view, err := all.Clusters().View(ctx, name)
	if store.KindOf(err) == store.NotFound {
		return nil // deleted since it was listed
	}
	if err != nil {
		return err
	}
	held, err := l.held(ctx, all.Tasks(), name)
	if err != nil && !l.last { // of what that leaves out, the backstop has ended most by the last look
		return err
	}
	held = slices.DeleteFunc(held, func(t store.Task) bool { return !t.Delivery.SeenAt.Before(l.began) })
	lost := facts{l.hub}.giveUpMissing(l, &view, held)
	if len(lost) == 0 {
		return nil
	}
	lease := l.hub.config.Timing.For(math.MaxInt).Lease(view.Config.ReplicationMode,
		view.Config.RoleLease.Std())
	left := fleet.Duration(max(0, time.Until(l.began.Add(lease))))
	n, err := all.Tasks().EndHeld(ctx, lost, l.hub.identity(), "no agent brought it back to its hub", &left)
	l.hub.log.Info("Attempts of an earlier run were ended", zap.String("cluster", name),
		zap.Int("attempts", n))
	l.hub.metrics.lost.Add(float64(n))
	return err
}

// held has half of the time of a look: finding the attempts of a cluster with many and large ones takes long.
func (l *look) held(ctx context.Context, tasks store.Tasks, cluster string) (store.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterLook/2)
	defer cancel()
	return tasks.HeldAt(ctx, cluster, l.hub.id)
}
