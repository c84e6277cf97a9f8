package config

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// keysOf are the keys of a top-level section.
func keysOf(t *testing.T, section string) (keys []string) {
	t.Helper()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == section {
			for _, inner := range reflect.VisibleFields(field.Type) {
				key, _, _ := strings.Cut(inner.Tag.Get("json"), ",")
				keys = append(keys, key)
			}
		}
	}
	require.NotEmpty(t, keys)
	return keys
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"unknown section": {"htp: {}", "f.yaml:1:1: htp: is no known key; did you mean http?"},
		"unknown key":     {"http:\n  port: 1", "f.yaml:2:3: http.port: is no known key; known here are listen"},
		"unknown in list": {"clusters:\n- name: a\n  failover:\n    x: 1",
			"f.yaml:4:5: clusters[0].failover.x: is no known key; known here are selection_strategy, task_transfer_timeout, " +
				"max_transfer_retries"},
		"twice": {"dev:\n  agents: 1\n  agents: 2",
			"f.yaml:3:3: dev.agents: is already set in line 2; keep one of them"},
		"no section": {"http: 8080", "f.yaml:1:7: http: must be a section with some of the keys listen"},
		"no list":    {"clusters: {name: a}", "f.yaml:1:11: clusters: must be a list, like [{…}, {…}]"},
		"no number":  {"dev: {agents: many}", "f.yaml:1:15: dev.agents: must be a whole number between 0 and 100"},
		"no text":    {"dev: {data_dir: [a]}", "f.yaml:1:17: dev.data_dir: must be text"},
		"no truth": {"agent_cluster:\n  name: a\n  self_healing: {enabled: 3}",
			"f.yaml:3:27: agent_cluster.self_healing.enabled: must be true or false"},
		"no duration": {"hub:\n  park: 5",
			"f.yaml:2:9: hub.park: is not a duration: write it like \"30s\", \"1m30s\" or \"7d\""},
		"alias": {"http: &a {listen: \":1\"}\ndev: *a",
			"f.yaml:2:6: dev: must be written out: aliases are not allowed"},
		"merge": {"temporal: &a {namespace: n}\nhttp: {<<: *a}",
			"f.yaml:2:8: http.<<: is no known key; known here are listen"},
		"two documents": {"http: {}\n---\nhttp: {}",
			"f.yaml: must hold one document; remove what follows the second \"---\""},
		"not YAML": {"http:\n  listen: \"a", "f.yaml:2:1: is not valid YAML: found unexpected end of stream"},
		"no UTF-8": {"http: {}\n# caf\xe9", "f.yaml:2:1: is not UTF-8: write it as UTF-8"},
		"UTF-16":   {"\xff\xfeh\x00", "f.yaml: is UTF-16: save it as UTF-8"},
		"a mark":   {"\ufeffhtp: {}", "f.yaml:1:1: htp: is no known key; did you mean http?"},
		"a tab": {"http:\n\tlisten: x",
			"f.yaml:2:1: is not valid YAML: found character that cannot start any token; lines are indented with blanks, " +
				"not with tabs"},
		"address": {"http:\n  listen: 8080",
			"f.yaml:2:3: http.listen: must be host:port with a port from 0 to 65535, like 127.0.0.1:8080"},
		"port": {"dev:\n  ui: localhost:http",
			"f.yaml:2:3: dev.ui: must be host:port with a port from 0 to 65535, like 127.0.0.1:8080"},
		"no namespace": {"temporal: {namespace: ''}",
			"f.yaml:1:12: temporal.namespace: must be the name of a namespace, like default"},
		"durability": {"dev: {durability: disk}", "f.yaml:1:7: dev.durability: must be process, power or none"},
		"hub id": {"hub: {id: Hub 1}",
			"f.yaml:1:7: hub.id: must be 1 to 63 characters of a-z, 0-9, \".\", \"_\" and \"-\", and begin with a letter or " +
				"digit"},
		"negative": {"hub: {park: -1s}", "f.yaml:1:13: hub.park: must be between 50ms and 10m; leave it out for the default"},
		"warning too short": {"hub:\n  heartbeat_interval: 10s\n  warning_threshold: 8s",
			"f.yaml:3:3: hub.warning_threshold: must be longer than heartbeat_interval (10s)"},
		"failure too short": {"agent_cluster:\n  name: a\n  health_monitoring:\n    failure_threshold: 3s",
			"f.yaml:4:5: agent_cluster.health_monitoring.failure_threshold: must be longer than warning_threshold (4s)"},
		"grace too long": {"hub: {disconnect_grace: 8s}",
			"f.yaml:1:7: hub.disconnect_grace: must not be longer than failure_threshold (7s)"},
		"overridden health": {"hub: {heartbeat_interval: 1s}\nagent_cluster:\n  name: a\n  health_monitoring: " +
			"{heartbeat_interval: -1s}", "f.yaml:4:43: agent_cluster.health_monitoring.heartbeat_interval: must be between " +
			"50ms and 10m; leave it out for the default"},
		"no name": {"clusters:\n- {}\n",
			"f.yaml:2:3: clusters[0].name: must be 1 to 63 characters of a-z, 0-9, \".\", \"_\" and \"-\", and begin with a " +
				"letter or digit"},
		"same name": {"clusters: [{name: a}]\nagent_cluster:\n  name: a",
			"f.yaml:3:3: agent_cluster.name: must differ from the other clusters' names; clusters[0].name is the same"},
		"mode": {"clusters: [{name: a, replication_mode: ActiveActive}]",
			"f.yaml:1:22: clusters[0].replication_mode: must be active_active, active_passive or sharded"},
		"strategy": {"clusters: [{name: a, failover: {selection_strategy: best}}]",
			"f.yaml:1:33: clusters[0].failover.selection_strategy: must be standby, least_loaded, round_robin or affinity"},
		"shards": {"clusters: [{name: a, shards: 2000}]",
			"f.yaml:1:30: clusters[0].shards: must be between 1 and 1024"},
		"minimum": {"clusters:\n- name: a\n  membership:\n    minimum_agents: 6\n    max_agents: 5",
			"f.yaml:4:5: clusters[0].membership.minimum_agents: must lie between 0 and max_agents (5)"},
		"desired": {"clusters:\n- name: a\n  membership:\n    minimum_agents: 2\n    desired_agents: 1",
			"f.yaml:5:5: clusters[0].membership.desired_agents: must lie between minimum_agents (2) and max_agents (1000), " +
				"or be 0"},
		"scaling mode": {"clusters:\n- name: a\n  scaling: {mode: on}",
			"f.yaml:3:13: clusters[0].scaling.mode: must be off, manual or auto"},
		"scaling cpu": {"clusters:\n- name: a\n  scaling:\n    scale_up:\n      cpu_threshold: 101",
			"f.yaml:5:22: clusters[0].scaling.scale_up.cpu_threshold: must be above 0 and at most 100"},
		"spawn resources": {"clusters:\n- name: a\n  scaling: {spawn: {resources: {cpu: many}}}",
			"f.yaml:3:33: clusters[0].scaling.spawn.resources.cpu: must be a number of cores, like \"2\", \"0.5\" or \"500m\""},
		"spawn spawner": {"clusters:\n- name: a\n  scaling: {spawn: {spawner: A B}}",
			"f.yaml:3:21: clusters[0].scaling.spawn.spawner: must be 1 to 63 characters of a-z, 0-9, \".\", \"_\" and " +
				"\"-\", and begin with a letter or digit"},
		"spawn image": {"clusters:\n- name: a\n  scaling: {spawn: {image: a}}",
			"f.yaml:3:21: clusters[0].scaling.spawn.image: has no effect on processes: set scaling.spawn.platform to docker " +
				"or kubernetes too"},
		"spawn storage": {"clusters:\n- name: a\n  scaling: {spawn: {platform: coolify, resources: {storage: 10Gi}}}",
			"f.yaml:3:52: clusters[0].scaling.spawn.resources.storage: has no effect on coolify: leave it out, or set " +
				"scaling.spawn.platform to docker or kubernetes"},
		"spawn platform": {"clusters:\n- name: a\n  scaling: {spawn: {platform: A B}}",
			"f.yaml:3:21: clusters[0].scaling.spawn.platform: must name platforms such as process or docker"},
		"spawn platform twice": {
			"clusters:\n- name: a\n  scaling: {spawn: {platform: docker, fallback_platforms: [docker]}}",
			"f.yaml:3:39: clusters[0].scaling.spawn.fallback_platforms: must not name a platform twice"},
		"spawn docker": {"clusters:\n- name: a\n  scaling: {spawn: {docker: {pids_limit: 5}}}",
			"f.yaml:3:21: clusters[0].scaling.spawn.docker: has no effect without docker in scaling.spawn.platform"},
		"spawn pull": {"clusters:\n- name: a\n  scaling: {spawn: {platform: docker, docker: {pull: often}}}",
			"f.yaml:3:48: clusters[0].scaling.spawn.docker.pull: must be missing, always or never"},
		"spawner coolify": {"spawner: {platform: coolify, coolify: {url: x}}",
			"f.yaml:1:30: spawner.coolify: must have url, token_file, server and project"},
		"spawner platform": {"spawner: {platform: moon}", "f.yaml:1:11: spawner.platform: must be process, docker, " +
			"kubernetes, coolify or ec2"},
		"spawner ec2": {"spawner: {platform: ec2, ec2: {region: a, user: A B}}",
			"f.yaml:1:26: spawner.ec2: must have launch_template or instance_type\nf.yaml:1:43: spawner.ec2.user: must be 1 " +
				"to 63 characters of a-z, 0-9, \".\", \"_\" and \"-\", and begin with a letter or digit"},
		"spawn ec2": {"clusters:\n- name: a\n  scaling: {spawn: {platform: docker, ec2: {spot: true}}}",
			"f.yaml:3:39: clusters[0].scaling.spawn.ec2: has no effect without ec2 in scaling.spawn.platform"},
		"spawner docker": {"spawner: {docker: {image: a}}",
			"f.yaml:1:11: spawner.docker: has no effect: set spawner.platform to docker too"},
		"spawner tls": {"spawner: {platform: docker, docker: {tls_ca: a}}",
			"f.yaml:1:38: spawner.docker.tls_ca: must be given with tls_cert and tls_key, or none of them"},
		"spawner": {"spawner: {name: A B, slots: -1}",
			"f.yaml:1:29: spawner.slots: must be between 1 and 10000; leave it out for the default"},
		"lease": {"agent_cluster:\n  name: a\n  leader_election: {election_interval: 30s}",
			"f.yaml:3:3: agent_cluster.leader_election.lease_duration: must be at least twice election_interval (30s)"},
		"all at once": {"dev: {slots: 0}\nhub: {lane_pollers: 0}",
			"f.yaml:1:14: dev.slots: must be between 1 and 1000; leave it out for the default\nf.yaml:2:21: " +
				"hub.lane_pollers: must be between 1 and 1000; leave it out for the default"},
		"form and values": {"htp: {}\nhub:\n  park: 5\n  lane_pollers: 0\ndev: {slots: 0}",
			"f.yaml:1:1: htp: is no known key; did you mean http?\nf.yaml:3:9: hub.park: is not a duration: write it like " +
				"\"30s\", \"1m30s\" or \"7d\"\nf.yaml:4:17: hub.lane_pollers: must be between 1 and 1000; leave it out for the " +
				"default\nf.yaml:5:14: dev.slots: must be between 1 and 1000; leave it out for the default"},
		"compares misspelt": {"hub: {warning_treshold: 2s, failure_threshold: 3s, heartbeat_interval: 1s}",
			"f.yaml:1:7: hub.warning_treshold: is no known key; did you mean warning_threshold?"},
		"required misspelt": {"clusters: [{nam: a}]\ndev: {slots: 0}",
			"f.yaml:1:13: clusters[0].nam: is no known key; did you mean name?\nf.yaml:2:14: dev.slots: must be between 1 " +
				"and 1000; leave it out for the default"},
		"compares unread": {"hub: {warning_threshold: soon, failure_threshold: 3s, heartbeat_interval: 1s}",
			"f.yaml:1:26: hub.warning_threshold: is not a duration: write it like \"30s\", \"1m30s\" or \"7d\""},
		"nothing of it": {"agent_cluster: a\ndev: {slots: 0}",
			"f.yaml:1:16: agent_cluster: must be a section with some of the keys name, target_group_id, membership, " +
				"replication_mode, shards, failover, health_monitoring, task_queue, self_healing, leader_election, brake, " +
				"tenant_weights, tenants, scaling\nf.yaml:2:14: dev.slots: must be between 1 and 1000; leave it out for the " +
				"default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse("f.yaml", []byte(tc.text))
			require.EqualError(t, err, tc.want)
			require.Nil(t, c)
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, path := range []string{sample, "testdata/agent_cluster.yaml"} {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte("agent_cluster: {name: \"0\"}"))
	f.Add([]byte("clusters: [{name: a, shards: 1}, ~]\nhub: &x {park: 1.00:00:00}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("fuzz.yaml", text)
		if err != nil {
			var located *Error
			require.True(t, errors.As(err, &located))
			for _, line := range located.Problems {
				require.True(t, strings.HasPrefix(line.String(), "fuzz.yaml"))
			}
			return
		}
		require.NoError(t, c.Validate())
		for _, cluster := range c.ClusterConfigs() {
			require.NoError(t, cluster.Validate())
		}
		timing := c.Timing()
		require.Less(t, timing.WarningThreshold, timing.FailureThreshold)
		// What is valid stays the same when it is written and read again.
		encoded, err := json.Marshal(c)
		require.NoError(t, err)
		var tree yaml.Node
		require.NoError(t, yaml.Unmarshal(encoded, &tree))
		leaveOut(&tree)
		written, err := yaml.Marshal(&tree)
		require.NoError(t, err)
		again, err := Parse("again.yaml", written)
		require.NoError(t, err)
		require.Equal(t, c.ClusterConfigs(), again.ClusterConfigs())
		require.Equal(t, c.Hub, again.Hub)
	})
}

// leaveOut takes the zeros out that stand for what was left out.
func leaveOut(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		kept := []*yaml.Node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			value := n.Content[i+1]
			named := value.Value == "0" && value.ShortTag() == "!!str" // as a cluster may be
			if named || !slices.Contains([]string{"0", "0s", "null"}, value.Value) {
				kept = append(kept, n.Content[i], n.Content[i+1])
			}
		}
		n.Content = kept
	}
	for _, inner := range n.Content {
		leaveOut(inner)
	}
}
