package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

const sample = "../../deploy/mainstay.yaml"

func TestSampleIsTheDefault(t *testing.T) {
	t.Parallel()
	c, err := Load(sample)
	require.NoError(t, err)
	require.Equal(t, Default(), c)
}

func TestSampleShowsEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(sample)
	require.NoError(t, err)
	_, places, err := parse(sample, text)
	require.NoError(t, err)
	for _, section := range []string{"http", "temporal", "dev", "hub", "security"} {
		for _, key := range keysOf(t, section) {
			require.True(t, places.Written(section+"."+key), section+"."+key)
		}
	}
}

func TestSampleExampleLoads(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(sample)
	require.NoError(t, err)
	// Commented-out YAML has no space, or an indentation, after the "#"; prose has one space.
	text = regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAll(text, []byte("$1"))
	c, err := Parse("sample", text)
	require.NoError(t, err)
	require.Equal(t, []api.ClusterConfig{api.ClusterConfig{Name: "builders", TargetGroup: "build-hosts",
		MinAgents: 2, DesiredAgents: 3, MaxAgents: 5, TenantWeights: map[string]float64{"acme": 5},
		Tenants: []string{"acme", "beta"},
		TaskDefaults: api.TaskDefaults{StopGrace: new(api.Duration(30 * time.Second)),
			DisconnectGrace: new(api.Duration(30 * time.Second))},
		ElectionInterval: api.Duration(1500 * time.Millisecond)}.WithDefaults()}, c.ClusterConfigs())
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c := Default()
	require.NoError(t, c.Validate())
	require.Equal(t, cluster.DefaultTiming(), c.Timing())
	require.Empty(t, c.ClusterConfigs())
	for _, text := range []string{"", "# nothing\n", "---\n", "hub:\n", "http: {listen: }\nagent_cluster: ~\n"} {
		got, err := Parse("empty", []byte(text))
		require.NoError(t, err, "%q", text)
		require.Equal(t, c, got, "%q", text)
	}
}

// A whole agent_cluster section, with durations written as clock times.
func TestDocumentsAgentCluster(t *testing.T) {
	t.Parallel()
	c, err := Load("testdata/agent_cluster.yaml")
	require.NoError(t, err)
	seconds := func(n int) api.Duration { return api.Duration(time.Duration(n) * time.Second) }
	require.Equal(t, &AgentCluster{
		Name:            "production-docker-agents",
		TargetGroupID:   "prod-docker-hosts",
		Membership:      Membership{MinimumAgents: 2, DesiredAgents: 3, MaxAgents: 5},
		ReplicationMode: api.ActiveActive,
		Failover: Failover{SelectionStrategy: api.SelectLeastLoaded, TaskTransferTimeout: seconds(300),
			MaxTransferRetries: 3},
		HealthMonitoring: HealthMonitoring{HeartbeatInterval: seconds(30), WarningThreshold: seconds(60),
			FailureThreshold: seconds(90), HealthCheckInterval: seconds(10)},
		TaskQueue: TaskQueue{MaxDeliveryAttempts: 3, DefaultExpiration: seconds(3600),
			DeadLetterRetention: seconds(7 * 24 * 3600)},
		SelfHealing: SelfHealing{truth(true), api.HealingPolicy{CycleInterval: seconds(60), DrainTimeout: seconds(300)}},
		LeaderElection: LeaderElection{Enabled: truth(true), ElectionInterval: seconds(15),
			LeaseDuration: seconds(30)},
		Brake: api.BrakePolicy{Share: .5, MinLost: 3, Window: seconds(10)},
	}, c.AgentCluster)
	require.Equal(t, cluster.Timing{HeartbeatInterval: 30 * time.Second, CrowdInterval: 30 * time.Second,
		WarningThreshold: time.Minute,
		FailureThreshold: 90 * time.Second, DisconnectGrace: time.Second}, c.Timing())
	require.Equal(t, seconds(30), c.Hub.HeartbeatInterval)
	require.Equal(t, []api.ClusterConfig{api.ClusterConfig{Name: "production-docker-agents",
		TargetGroup: "prod-docker-hosts", MinAgents: 2,
		DesiredAgents: 3, MaxAgents: 5, ReplicationMode: api.ActiveActive, Shards: api.DefaultShards,
		Selection: api.SelectLeastLoaded, TransferTimeout: seconds(300),
		RoleLease: seconds(30), ElectionInterval: seconds(15)}.WithDefaults()}, c.ClusterConfigs())
	require.Equal(t, seconds(10), c.Hub.HealthCheckInterval)
}

