package gateway

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

// TestScalingSettingsAreThePolicy: what the API shows can be put back, and has the form of the configuration.
func TestScalingSettingsAreThePolicy(t *testing.T) {
	t.Parallel()
	full := fleet.ScalingPolicy{Mode: fleet.ScalingAuto, ScaleUp: fleet.ScaleUpRule{QueueThreshold: new(0), CPUThreshold: 55},
		Spawn: fleet.SpawnPolicy{Spawner: "here", Slots: 3, Capabilities: []string{"gpu"}, Resources: fleet.Resources{CPU: "2"}, Environment: map[string]string{"A": "b"}}}
	for _, p := range []fleet.ScalingPolicy{{}, full} {
		p = p.WithDefaults()
		var again fleet.ScalingPolicy
		scalingSettings(p).apply(&again)
		require.Equal(t, p, again)
		shown, err := json.Marshal(scalingSettings(p))
		require.NoError(t, err)
		own, err := json.Marshal(p)
		require.NoError(t, err)
		require.JSONEq(t, string(own), string(shown))
	}
}

func TestAPatchOfScalingLeavesTheRest(t *testing.T) {
	t.Parallel()
	before := fleet.ScalingPolicy{Mode: fleet.ScalingAuto, Spawn: fleet.SpawnPolicy{Slots: 3, Capabilities: []string{"gpu"}}}.WithDefaults()
	var patch ClusterPatch
	require.NoError(t, json.Unmarshal([]byte(`{"scaling": {"scale_up": {"queue_threshold": 0}, "spawn": {"slots": 4}}}`), &patch))
	after := patch.apply(fleet.ClusterConfig{Name: "c", Scaling: before}).Scaling
	want := before
	want.ScaleUp.QueueThreshold, want.Spawn.Slots = new(0), 4
	require.Equal(t, want, after)
	require.Equal(t, 5, *before.ScaleUp.QueueThreshold, "the old policy is not changed with it")
}
