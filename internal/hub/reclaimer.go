package hub

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
)

// returnTime is how long an agent that promises to reconnect has to come back after a hub's start: its tries are two
// seconds apart at most.
const returnTime = 3 * time.Second

// reclaimer gives up the members that the clusters count on this hub and that have no session with it: those that did
// not come back after it started, or after it was out of touch with Temporal, and those whose registration ended half
// way. No other part would notice that they died meanwhile. It also ends the attempts that the hub had before and that
// no agent brought back. Each cluster has looks of its own: others wait, for seconds, only where looksAtOnce of them do
// not answer.
type reclaimer struct {
	hub    *Hub
	reason string          // of those it gives up
	looks  []time.Duration // when it looks at a cluster, after it was asked to
	places chan struct{}   // bounds the looks at a time: attempts take much memory

	mu    sync.Mutex
	asked map[string]time.Time // clusters whose looks have not begun, and since when; everyCluster: all
	busy  map[string]bool      // those whose looks have
	soon  part.Signal
}

// everyCluster stands for all clusters.
const everyCluster = ""

const (
	looksAtOnce = 4
	// viewTime and heldTime bound the reading of a cluster, and of its attempts; endTime the ending of these.
	viewTime, heldTime, endTime = 5 * time.Second, 5 * time.Second, 10 * time.Second
	// lastTries is for how long the last look tries a cluster again that it could not look at.
	lastTries = 30 * time.Second
)

// newRestartReclaimer looks at three times: when agents that promise to reconnect had the time for it, when the others
// had the failure threshold, and, for agents that the brake held, when the backstop has ended their work.
func newRestartReclaimer(h *Hub) *reclaimer {
	failure := h.config.Timing.FailureThreshold
	return newReclaimer(h, "it did not come back after its hub restarted",
		min(returnTime, failure), failure, api.AttemptBackstop)
}

// newJoinReclaimer looks when the outcome of a registration that ended half way is known.
func newJoinReclaimer(h *Hub) *reclaimer {
	return newReclaimer(h, "it registered, and did not come for the answer",
		max(h.config.Timing.FailureThreshold, joinTimeout), api.AttemptBackstop)
}

func newReclaimer(h *Hub, reason string, looks ...time.Duration) *reclaimer {
	return &reclaimer{hub: h, reason: reason, looks: looks,
		places: make(chan struct{}, looksAtOnce), asked: map[string]time.Time{}, busy: map[string]bool{},
		soon: part.NewSignal()}
}

// ask asks for looks at a cluster.
func (r *reclaimer) ask(cluster string) { r.askSince(cluster, time.Now()) }

func (r *reclaimer) askSince(cluster string, began time.Time) {
	r.mu.Lock()
	r.asked[cluster] = began
	r.mu.Unlock()
	r.soon.Send()
}

// begin takes the clusters whose looks can begin: those whose former ones have ended.
func (r *reclaimer) begin() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := map[string]time.Time{}
	for cluster, began := range r.asked {
		if !r.busy[cluster] {
			begun[cluster], r.busy[cluster] = began, true
			delete(r.asked, cluster)
		}
	}
	return begun
}

// end ends the looks at a cluster. again asks for new ones.
func (r *reclaimer) end(cluster string, again bool) {
	r.mu.Lock()
	delete(r.busy, cluster)
	if _, asked := r.asked[cluster]; again && !asked {
		r.asked[cluster] = time.Now()
	}
	r.mu.Unlock()
	r.soon.Send()
}

func (r *reclaimer) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-r.soon:
		case <-ctx.Done():
			return
		}
		for cluster, began := range r.begin() {
			all.Go(func() {
				if cluster == everyCluster {
					r.askAll(ctx, began)
					r.end(cluster, false)
				} else {
					r.end(cluster, r.lookAt(ctx, cluster, began))
				}
			})
		}
	}
}

// askAll asks for looks at all clusters.
func (r *reclaimer) askAll(ctx context.Context, began time.Time) {
	retry := backoff.Backoff{First: time.Second, Limit: 30 * time.Second}
	for ; ctx.Err() == nil; retry.Pause(ctx) {
		names, err := r.names(ctx)
		if err == nil {
			for _, name := range names {
				r.askSince(name, began)
			}
			return
		}
		r.hub.log.Warn("The clusters with members of an earlier run are not known; trying again", zap.Error(err))
	}
}

func (r *reclaimer) names(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	return r.hub.store.Clusters().Names(ctx)
}

// lookAt looks at a cluster. It reports whether that is to be done again: it did not answer, or an agent registers now.
func (r *reclaimer) lookAt(ctx context.Context, cluster string, began time.Time) (again bool) {
	for i, after := range r.looks {
		backoff.Pause(ctx, time.Until(began.Add(after)))
		l := look{reclaimer: r, cluster: cluster, began: began, last: i == len(r.looks)-1}
		l.promisesOnly = after < r.hub.config.Timing.FailureThreshold
		until := began.Add(after + lastTries)
		if !l.last {
			until = began.Add(r.looks[i+1])
		}
		if l.try(ctx, until) && !l.waits {
			return false
		}
	}
	return true
}

// look is one look for members of a cluster without a session.
type look struct {
	*reclaimer
	cluster      string
	began        time.Time // of the hub, or when it was in touch with Temporal again
	promisesOnly bool      // give up only agents that promise to reconnect
	last         bool      // the brake holds nobody any more
	waits        bool      // it left members or attempts for the next look
}

