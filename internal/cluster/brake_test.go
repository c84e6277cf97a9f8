package cluster

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

// lose reports n losses, one each gap apart, and returns the time of the last.
func lose(b *Brake, n int, gap time.Duration) time.Time {
	at := noon
	for i := range n {
		at = noon.Add(time.Duration(i) * gap)
		b.Lost(AgentLoss{AgentID: fmt.Sprintf("agent-%d", i), At: at})
	}
	return at
}

func TestBrakeEngages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		policy  api.BrakePolicy
		lost    int
		gap     time.Duration
		online  int // afterwards
		engaged bool
	}{
		{"nothing happened", api.BrakePolicy{}, 0, 0, 0, false},
		{"more than half at once", api.BrakePolicy{}, 6, 0, 4, true},
		{"exactly half", api.BrakePolicy{}, 5, 0, 5, false},
		{"all", api.BrakePolicy{}, 10, 0, 0, true},
		{"too few to tell", api.BrakePolicy{}, 2, 0, 0, false},
		{"just enough", api.BrakePolicy{}, 3, 0, 2, true},
		{"within the window", api.BrakePolicy{}, 6, 1900 * time.Millisecond, 4, true},
		{"slowly", api.BrakePolicy{}, 6, 5 * time.Second, 1, false},
		{"own share", api.BrakePolicy{Share: 0.2}, 3, 0, 11, true},
		{"own share not passed", api.BrakePolicy{Share: 0.2}, 3, 0, 12, false},
		{"own least number", api.BrakePolicy{MinLost: 2}, 2, 0, 1, true},
		{"own window", api.BrakePolicy{Window: api.Duration(time.Minute)}, 6, 5 * time.Second, 1, true},
		{"turned off", api.BrakePolicy{Share: 1}, 100, 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := Brake{Policy: tt.policy}
			now := lose(&b, tt.lost, tt.gap)
			before := fmt.Sprint(b)
			require.Equal(t, tt.engaged, b.Engaged(tt.online, now))
			require.Equal(t, before, fmt.Sprint(b), "asking changes nothing")
			require.Equal(t, tt.engaged, b.Settle(tt.online, now))
			require.Equal(t, tt.engaged, b.Engaged(tt.online, now))
		})
	}
}

func TestBrakeCountsAgentsOnce(t *testing.T) {
	t.Parallel()
	var b Brake
	for range 5 {
		b.Lost(AgentLoss{AgentID: "a", At: noon})
	}
	require.Len(t, b.Losses, 1)
	require.False(t, b.Settle(0, noon))
}

// One that counted as idle and worked since counts.
func TestBrakeLearnsOfWork(t *testing.T) {
	t.Parallel()
	var b Brake
	for want, idle := range []bool{true, false, true} {
		b.Lost(AgentLoss{AgentID: "a", Idle: idle, At: noon})
		require.Equal(t, min(want, 1), b.Count())
	}
}

func TestBrakeHoldsUntilClear(t *testing.T) {
	t.Parallel()
	engaged := func() Brake {
		var b Brake
		now := lose(&b, 6, time.Second)
		require.True(t, b.Settle(4, now))
		return b
	}
	later := noon.Add(time.Hour)

	b := engaged()
	require.True(t, b.Settle(4, later), "time alone clears nothing")
	b.Lost(AgentLoss{AgentID: "agent-7", At: later})
	require.True(t, b.Settle(3, later))
	require.Len(t, b.Losses, 7, "later losses add to it")

	b = engaged()
	b.Back("agent-0")
	require.False(t, b.Settle(5, later), "one back: five of ten are lost, no longer more than half")
	require.Empty(t, b.Losses, "the others are old by now")
	require.False(t, b.Settle(1, later), "agents that leave by themselves do not bring it back")

	b = engaged()
	require.True(t, b.Settle(5, later), "one replaced: six of eleven are lost")
	require.False(t, b.Settle(6, later), "two replaced: six of twelve")

	b = engaged()
	b.Back("agent-0")
	b.Lost(AgentLoss{AgentID: "agent-0", At: later})
	require.True(t, b.Settle(4, later), "back and lost again between two looks")
}

// A loss that did not engage the brake must not do so when the cluster shrinks afterwards.
func TestBrakeForgetsOldLosses(t *testing.T) {
	t.Parallel()
	var b Brake
	now := lose(&b, 3, 0)
	require.False(t, b.Settle(7, now))
	require.False(t, b.Settle(2, now.Add(10*time.Second)))
	require.Empty(t, b.Losses)
}

