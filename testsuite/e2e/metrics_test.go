package e2e

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// becomes waits until a node tells a value.
func (b *bench) becomes(t *testing.T, name string, labels map[string]string, want float64) {
	t.Helper()
	var got float64
	require.Eventually(t, func() bool {
		got = metric(t, b.node.Registry, name, labels)
		return got == want
	}, patience, 50*time.Millisecond, "%s%v is %v, not %v", name, labels, &got, want)
}

// The loss of a leader shows in every metric that it concerns, of gateway, hub and worker.
func TestMetricsOfAFailover(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive, DesiredAgents: 2})
	cluster := map[string]string{"cluster_id": b.cluster}
	with := func(name, value string) map[string]string {
		return map[string]string{"cluster_id": b.cluster, name: value}
	}
	worker := plane.WorkerRegistry(t)
	lost, other := plane.UniqueID("a"), plane.UniqueID("b")
	_, network := b.agent(t, lost)
	b.becomes(t, "stella_agent_cluster_leader", with("agent_id", lost), 1)
	b.agent(t, other)
	b.becomes(t, "stella_agent_cluster_members", with("status", "online"), 2)
	b.becomes(t, "stella_agent_cluster_health", cluster, 1)
	b.becomes(t, "stella_agent_up", map[string]string{"agent_id": lost}, 1)
	b.becomes(t, "stella_agent_lease_count", map[string]string{"agent_id": lost}, 1)
	epoch := metric(t, b.node.Registry, "stella_agent_partition_lease_epoch", with("partition", "leader"))

	task := b.submit(t, nil)
	b.waitBegins(t, task, 1)
	b.becomes(t, "stella_agent_queue_latency_seconds", cluster, 1)
	require.Zero(t, metric(t, b.node.Registry, "mainstay_hub_failover_seconds", cluster))
	network.cut()

	b.waitBegins(t, task, 2)
	b.becomes(t, "mainstay_hub_failover_seconds", cluster, 1)
	b.becomes(t, "stella_agent_cluster_leader", with("agent_id", other), 1)
	b.becomes(t, "stella_agent_cluster_leader", with("agent_id", lost), 0)
	b.becomes(t, "stella_agent_partition_failover_count", with("partition", "leader"), 1)
	require.Greater(t, metric(t, b.node.Registry, "stella_agent_partition_lease_epoch", with("partition", "leader")),
		epoch)
	b.becomes(t, "stella_agent_up", map[string]string{"agent_id": lost}, 0)
	b.becomes(t, "mainstay_cluster_agents_lost", cluster, 1)
	b.becomes(t, "stella_agent_cluster_members", with("status", "offline"), 1)
	b.becomes(t, "stella_agent_cluster_health", cluster, .5)
	require.GreaterOrEqual(t, metric(t, b.node.Registry, "stella_agent_heartbeat_failure_total",
		map[string]string{"agent_id": lost}), 1.0)
	require.Zero(t, metric(t, b.node.Registry, "stella_agent_health_score", map[string]string{"agent_id": lost}),
		"nothing is told of a session that is gone")
	require.Eventually(t, func() bool {
		return metric(t, worker, "stella_agent_failovers_total", with("status", "succeeded")) == 1
	}, patience, 50*time.Millisecond)
	require.EqualValues(t, 1, metric(t, worker, "stella_agent_failover_duration_seconds", cluster))
	require.EqualValues(t, 1, metric(t, worker, "stella_agent_tasks_transferred_total", cluster))
	b.finish.Store(true)
	waitTask(t, b.node.URL, task, api.TaskCompleted)
}

