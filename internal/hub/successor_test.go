package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// The strategy of an active_active cluster says who should rather have what was lost with an agent, and placement goes
// by the load where it is least_loaded, or standby: there are none.
func TestStrategyChoosesWhoHasWhatWasLost(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[api.SelectionStrategy]string{
		api.SelectAffinity: "d", api.SelectRoundRobin: "c", api.SelectLeastLoaded: "", api.SelectStandby: "",
	} {
		t.Run(string(strategy), func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 1, Mode: api.ActiveActive, Selection: strategy}
				in := func(zone string) func(*protocol.Register) { return func(r *protocol.Register) { r.Zone = zone } }
				a := b.register("a", 2, in("north"))
				a.give(aTask("t1"))
				b.register("b", 2)
				b.register("c", 2)
				b.register("d", 2, in("north"))
				b.mu.Lock()
				b.turns["c"] = 1
				b.mu.Unlock()
				a.hangUp()
				b.pass(5 * time.Second)
				lost := b.reported()
				require.Len(t, lost, 1)
				require.Equal(t, api.AttemptLost, lost[0].Outcome)
				require.Equal(t, want, lost[0].Prefer)
			})
		})
	}
}
