package cluster

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

// slotted is a cluster whose members have so many slots.
func slotted(slots int, agents ...string) *Cluster {
	c := clusterOf(api.ActiveActive, agents...)
	for i := range c.Members {
		c.Members[i].MaxTasks = slots
	}
	return c
}

func TestReduceLoad(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		slots   int
		reduce  Reduce
		want    int
		refused string
	}{
		{"half", 8, Reduce{}, 4, ""},
		{"half of an odd number", 5, Reduce{}, 2, ""},
		{"at least one", 2, Reduce{Factor: 0.1}, 1, ""},
		{"a share", 8, Reduce{Factor: 0.75}, 6, ""},
		{"a number", 8, Reduce{Slots: 3}, 3, ""},
		{"one slot", 1, Reduce{}, 0, "drain it instead"},
		{"as many as it has", 4, Reduce{Slots: 4}, 0, "name fewer"},
		{"more than it has", 4, Reduce{Slots: 9}, 0, "name fewer"},
		{"both", 8, Reduce{Slots: 3, Factor: 0.5}, 0, "not both"},
		{"no share", 8, Reduce{Factor: math.NaN()}, 0, "between 0 and 1"},
		{"all of it", 8, Reduce{Factor: 1}, 0, "between 0 and 1"},
		{"negative slots", 8, Reduce{Slots: -1}, 0, "1 or more"},
		{"negative time", 8, Reduce{For: -time.Second}, 0, "between 1s"},
		{"for too long", 8, Reduce{For: MaxReduceFor + 1}, 0, "between 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := slotted(tt.slots, "a", "b")
			changed, err := c.ReduceLoad("a", tt.reduce, noon)
			if tt.refused != "" {
				require.ErrorContains(t, err, tt.refused)
				require.Empty(t, c.Reductions)
				return
			}
			require.NoError(t, err)
			require.True(t, changed)
			require.Equal(t, tt.want, c.EffectiveSlots(c.Member("a")))
			require.Equal(t, tt.slots, c.EffectiveSlots(c.Member("b")))
			changed, err = c.ReduceLoad("a", tt.reduce, noon.Add(time.Minute))
			require.NoError(t, err)
			require.False(t, changed, "to ask twice is to ask once")
			require.Equal(t, noon, c.Reductions.Of("a").Since)
			require.Equal(t, noon.Add(time.Minute).Add(DefaultReduceFor), c.Reductions.Of("a").Until,
				"but begins the time anew")
			require.True(t, c.Reductions.Restore("a"))
			require.False(t, c.Reductions.Restore("a"))
			require.Nil(t, c.Reductions.Limits())
		})
	}
	_, err := slotted(4, "a").ReduceLoad("nobody", Reduce{}, noon)
	require.ErrorContains(t, err, "not a member")
}

func TestLoadIsRestoredStepByStep(t *testing.T) {
	t.Parallel()
	c := slotted(8, "a")
	_, err := c.ReduceLoad("a", Reduce{For: time.Minute}, noon)
	require.NoError(t, err)
	require.Equal(t, noon.Add(time.Minute), c.Reductions.NextStep())
	require.False(t, c.StepReductions(nil, noon.Add(59*time.Second)))
	require.Empty(t, c.Reductions.HealthAwaited(noon.Add(time.Minute)), "the time alone decides")
	now := noon.Add(time.Minute)
	require.True(t, c.StepReductions(nil, now))
	require.Equal(t, 6, c.EffectiveSlots(c.Member("a")))
	require.Equal(t, now.Add(RestoreStep), c.Reductions.NextStep())
	require.True(t, c.StepReductions(nil, now.Add(RestoreStep)))
	require.Equal(t, 8, c.EffectiveSlots(c.Member("a")))
	require.Empty(t, c.Reductions)
	require.Zero(t, c.Reductions.NextStep())
}

