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
	"mainstay.dev/mainstay/store"
	"mainstay.dev/mainstay/testsuite/plane"
)

// TestRecordRecovery records a task with a recovery whose agents are lost twice: its first attempt elsewhere begins at
// once, the second waits. In lost-waits.json, which an earlier program made, both wait. It only runs when asked.
func TestRecordRecovery(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "recovery", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, fleet.ClusterConfig{Name: "recovery"})
	handlers := map[string]agent.Handler{"hold": func(ctx context.Context, task *agent.Task) (any, error) {
		if task.Attempt > 2 {
			return "recovered", nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for _, id := range []string{"r-1", "r-2", "r-3"} {
		defer runAgent(t, node, cluster, id, handlers)()
	}
	spec := fleet.TaskSpec{Type: "hold", Cluster: cluster, Recovery: &fleet.Recovery{Reschedule: &fleet.RecoveryPolicy{
		Attempts: new(2), Delay: fleet.Duration(time.Second)}}}
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.TaskWorkflowID("lost"),
		TaskQueue: contract.WorkerQueue}, contract.TaskWorkflow, contract.TaskInput{TaskID: "lost", Spec: spec,
		Lane: contract.Lane(&spec, 0), RanOn: true})
	require.NoError(t, err)
	tasks := (store.Store{Client: c, Namespace: client.DefaultNamespace}).Tasks()
	for attempt := 1; attempt <= 2; attempt++ {
		require.Eventually(t, func() bool {
			started(t, c, "lost")
			ended, err := tasks.EndAttempt(t.Context(), "lost", "", attempt, "recorder", contract.AttemptReport{
				Outcome: fleet.AttemptLost, Begun: true, AgentID: "r-1", Reason: "lost for the recording"})
			return err == nil && ended
		}, time.Minute, 50*time.Millisecond)
	}
	closed(t, c, contract.TaskWorkflowID("lost"))
	save(t, c, contract.TaskWorkflow, "lost", contract.TaskWorkflowID("lost"))
	recorded(t, contract.TaskWorkflow, "lost", "first-loss-at-once")
}
