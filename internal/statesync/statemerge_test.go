package statesync

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

func config(key string) api.StateRef { return api.StateRef{Section: api.StateConfiguration, Key: key} }

func written(t require.TestingT, table *api.StateTable, key, value string, epoch int64) {
	_, err := table.Write(config(key), []byte(value), epoch)
	require.NoError(t, err)
}

func anyone(string) bool { return true }

// exchange does one round of a state sync.
func exchange(t require.TestingT, tables []*api.StateTable) (sent int) {
	merged, manifests := NewMerged("0"), map[string][]api.StateLine{}
	for i, table := range tables {
		manifests[fmt.Sprint(i)] = table.Manifest()
		require.True(t, merged.TakeManifest(fmt.Sprint(i), table.Manifest()))
	}
	want := merged.Lines(anyone)
	for i, table := range tables {
		d := DiffState(LinesOf(want), manifests[fmt.Sprint(i)])
		for _, part := range ChunkState(want, d.Missing) {
			holder, err := strconv.Atoi(part.Holder)
			require.NoError(t, err)
			for _, e := range tables[holder].Entries(part.Refs) {
				_, err := table.Put(e)
				require.NoError(t, err)
				sent++
			}
		}
	}
	return sent
}

// After any writes in any order, one round makes all states equal, and a second one sends nothing.
func TestStatesConverge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tables := make([]*api.StateTable, rapid.IntRange(1, 5).Draw(t, "agents"))
		for i := range tables {
			tables[i] = &api.StateTable{}
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			table := rapid.SampledFrom(tables).Draw(t, "who")
			key, epoch := config(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")), rapid.Int64Range(0,
				3).Draw(t, "epoch")
			var err error
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				_, err = table.Remove(key, epoch)
			case 1:
				exchange(t, tables)
			default:
				_, err = table.Write(key, []byte(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "value"))), epoch)
			}
			require.NoError(t, err)
		}
		exchange(t, tables)
		for _, table := range tables[1:] {
			require.Equal(t, tables[0].Manifest(), table.Manifest())
			require.Equal(t, tables[0].Summary(), table.Summary())
			require.Equal(t, tables[0].Section(api.StateConfiguration), table.Section(api.StateConfiguration))
		}
		require.Zero(t, exchange(t, tables))
	})
}

func TestDiffAndMerge(t *testing.T) {
	t.Parallel()
	line := func(section api.StateSection, key string, number int64) api.StateLine {
		return api.StateLine{StateRef: api.StateRef{Section: section, Key: key}, StateVersion: api.StateVersion{Number: number},
			Digest: "00112233", Size: 10}
	}
	leader := []api.StateLine{line(api.StateConfiguration, "x", 2), line(api.StateTasks, "gone", 1), line(api.StateTargets, "a", 1)}
	standby := []api.StateLine{line(api.StateConfiguration, "x", 1), line(api.StateConfiguration, "y", 3),
		line(api.StateTargets, "gone", 1)}
	member := func(id string) bool { return id != "gone" }
	merged := NewMerged("a")
	require.True(t, merged.TakeManifest("a", leader))
	require.True(t, merged.TakeManifest("b", standby))
	want := merged.Lines(member)
	require.Equal(t, []HeldLine{{line(api.StateTargets, "a", 1), "a"}, {line(api.StateConfiguration, "x", 2), "a"},
		{line(api.StateConfiguration, "y", 3), "b"}}, want)
	d := DiffState(LinesOf(want), standby)
	require.Equal(t, []api.StateRef{{Section: api.StateTargets, Key: "a"}, {Section: api.StateConfiguration, Key: "x"}}, d.Missing)
	require.Equal(t, []api.StateRef{{Section: api.StateTargets, Key: "gone"}}, d.Extra)
	require.Equal(t, 3, d.Behind())
	d = DiffState(LinesOf(want), leader)
	require.Equal(t, []api.StateRef{{Section: api.StateConfiguration, Key: "y"}}, d.Missing)
	require.Equal(t, []api.StateRef{{Section: api.StateTasks, Key: "gone"}}, d.Extra)
	require.Equal(t, 1, d.Behind(), "task states do not count")
	equal := NewMerged("leader")
	for _, agent := range []string{"c", "leader", "b"} {
		require.True(t, equal.TakeManifest(agent, leader))
	}
	require.Equal(t, "leader", equal.Lines(anyone)[1].Holder, "of equal ones the first")
}

