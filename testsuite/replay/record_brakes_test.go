package replay

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordBrakes records a cluster that judges losses over two hubs, and holds the agents of a lost one, until a
// person releases the brake.
func TestRecordBrakes(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	var nodes []*plane.Node
	for _, id := range []string{"judged-1", "judged-2"} {
		nodes = append(nodes, plane.NewNode(t, plane.NodeOptions{HubID: id, Config: hub.Config{Timing: plane.QuickTiming()}}))
	}
	handlers := map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
	}
	clusterName := nodes[0].EnsureCluster(t, api.ClusterConfig{Name: "judged"})
	for i := range 6 {
		stop := runAgent(t, nodes[i/3], clusterName, fmt.Sprintf("j-%d", i), handlers)
		defer stop()
	}
	awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return v.HealthyCount() == 6 })
	miss := func(hub string, agents ...string) {
		update(t, c, contract.ClusterWorkflowID(clusterName), contract.MissUpdate.Name,
			contract.Missing{Hub: hub, Agents: agents})
	}
	release := func() {
		awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return len(v.BrakeHolds) == 1 })
		update(t, c, contract.ClusterWorkflowID(clusterName), contract.ReleaseBrakeUpdate.Name,
			contract.ReleaseBrakeRequest{})
		awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return len(v.BrakeHolds) == 0 })
	}
	miss("judged-1", "j-0", "j-1")
	miss("judged-2", "j-3", "j-4")
	release()
	miss("judged-1", "j-0")
	lost := contract.HubLost{Hub: "judged-2", At: time.Now(), Attempts: map[string][]cluster.HeldAttempt{}}
	for _, id := range []string{"j-3", "j-4"} { // j-5 has no work
		lost.Attempts[id] = []cluster.HeldAttempt{{TaskID: "none", Attempt: 1}}
	}
	signal(t, c, clusterName, contract.HubLostSignal.Name, lost)
	release()
	awaitView(t, c, clusterName, func(v *contract.ClusterView) bool { return v.HealthyCount() == 3 })
	update(t, c, contract.ClusterWorkflowID(clusterName), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(clusterName))
	save(t, c, contract.ClusterWorkflow, "braked", contract.ClusterWorkflowID(clusterName))
}

// TestRecordIdleFailovers records a cluster that loses more agents without work at once than it fails over at a time,
// and one with work.
func TestRecordIdleFailovers(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	const at = "idle-hub"
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: at, Config: hub.Config{Timing: plane.QuickTiming()}})
	clusterName := node.EnsureCluster(t, api.ClusterConfig{Name: "idle",
		TransferTimeout: api.Duration(time.Second)})
	joins, lost := contract.JoinRequest{Hub: at}, contract.MembersChanged{Hub: at}
	for i := range 12 {
		id := fmt.Sprintf("i-%d", i)
		joins.Joins = append(joins.Joins, cluster.Join{AgentID: id, Instance: id,
			AgentProfile: api.AgentProfile{MaxTasks: 1}})
		lost.Changes = append(lost.Changes, cluster.Transition{AgentID: id, Instance: id, Epoch: int64(i + 1),
			Status: api.AgentOffline, At: time.Now()})
	}
	lost.Changes[11].Attempts = []cluster.HeldAttempt{{TaskID: "none", Attempt: 1}}
	update(t, c, contract.ClusterWorkflowID(clusterName), contract.JoinUpdate.Name, joins)
	signal(t, c, clusterName, contract.MembersChangedSignal.Name, lost)
	for i := range 12 {
		closed(t, c, contract.FailoverWorkflowID(contract.FailoverID(clusterName, fmt.Sprintf("i-%d", i), int64(i+1))))
	}
	update(t, c, contract.ClusterWorkflowID(clusterName), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(clusterName))
	save(t, c, contract.ClusterWorkflow, "idle-failovers", contract.ClusterWorkflowID(clusterName))
}
