package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// offers makes an agent of a host offer GPUs of so much memory each, and two ports.
func offers(host string, memory ...string) func(*protocol.Register) {
	return func(r *protocol.Register) {
		r.Host, r.Resources = host, &fleet.Inventory{Ports: "20000-20001"}
		for i, m := range memory {
			r.Resources.Devices = append(r.Resources.Devices, fleet.Device{Kind: "gpu", Index: i, Memory: m})
		}
	}
}

// asks opens the lane of a demand, and returns its task queue and what makes a task ask for it.
func (b *bench) asks(d fleet.Demand) (lane string, ask func(*contract.RunTaskInput)) {
	b.t.Helper()
	spec := fleet.TaskSpec{Place: d}
	needs := spec.LaneNeeds()[0]
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	directive := b.temporal.direct["c"]
	directive.Version++
	directive.Fits = append(directive.Fits, fleet.Fit{Lane: needs.Lane(), LaneNeeds: needs})
	b.temporal.direct["c"] = directive
	return "lane/c/" + needs.Lane(), func(in *contract.RunTaskInput) { in.Spec.Place = d }
}

func memory(size string) fleet.Demand {
	return fleet.Demand{Devices: []fleet.DeviceDemand{{Kind: "gpu", Memory: size}}}
}

// takes has an agent take the next task of a lane.
func (p *peer) takes(lane string, in contract.RunTaskInput, running ...protocol.Assignment) protocol.Assignment {
	p.b.t.Helper()
	answer := p.poll(lists(running...))
	p.b.queue(lane, in)
	got := <-answer
	require.NoError(p.b.t, got.err)
	require.Len(p.b.t, got.Assignments, 1)
	p.poll(lists(append(running, got.Assignments[0])...))
	return got.Assignments[0]
}

func TestLaneIsPolledForWhatStillFits(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(memory("8Gi"))
		never, _ := b.asks(memory("64Gi"))
		b.register("none", 8)
		require.Zero(t, b.open(lane), "it offers nothing")
		p := b.register("a", 8, offers("h", "24Gi"))
		require.Equal(t, 3, b.open(lane))
		require.Zero(t, b.open(never), "no agent could ever run its tasks")
		var running []protocol.Assignment
		for _, id := range []string{"t1", "t2", "t3"} {
			running = append(running, p.takes(lane, task(id, ask), running...))
		}
		require.Equal(t, []fleet.DeviceShare{{Kind: "gpu", Memory: "8Gi"}}, running[2].Allocation.Devices)
		require.Zero(t, b.open(lane), "the fourth waits in its lane")
		require.NotZero(t, b.open("lane/c"), "other tasks go on")

		b.settled(p.claims, attemptKey{"t2", 1}, fleet.AttemptCompleted)
		b.pass(time.Millisecond)
		require.Equal(t, 1, b.open(lane))
		require.Empty(t, b.reported(), "none went back")
	})
}

func TestStuckHandlerKeepsItsDevice(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(memory("24Gi"))
		p := b.register("a", 4, offers("h", "24Gi"))
		given := p.takes(lane, task("t1", ask))
		b.settle(&attemptClaims{Task: "t1", Attempt: 1, Agent: "a", Instance: p.claims.Instance}, "c",
			&protocol.Result{Outcome: fleet.AttemptTimedOut, Stuck: true},
			&contract.AttemptReport{Outcome: fleet.AttemptTimedOut})
		p.poll(lists(given))
		require.Zero(t, b.open(lane))
		p.poll()
		require.Equal(t, 1, b.open(lane), "the agent no longer lists it")
	})
}

func TestAnotherHubKeepsAllocations(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(fleet.Demand{Devices: memory("16Gi").Devices,
			Ports: map[string]fleet.PortDemand{"http": {}}})
		p := b.register("a", 4, offers("h", "24Gi"))
		given := p.takes(lane, task("t1", ask))
		require.Equal(t, map[string]int{"http": 20000}, given.Allocation.Ports)

		b.Hub.mu.Lock() // as after a restart
		s := b.sessions["a"]
		delete(b.sessions, "a")
		s.gone = true
		clear(s.attempts)
		b.slotsChangedLocked(s)
		b.serveLocked(s)
		b.Hub.mu.Unlock()
		p = b.register("a", 4, offers("h", "24Gi"), func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: given.Token}}
		})
		require.Equal(t, given.Allocation, p.session().attempts[attemptKey{"t1", 1}].allocation)
		require.Zero(t, b.open(lane), "8 GiB are left")
	})
}