func truth(b bool) *bool { return &b }

func TestAgentClusterDefaultsAndPrecedence(t *testing.T) {
	t.Parallel()
	c, err := Parse("c", []byte(`
hub: {heartbeat_interval: 2s, failure_threshold: "00:00:40"}
clusters: [{name: a, replication_mode: sharded, shards: 8}, {name: b, failover: {task_transfer_timeout: 1m}}]
agent_cluster:
  name: c
  health_monitoring: {heartbeat_interval: 30s, warning_threshold: 20s, failure_threshold: 90s}
  self_healing: {enabled: false}
`))
	require.NoError(t, err)
	require.Equal(t, cluster.Timing{HeartbeatInterval: 2 * time.Second, CrowdInterval: 5 * time.Second,
		WarningThreshold: 20 * time.Second,
		FailureThreshold: 40 * time.Second, DisconnectGrace: time.Second}, c.Timing())
	require.False(t, *c.AgentCluster.SelfHealing.Enabled)
	require.True(t, *c.AgentCluster.LeaderElection.Enabled)
	require.Equal(t, api.Duration(7*24*time.Hour), c.AgentCluster.TaskQueue.DeadLetterRetention)
	require.Equal(t, []api.ClusterConfig{
		api.ClusterConfig{Name: "a", ReplicationMode: api.Sharded, Shards: 8}.WithDefaults(),
		api.ClusterConfig{Name: "b", TransferTimeout: api.Duration(time.Minute)}.WithDefaults(),
		api.ClusterConfig{Name: "c", SelfHealing: api.HealingPolicy{Mode: api.HealingOff}}.WithDefaults(),
	}, c.ClusterConfigs())
}

func TestTenantWeights(t *testing.T) {
	t.Parallel()
	c, err := Parse("c", []byte("clusters: [{name: a, tenant_weights: {acme: 5, small: 0.5}}]"))
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"acme": 5, "small": .5}, c.ClusterConfigs()[0].TenantWeights)
	for text, want := range map[string]string{
		"{acme: 500}":        "clusters[0]: tenant_weights must lie between 0.1 and 100",
		"{acme: much}":       "clusters[0].tenant_weights.acme: must be a number",
		"[acme]":             "clusters[0].tenant_weights: must be a section",
		"{acme: 1, acme: 2}": "clusters[0].tenant_weights.acme: is already set",
		"{Acme Corp: 1}":     "tenant",
	} {
		_, err := Parse("c", []byte("clusters: [{name: a, tenant_weights: "+text+"}]"))
		require.ErrorContains(t, err, want, text)
	}
}

func TestNumbersStandForText(t *testing.T) {
	t.Parallel()
	c, err := Parse("c", []byte("temporal: {namespace: 5}\nclusters: [{name: 1, scaling: {spawn: "+
		"{resources: {cpu: 2}, environment: {PORT: 8080, VERSION: 1.10, ON: true}}}}]"))
	require.NoError(t, err)
	require.Equal(t, "5", c.Temporal.Namespace)
	require.Equal(t, "1", c.Clusters[0].Name)
	require.Equal(t, "2", c.Clusters[0].Scaling.Spawn.Resources.CPU)
	require.Equal(t, map[string]string{"PORT": "8080", "VERSION": "1.10", "ON": "true"},
		c.Clusters[0].Scaling.Spawn.Environment)
}