// try looks, and until some time again when that fails. It reports whether it did not fail in the end.
func (l *look) try(ctx context.Context, until time.Time) bool {
	retry := backoff.Backoff{First: time.Second, Limit: 30 * time.Second}
	for {
		l.waits = false
		err := l.once(ctx)
		if err == nil || ctx.Err() != nil {
			return true
		}
		l.hub.log.Warn("The members of an earlier run were not looked at; trying again",
			zap.String("cluster", l.cluster), zap.Error(err))
		if retry.Pause(ctx); !time.Now().Before(until) {
			return false
		}
	}
}

// once gives up missing members, and ends their attempts and those that nobody has.
func (l *look) once(ctx context.Context) error {
	l.places <- struct{}{}
	defer func() { <-l.places }()
	view, err := l.view(ctx)
	if store.KindOf(err) == store.NotFound {
		return nil // deleted since it was listed
	}
	if err != nil {
		return err
	}
	held, whole, err := l.held(ctx)
	if err != nil && !l.last { // the backstop has ended most of the rest by the last look
		return err
	}
	if len(held) > 0 { // their agents may have gone to another hub meanwhile
		if view, err = l.view(ctx); err != nil {
			return err
		}
	}
	held = slices.DeleteFunc(held, func(t store.Task) bool { return !t.Delivery.SeenAt.Before(l.began) })
	lost := l.giveUpMissing(&view, held)
	l.waits = l.waits || !whole && !l.last
	if len(lost) == 0 {
		return nil
	}
	lease := l.hub.config.Timing.For(math.MaxInt).Lease(view.Config.ReplicationMode,
		view.Config.RoleLease.Std())
	left := api.Duration(max(0, time.Until(l.began.Add(lease))))
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	n, err := l.hub.store.Tasks().EndHeld(ctx, lost, l.hub.store.Identity, "no agent brought it back to its hub", &left)
	l.hub.log.Info("Attempts of an earlier run were ended", zap.String("cluster", l.cluster), zap.Int("attempts", n))
	l.hub.metrics.lost.Add(float64(n))
	return err
}

func (l *look) view(ctx context.Context) (contract.ClusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	return l.hub.store.Clusters().View(ctx, l.cluster)
}

// held finds attempts for a while: a cluster with many and large ones takes long. Where that is not enough, it returns
// those that it found: a tenant's backlog must not keep the members of others from being given up.
func (l *look) held(ctx context.Context) (held store.Held, whole bool, err error) {
	timed, cancel := context.WithTimeout(ctx, heldTime)
	defer cancel()
	held, err = l.hub.store.Tasks().HeldAt(timed, l.cluster, l.hub.id)
	if timed.Err() != nil {
		return held, false, ctx.Err()
	}
	return held, true, err
}

// missingLocked reports whether a cluster counts a member on this hub that has no session here.
func (h *Hub) missingLocked(clusterName string, m *cluster.Member) bool {
	s := h.sessionInLocked(clusterName, m.AgentID)
	return m.Hub == h.id && m.Serving() && (s == nil || s.epoch < m.Epoch)
}

// giveUpMissing reports to a cluster each member that it counts on this hub and that has no session here, if the look
// is to give it up. It returns the attempts to end among those that the hub had before: those of these members and,
// unless a member may still bring them back, those that no agent has.
func (l *look) giveUpMissing(view *contract.ClusterView, held store.Held) (lost store.Held) {
	h, now, name := l.hub, time.Now(), view.Config.Name
	h.mu.Lock()
	defer h.mu.Unlock()
	brake, present := cluster.Brake{Policy: view.Config.Brake}, 0
	for i := range view.Members {
		if m := &view.Members[i]; h.missingLocked(name, m) {
			brake.Lost(cluster.AgentLoss{AgentID: m.AgentID, At: now})
		} else if m.Serving() {
			present++
		}
	}
	attempts, braked, waits := held.Attempts(), (brake.Settle(present, now) || view.Braked()) && !l.last, false
	gone := map[string]bool{}
	for i := range view.Members {
		m := &view.Members[i]
		s := h.sessionInLocked(name, m.AgentID)
		away := m.Hub == h.id && m.Connected() && (s == nil || s.epoch < m.Epoch)
		// One that registers now may be counted already and open its session next.
		if away && (braked || l.promisesOnly && !m.Reconnects || h.registering[m.AgentID] > 0) {
			waits = true
			continue
		}
		gone[m.AgentID] = m.Hub == h.id || !m.Serving() // else it is with another hub, with its work
		if away && m.Serving() {
			h.notices.Notify(name, cluster.Transition{
				AgentID:      m.AgentID,
				Instance:     m.Instance,
				Epoch:        m.Epoch,
				Registration: m.Registration,
				Status:       api.AgentOffline,
				At:           now.UTC(),
				Reason:       l.reason,
				Attempts:     attempts[m.AgentID],
				Evidence:     api.EvidenceHubLost,
				NoticedAfter: api.Duration(now.Sub(l.began).Round(time.Millisecond)),
			})
		}
	}
	l.waits = waits
	here := h.attemptsLocked()
	return slices.DeleteFunc(held, func(t store.Task) bool {
		a := t.Running()
		left := gone[a.AgentID] || view.Member(a.AgentID) == nil && !waits
		return here[attemptKey{t.ID, a.Number}] || !left
	})
}
