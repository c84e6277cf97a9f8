package cluster

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestChangedSettings(t *testing.T) {
	t.Parallel()
	before := func() api.ClusterConfig {
		return api.ClusterConfig{
			Name: "c", MinAgents: 2, DesiredAgents: 4, TenantWeights: map[string]float64{"acme": 5, "old": 2},
			Scaling: api.ScalingPolicy{Mode: api.ScalingAuto, Spawn: api.SpawnPolicy{
				Slots:        3,
				Capabilities: []string{"gpu", "fast"},
				Resources:    api.Resources{CPU: "2", Memory: "4Gi"},
				Environment:  map[string]string{"A": "b"},
			}},
		}.WithDefaults()
	}
	for changes, change := range map[string]func(c *api.ClusterConfig){
		`{}`: func(*api.ClusterConfig) {},
		`{"tenant_weights": null, "min_agents": null, "scaling": {"scale_up": {"queue_threshold": null}}}`: func(
			*api.ClusterConfig) {
		},
		`{"min_agents": 0, "brake": {"min_lost": 5}}`: func(
			c *api.ClusterConfig) {
			c.MinAgents, c.Brake.MinLost = 0, 5
		},
		`{"scaling": {"mode": "off"}}`:                      func(c *api.ClusterConfig) { c.Scaling.Mode, c.DesiredAgents = api.ScalingOff, 0 },
		`{"scaling": {"mode": "off"}, "desired_agents": 4}`: func(c *api.ClusterConfig) { c.Scaling.Mode = api.ScalingOff },
		`{"scaling": {"mode": "manual"}}`:                   func(c *api.ClusterConfig) { c.Scaling.Mode = api.ScalingManual },
		`{"tenant_weights": {"acme": 7.5, "new": 1, "old": 0}}`: func(
			c *api.ClusterConfig) {
			c.TenantWeights = map[string]float64{"acme": 7.5, "new": 1}
		},
		`{"scaling": {"scale_up": {"queue_threshold": 0}, "spawn": {"slots": 4}}}`: func(c *api.ClusterConfig) {
			c.Scaling.ScaleUp.QueueThreshold, c.Scaling.Spawn.Slots = new(0), 4
		},
		`{"scaling": {"spawn": {"capabilities": ["x"], "resources": {"cpu": "1"}, "environment": {"C": "d"}}}}`: func(
			c *api.ClusterConfig) {
			s := &c.Scaling.Spawn
			s.Capabilities, s.Resources, s.Environment = []string{"x"}, api.Resources{CPU: "1"}, map[string]string{"C": "d"}
		},
	} {
		config, want := before(), before()
		change(&want)
		var given map[string]any
		require.NoError(t, json.Unmarshal([]byte(changes), &given))
		changed, err := config.Changed(given)
		require.NoError(t, err, changes)
		require.Equal(t, want, changed, changes)
		require.Equal(t, before(), config, "the present settings are not modified")
	}
}
