package replay

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// recordHealing records cycles that find nothing, that only plan, and that act; and actions of the kinds that workflows
// differ in.
func recordHealing(t *testing.T, c client.Client, node *plane.Node) {
	t.Helper()
	second := api.Duration(time.Second)
	clusterName := node.EnsureCluster(t, api.ClusterConfig{Name: "healed", DesiredAgents: 3,
		SelfHealing: api.HealingPolicy{Patience: second, RestoreAfter: second, MaxActions: 10}})
	spec := api.TaskSpec{Type: "echo", Cluster: clusterName}
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.TaskWorkflowID("orphan"),
		TaskQueue:             contract.WorkerQueue,
		TypedSearchAttributes: contract.StartOf("orphan", &spec, 0).Attributes}, contract.TaskWorkflow,
		contract.TaskInput{TaskID: "orphan", Spec: spec, Lane: contract.Lane(&spec, 0, false)})
	require.NoError(t, err)
	pollAsGhost(t, c, clusterName)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	handlers := map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
		"hang": func(context.Context, *agent.Task) (any, error) { <-hang; return nil, nil },
	}
	degraded, stopDegraded := runOwn(t, node, clusterName, "h-1", 4, handlers)
	_, stopSecond := runOwn(t, node, clusterName, "h-2", 4, handlers)
	_, stopWell := runOwn(t, node, clusterName, "h-3", 4, handlers)
	_, stopSpare := runOwn(t, node, clusterName, "h-4", 4, handlers)
	_, stopHung := runOwn(t, node, clusterName, "h-5", 1, map[string]agent.Handler{"hang": handlers["hang"]})
	awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return v.ServingCount() == 5 })
	cycle(t, c, "nothing", contract.HealingCycleInput{Cluster: clusterName})
	save(t, c, contract.HealingCycleWorkflow, "nothing", contract.HealingCycleWorkflowID("nothing"))

	start(t, c, "hung", api.TaskSpec{Type: "hang", Cluster: clusterName, Agent: "h-5", BeaconTimeout: second})
	unfit := func(agents ...string) {
		awaitView(t, c, clusterName, func(v *contract.ClusterView) bool {
			return !slices.ContainsFunc(agents, func(id string) bool { return v.Member(id).Health.Fit() })
		})
	}
	unfit("h-5")
	acted := func(name string, kind api.HealingType, target string) {
		require.Eventually(t, func() bool {
			for _, d := range cycle(t, c, name, contract.HealingCycleInput{Cluster: clusterName}).Decisions {
				if d.Type == kind && d.TargetID == target && d.Verdict == api.HealAct {
					return true
				}
			}
			return false
		}, 60*time.Second, 200*time.Millisecond, "%s %s", kind, target)
		closed(t, c, contract.HealingActionWorkflowID(clusterName, kind, target))
		save(t, c, contract.HealingCycleWorkflow, name, contract.HealingCycleWorkflowID(name))
		save(t, c, contract.HealingActionWorkflow, name, contract.HealingActionWorkflowID(clusterName, kind, target))
	}
	cycle(t, c, "planned", contract.HealingCycleInput{Cluster: clusterName, DryRun: true})
	save(t, c, contract.HealingCycleWorkflow, "planned", contract.HealingCycleWorkflowID("planned"))
	acted("failover", api.HealFailover, "h-5")
	closed(t, c, contract.HealingActionWorkflowID(clusterName, api.HealReassign, "orphan"))
	save(t, c, contract.HealingActionWorkflow, "reassign", contract.HealingActionWorkflowID(clusterName, api.HealReassign,
		"orphan"))
	degraded.ReportHealth(0.45, "disk errors")
	unfit("h-1")
	acted("drain", api.HealDrain, "h-1")
	degraded.ReportLevel(api.HealthHealthy, "")
	acted("restore", api.HealRestore, "h-1")
	update(t, c, contract.ClusterWorkflowID(clusterName), contract.TargetsUpdate.Name,
		contract.TargetsRequest{Add: []string{"host-1"}}) // there is something to spread over the agents
	for _, stop := range []func(){stopDegraded, stopSecond, stopWell} {
		stop()
	}
	acted("rebalance", api.HealRebalance, clusterName)
	stopHung() // its handlers hang: it is only told to stop
	stopSpare()
	awaitView(t, c, clusterName, func(v *contract.ClusterView) bool {
		return v.ServingCount() == 0 && !slices.ContainsFunc(v.Members,
			func(m cluster.Member) bool { return m.Connected() })
	})
	update(t, c, contract.ClusterWorkflowID(clusterName), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(clusterName))
	save(t, c, contract.ClusterWorkflow, "healed", contract.ClusterWorkflowID(clusterName))
}

// TestRecordHealingInParts records a cycle with more to do than one workflow task begins. It only runs when asked.
func TestRecordHealingInParts(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	plane.HealIll(t, "in-parts", 101, "")
	save(t, plane.Temporal(t), contract.HealingCycleWorkflow, "in-parts", "in-parts")
}

// cycle runs a cycle to its end.
func cycle(t *testing.T, c client.Client, name string, in contract.HealingCycleInput) api.HealingCycleRecord {
	t.Helper()
	run,
		err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.HealingCycleWorkflowID(name),
		TaskQueue: contract.WorkerQueue},
		contract.HealingCycleWorkflow, in)
	require.NoError(t, err)
	closed(t, c, run.GetID())
	var record api.HealingCycleRecord
	require.NoError(t, run.Get(t.Context(), &record))
	return record
}

// pollAsGhost takes a task as a hub does that vanishes then.
func pollAsGhost(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	taken, err := c.WorkflowService().PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{
		Namespace: "default", Identity: contract.HubIdentity("ghost"),
		TaskQueue: &taskqueuepb.TaskQueue{Name: contract.ClusterLane(cluster), Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
	require.NoError(t, err)
	require.NotEmpty(t, taken.GetTaskToken())
}

// runOwn runs an agent that the scenario speaks to. stop does not wait for handlers that hang.
func runOwn(
	t *testing.T, node *plane.Node, cluster, id string, slots int, handlers map[string]agent.Handler,
) (own *agent.Agent, stop func()) {
	t.Helper()
	own, err := agent.New(agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id, Slots: slots,
		StopTimeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for name, handler := range handlers {
		own.Handle(name, handler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = own.Run(ctx) }()
	return own, cancel
}
