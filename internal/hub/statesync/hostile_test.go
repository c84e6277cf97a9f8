package statesync

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/statesync"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// tables are agents of one cluster, at one hub or each at its own, that answer with their tables. What evil tells is
// its own choice.
type tables struct {
	t      *testing.T
	agents []string
	hubs   map[string]*States
	tables map[string]*api.StateTable
	evil   []api.StateEntry
	epoch  int64
	one    *States // all agents are at this hub; nil: each has its own
}

// tableFacts are one hub's facts: its only agent, or none for all.
type tableFacts struct {
	*tables
	agent string
}

func (f tableFacts) States(string) (states []contract.AgentState) {
	for _, a := range f.agents {
		if f.agent == "" || f.agent == a {
			states = append(states, contract.AgentState{AgentID: a, State: &api.StateSummary{}})
		}
	}
	return states
}
func (f tableFacts) Digests() map[string][]string { return nil }
func (f tableFacts) EpochOf(string) int64         { return f.epoch }
func (f tableFacts) CommandKeeper(agent string, c protocol.Command) bool {
	r, table := protocol.StateReport{Request: c.Request}, f.tables.tables[agent]
	switch {
	case agent == "evil" && len(c.Refs) > 0:
		r.Entries = f.evil
	case agent == "evil":
		for _, e := range f.evil {
			r.Manifest = append(r.Manifest, e.Line())
		}
	case c.Type == protocol.CommandSync:
		for _, e := range c.Entries {
			_, err := table.Put(e)
			require.NoError(f.t, err)
		}
		for _, ref := range c.Refs {
			table.Forget(ref)
		}
	case len(c.Refs) > 0:
		r.Entries = table.Entries(c.Refs)
	default:
		r.Manifest = table.Manifest()
	}
	return f.hubs[agent].Answer(agent, r)
}

func newTables(t *testing.T, together bool, agents ...string) *tables {
	t.Helper()
	f := &tables{t: t, hubs: map[string]*States{}, tables: map[string]*api.StateTable{}, epoch: 7}
	if together {
		f.one = New(part.Hub{Logger: zap.NewNop()}, tableFacts{f, ""}, 0)
	}
	for _, a := range agents {
		f.join(a)
	}
	return f
}

// join adds an agent without state. One that was there is a new process.
func (f *tables) join(agent string) {
	f.leave(agent)
	f.agents = append(f.agents, agent)
	f.tables[agent] = &api.StateTable{}
	if f.hubs[agent] = f.one; f.one == nil {
		f.hubs[agent] = New(part.Hub{Logger: zap.NewNop()}, tableFacts{f, agent}, 0)
	}
}

func (f *tables) leave(agent string) {
	f.agents = slices.DeleteFunc(f.agents, func(a string) bool { return a == agent })
}

// write writes an entry and reports that it may.
func (f *tables) write(agent string, ref api.StateRef, value string, epoch int64) {
	f.t.Helper()
	wrote, err := f.tables[agent].Write(ref, []byte(value), epoch)
	require.NoError(f.t, err)
	require.True(f.t, wrote)
}

// sync does a round as the workflow does it. An agent that left is still a member.
func (f *tables) sync() {
	f.t.Helper()
	merged := statesync.NewMerged("")
	for _, a := range f.agents {
		read, err := f.hubs[a].Read(f.t.Context(), contract.ReadStatesInput{Manifests: true})
		require.NoError(f.t, err)
		for _, line := range read.Merged {
			merged.Take(line)
		}
	}
	want := merged.Lines(func(string) bool { return true })
	text, err := json.Marshal(statesync.LinesOf(want))
	require.NoError(f.t, err)
	for _, a := range f.agents {
		in := contract.CompareStatesInput{}
		require.NoError(f.t, json.Unmarshal(text, &in.Want))
		lacks, err := f.hubs[a].Compare(f.t.Context(), in)
		require.NoError(f.t, err)
		_, err = f.hubs[a].Apply(f.t.Context(), contract.ApplyStateInput{Agents: []string{a}, Forget: lacks.Extra})
		require.NoError(f.t, err)
		for _, p := range statesync.ChunkState(want, lacks.Missing) {
			read, err := f.hubs[p.Holder].ReadEntries(f.t.Context(),
				contract.ReadEntriesInput{AgentID: p.Holder, Refs: p.Refs})
			require.NoError(f.t, err)
			_, err = f.hubs[a].Apply(f.t.Context(),
				contract.ApplyStateInput{Agents: []string{a}, Entries: read.Entries})
			require.NoError(f.t, err)
		}
	}
}

