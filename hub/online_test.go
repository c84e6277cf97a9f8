package hub

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// Agents that register together are looked for together, and an id of another cluster is refused either way.
func TestForeignIdsAreRefusedAlsoInACrowd(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		for _, agent := range []string{"x", "y", "theirs", "z"} {
			b.temporal.online = append(b.temporal.online, contract.AgentIdentity("other", agent))
		}
		refused := func() {
			_, err := b.openSession(t.Context(), protocol.Register{AgentID: "theirs", InstanceID: "instance", Cluster: "c",
				AgentProfile: fleet.AgentProfile{MaxTasks: 1}}, fleet.JoinToken{}, false)
			require.ErrorContains(t, err, "another cluster has this agent id online")
		}
		refused()
		for i := range 300 {
			b.register(fmt.Sprintf("a-%d", i), 1)
		}
		refused()
		require.Less(t, b.temporal.looks, 2*onlineBurst)
	})
}
