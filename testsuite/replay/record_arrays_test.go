package replay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordArrays records arrays that end in each way. It only runs when asked.
func TestRecordArrays(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "arrays", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "arrays", MinAgents: 1})
	fails := func(numbers ...int) agent.Handler {
		return func(_ context.Context, task *agent.Task) (any, error) {
			for _, n := range numbers {
				if *task.Element == n && task.Attempt < 3 {
					return nil, errors.New("disk full")
				}
			}
			return *task.Element, nil
		}
	}
	stop := runAgent(t, node, cluster, "a-1", map[string]agent.Handler{
		"echo": fails(), "fail": fails(3, 4),
		"slow": func(ctx context.Context, _ *agent.Task) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	defer stop()
	begin := func(id, kind string, change func(*contract.ArrayInput)) {
		in := contract.ArrayInput{By: "ann", Lane: contract.ClusterLane(cluster), Definition: array.Definition{
			Count: 40, Spec: api.TaskSpec{Type: kind, Cluster: cluster, RetrySafety: api.Idempotent,
				Retry: api.RetryPolicy{MaxAttempts: 2, InitialInterval: api.Duration(10 * time.Millisecond)}}}}
		if change != nil {
			change(&in)
		}
		start := contract.StartOfArray(id, &in, 0)
		_, err := c.ExecuteWorkflow(t.Context(), start.Options(), contract.ArrayWorkflow, in)
		require.NoError(t, err)
	}
	act := func(id string, r contract.ArrayRequest) {
		r.By, r.Reason = "ann", "recorded"
		update(t, c, contract.ArrayWorkflowID(id), contract.ArrayUpdate.Name, r)
	}
	begin("completed", "echo", nil)
	begin("singles", "echo", func(in *contract.ArrayInput) { in.Count, in.Spec.RetrySafety = 3, api.AtMostOnce })
	begin("retried", "fail", nil)
	begin("partial", "fail", func(in *contract.ArrayInput) {
		in.Tolerate, in.DeadLetterRetention = new(5), api.Duration(time.Second)
	})
	begin("stopped", "fail", func(in *contract.ArrayInput) { in.Tolerate = new(0) })
	begin("paused", "slow", func(in *contract.ArrayInput) { in.Count, in.Spec.Timeout = 2, api.Duration(time.Second) })
	act("paused", contract.ArrayRequest{Action: contract.PauseArray})
	act("paused", contract.ArrayRequest{Action: contract.ReprioritizeArray, Priority: 2})
	inState(t, c, "paused", api.ArrayPaused)
	act("paused", contract.ArrayRequest{Action: contract.ResumeArray})
	inState(t, c, "paused", api.ArrayBlocked)
	act("paused", contract.ArrayRequest{Action: contract.CancelArray})
	inState(t, c, "retried", api.ArrayBlocked)
	act("retried", contract.ArrayRequest{Action: contract.RetryArray})
	for id, want := range map[string]api.ArrayStatus{"completed": api.ArrayCompleted, "singles": api.ArrayCompleted,
		"retried": api.ArrayCompleted, "partial": api.ArrayPartial, "stopped": api.ArrayFailed,
		"paused": api.ArrayCancelled} {
		closed(t, c, contract.ArrayWorkflowID(id))
		inState(t, c, id, want)
		save(t, c, contract.ArrayWorkflow, id, contract.ArrayWorkflowID(id))
	}
}

// inState waits until an array has a status.
func inState(t *testing.T, c client.Client, id string, status api.ArrayStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		state, err := contract.ArrayQuery.Ask(t.Context(), c, contract.ArrayWorkflowID(id))
		return err == nil && state.Status == status
	}, time.Minute, 50*time.Millisecond, id)
}