// has requires that these agents have the value.
func (f *tables) has(ref api.StateRef, value string, agents ...string) {
	f.t.Helper()
	for _, a := range agents {
		e, _ := f.tables[a].Get(ref)
		require.Equal(f.t, value, string(e.Value), "%s of %s at %s", ref.Section, ref.Key, a)
	}
}

// each runs a test with agents at one hub, and at several.
func each(t *testing.T, name string, test func(t *testing.T, together bool)) {
	t.Helper()
	for _, together := range []bool{true, false} {
		t.Run(fmt.Sprintf("%s, at one hub: %t", name, together), func(t *testing.T) {
			t.Parallel()
			test(t, together)
		})
	}
}

func entryOf(ref api.StateRef, epoch, number int64) api.StateEntry {
	return api.StateEntry{StateRef: ref, StateVersion: api.StateVersion{Epoch: epoch, Number: number},
		Value: json.RawMessage(`"evil"`), Digest: "00112233"}
}

// TestOneAgentDoesNotSpoilTheState has an agent that tells what it likes.
func TestOneAgentDoesNotSpoilTheState(t *testing.T) {
	t.Parallel()
	const last = 1 << 53
	own, config := api.StateRef{Section: api.StateTargets, Key: "a"},
		api.StateRef{Section: api.StateConfiguration, Key: "x"}
	for name, evil := range map[string][]api.StateEntry{
		"another's own entry":              {entryOf(own, 7, 1000)},
		"another's own entry, last epoch":  {entryOf(own, last-1, 1)},
		"another's own entry, last number": {entryOf(own, 7, last)},
		"a key with the last number":       {entryOf(config, 0, last)},
		"a new key with the last number":   {entryOf(api.StateRef{Section: api.StateDigests, Key: "p"}, 0, last)},
		"a key with the last epoch":        {entryOf(config, last, 1)},
		"half of the last":                 {entryOf(config, 7, last/2)},
	} {
		each(t, name, func(t *testing.T, together bool) {
			f := newTables(t, together, "a", "b", "evil")
			f.evil = evil
			f.write("a", own, `["h1"]`, 7)
			f.write("a", config, `1`, 7)
			for i := range 3 {
				f.sync()
				f.has(own, fmt.Sprintf(`["h%d"]`, i+1), "a", "b")
				f.has(config, fmt.Sprint(i+1), "a", "b")
				f.write("a", own, fmt.Sprintf(`["h%d"]`, i+2), 7)
				f.write("a", config, fmt.Sprint(i+2), 7)
			}
			f.leave("evil")
			f.sync()
			f.has(own, `["h4"]`, "a", "b")
			f.has(config, `4`, "a", "b")
			require.Equal(t, f.tables["a"].Summary(), f.tables["b"].Summary())
			require.Equal(t, 2, f.tables["b"].Summary().Entries)
		})
	}
}

// All that an agent tells goes through the history of the workflow, and to each hub.
func TestAnAgentTellsNoMoreThanAStateHas(t *testing.T) {
	t.Parallel()
	f := newTables(t, true, "evil")
	var refs []api.StateRef
	for n := range 100 {
		e := entryOf(api.StateRef{Section: api.StateConfiguration, Key: fmt.Sprint(n)}, 7, 1)
		e.Value = json.RawMessage(`"` + strings.Repeat("x", api.MaxStateValue-2) + `"`)
		f.evil, refs = append(f.evil, e), append(refs, e.StateRef)
	}
	read, err := f.one.Read(t.Context(), contract.ReadStatesInput{Manifests: true})
	require.NoError(t, err)
	require.Len(t, read.Merged, api.MaxStateBytes/api.MaxStateValue)
	given, err := f.one.ReadEntries(t.Context(), contract.ReadEntriesInput{AgentID: "evil", Refs: refs})
	require.NoError(t, err)
	require.Len(t, given.Entries, 2*statesync.StateChunk/api.MaxStateValue)
}

