package gateway

import (
	"context"
	"time"

	workerpb "go.temporal.io/api/worker/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// liveTimeout bounds reading the worker registry: it is an extra, never worth waiting for.
const liveTimeout = 2 * time.Second

// liveAgents are Temporal's worker heartbeats of agents, by agent id and instance. It is a read model: what is missing
// is not known, which says nothing about the agent.
type liveAgents map[liveKey]*workerpb.WorkerHeartbeat

type liveKey struct{ agent, instance string }

// live reads the agents' heartbeats that hubs publish. When that fails there are none.
func (g *Gateway) live(ctx context.Context) liveAgents {
	return g.liveWhere(ctx, contract.AllAgents)
}

// liveAgent reads the heartbeats of one agent id.
func (g *Gateway) liveAgent(ctx context.Context, agent string) liveAgents {
	return g.liveWhere(ctx, "WorkerIdentity STARTS_WITH '"+contract.AgentIdentityPrefix(agent)+"'")
}

func (g *Gateway) liveWhere(ctx context.Context, query string) liveAgents {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	found := liveAgents{}
	for heartbeat, err := range contract.LiveAgents(ctx, g.client, g.namespace, query) {
		if err != nil {
			g.logger.Debug("the worker registry did not answer", zap.Error(err))
			break
		}
		_, agent, _ := contract.AgentOfIdentity(heartbeat.GetWorkerIdentity())
		found[liveKey{agent, heartbeat.GetWorkerInstanceKey()}] = heartbeat
	}
	return found
}

// running is how many tasks each member runs now, for those of which it is known.
func (l liveAgents) running(c *fleet.Cluster) map[string]int {
	counts := make(map[string]int, len(l))
	for i := range c.Members {
		m := &c.Members[i]
		if heartbeat := l[liveKey{m.AgentID, m.Instance}]; heartbeat.GetActivityTaskSlotsInfo() != nil {
			counts[m.AgentID] = int(heartbeat.GetActivityTaskSlotsInfo().GetCurrentUsedSlots())
		}
	}
	return counts
}

// clusterOf is the cluster in which the agent was last heard of.
func (l liveAgents) clusterOf(agent string) (string, bool) {
	var newest *workerpb.WorkerHeartbeat
	for key, heartbeat := range l {
		if key.agent == agent && (newest == nil || heartbeat.GetHeartbeatTime().AsTime().After(newest.GetHeartbeatTime().AsTime())) {
			newest = heartbeat
		}
	}
	if newest == nil {
		return "", false
	}
	cluster, _, ok := contract.AgentOfIdentity(newest.GetWorkerIdentity())
	return cluster, ok
}
