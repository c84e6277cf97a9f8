package devserver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// Tasks wait by priority, and within one priority a tenant with many does not hold up another: on SQLite too, and across
// the two settings, of which fairness replaces the queue that priority alone would use.
func TestPriorityAndFairness(t *testing.T) {
	t.Parallel()
	s, c := start(t, Options{DataDir: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	queue := &taskqueuepb.TaskQueue{Name: "waiting"}
	submit := func(id string, priority int, tenant string) {
		_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: id, TaskQueue: queue.Name, Priority: temporal.Priority{PriorityKey: priority, FairnessKey: tenant},
		}, "Waiting")
		require.NoError(t, err)
	}
	submit("low", 5, "a")
	tenants := map[string]string{"a1": "a", "a2": "a", "a3": "a", "a4": "a", "a5": "a", "a6": "a", "b1": "b"}
	for _, id := range []string{"a1", "a2", "a3", "a4", "a5", "a6", "b1"} {
		submit(id, 3, tenants[id])
	}
	submit("high", 1, "a")
	const all = 9
	require.Eventually(t, func() bool {
		described, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: s.Namespace(), TaskQueue: queue, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW, ReportStats: true,
		})
		return err == nil && described.GetStats().GetApproximateBacklogCount() == all
	}, 15*time.Second, 20*time.Millisecond)

	var order []string
	for range all {
		task, err := c.WorkflowService().PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{
			Namespace: s.Namespace(), TaskQueue: queue, Identity: "test",
		})
		require.NoError(t, err)
		order = append(order, task.GetWorkflowExecution().GetWorkflowId())
	}
	require.Equal(t, "high", order[0], "%v", order)
	require.Equal(t, "low", order[all-1], "%v", order)
	require.Contains(t, order[1:4], "b1", "the tenant with one task is served among the first: %v", order)
}
