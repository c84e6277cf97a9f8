package replay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordOutcomes records failovers without a target, with a task that does not move, and after the loss of a hub;
// agents that scaling retires, restarts and has replaced; and healing that reduces a load and that only reports.
func TestRecordOutcomes(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "outcomes", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "outcomes"})
	recordFailoverOutcomes(t, c, node, cluster)
	recordHealingOutcomes(t, c, node, cluster)
	recordScalingRules(t, c, node, cluster)
}

func recordFailoverOutcomes(t *testing.T, c client.Client, node *plane.Node, clusterName string) {
	t.Helper()
	start(t, c, "left", api.TaskSpec{Type: "echo", Cluster: clusterName})
	held := []cluster.HeldAttempt{{TaskID: "left"}}
	epoch := lose(t, c, clusterName, "o-1", held)
	noTarget := contract.FailoverWorkflowID(contract.FailoverID(clusterName, "o-1", epoch))
	require.Eventually(t, func() bool {
		value, err := c.QueryWorkflow(t.Context(), noTarget, "", contract.FailoverQuery.Name)
		var r api.FailoverRecord
		return err == nil && value.Get(&r) == nil && r.Status == api.FailoverNoTarget
	}, 30*time.Second, 20*time.Millisecond)
	stop := runAgent(t, node, clusterName, "o-2", map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil }})
	defer stop()
	closed(t, c, noTarget)
	save(t, c, contract.FailoverWorkflow, "no-target", noTarget)

	t.Log("a task that waits for an agent of its own does not move in time")
	start(t, c, "stays", api.TaskSpec{Type: "echo", Cluster: clusterName, Agent: "nobody",
		ExpiresIn: api.Duration(time.Minute)})
	in := contract.FailoverInput{Cluster: clusterName, FailedAgent: "o-3", Epoch: 1, Trigger: api.TriggerLost,
		Reason: "its connection closed", AnyTarget: true, NoticedAt: time.Now(),
		Attempts: []cluster.HeldAttempt{{TaskID: "stays", Attempt: 1}}, Timeout: api.Duration(time.Second)}
	failed := contract.FailoverWorkflowID(in.ID())
	var r api.FailoverRecord
	run(t, c, failed, contract.FailoverWorkflow, in, &r)
	require.Equal(t, api.FailoverFailed, r.Status)
	save(t, c, contract.FailoverWorkflow, "failed", failed)

	t.Log("a hub is lost with an agent whose task another has")
	epoch = joinElsewhere(t, c, clusterName, "o-4")
	signal(t, c, clusterName, contract.HubLostSignal.Name, contract.HubLost{Hub: "elsewhere", At: time.Now(),
		Attempts: map[string][]cluster.HeldAttempt{"o-4": held}})
	lost := contract.FailoverWorkflowID(contract.FailoverID(clusterName, "o-4", epoch))
	closed(t, c, lost)
	require.NoError(t, c.GetWorkflow(t.Context(), lost, "").Get(t.Context(), &r))
	require.Equal(t, api.TriggerHubLost, r.Trigger)
	save(t, c, contract.FailoverWorkflow, "hub-lost", lost)
}

func recordHealingOutcomes(t *testing.T, c client.Client, node *plane.Node, cluster string) {
	t.Helper()
	ill, stop := runOwn(t, node, cluster, "ill", 4, map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil }})
	defer stop()
	ill.ReportHealth(0.45, "disk errors")
	view := awaitView(t, c, cluster, func(v *contract.ClusterView) bool {
		return v.Member("ill") != nil && !v.Member("ill").Health.Fit()
	})
	for name, want := range map[string]struct {
		kind   api.HealingType
		status api.HealingOutcome
	}{"reduce-load": {api.HealReduce, api.HealingSucceeded}, "report": {api.HealReport, api.HealingReported}} {
		id := contract.HealingActionWorkflowID(cluster, want.kind, "ill")
		var r api.HealingRecord
		run(t, c, id, contract.HealingActionWorkflow, contract.HealingActionInput{DecidedAt: time.Now(),
			Decision: api.HealingDecision{Type: want.kind, Cluster: cluster, TargetID: "ill", Reason: "it is degraded",
				Verdict: api.HealAct, Facts: api.HealingFacts{Epoch: view.Member("ill").Epoch}}}, &r)
		require.Equal(t, want.status, r.Status, r.Outcome)
		save(t, c, contract.HealingActionWorkflow, name, id)
	}
}

// recordScalingRules has scaling take agents of its spawner out: one lost, one to be started anew, and one for good.
func recordScalingRules(t *testing.T, c client.Client, node *plane.Node, clusterName string) {
	t.Helper()
	y := &yard{t: t, node: node, agents: map[string]context.CancelFunc{}}
	host, err := spawner.Start(t.Context(), spawner.HostOptions{Name: "yard", Client: c, Namespace: "default",
		Spawner: y})
	require.NoError(t, err)
	defer host.Stop()
	for i, rule := range []api.ScalingRule{api.RuleRetire, api.RuleRestart, api.RuleReassign} {
		id := "y-" + string(rule)
		if rule == api.RuleRetire {
			lose(t, c, clusterName, id, nil)
		} else {
			_, err = y.Spawn(t.Context(), cluster.SpawnSpec{ID: id, Cluster: clusterName})
			require.NoError(t, err)
			awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return v.Member(id) != nil })
		}
		workflowID := contract.ScalingWorkflowID(clusterName, int64(i+1))
		var r api.ScalingRecord
		run(t, c, workflowID, contract.ScalingWorkflow, contract.ScalingInput{Cluster: clusterName, Number: int64(i + 1),
			Decision: cluster.ScalingDecision{Change: api.ScaleDown, Count: 1, Current: 1, Rule: rule, Reason: "it is ill"},
			Stops:    []contract.StopAgent{{AgentID: id, Spawner: "yard"}},
			Spawn:    api.SpawnPolicy{JoinTimeout: api.Duration(10 * time.Second)}}, &r)
		require.Equal(t, api.ScalingSucceeded, r.Status, r.Error)
		save(t, c, contract.ScalingWorkflow, string(rule), workflowID)
	}
	for _, cancel := range y.agents {
		cancel()
	}
}

// joinElsewhere joins an agent at a hub that is not there.
func joinElsewhere(t *testing.T, c client.Client, clusterName, id string) (epoch int64) {
	t.Helper()
	update(t, c, contract.ClusterWorkflowID(clusterName), contract.JoinUpdate.Name, contract.JoinRequest{Hub: "elsewhere",
		Joins: []cluster.Join{{AgentID: id, Instance: id, AgentProfile: api.AgentProfile{MaxTasks: 1}}}})
	return awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return v.Member(id) != nil }).Member(id).Epoch
}

// lose joins an agent that is lost then with what it has.
func lose(t *testing.T, c client.Client, clusterName, id string, held []cluster.HeldAttempt) (epoch int64) {
	t.Helper()
	epoch = joinElsewhere(t, c, clusterName, id)
	signal(t, c, clusterName, contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "elsewhere",
		Changes: []cluster.Transition{{AgentID: id, Instance: id, Epoch: epoch, Status: api.AgentOffline,
			Reason: "its connection closed", At: time.Now(), Attempts: held}}})
	awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return v.Member(id).Status == api.AgentOffline })
	return epoch
}

// run runs a workflow to its end.
func run(t *testing.T, c client.Client, id, workflow string, in, out any) {
	t.Helper()
	began, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: contract.WorkerQueue},
		workflow, in)
	require.NoError(t, err)
	require.NoError(t, began.Get(t.Context(), out))
}
