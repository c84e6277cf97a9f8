package e2e

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// order keeps the ids of tasks in the order in which they began; each waits until it is let go.
type order struct {
	mu    sync.Mutex
	begun []string
	free  chan struct{}
}

func newOrder() *order { return &order{free: make(chan struct{})} }

func (o *order) handle(ctx context.Context, task *agent.Task) (any, error) {
	o.mu.Lock()
	o.begun = append(o.begun, task.ID)
	o.mu.Unlock()
	select {
	case <-o.free:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (o *order) await(t *testing.T, n int) []string {
	t.Helper()
	var begun []string
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		begun = append(begun[:0], o.begun...)
		return len(begun) >= n
	}, patience, 5*time.Millisecond, "%d tasks begin", n)
	return begun
}

// awaitBacklog waits until a task's delivery is in its lane.
func awaitBacklog(t *testing.T, ids ...string) {
	t.Helper()
	c := plane.Temporal(t)
	for _, id := range ids {
		require.Eventually(t, func() bool {
			d, err := c.DescribeWorkflowExecution(t.Context(), contract.TaskWorkflowID(id), "")
			return err == nil && len(d.GetPendingActivities()) == 1
		}, patience, 10*time.Millisecond, id)
	}
}

// awaitPriorities waits until a lane holds work of all these priorities: Temporal takes up to about a second to move
// it.
func awaitPriorities(t *testing.T, lane string, priorities ...api.Priority) {
	t.Helper()
	c := plane.Temporal(t)
	require.Eventually(t, func() bool {
		d, err := c.WorkflowService().DescribeTaskQueue(t.Context(), &workflowservice.DescribeTaskQueueRequest{
			Namespace:     "default",
			TaskQueue:     &taskqueuepb.TaskQueue{Name: lane},
			TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
			ReportStats:   true,
		})
		for _, p := range priorities {
			if err != nil || d.GetStatsByPriorityKey()[int32(p)].GetApproximateBacklogCount() == 0 {
				return false
			}
		}
		return true
	}, patience, 50*time.Millisecond, "%s holds priorities %v", lane, priorities)
}

func TestRaisedTaskRunsNext(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	o := newOrder()
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 1},
		map[string]agent.Handler{"wait": o.handle})
	first := submit(t, node.URL, map[string]any{"type": "wait", "cluster": cluster})
	o.await(t, 1)
	var low []string
	for range 5 {
		low = append(low, submit(t, node.URL, map[string]any{"type": "wait", "cluster": cluster, "priority": "low",
			"tenant": "acme"}))
	}
	awaitBacklog(t, low...)
	raised, lowered := low[3], low[0]
	var answer api.Task
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+raised+"/priority",
		map[string]any{"priority": "critical", "reason": "the customer waits"}, &answer)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.Equal(t, "critical", answer.PriorityName)
	status, problem = call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+lowered+"/priority",
		map[string]any{"priority": 5}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	// What runs is not disturbed by a change.
	status, problem = call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+first+"/priority",
		map[string]any{"priority": 1}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", problem)

	awaitPriorities(t, contract.ClusterLane(cluster), api.PriorityCritical, api.PriorityBackground)
	close(o.free)
	begun := o.await(t, 6)
	require.Len(t, begun, 6)
	require.Equal(t, []string{first, raised}, begun[:2])
	require.Equal(t, lowered, begun[5])
	for _, id := range append(low, first) {
		got := getTask(t, node.URL, id, "20s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Len(t, got.Attempts, 1, "nothing was delivered twice")
	}
	status, problem = call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+raised+"/priority",
		map[string]any{"priority": 1}, nil)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, problem.Detail, "completed")
}

func TestTaskStartsAtItsTime(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{"echo": echo})
	at := time.Now().Add(2 * time.Second)
	soon := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster,
		"start_at": at.Format(time.RFC3339Nano), "expires_in": "1s"})
	never := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster,
		"start_at": time.Now().Add(time.Hour).Format(time.RFC3339)})
	waiting := getTask(t, node.URL, never, "")
	require.Equal(t, api.TaskQueued, waiting.Status)
	require.Contains(t, waiting.Why, "starts at ")
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+never+"/cancel", map[string]any{}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.Equal(t, api.TaskCancelled, getTask(t, node.URL, never, "20s").Status)

	got := getTask(t, node.URL, soon, "20s")
	require.Equal(t, api.TaskCompleted, got.Status, "expires_in counts from the start: %s", got.Why)
	require.False(t, got.Attempts[0].StartedAt.Before(at.Truncate(time.Millisecond)))
}

func TestDeadLetterIsDiscardedByHand(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{DeadLetterRetention: api.Duration(time.Hour)})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{
			"disk": func(context.Context, *agent.Task) (any, error) {
				return nil, agent.Typed("io", errors.New("disk full"))
			},
		})
	body := map[string]any{"type": "disk", "cluster": cluster, "payload": map[string]any{"n": 7},
		"retry": map[string]any{"max_attempts": 1}}
	id := submit(t, node.URL, body)
	waitTask(t, node.URL, id, api.TaskDeadLetter)

	var dead api.Task
	status, problem := call(t, http.MethodGet, node.URL+"/api/v1/agents/tasks/"+id+"?include=payload", nil, &dead)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.JSONEq(t, `{"n":7}`, string(dead.Payload))
	require.Equal(t, time.Hour, dead.DeadLetter.Until.Sub(dead.DeadLetter.Since), "the cluster says how long")
	require.Contains(t, dead.Why, "dead letter because 1 of 1 attempts failed; last: disk full; kept until ")
	require.Equal(t, "io", dead.Attempts[0].ErrorType)
	require.Eventually(t, func() bool {
		var list struct{ Tasks []api.Task }
		status, _ := call(t, http.MethodGet, node.URL+"/api/v1/agents/tasks/queue/dead-letter?cluster="+cluster, nil,
			&list)
		return status == http.StatusOK && len(list.Tasks) == 1 && list.Tasks[0].DeadLetter != nil &&
			list.Tasks[0].DeadLetter.Cause == dead.DeadLetter.Cause
	}, patience, 50*time.Millisecond, "the list says why, too")

	status, problem = call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+id+"/discard",
		map[string]any{"reason": "the customer is gone"}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	status, problem = call(t, http.MethodGet, node.URL+"/api/v1/agents/tasks/"+id+"?include=payload&wait=20s", nil,
		&dead)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.Equal(t, api.TaskFailed, dead.Status)
	require.Equal(t, "discarded: the customer is gone", dead.Why)
	require.JSONEq(t, `{"n":7}`, string(dead.Payload), "what it was stays visible")
	require.Len(t, dead.Attempts, 1)

	body["retry"] = map[string]any{"max_attempts": 5, "non_retryable": []string{"io"}}
	got := getTask(t, node.URL, submit(t, node.URL, body), "20s")
	require.Equal(t, api.TaskFailed, got.Status, "a failure of this type is not tried again")
	require.Contains(t, got.Why, "disk full")
}

func TestOneKeyTwoBodies(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	body := map[string]any{"type": "echo", "cluster": cluster, "idempotency_key": "order 7",
		"payload": map[string]any{"a": 1, "b": 2}}
	id := submit(t, node.URL, body)
	var again api.Task
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks", body, &again)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.Equal(t, id, again.ID)
	body["payload"] = map[string]any{"a": 1}
	status, problem = call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks", body, nil)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, protocol.CodeIdempotency, problem.Code)
}
