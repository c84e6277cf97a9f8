package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Agents that register together are looked for together, and an id of another cluster is refused either way.
func TestForeignIdsAreRefusedAlsoInACrowd(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		for _, agent := range []string{"x", "y", "theirs", "z"} {
			b.temporal.online = append(b.temporal.online, contract.AgentIdentity("other", agent))
		}
		refused := func() {
			_, err := b.openSession(t.Context(), protocol.Register{AgentID: "theirs", InstanceID: "instance", Cluster: "c",
				AgentProfile: api.AgentProfile{MaxTasks: 1}}, cluster.JoinToken{}, false)
			require.ErrorContains(t, err, "another cluster has this agent id online")
		}
		refused()
		for i := range 300 {
			b.register(fmt.Sprintf("a-%d", i), 1)
		}
		refused()
		require.Less(t, b.temporal.looks, 40)
	})
}

// TestAgentIsNotFencedByAnotherCluster has an agent id registered in another cluster, whose epochs are higher: while
// the agent is here, and while it is away for a moment.
func TestAgentIsNotFencedByAnotherCluster(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		theirs := protocol.Register{AgentID: "a", InstanceID: "theirs", Cluster: "other",
			AgentProfile: api.AgentProfile{MaxTasks: 1}}
		admit := func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			_, err := b.admitLocked(theirs, "", "", &cluster.Joined{Epoch: a.claims.Epoch + 10}, time.Now())
			return err
		}
		requireCode(t, protocol.CodeAgentIDInUse, admit())
		require.NoError(t, (<-a.poll()).err)

		b.mu.Lock()
		b.endLocked(a.session0(), ending{reason: "its connection closed", at: time.Now()})
		b.mu.Unlock()
		require.NoError(t, admit())
		requireCode(t, protocol.CodeUnknownSession, (<-a.poll()).err)
		b.mu.Lock()
		defer b.mu.Unlock()
		require.True(t, b.missingLocked("c", &cluster.Member{AgentID: "a", Hub: "hub-1", Epoch: a.claims.Epoch,
			Status: api.AgentOnline}), "its cluster learns that it is away")
	})
}