func TestChunkState(t *testing.T) {
	t.Parallel()
	var want []HeldLine
	var missing []api.StateRef
	for i := range 40 {
		holder := "a"
		if i%10 == 0 {
			holder = "b"
		}
		want = append(want, HeldLine{api.StateLine{StateRef: config(fmt.Sprint(i)), Size: 30 << 10}, holder})
		if i != 5 {
			missing = append(missing, config(fmt.Sprint(i)))
		}
	}
	parts := ChunkState(want, missing)
	seen := map[api.StateRef]int{}
	for _, p := range parts {
		require.LessOrEqual(t, len(p.Refs)*30<<10, StateChunk)
		for _, ref := range p.Refs {
			seen[ref]++
		}
	}
	require.Len(t, seen, 39)
	require.Len(t, parts, 6, "35 of a in parts of eight, and 4 of b")
	require.Empty(t, ChunkState(want, nil))
}

// TestStateOwnersWord merges what several hubs told of an agent's own entry.
func TestStateOwnersWord(t *testing.T) {
	t.Parallel()
	line := func(holder string, epoch, number int64) HeldLine {
		return HeldLine{api.StateLine{StateRef: api.StateRef{Section: api.StateTargets, Key: "a"},
			StateVersion: api.StateVersion{Epoch: epoch, Number: number}, Digest: "00112233"}, holder}
	}
	tests := []struct {
		name string
		told []HeldLine
		want HeldLine
		// drops: who has a newer copy drops it for this one.
		drops bool
	}{
		{"its own is newest", []HeldLine{line("b", 1, 1), line("a", 1, 2)}, line("a", 1, 2), true},
		{"a copy claims more", []HeldLine{line("b", 9, 9), line("a", 1, 2), line("c", 1, 1)}, line("a", 1, 2), true},
		{"a copy is equal", []HeldLine{line("b", 1, 2), line("a", 1, 2)}, line("a", 1, 2), true},
		{"it tells nothing", []HeldLine{line("b", 1, 2), line("c", 1, 3)}, line("c", 1, 3), false},
		{"it was at two hubs", []HeldLine{line("a", 1, 2), line("a", 1, 3), line("b", 1, 4)}, line("a", 1, 3), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			merged := NewMerged("b")
			for _, l := range test.told {
				merged.Take(l)
			}
			want := merged.Lines(anyone)
			require.Equal(t, []HeldLine{test.want}, want)
			d := DiffState(LinesOf(want), []api.StateLine{line("", 9, 9).StateLine})
			require.Equal(t, test.drops, len(d.Missing) == 1 && len(d.Extra) == 1)
			require.Equal(t, test.drops, d.Behind() == 1)
		})
	}
}

func TestNewerEpochWins(t *testing.T) {
	t.Parallel()
	var old, next api.StateTable
	written(t, &old, "a", `"first"`, 1)
	for _, e := range old.Entries([]api.StateRef{config("a")}) {
		_, err := next.Put(e)
		require.NoError(t, err)
	}
	for i := range 10 {
		written(t, &old, "a", fmt.Sprint(i), 1)
	}
	written(t, &next, "a", `"successor"`, 2)
	exchange(t, []*api.StateTable{&old, &next})
	e, _ := old.Get(config("a"))
	require.JSONEq(t, `"successor"`, string(e.Value))
	require.Equal(t, old.Summary(), next.Summary())
}
