package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// TestResultOfASupersededAttemptIsRefused lets an agent vanish with a task, another complete it, and the first come
// back with a result of its own.
func TestResultOfASupersededAttemptIsRefused(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	late := newWireAgent(t, node.URL, cluster)
	late.register(t)
	id := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster, "payload": "the second's"})
	a := late.take(t)
	require.Equal(t, id, a.TaskID)
	late.hangUp()
	second := plane.UniqueID("second")
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: second},
		map[string]agent.Handler{"echo": echo})
	got := getTask(t, node.URL, id, "30s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)

	for n := range 2 { // a result that is sent again is refused again
		status, text := late.report(t, late.session, a.TaskID, a.Attempt, a.Token)
		requireProblem(t, http.StatusConflict, protocol.CodeSuperseded, status, text, a.Token, late.session)
		require.EqualValues(t, n+1, metric(t, node.Registry, "mainstay_hub_stale_results_total", nil))
	}
	again := getTask(t, node.URL, id, "0s")
	require.JSONEq(t, `"the second's"`, string(again.Result))
	require.Len(t, again.Attempts, 2)
	require.Equal(t, []api.AttemptOutcome{api.AttemptLost, api.AttemptCompleted},
		[]api.AttemptOutcome{again.Attempts[0].Outcome, again.Attempts[1].Outcome})
	require.Equal(t, []string{late.id, second}, []string{again.Attempts[0].AgentID, again.Attempts[1].AgentID})
}

// TestExpiredSessionIsTold lets an agent vanish and poll again much later.
func TestExpiredSessionIsTold(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	w := newWireAgent(t, node.URL, cluster)
	first := w.register(t)
	status, _, text := w.poll(t)
	require.Equal(t, http.StatusOK, status, text)
	w.hangUp()
	require.Eventually(t, func() bool {
		return metric(t, node.Registry, "mainstay_hub_sessions_ended_total", map[string]string{"kind": "lost"}) == 1
	}, patience, 10*time.Millisecond)
	status, _, text = w.poll(t)
	requireProblem(t, http.StatusConflict, protocol.CodeUnknownSession, status, text, w.session)

	w.sequence = 0
	again := w.register(t)
	require.Equal(t, first.Epoch, again.Epoch, "the same process keeps its epoch")
	status, _, text = w.poll(t)
	require.Equal(t, http.StatusOK, status, text)
}

// TestNewerProcessFencesTheOlder registers a second process under an agent's id.
func TestNewerProcessFencesTheOlder(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	older := newWireAgent(t, node.URL, cluster)
	older.register(t)
	id := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster})
	a := older.take(t)
	newer := newWireAgent(t, node.URL, cluster)
	newer.id = older.id
	newer.register(t)

	status, _, text := older.poll(t)
	requireProblem(t, http.StatusConflict, protocol.CodeFenced, status, text, older.session)
	status, text = older.send(t, http.MethodPost, protocol.RegisterPath, "", map[string]any{
		"agent_id": older.id, "instance_id": older.instance, "cluster": cluster, "max_tasks": 1}, nil)
	requireProblem(t, http.StatusConflict, protocol.CodeFenced, status, text, older.instance)
	b := newer.take(t)
	require.Equal(t, id, b.TaskID, "a restarted agent loses its old attempts at once")
	status, text = older.report(t, older.session, a.TaskID, a.Attempt, a.Token)
	requireProblem(t, http.StatusConflict, protocol.CodeSuperseded, status, text, a.Token)
	status, text = newer.report(t, newer.session, b.TaskID, b.Attempt, b.Token)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, api.TaskCompleted, getTask(t, node.URL, id, "20s").Status)
}