func TestBrakeRelease(t *testing.T) {
	t.Parallel()
	var b Brake
	now := lose(&b, 6, 0)
	require.True(t, b.Settle(4, now))
	require.Equal(t, []string{"agent-0", "agent-1", "agent-2", "agent-3", "agent-4", "agent-5"}, b.Release())
	require.False(t, b.Settle(4, now), "the known losses are given up")
	b.Lost(AgentLoss{AgentID: "x", At: now})
	b.Lost(AgentLoss{AgentID: "y", At: now})
	require.False(t, b.Settle(2, now), "two more are too few")
	b.Lost(AgentLoss{AgentID: "z", At: now})
	require.True(t, b.Settle(1, now), "but new ones count")
	require.Empty(t, (&Brake{}).Release())
}

// A continue-as-new carries the whole state over, and a brake without losses is empty.
func TestBrakeIsCarried(t *testing.T) {
	t.Parallel()
	b := Brake{Policy: api.BrakePolicy{Window: api.Duration(time.Minute)}}
	require.True(t, b.Settle(1, lose(&b, 3, time.Second)))
	text, err := json.Marshal(b)
	require.NoError(t, err)
	var carried Brake
	require.NoError(t, json.Unmarshal(text, &carried))
	require.Equal(t, b, carried)
	text, err = json.Marshal(Brake{})
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(text))
}

func TestBrakePolicyValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, api.BrakePolicy{}.WithDefaults().Validate())
	require.Equal(t, api.BrakePolicy{Share: 0.5, MinLost: 3, Window: api.Duration(10 * time.Second)},
		api.BrakePolicy{}.WithDefaults())
	for name, bad := range map[string]api.BrakePolicy{
		"share":    {Share: 1.1},
		"share ":   {Share: -0.1},
		"share  ":  {Share: math.NaN()},
		"min_lost": {MinLost: -1},
		"window":   {Window: api.Duration(time.Millisecond)},
		"window ":  {Window: api.Duration(time.Hour)},
	} {
		require.Error(t, bad.WithDefaults().Validate(), name)
	}
}

// Whatever happens, the brake engages only on enough losses, holds only while more than the share is lost, and a
// release always takes it off.
func TestBrakeModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b Brake
		now := noon
		lostAt := map[string]time.Time{} // of those that are lost and not given up
		online := map[string]bool{}
		agents := []string{"a", "b", "c", "d", "e", "f", "g"}
		for _, id := range agents {
			online[id] = true
		}
		was := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.SampledFrom(agents).Draw(t, "agent")
			switch rapid.SampledFrom([]string{"lost", "lost", "back", "wait", "release"}).Draw(t, "what") {
			case "lost":
				if online[id] {
					delete(online, id)
					lostAt[id] = now
					b.Lost(AgentLoss{AgentID: id, At: now})
				}
			case "back":
				online[id] = true
				delete(lostAt, id)
				b.Back(id)
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 15).Draw(t, "s")) * time.Second)
			case "release":
				b.Release()
				clear(lostAt)
				was = false
				if b.Engaged(len(online), now) {
					t.Fatal("engaged after a release")
				}
			}
			recent := 0
			for _, at := range lostAt {
				if now.Sub(at) < 10*time.Second {
					recent++
				}
			}
			lost := len(b.Losses)
			want := recent >= 3 && 2*recent > len(online)+recent
			if was {
				want = 2*lost > len(online)+lost
			}
			got := b.Settle(len(online), now)
			if got != want {
				t.Fatalf("engaged %v, was %v, with %d lost, %d of them lately, and %d online", got, was, lost, recent,
					len(online))
			}
			if lost > len(lostAt) {
				t.Fatalf("%d losses are counted, %d are lost", lost, len(lostAt))
			}
			was = got
		}
	})
}

