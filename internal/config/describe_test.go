package config

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// of is the environment that these variables are, and what Temporal makes of it.
func of(variables map[string]string) (func(Temporal) (Temporal, error), func(string) (string, bool)) {
	lookup := func(name string) (string, bool) { value, found := variables[name]; return value, found }
	return func(t Temporal) (Temporal, error) {
		t.Namespace = cmp.Or(variables["TEMPORAL_NAMESPACE"], t.Namespace)
		return t, nil
	}, lookup
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`hub:
  park: 3s
  failure_threshold: 2m
temporal: {address: "t:1"}
clusters: [{name: a, tenant_weights: {x: 2}}]
agent_cluster:
  name: b
  health_monitoring:
    warning_threshold: 70s
`), 0o600))
	temporal, lookup := of(map[string]string{"TEMPORAL_NAMESPACE": "prod"})
	settings, err := Describe(path, temporal, lookup,
		map[string]Override{"http.listen": {"http", ":9"}})
	require.NoError(t, err)
	byKey := map[string]Setting{}
	for _, s := range settings {
		require.NotContains(t, byKey, s.Key)
		byKey[s.Key] = s
	}
	for key, want := range map[string]Setting{
		"hub.park": {Value: api.Duration(3 * time.Second), Source: FromFile, From: path +
			":2"},
		"hub.accept_timeout": {Value: api.Duration(5 * time.Second), Source: FromDefault},
		"hub.failure_threshold": {Value: api.Duration(2 * time.Minute), Source: FromFile, From: path +
			":3"},
		"hub.warning_threshold": {Value: api.Duration(70 * time.Second), Source: FromFile, From: path +
			":9"},
		"hub.heartbeat_interval":              {Value: api.Duration(2 * time.Second), Source: FromDefault},
		"temporal.address":                    {Value: "t:1", Source: FromFile, From: path + ":4"},
		"temporal.namespace":                  {Value: "prod", Source: FromEnv, From: "TEMPORAL_NAMESPACE"},
		"http.listen":                         {Value: ":9", Source: FromFlag, From: "--http"},
		"clusters[0].name":                    {Value: "a", Source: FromFile, From: path + ":5"},
		"clusters[0].leader_election.enabled": {Value: true, Source: FromDefault},
		"agent_cluster.name":                  {Value: "b", Source: FromFile, From: path + ":7"},
	} {
		want.Key = key
		require.Equal(t, want, byKey[key], key)
	}
	require.Equal(t, "3s", byKey["hub.park"].Text())
	require.Equal(t, `""`, byKey["hub.id"].Text())
	require.Equal(t, "map[x:2]", byKey["clusters[0].tenant_weights"].Text())

	temporal, lookup = of(nil)
	settings, err = Describe("", temporal, lookup, nil)
	require.NoError(t, err)
	for _, s := range settings {
		require.Equal(t, FromDefault, s.Source, s.Key)
	}
	_, err = Describe(filepath.Join(t.TempDir(), "none"), temporal, lookup, nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = Describe(path, temporal, lookup, map[string]Override{"http.listen": {"http", "8080"}})
	require.EqualError(t, err, "--http: must be host:port with a port from 0 to 65535, like 127.0.0.1:8080")
	_, err = Describe(path, temporal, lookup, map[string]Override{"hub.id": {"hub-id", "Hub 1"},
		"http.listen": {"http", ":0"}})
	require.ErrorContains(t, err, "--hub-id: must be 1 to 63 characters")
}
