package hub

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestReadTasks(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 4)
		b.pass(0)
		first := a.give(aTask("t2"))
		answer := a.poll(lists(first))
		b.queue("lane/c", aTask("t1"))
		got := <-answer
		require.NoError(t, got.err)
		require.Len(t, got.Assignments, 1)
		second := got.Assignments[0]
		a.poll(lists(first, second))
		b.register("idle", 1)
		read := func(in contract.ReadTasksInput) map[string][]api.HeldTask {
			result, err := b.readTasks(t.Context(), in)
			require.NoError(t, err)
			return result.Agents
		}
		all := read(contract.ReadTasksInput{Cluster: "c"})
		require.Len(t, all, 2)
		require.Empty(t, all["idle"])
		require.Len(t, all["a"], 2)
		require.Equal(t, []string{"t1", "t2"}, []string{all["a"][0].TaskID, all["a"][1].TaskID},
			"neither said when it began: by id")
		require.Equal(t, first.Attempt, all["a"][1].Attempt)
		require.Len(t, read(contract.ReadTasksInput{Cluster: "c", AgentID: "a"}), 1)
		require.Empty(t, read(contract.ReadTasksInput{Cluster: "other"}))
	})
}

func TestHeldTasksOldestFirst(t *testing.T) {
	t.Parallel()
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	begun := func(at *time.Time) api.HeldTask { return api.HeldTask{StartedAt: at} }
	require.Negative(t, compareTimes(begun(&early), begun(&late)))
	require.Negative(t, compareTimes(begun(&late), begun(nil)), "what has not begun comes last")
	require.Positive(t, compareTimes(begun(nil), begun(&early)))
	require.Zero(t, compareTimes(begun(nil), begun(nil)))
}

func TestStatus(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.poll()
		b.pass(0)
		status := b.Status()
		require.Equal(t, 1, status.Agents)
		require.True(t, status.Fresh)
		require.Zero(t, status.Leases)
		b.mu.Lock()
		b.directives["c"] = contract.Directive{Cluster: "c", Mode: "active_passive", Leader: "a", LeaderEpoch: 99}
		b.mu.Unlock()
		b.lease.Renewed(time.Now().Add(-time.Minute))
		status = b.Status()
		require.Equal(t, 1, status.Leases)
		require.False(t, status.Fresh, "a hub that Temporal does not hear renews no lease")
	})
}

// The address that an agent registers from counts only when it names none itself.
func TestAddressOfAnAgent(t *testing.T) {
	for name, c := range map[string]struct{ own, want string }{
		"none": {"", "192.0.2.7"}, "its own": {"worker.internal:9091", "worker.internal:9091"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				ctx := b.ConnContext(access.With(t.Context(), access.Local), fakeConn{})
				_, err := b.registerAgent(ctx, &registerInput{Body: protocol.Register{AgentID: "a",
					InstanceID: "instance-1", Cluster: "c",
					AgentProfile: api.AgentProfile{MaxTasks: 1, Address: c.own}}})
				require.NoError(t, err)
				joins := b.temporal.joins
				require.Equal(t, c.want, joins[len(joins)-1].Joins[0].Address)
			})
		})
	}
}

// fakeConn is a connection of which only the other end is known.
type fakeConn struct{ net.Conn }

func (fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4242} }
