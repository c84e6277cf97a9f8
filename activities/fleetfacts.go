package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/parallel"
)

const (
	// factsFanOut bounds the clusters that are asked at the same time.
	factsFanOut = 16
	// factsAnswer bounds how long one cluster may take to answer.
	factsAnswer = 5 * time.Second
)

// Facts reads how the whole fleet stands. It writes nothing: clusters are queried, and the live registry is in memory.
type Facts struct {
	Client    client.Client
	Namespace string
}

// Read asks every open cluster, or only those named, and the live registry. A cluster that does not answer is listed as
// silent; one that was deleted meanwhile is left out.
func (a *Facts) Read(ctx context.Context, only ...string) (fleet.FleetFacts, error) {
	var ids []string
	for _, name := range only {
		ids = append(ids, contract.ClusterWorkflowID(name))
	}
	if len(only) == 0 {
		err := contract.EachCluster(ctx, a.Client, a.Namespace, func(_ context.Context, id string) error {
			ids = append(ids, id)
			return nil
		})
		if err != nil {
			return fleet.FleetFacts{}, err
		}
	}
	facts := fleet.FleetFacts{At: time.Now().UTC()}
	live, err := a.live(ctx)
	if err != nil {
		return facts, err
	}
	for i, answer := range a.askAll(ctx, ids) {
		switch {
		case answer.err == nil:
			facts.Clusters = append(facts.Clusters, factsOf(answer.view, live))
		case !answer.gone:
			name, _ := contract.ClusterOfWorkflowID(ids[i])
			facts.Silent = append(facts.Silent, name)
		}
	}
	if ctx.Err() != nil {
		return facts, fmt.Errorf("read how the fleet stands: %w", ctx.Err())
	}
	slices.SortFunc(facts.Clusters, func(a, b fleet.ClusterFacts) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	slices.Sort(facts.Silent)
	return facts, nil
}

// clusterAnswer is what one cluster said.
type clusterAnswer struct {
	view contract.ClusterView
	err  error
	gone bool // there is no such cluster any more
}

func (a *Facts) askAll(ctx context.Context, ids []string) []clusterAnswer {
	answers := make([]clusterAnswer, len(ids))
	parallel.Each(len(ids), factsFanOut, func(i int) { answers[i] = a.ask(ctx, ids[i]) })
	return answers
}

// view asks one cluster alone.
func (a *Facts) view(ctx context.Context, cluster string) (contract.ClusterView, error) {
	answer := a.ask(ctx, contract.ClusterWorkflowID(cluster))
	if answer.err != nil {
		return answer.view, fmt.Errorf("look at cluster %s: %w", cluster, answer.err)
	}
	return answer.view, nil
}

func (a *Facts) ask(ctx context.Context, id string) clusterAnswer {
	ctx, cancel := context.WithTimeout(ctx, factsAnswer)
	defer cancel()
	answer, err := a.Client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: id, QueryType: contract.ViewQuery.Name, QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return clusterAnswer{err: err, gone: true}
	case err != nil:
		return clusterAnswer{err: err}
	case answer.QueryRejected != nil:
		return clusterAnswer{err: errors.New("the cluster was deleted"), gone: true}
	}
	var view contract.ClusterView
	err = answer.QueryResult.Get(&view)
	return clusterAnswer{view: view, err: err}
}

// agentProcess names one process of an agent.
type agentProcess struct{ agent, instance string }

// live reads what hubs publish of their agents.
func (a *Facts) live(ctx context.Context) (map[agentProcess]fleet.LiveAgent, error) {
	agents := map[agentProcess]fleet.LiveAgent{}
	for heartbeat, err := range contract.LiveAgents(ctx, a.Client, a.Namespace, contract.AllAgents) {
		if err != nil {
			return nil, fmt.Errorf("list the agents in the live registry: %w", err)
		}
		_, agent, _ := contract.AgentOfIdentity(heartbeat.GetWorkerIdentity())
		agents[agentProcess{agent, heartbeat.GetWorkerInstanceKey()}] = liveOf(heartbeat)
	}
	return agents, nil
}

func liveOf(h *workerpb.WorkerHeartbeat) fleet.LiveAgent {
	slots, host := h.GetActivityTaskSlotsInfo(), h.GetHostInfo()
	level, score, _ := contract.HealthOf(h)
	return fleet.LiveAgent{
		Health: level, Score: score,
		Running: int(slots.GetCurrentUsedSlots()), FreeSlots: int(slots.GetCurrentAvailableSlots()),
		CPUPercent: 100 * float64(host.GetCurrentHostCpuUsage()), MemoryPercent: 100 * float64(host.GetCurrentHostMemUsage()),
		LastHeartbeat: h.GetHeartbeatTime().AsTime(), Processed: int(slots.GetTotalProcessedTasks()), Failed: int(slots.GetTotalFailedTasks()),
		Stopping: h.GetStatus() == enumspb.WORKER_STATUS_SHUTTING_DOWN, WorkedAt: workedAt(h),
	}
}

// workedAt is when an agent last had work; zero when its hub does not tell.
func workedAt(h *workerpb.WorkerHeartbeat) time.Time {
	if t := h.GetActivityPollerInfo().GetLastSuccessfulPollTime(); t != nil {
		return t.AsTime()
	}
	return time.Time{}
}

// factsOf joins a cluster's view with its members' present processes.
func factsOf(view contract.ClusterView, live map[agentProcess]fleet.LiveAgent) fleet.ClusterFacts {
	facts := fleet.ClusterFacts{Cluster: view.Cluster, CreatedAt: view.CreatedAt}
	for i := range view.Members {
		m := &view.Members[i]
		if found, ok := live[agentProcess{m.AgentID, m.Instance}]; ok {
			if facts.Live == nil {
				facts.Live = map[string]fleet.LiveAgent{}
			}
			facts.Live[m.AgentID] = found
		}
	}
	return facts
}
