package store

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/sdk/api"
)

// everyAgent is the query of the live registry for all agents.
const everyAgent = "WorkerIdentity STARTS_WITH 'agent/'"

// Live has what hubs publish of their agents in Temporal's registry of workers. It is a read model: a missing agent is
// unknown, and nothing follows from that.
type Live map[agentProcess]*workerpb.WorkerHeartbeat

// agentProcess names one process of an agent.
type agentProcess struct{ agent, instance string }

// Live reads what hubs publish of all agents. With an error, it returns what it had read before.
func (s Store) Live(ctx context.Context) (Live, error) {
	return s.liveWhere(ctx, everyAgent)
}

// LiveAgent reads what hubs publish of one agent id.
func (s Store) LiveAgent(ctx context.Context, agent string) (Live, error) {
	return s.liveWhere(ctx, "WorkerIdentity STARTS_WITH '"+contract.AgentIdentityPrefix(agent)+"'")
}

func (s Store) liveWhere(ctx context.Context, query string) (Live, error) {
	live := Live{}
	for heartbeat, err := range s.heartbeats(ctx, query) {
		if err != nil {
			return live, err
		}
		identity := heartbeat.GetWorkerIdentity()
		_, agent, _ := contract.AgentOfIdentity(identity)
		live[agentProcess{agent, contract.InstanceOfKey(identity, heartbeat.GetWorkerInstanceKey())}] = heartbeat
	}
	return live, nil
}

// RunningIn is how many tasks each agent of a cluster runs now. Agents with unknown load are left out.
func (s Store) RunningIn(ctx context.Context, cluster string) (map[string]int, error) {
	counts := map[string]int{}
	for heartbeat, err := range s.heartbeats(ctx, "TaskQueue = '"+contract.ClusterLane(cluster)+"'") {
		if err != nil {
			return nil, err
		}
		_, agent, _ := contract.AgentOfIdentity(heartbeat.GetWorkerIdentity())
		counts[agent] = int(heartbeat.GetActivityTaskSlotsInfo().GetCurrentUsedSlots())
	}
	return counts, nil
}

// heartbeats are the entries of agents in the registry that a query finds. An error ends them.
func (s Store) heartbeats(ctx context.Context, query string) iter.Seq2[*workerpb.WorkerHeartbeat, error] {
	return func(yield func(*workerpb.WorkerHeartbeat, error) bool) {
		var page []byte
		for {
			found, err := s.Client.WorkflowService().ListWorkers(ctx, &workflowservice.ListWorkersRequest{
				Namespace: s.Namespace, PageSize: listPage, NextPageToken: page, Query: query,
			})
			if err != nil {
				yield(nil, err)
				return
			}
			//nolint:staticcheck // deprecated, but what replaces it has no load and no slots, and needs a call for each agent
			for _, worker := range found.GetWorkersInfo() {
				heartbeat := worker.GetWorkerHeartbeat()
				if _, _, ok := contract.AgentOfIdentity(heartbeat.GetWorkerIdentity()); ok && !yield(heartbeat, nil) {
					return
				}
			}
			if page = found.GetNextPageToken(); len(page) == 0 {
				return
			}
		}
	}
}

// OnlineIn are the clusters in which agents are online, by agent: of all agents, or of one.
func (s Store) OnlineIn(ctx context.Context, agent string) (map[string][]string, error) {
	prefix := "agent/"
	if agent != "" {
		prefix = contract.AgentIdentityPrefix(agent)
	}
	clusters := map[string][]string{}
	for page := []byte(nil); ; {
		found, err := s.Client.WorkflowService().ListWorkers(ctx, &workflowservice.ListWorkersRequest{
			Namespace: s.Namespace, PageSize: listPage, NextPageToken: page,
			Query: "WorkerIdentity starts_with '" + prefix + "'",
		})
		if err != nil {
			return nil, err
		}
		for _, w := range found.GetWorkers() {
			cluster, agent, ok := contract.AgentOfIdentity(w.GetWorkerIdentity())
			rival := w.GetStatus() == enumspb.WORKER_STATUS_UNSPECIFIED
			if ok && !rival && w.GetStatus() != enumspb.WORKER_STATUS_SHUTDOWN {
				clusters[agent] = append(clusters[agent], cluster)
			}
		}
		if page = found.GetNextPageToken(); len(page) == 0 {
			return clusters, nil
		}
	}
}

// Of is what hubs publish of a member's present process; nil: nothing.
func (l Live) Of(m *cluster.Member) *workerpb.WorkerHeartbeat {
	return l[agentProcess{m.AgentID, m.Instance}]
}

