package replay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub"
	"mainstay.dev/mainstay/spawner"
	"mainstay.dev/mainstay/testsuite/plane"
)

// TestRecordOutcomes records failovers without a target, with a task that does not move, and after the loss of a hub;
// agents that scaling retires, restarts and has replaced; and healing that reduces a load and that only reports.
func TestRecordOutcomes(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "outcomes", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, fleet.ClusterConfig{Name: "outcomes"})
	recordFailoverOutcomes(t, c, node, cluster)
	recordHealingOutcomes(t, c, node, cluster)
	recordScalingRules(t, c, node, cluster)
}

func recordFailoverOutcomes(t *testing.T, c client.Client, node *plane.Node, cluster string) {
	t.Helper()
	start(t, c, "left", fleet.TaskSpec{Type: "echo", Cluster: cluster})
	held := []fleet.HeldAttempt{{TaskID: "left"}}
	epoch := lose(t, c, cluster, "o-1", held)
	noTarget := contract.FailoverWorkflowID(contract.FailoverID(cluster, "o-1", epoch))
	require.Eventually(t, func() bool {
		value, err := c.QueryWorkflow(t.Context(), noTarget, "", contract.FailoverQuery.Name)
		var r fleet.FailoverRecord
		return err == nil && value.Get(&r) == nil && r.Status == fleet.FailoverNoTarget
	}, 30*time.Second, 20*time.Millisecond)
	stop := runAgent(t, node, cluster, "o-2", map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil }})
	defer stop()
	closed(t, c, noTarget)
	save(t, c, contract.FailoverWorkflow, "no-target", noTarget)

	t.Log("a task that waits for an agent of its own does not move in time")
	start(t, c, "stays", fleet.TaskSpec{Type: "echo", Cluster: cluster, Agent: "nobody",
		ExpiresIn: fleet.Duration(time.Minute)})
	in := contract.FailoverInput{Cluster: cluster, FailedAgent: "o-3", Epoch: 1, Trigger: fleet.TriggerLost,
		Reason: "its connection closed", AnyTarget: true, NoticedAt: time.Now(),
		Attempts: []fleet.HeldAttempt{{TaskID: "stays", Attempt: 1}}, Timeout: fleet.Duration(time.Second)}
	failed := contract.FailoverWorkflowID(in.ID())
	var r fleet.FailoverRecord
	run(t, c, failed, contract.FailoverWorkflow, in, &r)
	require.Equal(t, fleet.FailoverFailed, r.Status)
	save(t, c, contract.FailoverWorkflow, "failed", failed)

	t.Log("a hub is lost with an agent whose task another has")
	epoch = joinElsewhere(t, c, cluster, "o-4")
	signal(t, c, cluster, contract.HubLostSignal.Name, contract.HubLost{Hub: "elsewhere", At: time.Now(),
		Attempts: map[string][]fleet.HeldAttempt{"o-4": held}})
	lost := contract.FailoverWorkflowID(contract.FailoverID(cluster, "o-4", epoch))
	closed(t, c, lost)
	require.NoError(t, c.GetWorkflow(t.Context(), lost, "").Get(t.Context(), &r))
	require.Equal(t, fleet.TriggerHubLost, r.Trigger)
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
		kind   fleet.HealingType
		status fleet.HealingStatus
	}{"reduce-load": {fleet.HealReduce, fleet.HealingSucceeded}, "report": {fleet.HealReport, fleet.HealingReported}} {
		id := contract.HealingActionWorkflowID(cluster, want.kind, "ill")
		var r fleet.HealingRecord
		run(t, c, id, contract.HealingActionWorkflow, contract.HealingActionInput{DecidedAt: time.Now(),
			Decision: fleet.HealingDecision{Type: want.kind, Cluster: cluster, TargetID: "ill", Reason: "it is degraded",
				Verdict: fleet.HealAct, Facts: fleet.HealingFacts{Epoch: view.Member("ill").Epoch}}}, &r)
		require.Equal(t, want.status, r.Status, r.Outcome)
		save(t, c, contract.HealingActionWorkflow, name, id)
	}
}

// recordScalingRules has scaling take agents of its spawner out: one lost, one to be started anew, and one for good.
func recordScalingRules(t *testing.T, c client.Client, node *plane.Node, cluster string) {
	t.Helper()
	y := &yard{t: t, node: node, agents: map[string]context.CancelFunc{}}
	host, err := spawner.Start(t.Context(), spawner.HostOptions{Name: "yard", Client: c, Namespace: "default",
		Spawner: y})
	require.NoError(t, err)
	defer host.Stop()
	for i, rule := range []fleet.ScalingRule{fleet.RuleRetire, fleet.RuleRestart, fleet.RuleReassign} {
		id := "y-" + string(rule)
		if rule == fleet.RuleRetire {
			lose(t, c, cluster, id, nil)
		} else {
			_, err = y.Spawn(t.Context(), fleet.SpawnSpec{ID: id, Cluster: cluster})
			require.NoError(t, err)
			awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.Member(id) != nil })
		}
		workflowID := contract.ScalingWorkflowID(cluster, int64(i+1))
		var r fleet.ScalingRecord
		run(t, c, workflowID, contract.ScalingWorkflow, contract.ScalingInput{Cluster: cluster, Number: int64(i + 1),
			Decision: fleet.ScalingDecision{Change: fleet.ScaleDown, Count: 1, Current: 1, Rule: rule, Reason: "it is ill"},
			Stops:    []contract.StopAgent{{AgentID: id, Spawner: "yard"}},
			Spawn:    fleet.SpawnPolicy{JoinTimeout: fleet.Duration(10 * time.Second)}}, &r)
		require.Equal(t, fleet.ScalingSucceeded, r.Status, r.Error)
		save(t, c, contract.ScalingWorkflow, string(rule), workflowID)
	}
	for _, cancel := range y.agents {
		cancel()
	}
}

// joinElsewhere joins an agent at a hub that is not there.
func joinElsewhere(t *testing.T, c client.Client, cluster, id string) (epoch int64) {
	t.Helper()
	update(t, c, contract.ClusterWorkflowID(cluster), contract.JoinUpdate.Name, contract.JoinRequest{Hub: "elsewhere",
		Joins: []fleet.Join{{AgentID: id, Instance: id, AgentProfile: fleet.AgentProfile{MaxTasks: 1}}}})
	return awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.Member(id) != nil }).Member(id).Epoch
}

// lose joins an agent that is lost then with what it has.
func lose(t *testing.T, c client.Client, cluster, id string, held []fleet.HeldAttempt) (epoch int64) {
	t.Helper()
	epoch = joinElsewhere(t, c, cluster, id)
	signal(t, c, cluster, contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "elsewhere",
		Changes: []fleet.Transition{{AgentID: id, Instance: id, Epoch: epoch, Status: fleet.AgentOffline,
			Reason: "its connection closed", At: time.Now(), Attempts: held}}})
	awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.Member(id).Status == fleet.AgentOffline })
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
