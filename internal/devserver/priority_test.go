package devserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/server/api/adminservice/v1"
	taskqueueinternal "go.temporal.io/server/api/taskqueue/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Tasks wait by priority, and within one priority a tenant with many does not hold up another: on SQLite too, and
// across the two settings, of which fairness replaces the queue that priority alone would use.
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
	waitUntilRead(t, s, queue, all)

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

// Within one priority, a tenant with a greater weight is served more often, though all of its work came later.
func TestFairnessWeights(t *testing.T) {
	t.Parallel()
	s, c := start(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	queue := &taskqueuepb.TaskQueue{Name: "weighted"}
	const each = 10
	for _, tenant := range []temporal.Priority{{FairnessKey: "light", FairnessWeight: 1},
		{FairnessKey: "heavy", FairnessWeight: 8}} {
		for i := range each {
			_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: fmt.Sprint(tenant.FairnessKey, i),
				TaskQueue: queue.Name, Priority: tenant}, "Waiting")
			require.NoError(t, err)
		}
	}
	waitUntilRead(t, s, queue, 2*each)
	heavy := 0
	for range each {
		task, err := c.WorkflowService().PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{
			Namespace: s.Namespace(), TaskQueue: queue, Identity: "test",
		})
		require.NoError(t, err)
		if strings.HasPrefix(task.GetWorkflowExecution().GetWorkflowId(), "heavy") {
			heavy++
		}
	}
	require.Greater(t, heavy, 6, "about eight of nine")
}

// waitUntilRead waits until the queue holds n tasks in memory, where they are ordered. Temporal counts a task as
// waiting once it is written, and reads those of each priority a moment later.
func waitUntilRead(t *testing.T, s *Server, queue *taskqueuepb.TaskQueue, n int) {
	t.Helper()
	c, err := grpc.NewClient(s.frontend, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	request := &adminservice.DescribeTaskQueuePartitionRequest{
		Namespace: s.Namespace(),
		TaskQueuePartition: &taskqueueinternal.TaskQueuePartition{
			TaskQueue: queue.Name, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW,
		},
		BuildIds: &taskqueuepb.TaskQueueVersionSelection{Unversioned: true},
	}
	require.Eventually(t, func() bool {
		described, err := adminservice.NewAdminServiceClient(c).DescribeTaskQueuePartition(t.Context(), request)
		read := int64(0)
		for _, version := range described.GetVersionsInfoInternal() {
			for _, status := range version.GetPhysicalTaskQueueInfo().GetInternalTaskQueueStatus() {
				read += status.GetLoadedTasks()
			}
		}
		return err == nil && read == int64(n)
	}, 15*time.Second, 20*time.Millisecond)
}
