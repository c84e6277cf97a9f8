package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// What a lost attempt had written is kept, the task is found by both of its agents, and its history tells it all.
func TestStoryOfATaskThatMoved(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	handler := func(id string) agent.Handler {
		hold := b.hold(id)
		return func(ctx context.Context, task *agent.Task) (any, error) {
			task.Log("this is " + id)
			return hold(ctx, task)
		}
	}
	run := func(id string) *network {
		n := newNetwork()
		startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: id, DialContext: n.dial},
			map[string]agent.Handler{"hold": handler(id)})
		return n
	}
	wire := run(first)
	id := b.submit(t, map[string]any{"retry_safety": "fenced", "labels": map[string]string{"project": "film"}})
	b.waitBegins(t, id, 1)
	path := b.node.URL + "/api/v1/agents/tasks"
	output := func(attempt int) (log api.TaskLog) {
		status, problem := call(t, http.MethodGet, fmt.Sprintf("%s/%s/log?attempt=%d", path, id, attempt), nil, &log)
		require.Equal(t, http.StatusOK, status, "%+v", problem)
		return log
	}
	require.Eventually(t, func() bool { return len(output(1).Lines) == 1 }, patience, patience/100) // it was shipped
	run(second)
	wire.cut()
	b.waitBegins(t, id, 2)
	b.finish.Store(true)
	got := getTask(t, b.node.URL, id, "20s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)

	require.Equal(t, "this is "+first, output(1).Lines[0].Text, "of the lost attempt")
	require.Equal(t, "this is "+second, output(2).Lines[0].Text)

	for _, query := range []string{"agent=" + first, "agent=" + second, "id_prefix=" + id[:len(id)-4],
		"cluster=" + b.cluster + "&text=PROJECT%3Dfilm"} {
		var page struct{ Tasks []api.Task }
		require.Eventually(t, func() bool {
			page.Tasks = nil
			status, problem := call(t, http.MethodGet, path+"?"+query, nil, &page)
			require.Equal(t, http.StatusOK, status, "%+v", problem)
			return len(page.Tasks) == 1 && len(page.Tasks[0].RanOn) == 2
		}, patience, patience/100, query)
		require.Equal(t, id, page.Tasks[0].ID)
		require.Equal(t, []string{first, second}, page.Tasks[0].RanOn)
	}

	var story api.Task
	status, problem := call(t, http.MethodGet, path+"/"+url.PathEscape(id)+"?include=history&include=payload", nil, &story)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.Equal(t, api.Fenced, story.Spec.RetrySafety)
	var told []string
	for _, m := range story.History {
		told = append(told, fmt.Sprint(m.Event, m.Attempt, m.AgentID))
	}
	require.Subset(t, told, []string{"submitted0", "queued1", "delivered1", "running1" + first, "lost1" + first,
		"completed0"}, "%v", told)
	require.Equal(t, "submitted0", told[0])
	require.Equal(t, "completed0", told[len(told)-1])
}
