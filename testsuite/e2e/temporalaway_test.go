package e2e

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/protocol"
)

// TestTemporalAway cuts a node off Temporal: every request is answered soon with 503, and nothing is lost.
func TestTemporalAway(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	way := newNetwork()
	// The hub's patience outlasts the test: whether an agent is lost is not its matter.
	timing := cluster.Timing{HeartbeatInterval: time.Second, WarningThreshold: time.Minute, FailureThreshold: time.Minute,
		DisconnectGrace: time.Minute}
	node := plane.NewNode(t, plane.NodeOptions{DialTemporal: way.dial, Config: hub.Config{Timing: timing}})
	t.Cleanup(way.heal) // before the node stops
	clusterName := node.EnsureCluster(t, api.ClusterConfig{})
	w := newWireAgent(t, node.URL, clusterName)
	w.register(t)
	id := submit(t, node.URL, map[string]any{"type": "echo", "cluster": clusterName})
	a := w.take(t)

	require.Eventually(t, func() bool {
		status, _ := ready(t, node.URL)
		return status == http.StatusOK
	}, patience, 20*time.Millisecond)
	way.cut()
	unready, why := ready(t, node.URL)
	require.Equal(t, http.StatusServiceUnavailable, unready)
	require.Contains(t, why.Detail, "hub, gateway cannot reach Temporal")
	stranger := newWireAgent(t, node.URL, clusterName)
	key := map[string]any{"type": "echo", "cluster": clusterName, "idempotency_key": plane.UniqueID("key"),
		"payload": secret}
	var asking sync.WaitGroup
	for name, c := range map[string]struct {
		method, path string
		body         any
	}{
		"submit":   {"POST", "/api/v1/agents/tasks", key},
		"get":      {"GET", "/api/v1/agents/tasks/" + id, ""},
		"wait":     {"GET", "/api/v1/agents/tasks/" + id + "?wait=30s", ""},
		"list":     {"GET", "/api/v1/agents/tasks", ""},
		"cancel":   {"POST", "/api/v1/agents/tasks/" + id + "/cancel", "{}"},
		"clusters": {"GET", "/api/v1/agents/clusters", ""},
		"cluster":  {"GET", "/api/v1/agents/clusters/" + clusterName, ""},
		"agents":   {"GET", "/api/v1/agents", ""},
		"create":   {"POST", "/api/v1/agents/clusters", map[string]any{"name": plane.UniqueID("c")}},
		"register": {"POST", protocol.RegisterPath, map[string]any{"agent_id": stranger.id,
			"instance_id": stranger.instance, "cluster": clusterName, "max_tasks": 1}},
	} {
		asking.Go(func() {
			begun := time.Now()
			status, text := exchange(t, http.DefaultClient, c.method, node.URL+c.path, "", c.body)
			assert.Less(t, time.Since(begun), 10*time.Second, name)
			assert.Equal(t, http.StatusServiceUnavailable, status, "%s: %s", name, text)
			assert.Contains(t, text, `"code":"temporal_unavailable"`, name)
			for _, inside := range []string{secret, "127.0.0.1", "the network is cut", ".go:"} {
				assert.NotContains(t, text, inside, name)
			}
		})
	}
	asking.Wait()
	status, text := w.report(t, w.session, a.TaskID, a.Attempt, a.Token)
	requireProblem(t, http.StatusServiceUnavailable, protocol.CodeUnavailable, status, text, a.Token)

	way.heal()
	require.Eventually(t, func() bool { // the hub's lease too
		status, _ := ready(t, node.URL)
		return status == http.StatusOK
	}, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		status, text = w.report(t, w.session, a.TaskID, a.Attempt, a.Token)
		return status != http.StatusServiceUnavailable
	}, patience, 250*time.Millisecond)
	require.Equal(t, http.StatusOK, status, "the result that was refused is taken when it is sent again: %s", text)
	got := getTask(t, node.URL, id, "20s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)
	require.Len(t, got.Attempts, 1)

	var submitted taskDone
	status, problem := call(t, http.MethodPost, node.URL+"/api/v1/agents/tasks", key, &submitted)
	require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, status, "%+v", problem)
	a = w.take(t)
	require.Equal(t, submitted.ID, a.TaskID)
	status, text = w.report(t, w.session, a.TaskID, a.Attempt, a.Token)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, api.TaskCompleted, getTask(t, node.URL, submitted.ID, "20s").Status)
}

func ready(t *testing.T, url string) (int, protocol.Problem) {
	t.Helper()
	return callOnce(t, http.DefaultClient, "", http.MethodGet, url+"/readyz", nil, nil)
}
