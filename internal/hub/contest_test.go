package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// process is a process of the agent a on a host.
func process(host string) func(*protocol.Register) {
	return func(r *protocol.Register) {
		r.InstanceID, r.Host, r.PID, r.Address = "process-on-"+host, host, 7, host+".example"
	}
}

// knock registers a process of the agent a that must wait.
func (b *bench) knock(host string) error {
	reg := protocol.Register{AgentID: "a", Cluster: "c", AgentProfile: api.AgentProfile{MaxTasks: 1}}
	process(host)(&reg)
	_, err := b.openSession(b.t.Context(), reg, cluster.JoinToken{}, false)
	return err
}

// rivals are the rivals that the hub publishes.
func (b *bench) rivals() (rivals []cluster.Rival) {
	for _, entry := range (facts{b.Hub}).entries(func(string) bool { return true }) {
		if r, ok := contract.RivalOf(entry); ok && entry.GetStatus() != enumspb.WORKER_STATUS_SHUTDOWN {
			rivals = append(rivals, r)
		}
	}
	return rivals
}

// Two processes with one agent id, each started again by its supervisor.
func TestTwoProcessesWithOneAgentID(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		began := time.Now()
		first := b.register("a", 1, process("one"))
		first.poll()
		first.give(contract.RunTaskInput{TaskID: "t", Spec: api.TaskSpec{Type: "work", Cluster: "c"}})
		second := b.register("a", 1, process("two")) // one that hangs is replaced at once
		second.poll()
		require.Empty(t, b.rivals(), "once is no contest")
		lost := b.reported()
		require.Len(t, lost, 1)
		require.Equal(t, api.AttemptLost, lost[0].Outcome)
		require.True(t, lost[0].Planned, "it says nothing against the task")

		err := b.knock("one-again")
		require.ErrorContains(t, err, "another process with this agent id is connected")
		code, _ := httpapi.Code(err)
		require.Equal(t, protocol.CodeRateLimited, code, "agents ask again")
		require.Equal(t, []cluster.Rival{{AgentID: "a", Host: "one-again", PID: 7, Address: "one-again.example",
			Since: began.UTC()}}, b.rivals())
		for stopped := time.Now(); time.Since(stopped) <= rivalKept; {
			second.poll()
			b.pass(time.Second)
		}
		require.Empty(t, b.rivals(), "it was stopped")

		third := b.register("a", 1, process("three"))
		third.poll()
		require.Equal(t, "two", b.rivals()[0].Host, "the id was taken from it")
		require.Error(t, b.knock("two"))
		third.hangUp() // it has crashed
		b.register("a", 1, process("two"))
		require.Empty(t, b.rivals())
	})
}

// A task that crashes its agent counts as lost with it.
func TestCrashedAgentIsNoContest(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		for _, id := range []string{"t1", "t2", "t3"} {
			p := b.register("a", 1, process(id))
			p.poll()
			p.give(contract.RunTaskInput{TaskID: id, Spec: api.TaskSpec{Type: "work", Cluster: "c"}})
			p.hangUp()
		}
		b.register("a", 1, process("last"))
		require.Len(t, b.reported(), 3)
		for _, r := range b.reported() {
			require.Equal(t, api.AttemptLost, r.Outcome)
			require.False(t, r.Planned)
		}
		require.Empty(t, b.rivals())
	})
}

// The other process is connected to another hub.
func TestTwoProcessesWithOneAgentIDAtTwoHubs(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		for version := range int64(2) {
			p := b.register("a", 1, process(fmt.Sprintf("one-%d", version)))
			p.poll()
			b.mu.Lock()
			b.applyDirectiveLocked(contract.Directive{Cluster: "c", Version: version + 100,
				Fences: []contract.Fence{{AgentID: "a", MinEpoch: p.claims.Epoch + 1}}})
			b.mu.Unlock()
			b.pass(time.Second)
			require.Nil(t, p.session())
			if version == 0 {
				b.pass(task.UnknownLease)
			}
		}
		b.temporal.online = []string{contract.AgentIdentity("c", "a")}
		require.Error(t, b.knock("one"))
		b.temporal.online = nil // its process has ended
		b.pass(2 * time.Second)
		require.NoError(t, b.knock("one"))
	})
}
