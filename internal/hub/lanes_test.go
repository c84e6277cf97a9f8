package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestPollsFollowFreeSlots(t *testing.T) {
	inBubble(t, Config{LanePollers: 4}, func(t *testing.T, b *bench) {
		a := b.register("a", 3)
		require.Equal(t, 3, b.open("lane/c"))
		require.Equal(t, 3, b.open("lane/c/agent/a"))
		other := b.register("b", 3)
		require.Equal(t, 4, b.open("lane/c"), "LanePollers is the most")
		require.Equal(t, 6, b.lanes["lane/c"].free)

		a.poll()
		other.poll()
		for _, id := range []string{"t1", "t2", "t3", "t4", "t5"} {
			b.queue("lane/c", aTask(id))
		}
		require.Equal(t, 1, b.lanes["lane/c"].free)
		require.Equal(t, 1, b.open("lane/c"))
		b.settled(a.claims, attemptKey{"t1", 1}, api.AttemptCompleted)
		b.settled(other.claims, attemptKey{"t1", 1}, api.AttemptCompleted)
		b.pass(0)
		require.Equal(t, 2, b.lanes["lane/c"].free)
		require.Equal(t, 2, b.open("lane/c"))
	})
}

func TestBestAgentGetsTheTask(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		busy, idle := b.register("a", 4), b.register("b", 4)
		busy.poll(func(p *protocol.Poll) { p.Metrics.CPUPercent = new(90.) })
		answer := idle.poll()
		b.queue("lane/c", aTask("t1"))
		require.Len(t, (<-answer).Assignments, 1)
		answer = busy.poll(func(p *protocol.Poll) { p.Metrics.CPUPercent = new(90.) })
		b.queue("lane/c", aTask("t2", func(in *contract.RunTaskInput) { in.PreferAgent = "a" }))
		require.Len(t, (<-answer).Assignments, 1)
	})
}

// TestNoTaskIsTakenWithoutALease: agents without a lease hand fenced tasks back, so a hub that can give none would take
// the same task again and again, until that is a dead letter.
func TestNoTaskIsTakenWithoutALease(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.lease.Renewed(time.Now().Add(-time.Minute))
		b.register("a", 2)
		b.pass(10 * pollRetry)
		require.Zero(t, b.open("lane/c"))
		b.lease.Renewed(time.Now())
		b.pass(pollRetry)
		require.Equal(t, 2, b.open("lane/c"))
	})
}

func TestLaneIsReleasedWithItsLastAgent(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		b.mu.Lock()
		b.endLocked(a.session0(), ending{reason: "the agent stopped", left: true, at: time.Now()})
		b.mu.Unlock()
		b.pass(0)
		require.ElementsMatch(t, []string{"lane/c", "lane/c/agent/a"}, b.temporal.released)
		require.Zero(t, b.open("lane/c"))
		require.Empty(t, b.lanes)
		b.register("b", 2)
		require.Equal(t, 2, b.open("lane/c"), "it is polled again for the next agent")
	})
}

// session0 is session for callers that hold the mutex.
func (p *peer) session0() *session { return p.b.sessions[p.claims.Agent] }

func TestTaskThatComesTooLateGoesBack(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		b.temporal.mu.Lock()
		open := b.temporal.polls["lane/c"][0]
		open.key = "another" // its release does not reach it
		b.temporal.mu.Unlock()
		b.mu.Lock()
		b.endLocked(a.session0(), ending{reason: "the agent stopped", left: true, at: time.Now()})
		b.mu.Unlock()
		b.pass(0)
		b.queue("lane/c", aTask("t1"))
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptReturned, b.reported()[0].Outcome)
		require.False(t, b.reported()[0].Begun)
		require.Empty(t, b.lanes)
	})
}

func TestTaskWithoutASlotIsParked(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("pinned"))
		b.mu.Lock()
		l := b.lanes["lane/c"]
		l.polls++ // as when two lanes answer at once for one slot
		b.mu.Unlock()
		b.wg.Go(func() { b.pollLane(l) })
		b.pass(0)
		b.queue("lane/c", aTask("parked"))
		require.Len(t, l.parked, 1)
		require.Empty(t, b.reported())

		b.pass(b.config.Park - time.Millisecond)
		answer := a.poll(lists(given))
		b.settled(a.claims, attemptKey{"pinned", 1}, api.AttemptCompleted)
		require.Equal(t, "parked", (<-answer).Assignments[0].TaskID, "the slot that comes free is for what waits")
		require.Empty(t, l.parked)
		b.pass(b.config.Park)
		require.Empty(t, b.reported())
	})
}

func TestStopGivesBackWhatWasNotDelivered(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 3)
		running := a.give(aTask("running"))
		held := a.poll(lists(running))
		other := b.register("b", 1)
		b.queue("lane/c/agent/b", aTask("undelivered"))
		b.Stop(t.Context())
		require.NoError(t, (<-held).err, "a held poll is answered")
		require.Len(t, b.reported(), 1, "what runs goes on")
		require.Equal(t, "undelivered/1", b.reported()[0].token)
		require.Equal(t, api.AttemptReturned, b.reported()[0].Outcome)
		require.NotNil(t, other.session())
		require.Zero(t, b.open("lane/c"))
		require.Empty(t, b.changed(), "agents stay members: they re-attach")
		b.Stop(t.Context()) // twice is fine
	})
}

func TestUnreadableTaskFails(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 1)
		b.mu.Lock()
		b.lanes["lane/c"].handleTask(badTask)
		b.mu.Unlock()
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptFailed, b.reported()[0].Outcome)
		require.True(t, b.reported()[0].Final, "the next delivery would be the same")
	})
}