func TestPortsRestAfterAnAttempt(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(fleet.Demand{Ports: map[string]fleet.PortDemand{"http": {}}})
		static, askStatic := b.asks(fleet.Demand{Ports: map[string]fleet.PortDemand{"http": {Static: 80}}})
		p := b.register("a", 4, offers("h"))
		q := b.register("b", 4, offers("h")) // on the same host
		first := p.takes(lane, task("t1", ask))
		require.Equal(t, 20000, first.Allocation.Ports["http"])
		q.takes(static, task("t2", askStatic))
		b.queue(static, task("t4", askStatic)) // a poll was open for the other agent
		b.pass(3 * time.Second)
		require.Equal(t, "too little is free of port 80 on 2 agents", b.reported()[0].Reason)
		require.False(t, b.reported()[0].Unhandled)
		require.Zero(t, b.open(static), "now it waits in its lane")

		b.settled(p.claims, attemptKey{"t1", 1}, fleet.AttemptCompleted)
		b.settled(q.claims, attemptKey{"t2", 1}, fleet.AttemptCompleted)
		p.poll()
		require.NotZero(t, b.open(static), "a static port does not rest")
		second := p.takes(lane, task("t3", ask))
		require.Equal(t, 20001, second.Allocation.Ports["http"])
		for range 15 {
			b.pass(5 * time.Second)
			p.poll(lists(second))
			q.poll()
		}
		require.Equal(t, 20000, q.takes(lane, task("t5", ask)).Allocation.Ports["http"], "it has rested")
	})
}

func TestPortInUseGoesBackUncounted(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(fleet.Demand{Ports: map[string]fleet.PortDemand{"http": {}}})
		p := b.register("a", 4, offers("h"))
		answer := p.poll()
		b.queue(lane, task("t1", ask))
		given := (<-answer).Assignments[0]
		p.poll(func(poll *protocol.Poll) {
			poll.Returned = []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: given.Token, PortInUse: 20000}}
		})
		require.Len(t, b.reported(), 1)
		back := b.reported()[0]
		require.Equal(t, fleet.AttemptReturned, back.Outcome)
		require.Equal(t, "port_in_use: agent a cannot listen on port 20000", back.Reason)
		require.False(t, back.Begun || back.NotReceived || back.Unhandled)
		again := p.takes(lane, task("t1", ask, func(in *contract.RunTaskInput) { in.Attempt = 2 }))
		require.Equal(t, 20001, again.Allocation.Ports["http"])
	})
}

func TestWhatDoesNotFitKeepsNoSlot(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		p := b.register("a", 1, offers("h", "24Gi"))
		for id, wants := range map[string]string{
			"64Gi": "no agent here has what it asks for: it lacks gpu memory 64Gi on 1 agent",
		} {
			answer := p.poll()
			b.queue("lane/c/agent/a", task(id, func(in *contract.RunTaskInput) { in.Spec.Place = memory(id) }))
			require.Len(t, b.reported(), 1)
			require.Equal(t, wants, b.reported()[0].Reason)
			require.True(t, b.reported()[0].Unhandled)
			require.NotZero(t, b.open("lane/c/agent/a"), "it is not parked")
			b.queue("lane/c", task("small"))
			require.Len(t, (<-answer).Assignments, 1)
		}
	})
}

// An agent names its host itself. One elsewhere that names another's host gets none of that host's ports.
func TestPortsAreThoseOfAHostAtAnAddress(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		static, ask := b.asks(fleet.Demand{Ports: map[string]fleet.PortDemand{"http": {Static: 80}}})
		p, q := b.register("a", 4, offers("h")), b.register("b", 4, offers("h"))
		b.Hub.mu.Lock()
		b.sessions["b"].from = "192.0.2.7"
		b.Hub.mu.Unlock()
		answers := []<-chan answered{p.poll(), q.poll()}
		b.queue(static, task("t1", ask))
		b.queue(static, task("t2", ask))
		for _, answer := range answers {
			require.Len(t, (<-answer).Assignments, 1)
		}
	})
}
