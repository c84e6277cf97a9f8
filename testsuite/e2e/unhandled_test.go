package e2e

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// unhandled is what the overview says of tasks of the cluster that no agent handles; nil: nothing.
func (b *bench) unhandled(t *testing.T) *api.Problem {
	t.Helper()
	var o api.Overview
	status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/overview", nil, &o)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	i := slices.IndexFunc(o.Problems, func(p api.Problem) bool {
		return p.Kind == api.ProblemUnhandled &&
			p.Cluster == b.cluster
	})
	if i < 0 {
		return nil
	}
	return &o.Problems[i]
}

func TestTasksThatNobodyHandlesAreAProblem(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first := plane.UniqueID("a")
	b.agent(t, first)
	begun := time.Now()
	ids := []string{b.submit(t, map[string]any{"type": "resize"}), b.submit(t, map[string]any{"type": "resize"})}
	require.Eventually(t, func() bool { p := b.unhandled(t); return p != nil && p.Count == 2 }, patience,
		50*time.Millisecond)
	p := b.unhandled(t)
	require.Equal(t, "2 tasks of type resize in cluster "+b.cluster+": no agent handles it", p.What)
	require.Equal(t, "agent "+first+" handles hold", p.Why)
	require.Equal(t, api.SeverityWarning, p.Severity)
	require.WithinRange(t, *p.Since, begun, time.Now())
	var page struct{ Tasks []api.Task }
	require.Eventually(t, func() bool {
		status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/tasks/queue?cluster="+b.cluster, nil,
			&page)
		require.Equal(t, http.StatusOK, status, "%+v", problem)
		return len(page.Tasks) == 2 && page.Tasks[0].Why == "no agent handles type resize; agent "+first+" handles hold"
	}, patience, 50*time.Millisecond, "%+v", page.Tasks)

	second, release := plane.UniqueID("b"), make(chan struct{})
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: second, Slots: 2},
		map[string]agent.Handler{
			"resize": func(ctx context.Context, _ *agent.Task) (any, error) {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return "resized", nil
			},
		})
	for _, id := range ids {
		waitTask(t, b.node.URL, id, api.TaskRunning)
	}
	require.Nil(t, b.unhandled(t), "an agent handles it now")
	require.Eventually(t, func() bool {
		status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/tasks?status=running&cluster="+b.cluster,
			nil, &page)
		require.Equal(t, http.StatusOK, status, "%+v", problem)
		return len(page.Tasks) == 2
	}, patience, 50*time.Millisecond, "what is marked is found when it runs")
	close(release)
	for _, id := range ids {
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
	}
}
