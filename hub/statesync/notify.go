package statesync

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/hub/part"
	"mainstay.dev/mainstay/store"
)

const (
	// look is how often the hub looks whether a cluster must hear of its agents' states.
	look = 250 * time.Millisecond
	// maxDigests bounds the digests of one signal: that there are several is what counts.
	maxDigests = 3
)

// notified is what a cluster was told of its agents' states here.
type notified struct {
	digests []string
	at      time.Time
	// again says that the cluster may have forgotten it: a cluster drops what a hub without members sent.
	again bool
}

// Changed says that a session's state, or which sessions there are, changed.
func (s *States) Changed() { s.changed.Store(true) }

// Rejoined says that an agent of a cluster has joined again: the cluster may have forgotten what it was told while the
// agent was away. A new session's first poll brings its state; one that goes on has it already.
func (s *States) Rejoined(cluster string, hasState bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, known := s.notified[cluster]; known {
		last.again = true
		s.notified[cluster] = last
		if hasState {
			s.Changed()
		}
	}
}

// Run notifies clusters when the states of their agents have changed, until the context ends. While nobody
// writes and no agent comes or goes, no cluster is notified.
func (s *States) Run(ctx context.Context) {
	part.Every(ctx, look, func(now time.Time) {
		if s.changed.Swap(false) {
			for cluster, digests := range s.due(s.facts.Digests(), now) {
				s.notify(ctx, cluster, digests, now)
			}
		}
	})
}

// due are the clusters that do not know how the states of their agents here stand, with the digests.
func (s *States) due(byCluster map[string][]string, now time.Time) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cluster := range s.notified {
		if _, known := byCluster[cluster]; !known {
			byCluster[cluster] = nil
		}
	}
	due := map[string][]string{}
	for cluster, digests := range byCluster {
		slices.Sort(digests)
		digests = slices.Compact(digests)
		digests = digests[:min(len(digests), maxDigests)]
		last, known := s.notified[cluster]
		switch {
		case known && !last.again && slices.Equal(digests, last.digests):
		case known && now.Sub(last.at) < s.spacing:
			s.Changed() // later
		default:
			due[cluster] = digests
		}
	}
	return due
}

// notify signals one cluster. What it did not take is sent again.
func (s *States) notify(ctx context.Context, cluster string, digests []string, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := contract.StatesSignal.Send(ctx, s.hub.Client, contract.ClusterWorkflowID(cluster),
		contract.StatesChanged{Hub: s.hub.ID, Digests: digests})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && store.KindOf(err) != store.NotFound:
		s.hub.Logger.Warn("A cluster was not notified of its agents' states; trying again",
			zap.String("cluster", cluster), zap.Error(err))
		s.Changed()
	case len(digests) == 0:
		delete(s.notified, cluster)
	default:
		s.notified[cluster] = notified{digests: digests, at: now}
	}
}
