package statesync

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
)

const (
	// look is the time between two checks whether a cluster must be notified.
	look = 250 * time.Millisecond
	// maxDigests bounds the digests of one signal: the cluster only needs to know that they differ.
	maxDigests = 3
)

// notified is the last signal to a cluster about its agents' states here.
type notified struct {
	digests []string
	at      time.Time
	// again: the cluster may have forgotten it, since it drops signals of a hub without members.
	again bool
}

// Changed records that a session's state, or the set of sessions, changed.
func (s *States) Changed() { s.changed.Store(true) }

// Rejoined records that an agent joined its cluster again: the cluster may have forgotten the last signal while the
// agent was away. With hasState the session already has the agent's state; otherwise the first poll brings it.
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

// Run notifies clusters when the states of their agents have changed, until the context ends.
func (s *States) Run(ctx context.Context) {
	part.Every(ctx, look, func(now time.Time) {
		if s.changed.Swap(false) {
			for cluster, digests := range s.due(s.facts.Digests(), now) {
				s.notify(ctx, cluster, digests, now)
			}
		}
	})
}

// due returns the clusters whose last signal is out of date, with the present digests.
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

// notify signals one cluster, and again if that failed.
func (s *States) notify(ctx context.Context, cluster string, digests []string, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := store.Signal(ctx, s.hub.Store, contract.StatesSignal, contract.ClusterWorkflowID(cluster),
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
