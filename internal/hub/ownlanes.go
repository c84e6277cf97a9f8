package hub

import (
	"context"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
)

const (
	// ownLaneIdle is how long an agent's own lane must be polled without a task before it is closed.
	ownLaneIdle = 5 * time.Minute
	// ownLanesOld is when the open lanes of a cluster are read again although no directive says that there are more: a
	// directive may have been lost.
	ownLanesOld = 2 * time.Minute
	// ownLanesTick spaces the looks for these clusters and for empty lanes; ownLanesRetry follows a failure.
	ownLanesTick, ownLanesRetry = 10 * time.Second, time.Second
	// ownLanesAtOnce bounds the clusters that are asked at the same time.
	ownLanesAtOnce = 8
)

// ownLanes are the lanes of single agents. The hub polls one only while the agent's cluster has it open. It asks the
// cluster for the open lanes when a directive says that there are more, and reports lanes that were empty for a while.
type ownLanes struct {
	hub  *Hub
	soon part.Signal
	open map[string]*openLanes // by cluster; the hub's mutex guards it
}

// openLanes are the open lanes of one cluster.
type openLanes struct {
	createdAt time.Time // the cluster
	version   int64
	readAt    time.Time
	asked     map[string]int64 // by agent
}

func newOwnLanes(h *Hub) *ownLanes {
	return &ownLanes{hub: h, soon: part.NewSignal(), open: map[string]*openLanes{}}
}

// isOpen reports whether work may wait in the own lane of an agent of a cluster. It needs the hub's mutex held.
func (o *ownLanes) isOpen(agent string, d *contract.Directive) bool {
	known := o.open[d.Cluster]
	return known != nil && known.asked[agent] > 0
}

// Run reads and closes lanes until the context ends.
func (o *ownLanes) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := time.NewTimer(ownLanesTick)
		if !o.look(ctx, time.Now()) {
			wait.Reset(ownLanesRetry)
		}
		select {
		case <-o.soon:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// look asks the clusters whose open lanes are not known well enough, and has empty lanes closed. It reports false when
// a cluster did not answer.
func (o *ownLanes) look(ctx context.Context, now time.Time) bool {
	names, empty := o.due(now)
	failed := make([]bool, len(names))
	parallel.Each(len(names), ownLanesAtOnce, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		name, clusters := names[i], o.hub.store.Clusters()
		var lanes contract.AgentLanes
		var err error
		if list := empty[name]; len(list) > 0 {
			lanes, err = store.UpdateCluster(ctx, clusters, contract.CloseAgentLanesUpdate, name, list)
		} else {
			lanes, err = clusters.AgentLanes(ctx, name)
		}
		switch {
		case err == nil:
			o.apply(name, lanes)
		case store.KindOf(err) == store.NotFound: // it was deleted
		default:
			failed[i] = true
			o.hub.log.Debug("The open lanes of a cluster's agents are not known", zap.String("cluster", name),
				zap.Error(err))
		}
	})
	for _, f := range failed {
		if f {
			return false
		}
	}
	return true
}

// due returns the clusters to ask, with the lanes to close.
func (o *ownLanes) due(now time.Time) (names []string, empty map[string][]cluster.OpenLane) {
	o.hub.mu.Lock()
	defer o.hub.mu.Unlock()
	empty = map[string][]cluster.OpenLane{}
	for _, l := range o.hub.lanes {
		clusterName, name, _ := contract.LaneOfQueue(l.name)
		agent, own := task.AgentOfLane(name)
		if !own || l.emptySince.IsZero() || now.Sub(l.emptySince) < ownLaneIdle {
			continue
		}
		if known := o.open[clusterName]; known != nil && known.asked[agent] > 0 {
			empty[clusterName] = append(empty[clusterName], cluster.OpenLane{AgentID: agent, Asked: known.asked[agent]})
		}
	}
	serving := map[string]bool{}
	for _, s := range o.hub.sessions {
		serving[s.cluster] = true
	}
	for name, d := range o.hub.directives {
		known := o.open[name]
		if known.behind(&d) || len(empty[name]) > 0 || serving[name] && now.Sub(known.readAt) >= ownLanesOld {
			names = append(names, name)
		}
	}
	return names, empty
}

// behind reports whether a directive counts a lane that is not known. l is nil as long as none is.
func (l *openLanes) behind(d *contract.Directive) bool {
	return l == nil || !l.createdAt.Equal(d.CreatedAt) || l.version < d.AgentLanes
}

// apply takes a cluster's open lanes, and serves the sessions whose lane it opens or closes.
func (o *ownLanes) apply(cluster string, lanes contract.AgentLanes) {
	h := o.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	d, known := h.directives[cluster], o.open[cluster]
	if !lanes.CreatedAt.Equal(d.CreatedAt) || known != nil && known.createdAt.Equal(lanes.CreatedAt) &&
		lanes.Version < known.version {
		return // the answer of an earlier cluster of the name, or one that was overtaken
	}
	now := &openLanes{createdAt: lanes.CreatedAt, version: lanes.Version, readAt: time.Now(), asked: map[string]int64{}}
	for _, l := range lanes.Open {
		now.asked[l.AgentID] = l.Asked
	}
	o.open[cluster] = now
	changed := map[string]bool{}
	for agent, asked := range now.asked {
		if known == nil || known.asked[agent] != asked {
			changed[agent] = true
		}
	}
	if known != nil {
		for agent := range known.asked {
			if now.asked[agent] == 0 {
				changed[agent] = true
			}
		}
	}
	for agent := range changed {
		if l := h.lanes[contract.AgentLane(cluster, agent)]; l != nil && l.polls > 0 {
			l.emptySince = time.Now() // somebody has asked for it since
		}
		if s := h.sessions[agent]; s != nil && s.cluster == cluster {
			h.serveLocked(s)
		}
	}
}
