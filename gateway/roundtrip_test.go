package gateway_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// everySetting holds, for each resource that has GET and PUT, where it is created and one with every setting that it
// can have.
var everySetting = map[string]struct{ collection, name, body string }{
	"/api/v1/agents/clusters/{id}": {clustersPath, "full", `{
		"name": "full", "target_group": "g", "min_agents": 1, "desired_agents": 2, "max_agents": 3,
			"replication_mode": "sharded",
		"shards": 4, "selection_strategy": "affinity", "role_lease": "3s", "manual_election": true, "election_interval": "1s",
		"task_defaults": {"max_attempts": 4, "max_transfers": 5, "expires_in": "2h0m0s", "retry_safety": "unmarked",
			"stop_grace": "20s", "disconnect_grace": "50s"}, "task_transfer_timeout": "4m0s",
		"dead_letter_retention": "5h0m0s", "brake": {"share": 0.25, "min_lost": 7, "window": "30s"},
		"self_healing": {"mode": "dry_run", "cycle_interval": "2m0s", "drain_timeout": "6m0s", "patience": "31s",
			"damping": "11m0s",
			"restore_after": "6m0s", "replace_after": "17m0s", "recover_by": "restart", "stuck_after": "16m0s",
			"max_actions": 4},
		"tenant_weights": {"acme": 5}, "tenants": ["acme"],
		"scaling": {"mode": "auto", "queue_measure": "per_agent",
			"scale_up": {"queue_threshold": 6, "cpu_threshold": 70, "cooldown": "2m0s", "increment": 2},
			"scale_down": {"queue_threshold": 2, "idle_timeout": "6m0s", "cooldown": "6m0s", "decrement": 2},
			"rollout": {"max_unavailable": 2, "healthy_time": "11s", "deadline": "1h0m0s", "canary": 2, "auto_promote": true,
				"auto_revert": true},
			"spawn": {"spawner": "s", "platform": "docker", "fallback_platforms": ["kubernetes", "ec2"], "image": "agent:1",
				"docker": {"pull": "never", "pids_limit": 50, "writable_root": true},
				"ec2": {"instance_type": "c7g.large", "spot": true},
				"kubernetes": {"pull": "never", "priority_class": "high", "writable_root": true}, "slots": 2,
					"capabilities": ["gpu"], "environment": {"A": "b"},
				"resources": {"cpu": "2", "memory": "4Gi", "storage": "10Gi"}, "join_timeout": "2m0s", "drain_timeout": "6m0s",
				"backoff": {"strategy": "constant", "delay": "11s", "max_delay": "6m0s"}}}}`},
	"/api/v1/agents/schedules/{name}": {schedulesPath, "acme:full", `{
		"name": "full", "interval": "6h0m0s", "offset": "1h0m0s", "overlap": "buffer_one", "catchup_window": "10m0s",
			"jitter": "30s",
		"cron": "", "time_zone": "", "start_at": "2027-01-01T00:00:00Z", "end_at": "2099-01-01T00:00:00Z", "paused": true,
			"note": "backup",
		"task": {"type": "exec", "cluster": "default", "payload": {"command": ["true"]}, "priority": 2, "agent": "a-1",
			"shard_key": "k", "required_capabilities": ["gpu"], "preferred_capabilities": ["fast"], "affinity": "a-2",
			"retry": {"max_attempts": 5, "max_transfers": 4, "initial_interval": "3s", "max_interval": "4m0s",
				"non_retryable": ["exit_2"]},
			"retry_safety": "fenced", "timeout": "30s", "stop_grace": "20s", "expires_in": "2h0m0s", "beacon_timeout": "45s",
				"provider": "openai",
			"routes": [{"provider": "openai", "model": "small", "window": 9000}],
			"place": {"resources": {"cpu": "2", "memory": "4Gi", "disk": "1Gi"}, "devices": [{"kind": "gpu", "memory": "8Gi"}],
				"volumes": [{"name": "models"}], "ports": {"http": {}}},
			"tenant": "acme", "labels": {"a": "b"}}}`},
}

// notStored are the parts of a task that a schedule refuses.
var notStored = []string{".task.id", ".task.idempotency_key", ".task.start_at"}

// instead are settings that others of the sample exclude: of a fenced task with a retry policy, a timeout and an
// expiry.
var instead = []string{".task.recovery", ".task.keep_running", ".task.expires_at", ".task.disconnect_grace"}

type objectSchema struct {
	Ref        string `json:"$ref"`
	Properties map[string]objectSchema
}

type operationSchema struct {
	RequestBody struct {
		Content map[string]struct{ Schema objectSchema }
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var read map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &read), text)
	return read
}

// TestGetThenPutChangesNothing puts back what GET answers, as far as PUT takes it, for every resource that has both.
// The settings of the samples are all that the API document names, so a new setting is tested too, or fails the test.
func TestGetThenPutChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	var document struct {
		Paths      map[string]map[string]operationSchema
		Components struct{ Schemas map[string]objectSchema }
	}
	require.NoError(t, json.Unmarshal(do(h, http.MethodGet, "/openapi.json", "").Body.Bytes(), &document))
	resolve := func(s objectSchema) objectSchema {
		if s.Ref != "" {
			s = document.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		}
		return s
	}
	var complete func(at string, s objectSchema, sample map[string]any)
	complete = func(at string, s objectSchema, sample map[string]any) {
		for name, property := range resolve(s).Properties {
			here := at + "." + name
			if slices.Contains(notStored, here) || slices.Contains(instead, here) {
				continue
			}
			require.Contains(t, sample, name, "the sample lacks %s", here)
			if inner, ok := sample[name].(map[string]any); ok {
				complete(here, property, inner)
			}
		}
	}
	found := 0
	for path, methods := range document.Paths {
		if _, json := methods["put"].RequestBody.Content["application/json"]; !json {
			continue // none, or a document that people write
		}
		found++
		sample, known := everySetting[path]
		require.True(t, known, "%s has PUT: give it a sample with every setting", path)
		body, one := resolve(
			methods["put"].RequestBody.Content["application/json"].Schema), sample.collection+"/"+sample.name
		complete("", body, object(t, sample.body))
		created := do(h, http.MethodPost, sample.collection, sample.body)
		require.Equal(t, http.StatusCreated, created.Code, created.Body)
		if e := f.executions[contract.ClusterWorkflowID(sample.name)]; e != nil {
			state := &cluster.Cluster{Config: e.input.(contract.ClusterInput).Config}
			f.withClusterState(state).update = func(_ string, arg any) (any, error) {
				state.Config = arg.(contract.ConfigureRequest).ClusterConfig
				return contract.Done{}, nil
			}
		}
		before := object(t, do(h, http.MethodGet, one, "").Body.String())
		settings := map[string]any{}
		for name := range body.Properties {
			if value, shown := before[name]; shown {
				settings[name] = value
			}
		}
		for name, value := range object(t, sample.body) {
			if name != "name" && value != "" {
				require.Equal(t, value, settings[name], "%s of %s as GET answers it", name, path)
			}
		}
		text, err := json.Marshal(settings)
		require.NoError(t, err)
		put := do(h, http.MethodPut, one, string(text))
		require.Equal(t, http.StatusOK, put.Code, put.Body)
		require.Equal(t, before, object(t, do(h, http.MethodGet, one, "").Body.String()), path)
	}
	require.Len(t, everySetting, found)
}
