package replay

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordSuccessors records a task that moves to the target of a failover by hand, a run that begins later, one that
// continues as new, and a cluster that chooses between two standbys. It only runs when asked.
func TestRecordSuccessors(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "successors", Config: hub.Config{Timing: plane.QuickTiming()}})
	clusterName := node.EnsureCluster(t, api.ClusterConfig{Name: "runs"})
	elected := node.EnsureCluster(t, api.ClusterConfig{Name: "elected", ReplicationMode: api.ActivePassive,
		RoleLease: api.Duration(1250 * time.Millisecond)})
	handlers := map[string]agent.Handler{
		"hold": func(ctx context.Context, task *agent.Task) (any, error) {
			if task.Attempt > 1 {
				return "moved", nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"echo":  func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
		"large": func(context.Context, *agent.Task) (any, error) { return strings.Repeat("x", 230<<10), nil },
	}
	stopFirst := runAgent(t, node, clusterName, "v-1", handlers)
	spec := api.TaskSpec{Type: "hold", Cluster: clusterName}
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.TaskWorkflowID("to-target"),
		TaskQueue: contract.WorkerQueue}, contract.TaskWorkflow, contract.TaskInput{TaskID: "to-target", Spec: spec,
		Lane: contract.Lane(&spec, 0, false)})
	require.NoError(t, err)
	started(t, c, "to-target")
	stopSecond := runAgent(t, node, clusterName, "v-2", handlers)
	awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return len(v.Members) == 2 })
	signal(t, c, clusterName, contract.ManualFailoverSignal.Name, contract.ManualFailover{AgentID: "v-1",
		TargetAgentID: "v-2", Reason: "disk is failing"})
	closed(t, c, contract.TaskWorkflowID("to-target"))
	save(t, c, contract.TaskWorkflow, "to-target", contract.TaskWorkflowID("to-target"))

	now := time.Now()
	recordRun(t, c, "later", now.Add(time.Second), "  a: {task: {type: echo, payload: 1}}\n")
	recordRun(t, c, "continued", now, `  a: {for_each: {count: 20}, task: {type: large}, result_limit: 1MiB,
      output: {n: results.size()}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}
`)

	id := contract.ClusterWorkflowID(clusterName)
	tooMuch := api.AgentProfile{Metadata: map[string]string{"a": strings.Repeat("x", 5000)}}
	update(t, c, id, contract.JoinUpdate.Name, contract.JoinRequest{Hub: "nowhere",
		Joins: []cluster.Join{{AgentID: "greedy", Instance: "1", AgentProfile: tooMuch}}})
	update(t, c, id, contract.OpenLaneUpdate.Name, contract.OpenLaneRequest{
		LaneNeeds: api.LaneNeeds{Capabilities: []string{"gpu"}}})
	stopFirst()
	stopSecond()

	stopLeader := runAgent(t, node, elected, "e-1", handlers)
	awaitView(t, c, elected, func(v *contract.ClusterView) bool { return v.Leader == "e-1" })
	stopStandbys := []func(){runAgent(t, node, elected, "e-2", handlers), runAgent(t, node, elected, "e-3", handlers)}
	awaitView(t, c, elected, func(v *contract.ClusterView) bool { return len(v.Standbys) == 2 })
	stopLeader() // both may take over
	awaitView(t, c, elected, func(v *contract.ClusterView) bool { return v.Leader == "e-2" || v.Leader == "e-3" })
	for _, stop := range stopStandbys {
		stop()
	}
	for _, name := range []string{"runs", "elected"} {
		id := contract.ClusterWorkflowID(name)
		update(t, c, id, contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
		closed(t, c, id)
		save(t, c, contract.ClusterWorkflow, name, id)
	}
}

// recordRun carries out a run, and records it and the one in which it goes on.
func recordRun(t *testing.T, c client.Client, id string, at time.Time, steps string) {
	t.Helper()
	_, plan, err := flow.Read("job.yaml", []byte(recordedHead+steps))
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan, Inputs: json.RawMessage(`{}`), StartAt: at}
	begin := contract.StartOfRun(id, &in, 0)
	first, err := c.ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	require.NoError(t, err)
	begun := first.GetRunID()
	var end job.Ledger
	require.NoError(t, first.Get(t.Context(), &end))
	require.Equal(t, api.RunCompleted, end.Status, end.Why)
	saveRun(t, c, contract.RunWorkflow, id, contract.RunWorkflowID(id), begun)
	if d, err := c.DescribeWorkflowExecution(t.Context(), contract.RunWorkflowID(id), ""); err == nil &&
		d.GetWorkflowExecutionInfo().GetExecution().GetRunId() != begun {
		save(t, c, contract.RunWorkflow, id+"-goes-on", contract.RunWorkflowID(id))
	}
}