// TestBrakeOverHubs has a cluster with the agents a, b and d at the hub h1 and e, f and g at h2.
func TestBrakeOverHubs(t *testing.T) {
	t.Parallel()
	type cluster = *Cluster
	tests := map[string]struct {
		do      func(c cluster)
		after   time.Duration // when two more agents of h2 are missed
		engaged bool
	}{
		"two at each of two hubs": {func(c cluster) { c.Miss("h1", []string{"a", "b"}, nil, noon) }, 0, true},
		"one and two":             {func(c cluster) { c.Miss("h1", []string{"a"}, nil, noon) }, 0, false},
		"of one hub alone":        {func(cluster) {}, 0, false},
		"back in time": {func(c cluster) {
			c.Miss("h1", []string{"a", "b"}, nil, noon)
			c.Miss("h1", nil, nil, noon)
		}, 0, false},
		"given up before": {func(c cluster) {
			c.Miss("h1", []string{"a", "b"}, nil, noon)
			for _, id := range []string{"a", "b"} {
				m := c.Member(id)
				require.True(t, c.Apply(Transition{AgentID: id, Instance: m.Instance, Epoch: m.Epoch, Status: api.AgentOffline},
					"h1"))
			}
			c.Miss("h1", nil, nil, noon)
		}, 0, true},
		"long before": {func(c cluster) { c.Miss("h1", []string{"a", "b"}, nil, noon) }, 11 * time.Second, false},
		"gone to the other hub": {func(c cluster) {
			c.Miss("h1", []string{"a", "b"}, nil, noon)
			c.Join(Join{AgentID: "a", Instance: "a"}, "h2", noon)
			c.Join(Join{AgentID: "b", Instance: "b"}, "h2", noon)
		}, 0, false},
		"missed where they are not": {func(c cluster) { c.Miss("h2", []string{"a", "b"}, nil, noon) }, 0, false},
		"with a whole hub": {func(c cluster) {
			require.False(t, c.MissHub("h1", working, noon, noon), "three of six are not more than half")
		}, 0, true},
		"beside idle ones of a hub": {func(c cluster) {
			c.Miss("h1", []string{"a", "b", "d"}, []string{"d"}, noon)
		}, 0, true},
		"beside a hub of idle ones": {func(c cluster) { require.False(t, c.MissHub("h1", idle, noon, noon)) }, 0, false},
		"idle ones": {func(c cluster) {
			c.Miss("h1", []string{"a", "b", "d"}, []string{"a", "b", "d"}, noon)
		}, 0, false},
		"a larger fleet": {func(c cluster) {
			for i := range 3 {
				id := fmt.Sprintf("more-%d", i)
				c.Join(Join{AgentID: id, Instance: id}, "h2", noon)
			}
			c.Miss("h1", []string{"a", "b"}, nil, noon)
		}, 0, false},
		"proven dead": {func(c cluster) {
			c.Miss("h1", []string{"a", "b"}, nil, noon)
			require.NoError(t, c.DeclareDead(DeathProof{AgentID: "a"}, noon))
			c.Miss("h1", []string{"a", "b"}, nil, noon)
		}, 0, false},
		"turned off": {func(c cluster) {
			c.Config.Brake.Share = 1
			c.Miss("h1", []string{"a", "b"}, nil, noon)
		}, 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := hubsOfThree()
			tt.do(c)
			require.False(t, c.Braked())
			c.Miss("h2", []string{"e", "f"}, nil, noon.Add(tt.after))
			require.Equal(t, tt.engaged, c.Braked())
			require.Equal(t, tt.engaged, len(c.BrakeHolds) == 1)
		})
	}
}

func working(string) bool { return true }

func idle(string) bool { return false }

// hubsOfThree is a cluster with three agents at each of two hubs, for long.
func hubsOfThree() *Cluster {
	c := newCluster(0)
	for i, id := range []string{"a", "b", "d", "e", "f", "g"} {
		c.Join(Join{AgentID: id, Instance: id}, fmt.Sprintf("h%d", 1+i/3), noon.Add(-time.Hour))
	}
	return c
}

// A hub's loss is known later than that of agents at other hubs, which vanished with it.
func TestBrakeHoldsTheAgentsOfALostHub(t *testing.T) {
	t.Parallel()
	lose := func() *Cluster {
		c := hubsOfThree()
		c.Miss("h2", []string{"e"}, nil, noon)
		require.True(t, c.MissHub("h1", working, noon, noon.Add(15*time.Second)))
		return c
	}
	c := lose()
	require.Equal(t, []BrakeHold{{Since: noon, Lost: 4}}, c.BrakeHolds)
	require.Equal(t, api.AgentSuspect, c.Member("a").Status)
	require.Equal(t, []string{"h2"}, c.Hubs(), "nobody asks the lost hub")
	over, next := c.HeldHubs(noon.Add(20 * time.Second))
	require.Empty(t, over)
	require.Equal(t, noon.Add(15*time.Second+api.AttemptBackstop), next)
	over, _ = c.HeldHubs(next)
	require.Equal(t, []string{"h1"}, over)
	c.Join(Join{AgentID: "b", Instance: "b"}, "h1", next) // the hub is back
	require.Equal(t, []string{"a", "d"}, c.LoseHub("h1", next))
	require.Equal(t, api.AgentOnline, c.Member("b").Status)

	c = lose()
	c.ReleaseBrake()
	require.Empty(t, c.BrakeHolds)
	over, _ = c.HeldHubs(noon.Add(20 * time.Second))
	require.Equal(t, []string{"h1"}, over, "a person releases them")
}
