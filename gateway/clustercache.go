package gateway

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// knownFor is how long the gateway believes that a cluster exists. Names that are unknown are never remembered.
const knownFor = 10 * time.Second

// clusterFacts are what submitting needs. After a change of the cluster the old ones may be used for as long.
type clusterFacts struct {
	shards              int // 0 when the cluster is not sharded
	deadLetterRetention fleet.Duration
	weights             map[string]float64 // of tenants
	defaults            fleet.TaskDefaults
}

// clusterCache remembers clusters and their open capability lanes for a short time.
type clusterCache struct {
	mu      sync.Mutex
	entries map[string]*cacheEntry
}

type cacheEntry struct {
	facts   clusterFacts
	expires time.Time
	lanes   map[string]bool // capability lanes known to be open
}

func (c *clusterCache) get(name string, now time.Time) (clusterFacts, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	if e == nil || now.After(e.expires) {
		return clusterFacts{}, false
	}
	return e.facts, true
}

func (c *clusterCache) put(name string, facts clusterFacts, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[string]*cacheEntry{}
	}
	for other, e := range c.entries {
		if now.After(e.expires) {
			delete(c.entries, other)
		}
	}
	if e := c.entries[name]; e != nil { // another request asked at the same time; its open lanes count too
		e.facts = facts
		return
	}
	c.entries[name] = &cacheEntry{facts: facts, expires: now.Add(knownFor), lanes: map[string]bool{}}
}

func (c *clusterCache) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, name)
}

func (c *clusterCache) laneOpen(name, lane string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	return e != nil && e.lanes[lane]
}

func (c *clusterCache) markLane(name, lane string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[name]; e != nil {
		e.lanes[lane] = true
	}
}

// knownCluster returns a cluster's facts, or unknown_cluster. It asks no worker unless the cluster was started by
// other means than the gateway.
func (g *Gateway) knownCluster(ctx context.Context, name string) (clusterFacts, error) {
	if facts, ok := g.clusters.get(name, time.Now()); ok {
		return facts, nil
	}
	config, err := g.clusterConfig(ctx, name)
	if err != nil {
		return clusterFacts{}, err
	}
	facts := clusterFacts{deadLetterRetention: config.WithDefaults().DeadLetterRetention, weights: config.TenantWeights, defaults: config.WithDefaults().TaskDefaults}
	if config.ReplicationMode == fleet.Sharded {
		facts.shards = config.Shards
	}
	g.clusters.put(name, facts, time.Now())
	return facts, nil
}

// clusterConfig is a cluster's configuration, or unknown_cluster.
func (g *Gateway) clusterConfig(ctx context.Context, name string) (fleet.ClusterConfig, error) {
	config, err := g.store.Clusters().Config(ctx, name)
	return config, g.answer(err, "describe a cluster", protocol.CodeUnknownCluster)
}

// view asks a cluster's workflow how it stands.
func (g *Gateway) view(ctx context.Context, name string) (contract.ClusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	view, err := g.store.Clusters().View(ctx, name)
	return view, g.answer(err, "query a cluster", protocol.CodeUnknownCluster)
}

// openLane makes sure that hubs poll the lane of a set of capabilities. One request at a time asks for it: a cluster takes
// ten updates at a time, and a batch may bring many tasks for a new lane.
func (g *Gateway) openLane(ctx context.Context, cluster string, capabilities []string) error {
	lane := contract.CapabilityLane(cluster, capabilities)
	if g.clusters.laneOpen(cluster, lane) {
		return nil
	}
	select {
	case g.opening <- struct{}{}:
		defer func() { <-g.opening }()
	case <-ctx.Done():
		return g.answer(ctx.Err(), "open a lane", protocol.CodeUnknownCluster)
	}
	if g.clusters.laneOpen(cluster, lane) {
		return nil
	}
	view, err := g.view(ctx, cluster)
	if err != nil {
		return err
	}
	if err := g.store.Clusters().OpenLane(ctx, &view, capabilities); err != nil {
		return g.answer(err, "open a lane", protocol.CodeUnknownCluster)
	}
	g.clusters.markLane(cluster, lane)
	return nil
}

// updateCluster changes a cluster.
func updateCluster[In, Out any](
	ctx context.Context, g *Gateway, doing string, u contract.Update[In, Out], name string, request In,
) (Out, error) {
	answer, err := store.UpdateCluster(ctx, g.store.Clusters(), u, name, request)
	return answer, g.answer(err, doing, protocol.CodeUnknownCluster)
}
