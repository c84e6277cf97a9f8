package agent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// probe asks an agent's health handler.
func probe(t *testing.T, a *agent.Agent, path string) (int, agent.Status) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:9091"+path, nil)
	r.RemoteAddr = "127.0.0.1:5000"
	a.HealthHandler().ServeHTTP(w, r)
	var status agent.Status
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &status))
	return w.Code, status
}

func TestAgentHealth(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	idle := func(ctx context.Context, _ *agent.Task) (any, error) { return nil, ctx.Err() }
	b := start(t, hub, nil, map[string]agent.Handler{"t": idle})
	b.await(agent.EventRegistered)
	code, status := probe(t, b.agent, "/health")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, agent.StatusHealthy, status.Status)
	require.Equal(t, "worker-1", status.AgentID)
	require.True(t, status.LastHeartbeatSuccess)
	require.True(t, status.MetadataStoreConnected)
	require.NotNil(t, status.LastHeartbeat)
	require.Zero(t, status.ActiveLeases)
	require.Equal(t, 4, status.MaxTasks)

	hub.Stop()
	b.await(agent.EventReconnecting)
	_, status = probe(t, b.agent, "/health")
	require.False(t, status.LastHeartbeatSuccess)
	require.False(t, status.MetadataStoreConnected)
	code, _ = probe(t, b.agent, "/healthz")
	require.Equal(t, http.StatusOK, code, "the process lives, whatever becomes of the hub")

	b.stop()
	require.NoError(t, b.ends())
	code, status = probe(t, b.agent, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, agent.StatusUnhealthy, status.Status)
}

// An agent that is stopping takes nothing new, so it is not ready, while it ends what it has.
func TestAStoppingAgentIsNotReady(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	g := newGate()
	b := start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
	hub.WaitRegistered(1)
	hub.Assign(assign("t1", "gate"))
	<-g.started
	code, _ := probe(t, b.agent, "/readyz")
	require.Equal(t, http.StatusOK, code)
	b.stop()
	b.await(agent.EventStopping)
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable,
		"/health": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
		code, status := probe(t, b.agent, path)
		require.Equal(t, want, code, path)
		require.Equal(t, agent.StatusStopping, status.Status)
		require.Equal(t, 1, status.RunningTasks)
	}
	close(g.open)
	require.NoError(t, b.ends())
}

// TestAgentHealthForOthers asks from another machine, and as a web page that has renamed its host.
func TestAgentHealthForOthers(t *testing.T) {
	t.Parallel()
	a, err := agent.New(agent.Options{ID: "canary-id", Cluster: "canary-cluster", HubURLs: []string{"http://127.0.0.1:1"}})
	require.NoError(t, err)
	own, err := os.Hostname()
	require.NoError(t, err)
	for _, c := range []struct {
		from, host string
		status     int
		all        bool
	}{
		{"127.0.0.1:5000", "127.0.0.1:9091", http.StatusServiceUnavailable, true},
		{"[::1]:5000", "localhost:9091", http.StatusServiceUnavailable, true},
		{"[::ffff:127.0.0.1]:5000", own + ":9091", http.StatusServiceUnavailable, true},
		{"192.0.2.7:5000", "192.0.2.1:9091", http.StatusServiceUnavailable, false},
		{"192.0.2.7:5000", "[2001:db8::1]:9091", http.StatusServiceUnavailable, false},
		{"127.0.0.1:5000", "attacker.example:9091", http.StatusForbidden, false},
		{"127.0.0.1:5000", "", http.StatusForbidden, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/health", nil)
		r.RemoteAddr, r.Host = c.from, c.host
		w := httptest.NewRecorder()
		a.HealthHandler().ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, c.host)
		require.Equal(t, c.all, strings.Contains(w.Body.String(), "canary"), "%s asks %s: %s", c.from, c.host, w.Body)
	}
}

// An agent that no hub answers is unhealthy once a hub would give it up, and healthy again with the next answer.
func TestAgentHealthFollowsTheFailureThreshold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true}) // gives up after 15 s
		idle := func(ctx context.Context, _ *agent.Task) (any, error) { return nil, ctx.Err() }
		b := start(t, hub, func(o *agent.Options) { o.DialContext = hub.Dial }, map[string]agent.Handler{"t": idle})
		b.await(agent.EventRegistered)
		hub.Command(protocol.Command{Type: protocol.CommandRole, Role: api.RoleLeader, Epoch: 2, Shards: []int{1, 2}})
		passes := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		passes(time.Second)
		_, status := probe(t, b.agent, "/health")
		require.Equal(t, 3, status.ActiveLeases, "the leadership and two shards")

		hub.Stop()
		passes(10 * time.Second)
		code, status := probe(t, b.agent, "/health")
		require.Equal(t, http.StatusOK, code, "not given up yet")
		require.False(t, status.LastHeartbeatSuccess)
		passes(10 * time.Second)
		code, status = probe(t, b.agent, "/health")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Zero(t, status.ActiveLeases, "its leases have run out")
		hub.Start()
		passes(10 * time.Second)
		code, _ = probe(t, b.agent, "/health")
		require.Equal(t, http.StatusOK, code)
		b.stop()
		require.NoError(t, b.ends())
	})
}

func TestAgentHealthBeforeRun(t *testing.T) {
	t.Parallel()
	a, err := agent.New(agent.Options{HubURLs: []string{"http://127.0.0.1:1"}, Cluster: "c", ID: "a"})
	require.NoError(t, err)
	code, status := probe(t, a, "/health")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, agent.StatusUnhealthy, status.Status)
	require.Zero(t, status.UptimeSeconds)
}
