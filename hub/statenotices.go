package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

const (
	// statesLook is how often the hub looks whether a cluster must hear of its agents' states.
	statesLook = 250 * time.Millisecond
	// maxDigests bounds the digests of one signal: that there are several is what counts.
	maxDigests = 3
)

// statesTold is what a cluster was told of its agents' states here.
type statesTold struct {
	digests []string
	at      time.Time
	// again says that the cluster may have forgotten it: a cluster drops what a hub without members told.
	again bool
}

// watchStates tells clusters when the states of their agents have changed, until the hub stops. While nobody writes and
// no agent comes or goes, nothing is told.
func (h *Hub) watchStates() {
	h.every(statesLook, func(now time.Time) {
		for _, changed := range h.changedStates(now) {
			h.tellStates(changed.cluster, changed.digests, now)
		}
	})
}

type clusterDigests struct {
	cluster string
	digests []string
}

// changedStates are the clusters that do not know how the states of their agents here stand.
func (h *Hub) changedStates(now time.Time) []clusterDigests {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.statesChanged {
		return nil
	}
	h.statesChanged = false
	byCluster := map[string][]string{}
	for _, s := range h.sessions {
		if d := h.directives[s.cluster]; s.state != nil && d.Mode != fleet.ActiveActive {
			byCluster[s.cluster] = append(byCluster[s.cluster], s.state.Digest)
		}
	}
	for cluster := range h.statesTold {
		if _, known := byCluster[cluster]; !known {
			byCluster[cluster] = nil
		}
	}
	var changed []clusterDigests
	for cluster, digests := range byCluster {
		slices.Sort(digests)
		digests = slices.Compact(digests)
		digests = digests[:min(len(digests), maxDigests)]
		told, known := h.statesTold[cluster]
		switch {
		case known && !told.again && slices.Equal(digests, told.digests):
		case known && now.Sub(told.at) < h.config.StateSpacing:
			h.statesChanged = true // later
		default:
			changed = append(changed, clusterDigests{cluster, digests})
		}
	}
	return changed
}

// tellStatesAgain has a cluster told once more what it may have forgotten while a session's agent was away. The mutex is
// held.
func (h *Hub) tellStatesAgain(s *session) {
	if told, known := h.statesTold[s.cluster]; known {
		told.again = true
		h.statesTold[s.cluster] = told
		h.statesChanged = h.statesChanged || s.state != nil // a new session's first poll brings its state
	}
}

// tellStates signals one cluster. What was not taken is told again.
func (h *Hub) tellStates(cluster string, digests []string, now time.Time) {
	ctx, cancel := context.WithTimeout(h.run, 5*time.Second)
	defer cancel()
	err := h.client.SignalWorkflow(ctx, contract.ClusterWorkflowID(cluster), "", contract.StatesSignal, contract.StatesChanged{Hub: h.id, Digests: digests})
	var missing *serviceerror.NotFound
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && !errors.As(err, &missing):
		h.log.Warn("A cluster was not told of its agents' states; trying again", zap.String("cluster", cluster), zap.Error(err))
		h.statesChanged = true
	case len(digests) == 0:
		delete(h.statesTold, cluster)
	default:
		h.statesTold[cluster] = statesTold{digests: digests, at: now}
	}
}