func TestEntriesThatWereNotAskedForAreDropped(t *testing.T) {
	t.Parallel()
	f := newTables(t, false, "a", "b", "evil")
	ref := api.StateRef{Section: api.StateConfiguration, Key: "asked"}
	other := api.StateRef{Section: api.StateTargets, Key: "b"}
	f.evil = []api.StateEntry{entryOf(ref, 7, 9), entryOf(ref, 7, 10), entryOf(other, 7, 9)}
	read, err := f.hubs["evil"].ReadEntries(t.Context(),
		contract.ReadEntriesInput{AgentID: "evil", Refs: []api.StateRef{ref}})
	require.NoError(t, err)
	require.Equal(t, f.evil[:1], read.Entries)
	f.evil[0].Number = 1 << 53
	read, err = f.hubs["evil"].ReadEntries(t.Context(),
		contract.ReadEntriesInput{AgentID: "evil", Refs: []api.StateRef{other, ref}})
	require.NoError(t, err)
	require.Equal(t, f.evil[2:], read.Entries, "told with another version than in its manifest")
}

// TestStateStaysAsItWas: what honest agents tell goes on to count.
func TestStateStaysAsItWas(t *testing.T) {
	t.Parallel()
	own, config := api.StateRef{Section: api.StateTargets, Key: "a"},
		api.StateRef{Section: api.StateConfiguration, Key: "x"}
	for name, play := range map[string]func(f *tables){
		"a new leader takes over": func(f *tables) {
			f.leave("a")
			f.epoch = 8
			f.sync()
			f.has(config, `1`, "b", "c")
			f.write("b", config, `2`, 8)
			f.join("a")
			f.write("a", config, `"default"`, 0)
			f.sync()
			f.has(config, `2`, "a", "b", "c")
		},
		"a hub hears late of a new leader": func(f *tables) {
			f.write("b", config, `2`, 9)
			f.sync()
			f.has(config, `2`, "a", "b", "c")
		},
		"copies outlive their owner": func(f *tables) {
			f.leave("a")
			f.join("d")
			f.sync()
			f.has(own, `["h1"]`, "b", "c", "d")
		},
		"an owner without an entry gets its copy": func(f *tables) {
			f.join("a")
			f.sync()
			f.has(own, `["h1"]`, "a", "b", "c")
		},
		"an owner starts again with lower versions": func(f *tables) {
			f.write("a", own, `["h2"]`, 7)
			f.sync()
			f.join("a")
			f.write("a", own, `["h3"]`, 6)
			f.sync()
			f.has(own, `["h3"]`, "a", "b", "c")
			require.Equal(f.t, f.tables["a"].Manifest(), f.tables["b"].Manifest())
		},
		"a hub that refuses nothing passes entries on": func(f *tables) {
			_, err := f.hubs["a"].Apply(f.t.Context(), contract.ApplyStateInput{Agents: []string{"a"},
				Entries: []api.StateEntry{entryOf(config, 7, 1<<52), entryOf(own, 1<<52, 9)},
				Forget:  []api.StateRef{own}})
			require.NoError(f.t, err)
			f.has(own, `["h1"]`, "a")
			f.has(config, `1`, "a")
		},
	} {
		each(t, name, func(t *testing.T, together bool) {
			f := newTables(t, together, "a", "b", "c")
			f.write("a", own, `["h1"]`, 7)
			f.write("a", config, `1`, 7)
			f.sync()
			f.has(own, `["h1"]`, "b", "c")
			play(f)
		})
	}
}
