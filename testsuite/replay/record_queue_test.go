package replay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// recordFiring records each way in which a firing of a schedule ends.
func recordFiring(t *testing.T, c client.Client, node *plane.Node) {
	t.Helper()
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "firing"})
	stop := runAgent(t, node, cluster, "p-1", map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
		"fail": func(context.Context, *agent.Task) (any, error) { return nil, errors.New("disk full") },
		"final": func(context.Context, *agent.Task) (any, error) {
			return nil, agent.NonRetryable(errors.New("bad input"))
		},
		"wait": func(ctx context.Context, _ *agent.Task) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
	})
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	fire := func(schedule string, spec api.TaskSpec) {
		spec.Cluster = cluster
		if schedule == "unknown-cluster" {
			spec.Cluster = "nowhere"
		}
		_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			ID:                    contract.FiringWorkflowID(schedule, at),
			TaskQueue:             contract.WorkerQueue,
			TypedSearchAttributes: contract.FiringAttributes(schedule, at)},
			contract.FiringWorkflow, contract.FiringInput{Spec: spec})
		require.NoError(t, err)
	}
	fire("completed", api.TaskSpec{Type: "echo", Labels: map[string]string{"b": "2", "a": "1"}})
	fire("failed", api.TaskSpec{Type: "final"})
	fire("dead-letter", api.TaskSpec{Type: "fail", Retry: api.RetryPolicy{MaxAttempts: 1}})
	fire("cancelled", api.TaskSpec{Type: "wait"})
	fire("unknown-cluster", api.TaskSpec{Type: "echo"})
	start(t, c, contract.FiringTaskID("taken", at), api.TaskSpec{Type: "echo", Cluster: cluster})
	fire("taken", api.TaskSpec{Type: "echo"})
	fire("repeated", api.TaskSpec{Type: "echo"})
	closed(t, c, contract.FiringWorkflowID("repeated", at))
	fire("repeated", api.TaskSpec{Type: "echo"})
	started(t, c, contract.FiringTaskID("cancelled", at))
	require.NoError(t, c.CancelWorkflow(t.Context(), contract.FiringWorkflowID("cancelled", at), ""))
	for _, schedule := range []string{"completed", "failed", "dead-letter", "cancelled", "unknown-cluster", "repeated",
		"taken"} {
		closed(t, c, contract.FiringWorkflowID(schedule, at))
		save(t, c, contract.FiringWorkflow, schedule, contract.FiringWorkflowID(schedule, at))
	}
	dead := contract.FiringTaskID("dead-letter", at)
	update(t, c, contract.TaskWorkflowID(dead), contract.CancelUpdate.Name, contract.CancelRequest{Reason: "seen"})
	closed(t, c, contract.TaskWorkflowID(dead))
	save(t, c, contract.TaskWorkflow, "firing-dead-letter", contract.TaskWorkflowID(dead))
	stop()
}

// recordBulk records a bulk operation of more than a page, one by ids, and one that is stopped.
func recordBulk(t *testing.T, c client.Client, node *plane.Node) {
	t.Helper()
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "bulk"})
	begin := func(id string, spec contract.BulkSpec) {
		_,
			err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.BulkWorkflowID(id),
			TaskQueue: contract.WorkerQueue},
			contract.BulkWorkflow, contract.BulkInput{ID: id, Spec: spec, Expected: 1})
		require.NoError(t, err)
	}
	ids := make([]string, task.MaxBulkIDs)
	for i := range ids {
		ids[i] = fmt.Sprintf("nobody-%04d", i)
	}
	for i := range contract.BulkPageSize + 1 {
		id := fmt.Sprintf("many-%03d", i)
		spec := api.TaskSpec{Type: "x", Cluster: cluster}
		o := contract.StartOf(id, &spec, 0)
		_,
			err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: o.WorkflowID,
			TaskQueue: contract.WorkerQueue, TypedSearchAttributes: o.Attributes},
			contract.TaskWorkflow, contract.TaskInput{TaskID: id, Spec: spec, Lane: contract.Lane(&spec, 0, false)})
		require.NoError(t, err)
	}
	begin("stopped", contract.BulkSpec{Action: api.BulkCancel, IDs: ids, Reason: "recorded"})
	update(t, c, contract.BulkWorkflowID("stopped"), contract.CancelUpdate.Name,
		contract.CancelRequest{Reason: "enough"})
	begin("ids", contract.BulkSpec{Action: api.BulkReview, Decision: api.ReviewFailed,
		IDs: append(ids[:2:2], "many-000"), Reason: "recorded"})
	begin("filter", contract.BulkSpec{Action: api.BulkCancel,
		Filter: api.TaskFilter{Cluster: cluster, Status: api.TaskQueued}, Reason: "recorded"})
	for _, id := range []string{"stopped", "ids", "filter"} {
		closed(t, c, contract.BulkWorkflowID(id))
		save(t, c, contract.BulkWorkflow, id, contract.BulkWorkflowID(id))
	}
}
