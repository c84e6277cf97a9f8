package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestPausedLanesAreNotPolled(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		tell := func(version int64, paused bool, lanes ...string) {
			require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: version,
				Mode:           api.ActiveActive,
				CapabilitySets: [][]string{{"gpu"}}, Paused: paused, PausedLanes: lanes}))
			b.pass(0)
		}
		open := func() map[string]int {
			return map[string]int{"default": b.open("lane/c"), "cap": b.open("lane/c/cap/gpu"),
				"agent": b.open("lane/c/agent/a")}
		}
		gpu := func(r *protocol.Register) { r.Capabilities = []string{"gpu"} }
		a := b.register("a", 2, gpu)
		running := a.give(aTask("running"))
		tell(2, false)
		require.Equal(t, map[string]int{"default": 1, "cap": 1, "agent": 2}, open())

		tell(3, false, "cap/gpu")
		require.Equal(t, map[string]int{"default": 1, "cap": 0, "agent": 2}, open())
		tell(4, true)
		require.Equal(t, map[string]int{"default": 0, "cap": 0, "agent": 0}, open())
		other := b.register("b", 2, gpu)
		require.Zero(t, b.open("lane/c")+b.open("lane/c/agent/b"), "an agent that joins takes nothing")
		require.Empty(t, b.reported(), "what runs goes on")
		require.Len(t, a.session().work.attempts, 1)

		tell(5, false, "default")
		require.Equal(t, map[string]int{"default": 0, "cap": 3, "agent": 1}, open())
		tell(6, false)
		require.Equal(t, 3, b.open("lane/c"))
		a.poll(lists(running))
		require.NotNil(t, other.session())
	})
}

func TestPauseReturnsWhatIsParked(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.give(aTask("running"))
		b.mu.Lock()
		l := b.lanes["lane/c"]
		l.polls++
		b.mu.Unlock()
		b.wg.Go(func() { b.pollLane(l) })
		b.pass(0)
		b.queue("lane/c", aTask("parked"))
		require.Len(t, l.parked, 1)
		require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive,
			Paused: true}))
		b.pass(0)
		require.Empty(t, l.parked)
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptReturned, b.reported()[0].Outcome)
		require.Equal(t, "the lane is paused", b.reported()[0].Reason)
	})
}

// An assignment that no answer has carried does not begin after a pause.
func TestPauseReturnsWhatWasNotDelivered(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		b.queue("lane/c", aTask("t1"))
		b.queue("lane/c/agent/a", aTask("t2"))
		require.Len(t, a.session().work.outbox, 2)
		require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive,
			PausedLanes: []string{"default"}}))
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.Equal(t, "t1/1", b.reported()[0].token)
		require.Equal(t, "the lane is paused", b.reported()[0].Reason)
		got := <-a.poll()
		require.Len(t, got.Assignments, 1)
		require.Equal(t, "t2", got.Assignments[0].TaskID)
		require.Equal(t, 1, a.session().serving.free)
	})
}

// A cluster that was deleted and made anew counts its versions from the start.
func TestDirectiveOfANewClusterCounts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		now := time.Now()
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", CreatedAt: now, Version: 9, Mode: api.ActiveActive,
			Paused: true}
		b.register("a", 1)
		require.Zero(t, b.open("lane/c"))
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", CreatedAt: now.Add(time.Minute), Version: 1,
			Mode: api.ActiveActive}
		b.register("b", 1)
		require.Equal(t, 2, b.open("lane/c"))
	})
}
