package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func config(key string) StateRef { return StateRef{Section: StateConfiguration, Key: key} }

func written(t require.TestingT, table *StateTable, key, value string, epoch int64) {
	_, err := table.Write(config(key), []byte(value), epoch)
	require.NoError(t, err)
}

func TestStateTable(t *testing.T) {
	t.Parallel()
	var table StateTable
	require.Equal(t, StateSummary{Digest: EmptyState}, table.Summary())
	changed, err := table.Write(config("a"), []byte(`1`), 3)
	require.NoError(t, err)
	require.True(t, changed)
	first := table.Summary()
	require.Equal(t, StateVersion{Epoch: 3, Number: 1}, first.Version)
	require.Equal(t, 1, first.Entries)
	changed, err = table.Write(config("a"), []byte(`1`), 4)
	require.NoError(t, err)
	require.False(t, changed, "the same value is nothing new")
	require.Equal(t, first, table.Summary())
	written(t, &table, "a", `2`, 2)
	e, known := table.Get(config("a"))
	require.True(t, known)
	require.Equal(t, StateVersion{Epoch: 3, Number: 2}, e.StateVersion, "an epoch does not go back")
	removed, err := table.Remove(config("a"), 3)
	require.NoError(t, err)
	require.True(t, removed)
	removed, err = table.Remove(config("a"), 3)
	require.NoError(t, err)
	require.False(t, removed)
	_, known = table.Get(config("a"))
	require.False(t, known)
	require.Zero(t, table.Summary().Entries)
	require.NotEqual(t, EmptyState, table.Summary().Digest, "that it was removed is a part of the state")
	require.False(t, table.Forget(config("a")), "only what agents say of themselves is forgotten")
	changed, err = table.Put(StateEntry{StateRef: config("a"), StateVersion: StateVersion{Epoch: 3, Number: 2},
		Value: json.RawMessage(`2`), Digest: "00112233"})
	require.NoError(t, err)
	require.False(t, changed, "an older writing does not bring it back")
}

// Task states change by the second: they are a part of the state, but not of its digest.
func TestDigestLeavesTasksOut(t *testing.T) {
	t.Parallel()
	var table StateTable
	written(t, &table, "a", `1`, 1)
	before := table.Summary()
	_, err := table.Write(StateRef{Section: StateTasks, Key: "agent-1"}, []byte(`[]`), 1)
	require.NoError(t, err)
	require.Equal(t, before.Digest, table.Summary().Digest)
	require.Equal(t, before.Version, table.Summary().Version)
	_, err = table.Write(StateRef{Section: StateTargets, Key: "agent-1"}, []byte(`[]`), 1)
	require.NoError(t, err)
	require.NotEqual(t, before.Digest, table.Summary().Digest)
}

