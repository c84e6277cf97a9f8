package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/testsuite/plane"
)

// TestTypesDoNotBlockEachOther has agents of another type join while many tasks of one type wait: theirs begin, and
// nothing that waits is taken and returned.
func TestTypesDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, fleet.ClusterConfig{})
	b.agent(t, plane.UniqueID("a")) // a hold ends when the test does
	const backlog = 60
	var ids []string
	for range backlog {
		ids = append(ids, b.submit(t, map[string]any{"type": "hold"}))
	}
	other := plane.UniqueID("b")
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: other, Slots: 4},
		map[string]agent.Handler{"draw": func(context.Context, *agent.Task) (any, error) { return "drawn", nil }})
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+other, nil, nil)
		return status == http.StatusOK
	}, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		id := b.submit(t, map[string]any{"type": "draw"})
		require.Equal(t, fleet.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
		var q struct{ Lanes []api.Lane }
		status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/queue", nil, &q)
		require.Equal(t, http.StatusOK, status, "%+v", problem)
		for _, l := range q.Lanes {
			if l.Lane == "type/draw" {
				return l.Needs != nil && l.Needs.Type == "draw"
			}
		}
		return false
	}, patience, 50*time.Millisecond)
	for _, id := range ids {
		task := getTask(t, b.node.URL, id, "0s")
		for _, a := range task.Attempts {
			require.NotEqual(t, fleet.AttemptReturned, a.Outcome, "%s: %s", id, strings.TrimSpace(a.Reason))
		}
	}
}