func TestLoadIsRestoredWithHealth(t *testing.T) {
	t.Parallel()
	c := slotted(4, "a")
	_, err := c.ReduceLoad("a", Reduce{For: time.Hour, UntilHealthy: true}, noon)
	require.NoError(t, err)
	now := noon.Add(RestoreStep)
	require.Empty(t, c.Reductions.HealthAwaited(now.Add(-1)))
	require.Equal(t, []string{"a"}, c.Reductions.HealthAwaited(now))
	require.False(t, c.StepReductions(map[string]bool{"a": false}, now), "not yet")
	require.Equal(t, 2, c.EffectiveSlots(c.Member("a")))
	now = now.Add(RestoreStep)
	require.True(t, c.StepReductions(map[string]bool{"a": true}, now))
	require.Equal(t, 3, c.EffectiveSlots(c.Member("a")))
	_, err = c.ReduceLoad("a", Reduce{UntilHealthy: true}, now)
	require.NoError(t, err)
	require.Equal(t, 2, c.EffectiveSlots(c.Member("a")), "it did badly again")
	require.False(t, c.StepReductions(nil, now.Add(DefaultReduceFor-time.Second)))
	require.True(t, c.StepReductions(nil, now.Add(DefaultReduceFor)), "the time is over though it never did well")
}

// A reduction belongs to the agent's id: it stays when the agent restarts or leaves, and ends when it does not come
// back.
func TestReductionOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	c := slotted(4, "a")
	_, err := c.ReduceLoad("a", Reduce{For: time.Minute}, noon)
	require.NoError(t, err)
	m := *c.Member("a")
	require.True(t, c.Apply(Transition{AgentID: "a", Instance: m.Instance, Epoch: m.Epoch, Left: true, At: noon},
		m.Hub))
	require.False(t, c.StepReductions(nil, noon.Add(30*time.Second)))
	c.Join(Join{AgentID: "a", Instance: "2", AgentProfile: api.AgentProfile{MaxTasks: 3}}, "h2", noon)
	require.Equal(t, 2, c.EffectiveSlots(c.Member("a")))
	c.Join(Join{AgentID: "a", Instance: "3", AgentProfile: api.AgentProfile{MaxTasks: 1}}, "h2", noon)
	require.Equal(t, 1, c.EffectiveSlots(c.Member("a")))
	require.False(t, c.StepReductions(nil, noon.Add(time.Minute)))
	require.Empty(t, c.Reductions, "it has fewer slots than it may use")
}

// An agent that had left when its step was due, and is back, is looked at again after the usual time, not at the very
// end.
func TestReductionGoesOnWhenTheAgentIsBack(t *testing.T) {
	t.Parallel()
	c := slotted(4, "a", "b")
	_, err := c.ReduceLoad("a", Reduce{UntilHealthy: true}, noon)
	require.NoError(t, err)
	m := *c.Member("a")
	require.True(t, c.Apply(Transition{AgentID: "a", Instance: m.Instance, Epoch: m.Epoch, Left: true, At: noon},
		m.Hub))
	due := noon.Add(RestoreStep)
	c.StepReductions(nil, due)
	require.Equal(t, c.Reductions.Of("a").Until, c.Reductions.NextStep(), "nobody to look at")
	back := due.Add(time.Minute)
	c.Join(Join{AgentID: "a", Instance: "again", AgentProfile: api.AgentProfile{MaxTasks: 4}}, "h1", back)
	require.Equal(t, back.Add(RestoreStep), c.Reductions.NextStep())
	require.True(t, c.StepReductions(map[string]bool{"a": true}, back.Add(RestoreStep)))
}

func TestReductionsComeToAnEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(2, 64).Draw(t, "slots")
		c := slotted(slots, "a")
		_, err := c.ReduceLoad("a", Reduce{Slots: rapid.IntRange(1, slots-1).Draw(t, "to"),
			UntilHealthy: rapid.Bool().Draw(t, "healthy")}, noon)
		require.NoError(t, err)
		before, now := c.EffectiveSlots(c.Member("a")), noon
		for step := 0; len(c.Reductions) > 0; step++ {
			require.Less(t, step, 200)
			now = c.Reductions.NextStep()
			c.StepReductions(nil, now)
			after := c.EffectiveSlots(c.Member("a"))
			require.GreaterOrEqual(t, after, before)
			require.LessOrEqual(t, after, slots)
			before = after
		}
		require.Equal(t, slots, before)
		require.LessOrEqual(t, now.Sub(noon), DefaultReduceFor+time.Duration(slots)*RestoreStep)
	})
}