// Status is a member's status now, since when, and why. If its cluster has it as online, its hub's word counts.
func (l Live) Status(m *cluster.Member) (status api.AgentStatus, since time.Time, reason string) {
	if live, at, ok := contract.StatusOf(l.Of(m)); ok && m.Status == api.AgentOnline {
		return live, at, liveReasons[live]
	}
	return m.Status, m.StatusSince, m.StatusReason
}

var liveReasons = map[api.AgentStatus]string{
	api.AgentSuspect:  "its connection closed",
	api.AgentWarning:  "silent for longer than the warning threshold",
	api.AgentStopping: "it finishes what it has, and then leaves",
}

// Running is how many tasks each member runs now. Members with unknown load are left out.
func (l Live) Running(c *cluster.Cluster) map[string]int {
	counts := make(map[string]int, len(l))
	for _, a := range l.Activities(c) {
		counts[a.AgentID] = a.Running
	}
	return counts
}

// Activities is what the members do now. Members of which that is unknown are left out.
func (l Live) Activities(c *cluster.Cluster) []scaling.AgentActivity {
	var list []scaling.AgentActivity
	for i := range c.Members {
		h := l.Of(&c.Members[i])
		if h.GetActivityTaskSlotsInfo() == nil {
			continue
		}
		list = append(list, scaling.AgentActivity{
			AgentID:    c.Members[i].AgentID,
			Running:    int(h.GetActivityTaskSlotsInfo().GetCurrentUsedSlots()),
			CPUPercent: contract.PercentOf(h.GetHostInfo().GetCurrentHostCpuUsage()),
			IdleSince:  workedAt(h),
		})
	}
	return list
}

// workedAt is when an agent last had work; zero when its hub does not publish it.
func workedAt(h *workerpb.WorkerHeartbeat) time.Time {
	if t := h.GetActivityPollerInfo().GetLastSuccessfulPollTime(); t != nil {
		return t.AsTime()
	}
	return time.Time{}
}

// Facts are what hubs publish of the members' present processes, by agent id.
func (l Live) Facts(c *cluster.Cluster) map[string]healing.LiveAgent {
	var facts map[string]healing.LiveAgent
	for i := range c.Members {
		m := &c.Members[i]
		if h := l.Of(m); h != nil {
			if facts == nil {
				facts = map[string]healing.LiveAgent{}
			}
			facts[m.AgentID] = liveAgent(h)
		}
	}
	return facts
}

func liveAgent(h *workerpb.WorkerHeartbeat) healing.LiveAgent {
	slots, host := h.GetActivityTaskSlotsInfo(), h.GetHostInfo()
	level, score, _ := contract.HealthOf(h)
	return healing.LiveAgent{
		Health: level, Score: score,
		Running: int(slots.GetCurrentUsedSlots()), FreeSlots: int(slots.GetCurrentAvailableSlots()),
		CPUPercent:    contract.PercentOf(host.GetCurrentHostCpuUsage()),
		MemoryPercent: contract.PercentOf(host.GetCurrentHostMemUsage()),
		LastHeartbeat: h.GetHeartbeatTime().AsTime(), WorkedAt: workedAt(h),
		Processed: int(slots.GetTotalProcessedTasks()), Failed: int(slots.GetTotalFailedTasks()),
		Stopping: h.GetStatus() == enumspb.WORKER_STATUS_SHUTTING_DOWN,
	}
}

// Rivals are the processes of a cluster that another one with their agent id keeps from being the agent, by that id.
func (l Live) Rivals(clusterName string) []cluster.Rival {
	var rivals []cluster.Rival
	for _, h := range l {
		in, _, _ := contract.AgentOfIdentity(h.GetWorkerIdentity())
		if r, ok := contract.RivalOf(h); ok && in == clusterName {
			rivals = append(rivals, r)
		}
	}
	slices.SortFunc(rivals, func(a, b cluster.Rival) int {
		return cmp.Or(strings.Compare(a.AgentID, b.AgentID), a.Since.Compare(b.Since))
	})
	return rivals
}

// ClusterOf is the cluster in which an agent was last heard of.
func (l Live) ClusterOf(agent string) (string, bool) {
	var newest *workerpb.WorkerHeartbeat
	for key, h := range l {
		if key.agent == agent &&
			(newest == nil || h.GetHeartbeatTime().AsTime().After(newest.GetHeartbeatTime().AsTime())) {
			newest = h
		}
	}
	if newest == nil {
		return "", false
	}
	cluster, _, ok := contract.AgentOfIdentity(newest.GetWorkerIdentity())
	return cluster, ok
}
