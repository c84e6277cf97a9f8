package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

func TestTaskRunsOnAnAgent(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	id := plane.UniqueID("a")
	a := startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id, Slots: 2},
		map[string]agent.Handler{"echo": echo})

	task := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster, "payload": map[string]any{"n": 1}})
	got := getTask(t, node.URL, task, "20s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)
	require.JSONEq(t, `{"n":1}`, string(got.Result))
	require.Len(t, got.Attempts, 1)
	require.Equal(t, id, got.Attempts[0].AgentID)
	require.EqualValues(t, 1, got.Attempts[0].Epoch)

	a.stop(t)
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodGet, node.URL+"/api/v1/agents/"+id, nil, nil)
		return status == http.StatusNotFound
	}, patience, 50*time.Millisecond, "an agent that said goodbye is no member any more")
}

// What JSON may write as an escape of six bytes counts as one byte all the way.
func TestPayloadOfManyEscapesIsDelivered(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	size := func(_ context.Context, task *agent.Task) (any, error) {
		var text string
		err := task.Decode(&text)
		return len(text), err
	}
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{"size": size})
	const length = api.MaxPayloadBytes - 100
	var submitted taskDone
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks",
		`{"type":"size","cluster":"`+cluster+`","payload":"`+strings.Repeat("<", length)+`"}`, &submitted)
	require.Equal(t, http.StatusAccepted, status, "%+v", problem)
	got := getTask(t, node.URL, submitted.ID, "30s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)
	require.Equal(t, strconv.Itoa(length), string(got.Result))
}

func TestBatchRunsOnceEach(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	var mu sync.Mutex
	begun := map[string]int{}
	count := func(_ context.Context, task *agent.Task) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		begun[task.ID]++
		return nil, nil
	}
	for range 3 {
		startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 4},
			map[string]agent.Handler{"count": count})
	}
	var batch []map[string]any
	for range 100 {
		batch = append(batch, map[string]any{"type": "count", "cluster": cluster})
	}
	var answer struct{ Tasks []taskDone }
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/batch", batch, &answer)
	require.Equal(t, http.StatusAccepted, status, "%+v", problem)
	require.Len(t, answer.Tasks, 100)
	for _, submitted := range answer.Tasks {
		require.Equal(t, api.TaskCompleted, getTask(t, node.URL, submitted.ID, "30s").Status)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, begun, 100)
	for id, n := range begun {
		require.Equal(t, 1, n, id)
	}
}

func TestFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	var calls atomic.Int64
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{
			"flaky": func(context.Context, *agent.Task) (any, error) {
				if n := calls.Add(1); n < 3 {
					return nil, fmt.Errorf("not yet: %d", n)
				}
				return "done", nil
			},
			"broken": func(context.Context, *agent.Task) (any, error) {
				return nil, agent.NonRetryable(errors.New("bad input"))
			},
		})
	quick := map[string]any{"initial_interval": "10ms"}
	flaky := submit(t, node.URL, map[string]any{"type": "flaky", "cluster": cluster, "retry": quick})
	broken := submit(t, node.URL, map[string]any{"type": "broken", "cluster": cluster, "retry": quick})
	got := getTask(t, node.URL, flaky, "20s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)
	require.Len(t, got.Attempts, 3)
	require.Equal(t, "not yet: 1", got.Attempts[0].Reason)
	got = getTask(t, node.URL, broken, "20s")
	require.Equal(t, api.TaskFailed, got.Status)
	require.Contains(t, got.Why, "bad input")
}

func TestDeadLetterIsRetriedByHand(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	var healed atomic.Bool
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{
			"disk": func(context.Context, *agent.Task) (any, error) {
				if !healed.Load() {
					return nil, errors.New("disk full")
				}
				return "ok", nil
			},
		})
	id := submit(t, node.URL, map[string]any{"type": "disk", "cluster": cluster,
		"retry": map[string]any{"max_attempts": 1}})
	require.Contains(t, waitTask(t, node.URL, id, api.TaskDeadLetter).Why, "disk full")
	healed.Store(true)
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+id+"/retry", map[string]any{}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.Equal(t, api.TaskCompleted, getTask(t, node.URL, id, "20s").Status)
}

func TestCancelStopsTheHandler(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	begun, stopped := make(chan struct{}), make(chan struct{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{
			"wait": func(ctx context.Context, _ *agent.Task) (any, error) {
				close(begun)
				<-ctx.Done()
				close(stopped)
				return nil, ctx.Err()
			},
		})
	id := submit(t, node.URL, map[string]any{"type": "wait", "cluster": cluster})
	<-begun
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks/"+id+"/cancel",
		map[string]any{"reason": "not needed"}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Fatal("the handler's context was not cancelled")
	}
	require.Equal(t, api.TaskCancelled, getTask(t, node.URL, id, "20s").Status)
}

func TestCapabilitiesAndPinning(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	plain, gpu := plane.UniqueID("plain"), plane.UniqueID("gpu")
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plain, Slots: 2},
		map[string]agent.Handler{"echo": echo})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: gpu, Slots: 2,
		Capabilities: []string{"gpu"}}, map[string]agent.Handler{"echo": echo})
	for range 4 {
		needs := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster,
			"required_capabilities": []string{"gpu"}})
		pinned := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster, "agent": plain})
		got := getTask(t, node.URL, needs, "20s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Equal(t, gpu, got.Attempts[len(got.Attempts)-1].AgentID)
		got = getTask(t, node.URL, pinned, "20s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Equal(t, plain, got.Attempts[len(got.Attempts)-1].AgentID)
	}
}
