package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// waiting is a lane of the cluster; nil: there is none.
func (b *bench) waiting(t *testing.T, lane string) *api.Lane {
	t.Helper()
	var q struct{ Lanes []api.Lane }
	status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/queue", nil, &q)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	for i := range q.Lanes {
		if q.Lanes[i].Lane == lane {
			return &q.Lanes[i]
		}
	}
	return nil
}

// TestTypesDoNotBlockEachOther has agents of another type join while many tasks of one type wait: theirs begin, also
// what waited before they came, and nothing that waits is taken and returned.
func TestTypesDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	b.agent(t, plane.UniqueID("a")) // a hold ends when the test does
	const backlog = 60
	var ids []string
	for range backlog {
		ids = append(ids, b.submit(t, map[string]any{"type": "hold"}))
	}
	var early string
	require.Eventually(t, func() bool { // the gateway may have read the types before the agent came
		early = b.submit(t, map[string]any{"type": "draw"})
		return b.waiting(t, "type/draw") != nil
	}, patience, 50*time.Millisecond)
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: plane.UniqueID("b"), Slots: 4},
		map[string]agent.Handler{"draw": func(context.Context, *agent.Task) (any, error) { return "drawn", nil }})
	for _, id := range []string{early, b.submit(t, map[string]any{"type": "draw"})} {
		task := getTask(t, b.node.URL, id, "20s")
		require.Equal(t, api.TaskCompleted, task.Status)
		require.Len(t, task.Attempts, 1, "nobody else was offered it")
	}
	require.Equal(t, "draw", b.waiting(t, "type/draw").Needs.Type)
	for _, id := range ids {
		task := getTask(t, b.node.URL, id, "0s")
		for _, a := range task.Attempts {
			require.NotEqual(t, api.AttemptReturned, a.Outcome, "%s: %s", id, strings.TrimSpace(a.Reason))
		}
	}
}

// TestTasksOfBeforeAnyAgentReachTheirs wait in the default lane, as nothing is known of the types. Those that the first
// agents do not handle go to the lane of their type.
func TestTasksOfBeforeAnyAgentReachTheirs(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	var ids []string
	for range 20 {
		ids = append(ids, b.submit(t, map[string]any{"type": "draw"}))
	}
	b.agent(t, plane.UniqueID("a"))
	require.Eventually(t, func() bool {
		lane := b.waiting(t, "type/draw")
		return lane != nil && lane.Depth == int64(len(ids))
	}, patience, 50*time.Millisecond)
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: plane.UniqueID("b"), Slots: 4},
		map[string]agent.Handler{"draw": func(context.Context, *agent.Task) (any, error) { return "drawn", nil }})
	for _, id := range ids {
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
	}
}
