package hub

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Agents may say goodbye while the hub stops. Each goodbye begins work that the hub waits for, or may already be past.
func TestStopWhileAgentsSayGoodbye(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		const agents = 20
		b.temporal.slow = time.Millisecond
		var all sync.WaitGroup
		for i := range agents {
			p := b.register("a"+strconv.Itoa(i), 1)
			in := &goodbyeInput{Authorized: Authorized{ID: p.claims.Agent, Authorization: "Bearer " + b.seal.session(p.claims)}}
			all.Go(func() {
				<-time.After(time.Duration(i) * 2 * time.Millisecond)
				_, err := b.goodbye(t.Context(), in)
				require.NoError(t, err)
			})
		}
		all.Go(func() {
			<-time.After(agents * time.Millisecond)
			b.Stop(t.Context())
		})
		all.Wait()
		b.pass(time.Second)
		require.Len(t, b.changed(), agents, "the cluster hears of each goodbye")
	})
}

// A hub that stops opens no session, so the cluster must not count the agent on it.
func TestStoppingHubAsksNoClusterToJoin(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.Stop(t.Context())
		_, err := b.openSession(t.Context(), protocol.Register{AgentID: "a", InstanceID: "a-instance", Cluster: "c",
			AgentProfile: api.AgentProfile{MaxTasks: 1}}, cluster.JoinToken{}, false)
		require.ErrorContains(t, err, "this hub is stopping")
		require.Empty(t, b.temporal.joins)
	})
}
