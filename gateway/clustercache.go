package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
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
	description, err := g.describeCluster(ctx, name)
	if err != nil {
		return clusterFacts{}, err
	}
	config, ok := contract.ConfigOf(description.GetWorkflowExecutionInfo())
	if !ok {
		view, err := g.view(ctx, name)
		if err != nil {
			return clusterFacts{}, err
		}
		config = view.Config
	}
	facts := clusterFacts{deadLetterRetention: config.WithDefaults().DeadLetterRetention, weights: config.TenantWeights, defaults: config.WithDefaults().TaskDefaults}
	if config.ReplicationMode == fleet.Sharded {
		facts.shards = config.Shards
	}
	g.clusters.put(name, facts, time.Now())
	return facts, nil
}

// describeCluster finds a cluster's open workflow, or answers unknown_cluster.
func (g *Gateway) describeCluster(ctx context.Context, name string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if fleet.ValidateID("cluster", name) != nil {
		return nil, unknown(protocol.CodeUnknownCluster)
	}
	description, err := g.client.DescribeWorkflowExecution(ctx, contract.ClusterWorkflowID(name), "")
	if err != nil {
		return nil, g.answer(err, "describe a cluster", protocol.CodeUnknownCluster)
	}
	if description.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, unknown(protocol.CodeUnknownCluster)
	}
	return description, nil
}

// view asks a cluster's workflow how it stands.
func (g *Gateway) view(ctx context.Context, name string) (contract.ClusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	view, err := contract.ViewQuery.Ask(ctx, g.client, contract.ClusterWorkflowID(name))
	return view, g.answer(noWorker(err), "query a cluster", protocol.CodeUnknownCluster)
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
	open := slices.ContainsFunc(view.CapabilitySets, func(set []string) bool { return contract.CapabilityLane(cluster, set) == lane })
	if !open {
		request := contract.OpenLaneRequest{Capabilities: capabilities}
		if _, err := update(ctx, g, contract.OpenLaneUpdate, contract.ClusterWorkflowID(cluster), request); err != nil {
			var unsure *unsureError
			if errors.As(err, &unsure) { // nothing was submitted, and an open lane does no harm
				err = unsure.err
			}
			return g.answer(err, "open a lane", protocol.CodeUnknownCluster)
		}
	}
	g.clusters.markLane(cluster, lane)
	return nil
}

// update runs a workflow update to its end.
func update[In, Out any](
	ctx context.Context, g *Gateway, u contract.Update[In, Out], workflowID string, request In,
) (Out, error) {
	answer, err := u.Send(ctx, g.client, workflowID, request)
	if code, _ := classify(err, protocol.CodeNotFound); err != nil && code == protocol.CodeUnavailable {
		return answer, &unsureError{err}
	}
	return answer, err
}
