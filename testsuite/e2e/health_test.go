package e2e

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	good, bad := plane.UniqueID("good"), plane.UniqueID("bad")
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: good, Slots: 4},
		map[string]agent.Handler{"work": echo})
	stopped := startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: bad, Slots: 4},
		map[string]agent.Handler{
			"work": func(context.Context, *agent.Task) (any, error) {
				return nil, agent.NonRetryable(errors.New("disk full"))
			},
		})
	for range 10 {
		waitTask(t, node.URL, submit(t, node.URL, map[string]any{"type": "work", "cluster": cluster, "agent": good}),
			api.TaskCompleted)
		waitTask(t, node.URL, submit(t, node.URL, map[string]any{"type": "work", "cluster": cluster, "agent": bad}),
			api.TaskFailed)
	}
	health := func(id string) api.AgentHealth {
		var h api.AgentHealth
		status, p := call(t, http.MethodGet, node.URL+"/api/v1/agents/"+id+"/health", nil, &h)
		require.Equal(t, http.StatusOK, status, "%+v", p)
		return h
	}
	factor := func(h api.AgentHealth, name string) api.HealthFactor {
		for _, f := range h.Factors {
			if f.Name == name {
				return f
			}
		}
		t.Fatalf("no factor %s in %+v", name, h)
		return api.HealthFactor{}
	}
	require.InDelta(t, 1, factor(health(good), "error_rate").Score, 0)
	failing := factor(health(bad), "error_rate")
	require.InDelta(t, 0, failing.Score, 0)
	require.Equal(t, "10 of 10 finished attempts failed", failing.Why)
	require.Len(t, health(bad).Checks, 4)

	stopped.stop(t)
	require.Eventually(t, func() bool {
		var h api.ClusterHealth
		status, _ := call(t, http.MethodGet, node.URL+"/api/v1/agents/clusters/"+cluster+"/health", nil, &h)
		return status == http.StatusOK && len(h.Agents) == 1 && h.Agents[0].AgentID == good && h.Score != nil
	}, patience, 20*time.Millisecond)
}

// TestHealthIsToldOnce: a change of an agent's health is one event, and what comes and goes is none.
func TestHealthIsToldOnce(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster, id := node.EnsureCluster(t, api.ClusterConfig{}), plane.UniqueID("a")
	l := listen(t, node, url.Values{"cluster": {cluster}, "type": {"agent.health"}}, "")
	a := startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id, Slots: 1},
		map[string]agent.Handler{"work": echo})
	a.own.ReportHealth(0, "the disk is full")
	told := l.await(t, "agent.health agents/"+id)
	require.Equal(t, string(api.HealthDegraded), told.Data.Level)
	a.own.SetHealth(1)
	<-time.After(5 * time.Second) // it must be well for three times as long before that is told
	a.own.SetHealth(0)
	require.Len(t, l.all("agent.health agents/"+id), 1)
}