func TestDeadLetterRetention(t *testing.T) {
	t.Parallel()
	c, err := Parse("c", []byte(`
clusters: [{name: a, task_queue: {dead_letter_retention: "30.00:00:00"}}, {name: b}]
agent_cluster: {name: c, task_queue: {dead_letter_retention: 36h}}
`))
	require.NoError(t, err)
	var kept []time.Duration
	for _, cluster := range c.ClusterConfigs() {
		kept = append(kept, cluster.DeadLetterRetention.Std())
	}
	require.Equal(t, []time.Duration{30 * 24 * time.Hour, api.DefaultDeadLetterRetention, 36 * time.Hour}, kept)
	for text, where := range map[string]string{
		"clusters: [{name: a, task_queue: {dead_letter_retention: " +
			"1ms}}]": "clusters[0].task_queue.dead_letter_retention",
		"agent_cluster: {name: c, task_queue: {dead_letter_retention: " +
			"9000h}}": "agent_cluster.task_queue.dead_letter_retention",
	} {
		_, err := Parse("c", []byte(text))
		require.ErrorContains(t, err, where)
		require.NotContains(t, err.Error(), "\n", "one mistake is one line")
	}
}

func TestValidateOfCode(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Hub.LanePollers = 2000
	c.Clusters = []Cluster{{Name: "a", Failover: Failover{TaskTransferTimeout: 1}}}
	c.Spawner.Slots = -1
	require.EqualError(t, c.Validate(), "hub.lane_pollers: must be between 1 and 1000\n"+
		"spawner.slots: must be between 1 and 10000\n"+
		"clusters[0].failover.task_transfer_timeout: must be between 1s and 1h")
}

func TestLoadWithoutFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, path)
}

func TestScaling(t *testing.T) {
	t.Parallel()
	c, err := Parse("f.yaml", []byte(`
clusters:
  - name: builders
    membership: {minimum_agents: 1, max_agents: 10}
    scaling:
      mode: auto
      scale_up: {queue_threshold: 0, cooldown: 00:00:30, increment: 2}
      scale_down: {idle_timeout: 2m}
      spawn:
        spawner: rack-1
        slots: 4
        capabilities: [gpu]
        resources: {cpu: 500m, memory: 1Gi}
        environment: {COLOUR: blue}
        backoff: {strategy: constant, delay: 5s}
spawner: {name: rack-1, hub_urls: ["http://10.0.0.5:8080"], command: [./agent]}
`))
	require.NoError(t, err)
	scaling := c.ClusterConfigs()[0].Scaling
	require.Equal(t, api.ScalingAuto, scaling.Mode)
	require.Zero(t, *scaling.ScaleUp.QueueThreshold, "0 is a threshold, not the default")
	require.Equal(t, 1, *scaling.ScaleDown.QueueThreshold)
	require.Equal(t, api.Duration(30*time.Second), scaling.ScaleUp.Cooldown)
	require.Equal(t, api.Duration(5*time.Minute), scaling.ScaleDown.Cooldown, "left out")
	require.Equal(t, api.SpawnPolicy{Spawner: "rack-1", Slots: 4, Capabilities: []string{"gpu"},
		Resources:    api.Resources{CPU: "500m", Memory: "1Gi"},
		Environment:  map[string]string{"COLOUR": "blue"},
		JoinTimeout:  api.Duration(time.Minute),
		DrainTimeout: api.Duration(5 * time.Minute),
		Backoff: api.SpawnBackoff{Strategy: api.BackoffConstant, Delay: api.Duration(5 * time.Second),
			MaxDelay: api.Duration(5 * time.Minute)}}, scaling.Spawn)
	require.Equal(t, []string{"./agent"}, c.Spawner.Command)
	require.Equal(t, api.Duration(40*time.Second), c.Spawner.StopGrace)
}

func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	c, err := Parse("f.yaml",
		[]byte("security: {trusted_proxies: [10.0.0.7/24, 192.0.2.1, '::ffff:198.51.100.0/120', 'fd00::/8']}"))
	require.NoError(t, err)
	blocks, err := c.Security.Proxies()
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("192.0.2.1/32"),
		netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd00::/8")}, blocks)
	for _, wrong := range []string{"proxy.example", "10.0.0.0/33", "10.0.0.1:80", "0.0.0.0/0", "::/0",
		"::ffff:0.0.0.0/96", "fe80::1%eth0", ""} {
		_, err := Parse("f.yaml", []byte("security: {trusted_proxies: [10.0.0.1, '"+wrong+"']}"))
		require.ErrorContains(t, err, "security.trusted_proxies[1]", wrong)
	}
}
