package statesync

import (
	"encoding/json"
	"fmt"
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

// keepers are agents that answer each question for their manifests at once.
type keepers struct {
	states    *States
	agents    []contract.AgentState
	manifests map[string][]api.StateLine
}

func (k *keepers) States(string) []contract.AgentState { return k.agents }
func (k *keepers) Digests() map[string][]string        { return nil }
func (k *keepers) EpochOf(string) int64                { return 7 }
func (k *keepers) CommandKeeper(agent string, c protocol.Command) bool {
	return k.states.Answer(agent, protocol.StateReport{Request: c.Request, Manifest: k.manifests[agent]})
}

func newKeepers() *keepers {
	k := &keepers{manifests: map[string][]api.StateLine{}}
	k.states = New(part.Hub{Logger: zap.NewNop()}, k, 0)
	return k
}

// add adds an agent with the largest manifest, whose keys begin with a word and are filled up.
func (k *keepers) add(agent, keys, fill string) {
	k.agents = append(k.agents, contract.AgentState{AgentID: agent, State: &api.StateSummary{}})
	for n := range 2000 {
		key := fmt.Sprintf("%s-%d-", keys, n)
		k.manifests[agent] = append(k.manifests[agent], api.StateLine{
			StateRef:     api.StateRef{Section: api.StateTasks, Key: key + strings.Repeat(fill, 255-len(key))},
			StateVersion: api.StateVersion{Number: 1}, Digest: strings.Repeat("d", 64)})
	}
}

func (k *keepers) read(t *testing.T) (silent int, merged []statesync.HeldLine) {
	t.Helper()
	result, err := k.states.Read(t.Context(), contract.ReadStatesInput{Cluster: "c", Manifests: true, First: "m"})
	require.NoError(t, err)
	for _, a := range result.Agents {
		if a.Silent {
			silent++
		}
	}
	text, err := json.Marshal(result)
	require.NoError(t, err)
	require.Less(t, len(text), 2<<20, "Temporal takes no larger answer")
	return silent, result.Merged
}

// TestManifestsHaveABound has agents that tell of as much as they may: each of something else, and all of the same.
func TestManifestsHaveABound(t *testing.T) {
	t.Parallel()
	each, same := newKeepers(), newKeepers()
	for _, agent := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		each.add(agent, agent, "k")
		for n := range 2 {
			same.add(agent+strings.Repeat("2", n), "shared", "k")
		}
	}
	silent, merged := each.read(t)
	require.Equal(t, 25, silent)
	require.Len(t, merged, 2000)
	lacks, err := each.states.Compare(t.Context(), contract.CompareStatesInput{Cluster: "c"})
	require.NoError(t, err)
	require.Len(t, lacks.Lagging, 26)
	text, err := json.Marshal(lacks)
	require.NoError(t, err)
	require.Less(t, len(text), 2<<20, "Temporal takes no larger answer")
	silent, merged = same.read(t)
	require.Zero(t, silent, "those who have the same have it once")
	require.Len(t, merged, 2000)
	require.Equal(t, "m", merged[0].Holder, "the first")
	long := newKeepers() // JSON has six bytes for each <
	long.add("a", "a", "<")
	silent, merged = long.read(t)
	require.Equal(t, 1, silent)
	require.Empty(t, merged)
}