func TestStateBounds(t *testing.T) {
	t.Parallel()
	valid := StateEntry{StateRef: config("a"), StateVersion: StateVersion{Number: 1}, Value: json.RawMessage(`1`),
		Digest: "00112233"}
	require.NoError(t, valid.Validate())
	for name, change := range map[string]func(e *StateEntry){
		"section":  func(e *StateEntry) { e.Section = "secrets" },
		"no key":   func(e *StateEntry) { e.Key = "" },
		"long key": func(e *StateEntry) { e.Key = strings.Repeat("k", MaxStateKey+1) },
		"control":  func(e *StateEntry) { e.Key = "a\nb" },
		"not text": func(e *StateEntry) { e.Key = "\xff" },
		"not JSON": func(e *StateEntry) { e.Value = json.RawMessage(`{`) },
		"no value": func(e *StateEntry) { e.Value = nil },
		"large": func(e *StateEntry) {
			e.Value = json.RawMessage(`"` + strings.Repeat("v",
				MaxStateValue) + `"`)
		},
		"removed, a value": func(e *StateEntry) { e.Removed = true },
		"no digest":        func(e *StateEntry) { e.Digest = "" },
		"odd digest":       func(e *StateEntry) { e.Digest = "not hexadecimal" },
		"no number":        func(e *StateEntry) { e.Number = 0 },
		"negative epoch":   func(e *StateEntry) { e.Epoch = -1 },
		"the last number":  func(e *StateEntry) { e.Number = math.MaxInt64 }, // none could follow it
		"the last epoch":   func(e *StateEntry) { e.Epoch = math.MaxInt64 },
	} {
		e := valid
		change(&e)
		require.Error(t, e.Validate(), name)
	}
	var table StateTable
	big := []byte(`"` + strings.Repeat("v", MaxStateValue-2) + `"`)
	for i := range MaxStateBytes / MaxStateValue {
		_, err := table.Write(config(fmt.Sprint(i)), big, 0)
		require.NoError(t, err)
	}
	_, err := table.Write(config("more"), big, 0)
	require.ErrorContains(t, err, "bytes")
	table = StateTable{}
	for i := range MaxStateEntries {
		written(t, &table, fmt.Sprint(i), `1`, 0)
	}
	_, err = table.Write(config("more"), []byte(`1`), 0)
	require.ErrorContains(t, err, "entries")
	for i := range maxStateRemoved + 50 {
		_, err := table.Remove(config(fmt.Sprint(i)), 0)
		require.NoError(t, err)
	}
	require.Len(t, table.Manifest(), MaxStateEntries-50, "the oldest removed ones are forgotten")
	written(t, &table, "more", `1`, 0)
	require.NoError(t, (&StateSummary{Digest: EmptyState}).Validate())
	require.Error(t, (&StateSummary{Digest: "no"}).Validate())
	require.Error(t, (&StateSummary{Digest: EmptyState, Entries: -1}).Validate())
}

// A former leader's writings under an old epoch never win, however many they are.
// FuzzStateEntry: whatever is taken stays within its bounds, is equal after another agent took it, and passes the wire.
func FuzzStateEntry(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", "[]",
		`{"section":"configuration","key":"a","number":1,"value":{"x":"<>"},"digest":"00112233"}`,
		`{"section":"cached_digests","key":"a","epoch":2,"number":3,"removed":true}`, `{"section":"task_states","key":"\u2028","number":9e18,"value":1e999,"digest":"00112233"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var e StateEntry
		if json.Unmarshal([]byte(text), &e) != nil {
			return
		}
		var first, second StateTable
		taken, err := first.Put(e)
		if err != nil {
			require.False(t, taken)
			require.Equal(t, EmptyState, first.Summary().Digest)
			return
		}
		require.True(t, taken)
		wire, err := json.Marshal(first.Entries([]StateRef{e.StateRef}))
		require.NoError(t, err)
		var back []StateEntry
		require.NoError(t, json.Unmarshal(wire, &back))
		_, err = second.Put(back[0])
		if err != nil {
			require.Greater(t, 6*len(e.Value), MaxStateValue, "only what grew on the wire is refused: %s", err)
			return
		}
		require.Equal(t, first.Summary(), second.Summary())
		require.LessOrEqual(t, first.Summary().Entries, 1)
		again, err := second.Put(e)
		require.NoError(t, err)
		require.False(t, again)
	})
}

// TestStateOwnWritesGoOn: whatever a table takes from others, its own next write has a higher number that others take.
func TestStateOwnWritesGoOn(t *testing.T) {
	t.Parallel()
	other := StateEntry{StateRef: config("a"), Value: json.RawMessage(`"other"`), Digest: valueDigest([]byte(`1`))}
	for name, v := range map[string]StateVersion{
		"small":           {Number: 1},
		"the last taken":  {Number: maxTaken},
		"the last epoch":  {Epoch: maxVersion, Number: 1},
		"one too many":    {Number: maxTaken + 1},
		"the last number": {Number: maxVersion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var table StateTable
			other := other
			other.StateVersion = v
			taken, err := table.Put(other)
			require.Equal(t, v.Number <= maxTaken, taken, err)
			if !taken {
				require.ErrorContains(t, err, `configuration "a" has the number`)
			}
			wrote, err := table.Write(config("a"), []byte(`1`), 1)
			require.NoError(t, err)
			require.True(t, wrote, "the digest is its writer's word only")
			removed, err := table.Remove(config("a"), 1)
			require.NoError(t, err)
			require.True(t, removed)
		})
	}
}