// TestEveryMetricIsSeenMoving: each metric of the agents' document goes up or down in an installation by the event that
// it is about.
func TestEveryMetricIsSeenMoving(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive, DesiredAgents: 2,
		SelfHealing: quickHealing()})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	type series struct {
		of     prometheus.Gatherer
		name   string
		labels map[string]string
		up     bool
	}
	told := func(up bool, name string, labels ...string) series {
		s := series{b.node.Registry, "stella_agent_" + name, map[string]string{}, up}
		for i := 0; i < len(labels); i += 2 {
			s.labels[labels[i]] = labels[i+1]
		}
		return s
	}
	counted := func(name string, labels ...string) series {
		s := told(true, name, labels...)
		s.of = plane.WorkerRegistry(t)
		return s
	}
	cluster := []string{"cluster_id", b.cluster}
	moved := map[string]bool{}
	moves := func(event string, do func(), all ...series) {
		t.Helper()
		before := make([]float64, len(all))
		for i, s := range all {
			before[i] = metric(t, s.of, s.name, s.labels)
		}
		do()
		for i, s := range all {
			require.Eventually(t, func() bool {
				now := metric(t, s.of, s.name, s.labels)
				return s.up && now > before[i] || !s.up && now < before[i]
			}, patience, 50*time.Millisecond, "%s%v moves when %s", s.name, s.labels, event)
			moved[s.name] = true
		}
	}
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	handlers := func(id string) map[string]agent.Handler {
		return map[string]agent.Handler{
			"hold":  b.hold(id),
			"fails": func(context.Context, *agent.Task) (any, error) { return nil, errors.New("no") },
			"stuck": func(context.Context, *agent.Task) (any, error) { <-stuck; return nil, nil },
		}
	}
	once := map[string]any{"max_attempts": 1}
	n := newNetwork()
	moves("a task waits", func() { b.submit(t, map[string]any{"type": "fails", "priority": "high", "retry": once}) },
		told(true, "queue_depth", append(cluster, "priority", "high")...))
	moves("an agent joins and the task fails", func() {
		startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: first, Slots: 4,
			StopTimeout: time.Millisecond, DialContext: n.dial}, handlers(first))
	}, told(true, "cluster_members", append(cluster, "status", "online")...),
		told(true, "cluster_leader", append(cluster, "agent_id", first)...), told(true, "cluster_health", cluster...),
		told(true, "queue_latency_seconds", cluster...), told(true, "dead_letter_queue_depth", cluster...),
		told(true, "health_score", "agent_id", first), told(true, "task_completion_rate", "agent_id", first))
	age := told(true, "heartbeat_age_seconds", "agent_id", first)
	moves("no heartbeat comes", func() {}, age)
	age.up = false
	moves("one comes", func() {
		require.Eventually(t, func() bool { return metric(t, age.of, age.name, age.labels) > .2 }, patience, time.Millisecond)
	}, age)
	moves("a handler does not stop", func() {
		b.submit(t, map[string]any{"type": "stuck", "beacon_timeout": "1s", "retry": once})
	}, told(false, "task_completion_rate", "agent_id", first), told(false, "health_score", "agent_id", first))
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: second, Slots: 4,
		StopTimeout: time.Millisecond}, handlers(second))
	b.becomes(t, "stella_agent_cluster_health", map[string]string{"cluster_id": b.cluster}, 1)
	task := b.submit(t, nil)
	require.Equal(t, first, b.waitBegins(t, task, 1)[0].agent)
	moves("the leader is lost", n.cut, told(false, "cluster_leader", append(cluster, "agent_id", first)...),
		told(true, "cluster_leader", append(cluster, "agent_id", second)...),
		told(false, "cluster_members", append(cluster, "status", "online")...),
		told(true, "cluster_members", append(cluster, "status", "offline")...), told(false, "cluster_health", cluster...),
		counted("failovers_total", append(cluster, "status", "succeeded")...),
		counted("failover_duration_seconds", cluster...), counted("tasks_transferred_total", cluster...))
	moves("a cycle reports that an agent is missing", func() { b.healUntil(t, nil, api.HealReport, b.cluster, api.HealAct) },
		counted("healing_actions_total", "action_type", "report", "status", "reported"),
		counted("healing_cycle_duration_seconds"))
	require.Len(t, moved, 14)
	b.finish.Store(true)
}

// What waits, and for whom, shows in the metrics of the queue.
func TestMetricsOfTheQueue(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	cluster := map[string]string{"cluster_id": b.cluster}
	b.submit(t, map[string]any{"type": "fails", "priority": "high", "retry": map[string]any{"max_attempts": 1}})
	b.becomes(t, "stella_agent_queue_depth", map[string]string{"cluster_id": b.cluster, "priority": "high"}, 1)
	require.Positive(t, metric(t, b.node.Registry, "mainstay_cluster_queue_oldest_age_seconds", cluster))

	id := plane.UniqueID("a")
	running := make(chan struct{}, 1)
	n := newNetwork()
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: id, Slots: 2,
		StopTimeout: time.Millisecond, DialContext: n.dial},
		map[string]agent.Handler{
			"fails": func(context.Context, *agent.Task) (any, error) { return nil, errors.New("no") },
			"hangs": func(ctx context.Context, _ *agent.Task) (any, error) {
				running <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
	b.becomes(t, "stella_agent_dead_letter_queue_depth", cluster, 1)
	b.becomes(t, "stella_agent_queue_depth", map[string]string{"cluster_id": b.cluster, "priority": "high"}, 0)
	require.EqualValues(t, 1, metric(t, b.node.Registry, "stella_agent_queue_latency_seconds", cluster))
	require.Positive(t, metric(t, b.node.Registry, "stella_agent_heartbeat_success_total",
		map[string]string{"agent_id": id}))
	require.GreaterOrEqual(t, metric(t, b.node.Registry, "stella_agent_health_score", map[string]string{"agent_id": id}),
		.85, "a busy machine costs no more than .15")
	var health api.AgentHealth
	status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+id+"/health", nil, &health)
	require.Equal(t, http.StatusOK, status)
	for _, f := range health.Factors {
		if f.Name != "resource_utilization" {
			require.EqualValues(t, 1, f.Score, "%s: one failed attempt is no share yet", f.Name)
		}
	}

	b.submit(t, map[string]any{"type": "hangs", "retry_safety": "at_most_once"})
	<-running
	n.cut()
	b.becomes(t, "mainstay_cluster_reviews_waiting", cluster, 1)
}

// The metrics of the Temporal SDK that the dashboards and alerts query are told, by the names that they query.
func TestSDKMetricsThatAreQueried(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	b.agent(t, plane.UniqueID("a"))
	b.finish.Store(true)
	waitTask(t, b.node.URL, b.submit(t, nil), api.TaskCompleted)
	// A failed call, and a failed workflow task, are not to be had on demand; their names are made as the others are.
	for _, name := range []string{"temporal_request_latency_seconds", "temporal_request_total",
		"temporal_workflow_task_schedule_to_start_latency_seconds",
		"temporal_activity_schedule_to_start_latency_seconds", "temporal_sticky_cache_size", "temporal_worker_task_slots_available"} {
		require.Eventually(t, func() bool { return metric(t, plane.WorkerRegistry(t), name, nil) > 0 }, patience,
			50*time.Millisecond, name)
	}
}
