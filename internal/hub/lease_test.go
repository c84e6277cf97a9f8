package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// TestALeaseHoldsAsItWasTold changes a cluster's mode or role_lease under an agent with fenced work, which then is cut
// off. Whoever gets the work next must wait for as long as the agent may count on its lease (02_lease_after_patch).
func TestALeaseHoldsAsItWasTold(t *testing.T) {
	const long, short, third = 15 * time.Second, 3 * time.Second, time.Second // as a hub counts them
	active := contract.Directive{Cluster: "c", Mode: api.ActiveActive}
	passive := contract.Directive{Cluster: "c", Mode: api.ActivePassive, Leader: "a", LeaderEpoch: 10,
		RoleLease: api.Duration(short)}
	type leases []time.Duration
	for name, tt := range map[string]struct {
		before, after contract.Directive
		named         leases        // by the agent's polls after the change; 0: none
		told          leases        // by their answers; 0: nothing
		counted       time.Duration // by the hub, after the last answer
		held          time.Duration // how long it holds the last poll
	}{
		"shorter, and the agent does not name it":    {active, passive, leases{0, 0}, leases{0, 0}, long, third},
		"shorter, and the agent has not read it yet": {active, passive, leases{long}, leases{short}, long, third},
		"shorter":                                {active, passive, leases{long, short}, leases{short, 0}, short, third},
		"shorter, and the answer lost":           {active, passive, leases{long, long}, leases{short, short}, long, third},
		"longer, and the agent does not name it": {passive, active, leases{0, 0}, leases{0, 0}, short, third},
		"longer, and the agent may have read it": {passive, active, leases{short}, leases{long}, long, third},
		"longer":                                 {passive, active, leases{short, long}, leases{long, 0}, long, long / 3},
		"one that it was not told":               {passive, passive, leases{5 * time.Second}, leases{short}, long, third},
		"the same":                               {passive, passive, leases{short, short}, leases{0, 0}, short, third},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				tt.before.Version, tt.after.Version = 1, 2
				b.temporal.direct["c"] = tt.before
				a := b.register("a", 1)
				a.poll() // reads its role
				given := a.give(aTask("t1", safety(api.Fenced)))
				require.NoError(t, b.direct(t.Context(), tt.after))
				b.pass(0)
				var answered, began time.Time
				for i, named := range tt.named {
					began = time.Now()
					answer := <-a.poll(lists(given), func(p *protocol.Poll) {
						p.Lease = api.Duration(cluster.AgentLease(named))
					})
					answered = time.Now()
					require.NoError(t, answer.err)
					require.Equal(t, cluster.AgentLease(tt.told[i]), answer.Lease.Std(), "poll %d", i)
				}
				require.Equal(t, tt.held, answered.Sub(began))
				a.hangUp()
				b.pass(20 * time.Second) // fenced work is held until the lease has ended
				require.Len(t, b.reported(), 1)
				r := b.reported()[0]
				free := r.NoticedAt.Add(r.LeaseRemaining.Std()).Sub(answered)
				require.GreaterOrEqual(t, free, tt.counted, "another may begin while the agent goes on")
				require.Equal(t, max(tt.counted, r.NoticedAt.Sub(answered)), free)
			})
		})
	}
}

// An answer that comes late for a shorter lease does not tell it: it would be over at once, and end fenced work.
func TestAShorterLeaseIsToldInTime(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		names := func(p *protocol.Poll) { p.Lease = api.Duration(cluster.AgentLease(15 * time.Second)) }
		held := a.poll(names)
		b.pass(4 * time.Second)
		require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActivePassive,
			Leader: "a", LeaderEpoch: 10, RoleLease: api.Duration(3 * time.Second)}))
		late := <-held
		require.Len(t, late.Commands, 1, "it leads now")
		require.Zero(t, late.Lease)
		began := time.Now()
		require.Equal(t, 2850*time.Millisecond, (<-a.poll(names)).Lease.Std())
		require.Equal(t, time.Second, time.Since(began))
	})
}
