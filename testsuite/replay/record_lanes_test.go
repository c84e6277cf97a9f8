package replay

import (
	"context"
	"testing"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordAgentLanes records tasks that are pinned to an agent: one that waits while the agent is away, one that comes
// while its lane is open.
func TestRecordAgentLanes(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "pinner", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "pinned"})
	handlers := map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
	}
	stopOther := runAgent(t, node, cluster, "p-2", handlers)
	start(t, c, "pinned-away", api.TaskSpec{Type: "echo", Cluster: cluster, Agent: "p-1"})
	await(t, c, "pinned-away", api.TaskQueued)
	stop := runAgent(t, node, cluster, "p-1", handlers)
	closed(t, c, contract.TaskWorkflowID("pinned-away"))
	start(t, c, "pinned-there", api.TaskSpec{Type: "echo", Cluster: cluster, Agent: "p-1"})
	closed(t, c, contract.TaskWorkflowID("pinned-there"))
	stop()
	stopOther()
	update(t, c, contract.ClusterWorkflowID(cluster), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(cluster))
	save(t, c, contract.TaskWorkflow, "pinned-away", contract.TaskWorkflowID("pinned-away"))
	save(t, c, contract.TaskWorkflow, "pinned-there", contract.TaskWorkflowID("pinned-there"))
	save(t, c, contract.ClusterWorkflow, "agent-lanes", contract.ClusterWorkflowID(cluster))
}
