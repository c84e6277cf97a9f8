package replay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordRecovery records a task with a recovery whose agents are lost twice: its first attempt elsewhere begins at
// once, the second waits. Another task is lost twice on its way to the only agent that may have it. It only runs when
// asked.
func TestRecordRecovery(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "recovery", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "recovery"})
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
	elsewhere := api.Recovery{Reschedule: &api.RecoveryPolicy{Attempts: new(2), Delay: api.Duration(time.Second)}}
	for id, spec := range map[string]api.TaskSpec{
		"lost":        {Recovery: &elsewhere},
		"lost-pinned": {Recovery: &api.Recovery{Mode: api.LocalRestart}, Agent: "r-2"},
	} {
		spec.Type, spec.Cluster = "hold", cluster
		_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.TaskWorkflowID(id),
			TaskQueue: contract.WorkerQueue}, contract.TaskWorkflow, contract.TaskInput{TaskID: id, Spec: spec,
			Lane: contract.Lane(&spec, 0, false)})
		require.NoError(t, err)
		report := contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, AgentID: "r-1",
			Reason: "lost for the recording"}
		if spec.Agent != "" {
			report.AgentID = ""
		}
		tasks := (store.Store{Client: c, Namespace: client.DefaultNamespace}).Tasks()
		for attempt := 1; attempt <= 2; attempt++ {
			require.Eventually(t, func() bool {
				started(t, c, id)
				ended, err := tasks.EndAttempt(t.Context(), id, "", attempt, "recorder", report)
				return err == nil && ended
			}, time.Minute, 50*time.Millisecond)
		}
		closed(t, c, contract.TaskWorkflowID(id))
		save(t, c, contract.TaskWorkflow, id, contract.TaskWorkflowID(id))
	}
}
