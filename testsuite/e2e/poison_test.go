package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestTasksThatNoAgentCanReadHurtNobodyElse has 60 tasks of one tenant whose payload is nested deeper than any parser
// reads. They are started at Temporal, since no gateway takes them.
func TestTasksThatNoAgentCanReadHurtNobodyElse(t *testing.T) {
	t.Parallel()
	const poisons = 60
	temporal := plane.Temporal(t)
	timing := plane.QuickTiming()
	timing.FailureThreshold = 20 * time.Second // and so the lease, which a busy machine must not end
	node := plane.NewNode(t, plane.NodeOptions{Config: hub.Config{Timing: timing}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	release := make(chan struct{})
	for i := range 3 {
		startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster,
			ID: plane.UniqueID(fmt.Sprintf("a-%d", i)), Slots: 4},
			map[string]agent.Handler{"echo": echo, "wait": func(ctx context.Context, _ *agent.Task) (any, error) {
				select {
				case <-release:
					return "done", nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}})
	}
	var fenced []string
	for range 3 {
		id := submit(t, node.URL, map[string]any{"type": "wait", "cluster": cluster, "tenant": "beta",
			"retry_safety": "fenced"})
		fenced = append(fenced, id)
		require.Eventually(t, func() bool { return getTask(t, node.URL, id, "0s").Status == api.TaskRunning },
			patience, 50*time.Millisecond)
	}
	deep := []byte(strings.Repeat("[", 9_998) + strings.Repeat("]", 9_998))
	var ids []string
	for i := range poisons {
		id := plane.UniqueID(fmt.Sprintf("poison-%d", i))
		spec := api.TaskSpec{Type: "echo", Cluster: cluster, Tenant: "acme", Payload: deep,
			ExpiresIn: api.Duration(5 * time.Minute)}
		start := contract.StartOf(id, &spec, 0)
		_, err := temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			ID:                    start.WorkflowID,
			TaskQueue:             contract.WorkerQueue,
			TypedSearchAttributes: start.Attributes,
			Memo:                  start.Memo,
			Priority:              start.Priority,
		}, contract.TaskWorkflow, contract.TaskInput{TaskID: id, Spec: spec, Lane: contract.Lane(&spec, 0, false)})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	var longest time.Duration
	for range 20 {
		begun := time.Now()
		done := getTask(t, node.URL, submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster,
			"tenant": "beta", "payload": 7}), "20s")
		require.Equal(t, api.TaskCompleted, done.Status, "another tenant's task, after %s: %s", time.Since(begun),
			done.Why)
		longest = max(longest, time.Since(begun))
	}
	t.Logf("the longest of 20 tasks of another tenant took %s", longest)
	for _, id := range ids {
		var state contract.TaskState
		require.Eventually(t, func() bool {
			value, err := temporal.QueryWorkflow(t.Context(), contract.TaskWorkflowID(id), "",
				contract.StatusQuery.Name)
			return err == nil && value.Get(&state) == nil && state.Status == api.TaskDeadLetter
		}, 2*time.Minute, 20*time.Millisecond, "%s", id)
		require.Contains(t, state.Why, "5 deliveries reached agents and none of them received the task")
		require.Contains(t, state.Why, "cannot read it")
		for _, attempt := range state.Attempts[len(state.Attempts)-5:] {
			require.Equal(t, api.AttemptReturned, attempt.Outcome)
		}
	}
	close(release)
	for _, id := range fenced {
		done := getTask(t, node.URL, id, "20s")
		require.Equal(t, api.TaskCompleted, done.Status, done.Why)
		require.Len(t, done.Attempts, 1, "its agent kept its lease")
	}
	status, _ := call(t, http.MethodGet, node.URL+"/readyz", nil, nil)
	require.Equal(t, http.StatusOK, status)
}
