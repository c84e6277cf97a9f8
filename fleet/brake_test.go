package fleet

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// lose reports n losses, one each gap apart, and returns the time of the last.
func lose(b *Brake, n int, gap time.Duration) time.Time {
	at := noon
	for i := range n {
		at = noon.Add(time.Duration(i) * gap)
		b.Lost(fmt.Sprintf("agent-%d", i), at)
	}
	return at
}

func TestBrakeEngages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		policy  BrakePolicy
		lost    int
		gap     time.Duration
		online  int // afterwards
		engaged bool
	}{
		{"nothing happened", BrakePolicy{}, 0, 0, 0, false},
		{"more than half at once", BrakePolicy{}, 6, 0, 4, true},
		{"exactly half", BrakePolicy{}, 5, 0, 5, false},
		{"all", BrakePolicy{}, 10, 0, 0, true},
		{"too few to tell", BrakePolicy{}, 2, 0, 0, false},
		{"just enough", BrakePolicy{}, 3, 0, 2, true},
		{"within the window", BrakePolicy{}, 6, 1900 * time.Millisecond, 4, true},
		{"slowly", BrakePolicy{}, 6, 5 * time.Second, 1, false},
		{"own share", BrakePolicy{Share: 0.2}, 3, 0, 11, true},
		{"own share not passed", BrakePolicy{Share: 0.2}, 3, 0, 12, false},
		{"own least number", BrakePolicy{MinLost: 2}, 2, 0, 1, true},
		{"own window", BrakePolicy{Window: Duration(time.Minute)}, 6, 5 * time.Second, 1, true},
		{"turned off", BrakePolicy{Share: 1}, 100, 0, 0, false},
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
		b.Lost("a", noon)
	}
	require.Len(t, b.Losses, 1)
	require.False(t, b.Settle(0, noon))
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
	b.Lost("agent-7", later)
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
	b.Lost("agent-0", later)
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
	b.Lost("x", now)
	b.Lost("y", now)
	require.False(t, b.Settle(2, now), "two more are too few")
	b.Lost("z", now)
	require.True(t, b.Settle(1, now), "but new ones count")
	require.Empty(t, (&Brake{}).Release())
}

// A continue-as-new carries the whole state over, and a brake without losses is empty.
func TestBrakeIsCarried(t *testing.T) {
	t.Parallel()
	b := Brake{Policy: BrakePolicy{Window: Duration(time.Minute)}}
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
	require.NoError(t, BrakePolicy{}.WithDefaults().Validate())
	require.Equal(t, BrakePolicy{Share: 0.5, MinLost: 3, Window: Duration(10 * time.Second)},
		BrakePolicy{}.WithDefaults())
	for name, bad := range map[string]BrakePolicy{
		"share":    {Share: 1.1},
		"share ":   {Share: -0.1},
		"share  ":  {Share: math.NaN()},
		"min_lost": {MinLost: -1},
		"window":   {Window: Duration(time.Millisecond)},
		"window ":  {Window: Duration(time.Hour)},
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
					b.Lost(id, now)
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
