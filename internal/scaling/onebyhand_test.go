package scaling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// One agent is started, or a chosen one stopped, by hand: scaling keeps the number that is left, and does nothing more.
func TestOneByHand(t *testing.T) {
	t.Parallel()
	state := func(mode api.ScalingMode, least, desired int) *cluster.Cluster {
		c := &cluster.Cluster{Config: api.ClusterConfig{Name: "c", MinAgents: least, DesiredAgents: desired, MaxAgents: 3,
			Scaling: api.ScalingPolicy{Mode: mode}}.WithDefaults()}
		for _, id := range []string{"a", "own"} {
			profile := api.AgentProfile{MaxTasks: 1}
			if id == "a" {
				profile.Metadata = map[string]string{api.MetadataSpawner: "yard", api.MetadataSpawnID: "a"}
			}
			c.Join(cluster.Join{AgentID: id, Instance: id, AgentProfile: profile}, "h1", scaleNow)
		}
		return c
	}
	for name, c := range map[string]struct {
		mode           api.ScalingMode
		least, desired int
		more, fewer    int // wanted after a start, and after an end
	}{
		"off, nobody keeps a number": {api.ScalingOff, 0, 2, 2, 2},
		"manual":                     {api.ScalingManual, 0, 2, 3, 1},
		"auto":                       {api.ScalingAuto, 0, 2, 3, 1},
		"auto, no number was set":    {api.ScalingAuto, 0, 0, 3, 0},
		"never below min_agents":     {api.ScalingManual, 2, 2, 3, 2},
	} {
		up := state(c.mode, c.least, c.desired)
		require.Empty(t, MaySpawn(up), name)
		started := BeginScaling(up, SpawnOne(up, "ann", "a trial", scaleNow), scaleNow, scaleNow)
		require.Len(t, started.Agents, 1, name)
		require.Equal(t, c.more, up.Wanted(), name)
		require.Equal(t, api.ScaleNone, DecideScaling(up, nil, scaleNow).Change, name)
		require.Equal(t, "the cluster has its max_agents of 3", MaySpawn(up), name)
		require.Equal(t, "ann asked to start one: a trial", up.Scaling.Last.Reason)

		down := state(c.mode, c.least, c.desired)
		require.Empty(t, MayTerminate(down, "a"), name)
		require.Contains(t, MayTerminate(down, "own"), "no spawner started the agent", name)
		stopped := BeginScaling(down, TerminateOne(down, "a", "", "", scaleNow), scaleNow, scaleNow.Add(time.Second))
		require.Equal(t, []string{"a"}, stopped.Agents, name)
		require.Equal(t, c.fewer, down.Wanted(), name)
		require.Equal(t, "the agent is being stopped already", MayTerminate(down, "a"), name)
		next := DecideScaling(down, nil, scaleNow.Add(time.Second))
		require.Equal(t, c.least > 0, next.Change == api.ScaleUp, name)
	}
	c := state(api.ScalingOff, 0, 0)
	c.BrakeHolds = []cluster.BrakeHold{{Hub: "h1"}}
	require.Contains(t, MaySpawn(c), "brake")
	require.Contains(t, MayTerminate(c, "a"), "brake")
}
