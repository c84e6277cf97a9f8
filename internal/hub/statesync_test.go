package hub

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// has makes a poll report a digest of the agent's state.
func has(digest string) func(*protocol.Poll) {
	return func(p *protocol.Poll) { p.State = &api.StateSummary{Digest: digest} }
}

// statesHeard returns the digests that the cluster got since the last call, in order.
func (b *bench) statesHeard() [][]string {
	synctest.Wait()
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	heard := b.temporal.states
	b.temporal.states = nil
	return slices.Clone(heard)
}

const one, two = "1111111111111111", "2222222222222222"

// TestStatesAreTold changes the agents of one hub. A cluster compares its hubs' reports, so every hub with agents that
// keep state must report, whatever their states.
func TestStatesAreTold(t *testing.T) {
	t.Parallel()
	const soon = time.Second // longer than the hub's looks, shorter than the spacing
	passive := contract.Directive{Cluster: "c", Version: 1, Mode: api.ActivePassive}
	tests := []struct {
		name string
		play func(b *bench)
		want [][]string
	}{
		{"an agent has something", func(b *bench) {
			b.register("a", 1).poll(has(one))
			b.pass(soon)
		}, [][]string{{one}}},
		{"standbys have nothing: the leader at another hub may have something", func(b *bench) {
			b.register("a", 1).poll(has(api.EmptyState))
			b.register("b", 1).poll(has(api.EmptyState))
			b.pass(soon)
		}, [][]string{{api.EmptyState}}},
		{"an agent keeps no state", func(b *bench) {
			b.register("a", 1).poll()
			b.pass(soon)
		}, nil},
		{"nothing is told twice, and changes are spaced", func(b *bench) {
			a := b.register("a", 1)
			a.poll(has(one))
			b.pass(soon)
			a.poll(has(two))
			b.pass(soon)
			require.Len(b.t, b.statesHeard(), 1)
			b.pass(b.config.StateSpacing)
			a.poll(has(two))
			b.pass(soon)
		}, [][]string{{two}}},
		{"the agent came back before the cluster was told that it had gone", func(b *bench) {
			a := b.register("a", 1)
			a.poll(has(one))
			b.pass(soon)
			require.Len(b.t, b.statesHeard(), 1)
			s := a.session()
			b.mu.Lock()
			b.endLocked(s, ending{reason: "test", at: time.Now()})
			b.mu.Unlock()
			b.register("a", 1).poll(has(one))
			b.pass(b.config.StateSpacing)
		}, [][]string{{one}}},
		{"the hub was out of touch, and the cluster gave up its agents", func(b *bench) {
			b.register("a", 1).poll(has(one))
			b.pass(soon)
			require.Len(b.t, b.statesHeard(), 1)
			facts{b.Hub}.rejoin()
			b.register("a", 1).poll(has(one))
			b.pass(b.config.StateSpacing)
		}, [][]string{{one}}},
		{"the cluster is active_active, and then is not", func(b *bench) {
			require.NoError(b.t, b.direct(b.t.Context(), contract.Directive{Cluster: "c", Version: 2,
				Mode: api.ActiveActive}))
			b.register("a", 1).poll(has(one))
			b.pass(soon)
			require.Empty(b.t, b.statesHeard())
			require.NoError(b.t, b.direct(b.t.Context(), contract.Directive{Cluster: "c", Version: 3,
				Mode: api.ActivePassive}))
			b.pass(soon)
		}, [][]string{{one}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.temporal.direct["c"] = passive
				b.start(b.states)
				test.play(b)
				require.Equal(t, test.want, b.statesHeard())
			})
		})
	}
}
