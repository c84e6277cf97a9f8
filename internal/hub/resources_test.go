package hub

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// offers makes an agent of a host offer GPUs of so much memory each, and two ports.
func offers(host string, memory ...string) func(*protocol.Register) {
	return func(r *protocol.Register) {
		r.Host, r.Resources = host, &api.Inventory{Ports: "20000-20001"}
		for i, m := range memory {
			r.Resources.Devices = append(r.Resources.Devices, api.Device{Kind: "gpu", Index: i, Memory: m})
		}
	}
}

// asks opens the lane of a demand, and returns its task queue and what makes a task ask for it.
func (b *bench) asks(d api.Demand) (lane string, ask func(*contract.RunTaskInput)) {
	b.t.Helper()
	spec := api.TaskSpec{Place: d}
	needs := task.LaneNeedsOf(&spec, false)[0]
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	directive := b.temporal.direct["c"]
	directive.Version++
	directive.Fits = append(directive.Fits, task.Fit{Lane: task.LaneFor(&needs), LaneNeeds: needs})
	b.temporal.direct["c"] = directive
	return "lane/c/" + task.LaneFor(&needs), func(in *contract.RunTaskInput) { in.Spec.Place = d }
}

func memory(size string) api.Demand {
	return api.Demand{Devices: []api.DeviceDemand{{Kind: "gpu", Memory: size}}}
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
			running = append(running, p.takes(lane, aTask(id, ask), running...))
		}
		require.Equal(t, []api.DeviceShare{{Kind: "gpu", Memory: "8Gi"}}, running[2].Allocation.Devices)
		require.Zero(t, b.open(lane), "the fourth waits in its lane")
		require.NotZero(t, b.open("lane/c"), "other tasks go on")

		b.settled(p.claims, attemptKey{"t2", 1}, api.AttemptCompleted)
		b.pass(time.Millisecond)
		require.Equal(t, 1, b.open(lane))
		require.Empty(t, b.reported(), "none went back")
	})
}

func TestStuckHandlerKeepsItsDevice(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(memory("24Gi"))
		p := b.register("a", 4, offers("h", "24Gi"))
		given := p.takes(lane, aTask("t1", ask))
		b.settle(&attemptClaims{Task: "t1", Attempt: 1, Agent: "a", Instance: p.claims.Instance}, "c",
			&protocol.Result{Outcome: api.AttemptTimedOut, Stuck: true},
			&contract.AttemptReport{Outcome: api.AttemptTimedOut})
		p.poll(lists(given))
		require.Zero(t, b.open(lane))
		p.poll()
		require.Equal(t, 1, b.open(lane), "the agent no longer lists it")
	})
}

func TestAnotherHubKeepsAllocations(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(api.Demand{Devices: memory("16Gi").Devices,
			Ports: map[string]api.PortDemand{"http": {}}})
		p := b.register("a", 4, offers("h", "24Gi"))
		given := p.takes(lane, aTask("t1", ask))
		require.Equal(t, map[string]int{"http": 20000}, given.Allocation.Ports)

		b.Hub.mu.Lock() // as after a restart
		s := b.sessions["a"]
		delete(b.sessions, "a")
		s.gone = true
		clear(s.work.attempts)
		b.slotsChangedLocked(s)
		b.serveLocked(s)
		b.Hub.mu.Unlock()
		p = b.register("a", 4, offers("h", "24Gi"), func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: given.Token}}
		})
		require.Equal(t, given.Allocation, p.session().work.attempts[attemptKey{"t1", 1}].Allocation)
		require.Zero(t, b.open(lane), "8 GiB are left")
	})
}

func TestPortsRestAfterAnAttempt(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(api.Demand{Ports: map[string]api.PortDemand{"http": {}}})
		static, askStatic := b.asks(api.Demand{Ports: map[string]api.PortDemand{"http": {Static: 80}}})
		p := b.register("a", 4, offers("h"))
		q := b.register("b", 4, offers("h")) // on the same host
		first := p.takes(lane, aTask("t1", ask))
		require.Equal(t, 20000, first.Allocation.Ports["http"])
		q.takes(static, aTask("t2", askStatic))
		b.queue(static, aTask("t4", askStatic)) // a poll was open for the other agent
		b.pass(3 * time.Second)
		require.Equal(t, "too little is free of port 80 on 2 agents", b.reported()[0].Reason)
		require.False(t, b.reported()[0].Unhandled)
		require.Zero(t, b.open(static), "now it waits in its lane")

		b.settled(p.claims, attemptKey{"t1", 1}, api.AttemptCompleted)
		b.settled(q.claims, attemptKey{"t2", 1}, api.AttemptCompleted)
		p.poll()
		require.NotZero(t, b.open(static), "a static port does not rest")
		second := p.takes(lane, aTask("t3", ask))
		require.Equal(t, 20001, second.Allocation.Ports["http"])
		for range 15 {
			b.pass(5 * time.Second)
			p.poll(lists(second))
			q.poll()
		}
		require.Equal(t, 20000, q.takes(lane, aTask("t5", ask)).Allocation.Ports["http"], "it has rested")
	})
}

func TestPortInUseGoesBackUncounted(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lane, ask := b.asks(api.Demand{Ports: map[string]api.PortDemand{"http": {}}})
		p := b.register("a", 4, offers("h"))
		answer := p.poll()
		b.queue(lane, aTask("t1", ask))
		given := (<-answer).Assignments[0]
		p.poll(func(poll *protocol.Poll) {
			poll.Returned = []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: given.Token, PortInUse: 20000}}
		})
		require.Len(t, b.reported(), 1)
		back := b.reported()[0]
		require.Equal(t, api.AttemptReturned, back.Outcome)
		require.Equal(t, "port_in_use: agent a cannot listen on port 20000", back.Reason)
		require.False(t, back.Begun || back.NotReceived || back.Unhandled)
		again := p.takes(lane, aTask("t1", ask, func(in *contract.RunTaskInput) { in.Attempt = 2 }))
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
			b.queue("lane/c/agent/a", aTask(id, func(in *contract.RunTaskInput) { in.Spec.Place = memory(id) }))
			require.Len(t, b.reported(), 1)
			require.Equal(t, wants, b.reported()[0].Reason)
			require.True(t, b.reported()[0].Unhandled)
			require.NotZero(t, b.open("lane/c/agent/a"), "it is not parked")
			b.queue("lane/c", aTask("small"))
			require.Len(t, (<-answer).Assignments, 1)
		}
	})
}

// An agent names its host itself. One elsewhere that names another's host gets none of that host's ports.
func TestPortsAreThoseOfAHostAtAnAddress(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		static, ask := b.asks(api.Demand{Ports: map[string]api.PortDemand{"http": {Static: 80}}})
		p, q := b.register("a", 4, offers("h")), b.register("b", 4, offers("h"))
		b.Hub.mu.Lock()
		b.moveLocked(b.sessions["b"], "192.0.2.7")
		b.Hub.mu.Unlock()
		answers := []<-chan answered{p.poll(), q.poll()}
		b.queue(static, aTask("t1", ask))
		b.queue(static, aTask("t2", ask))
		for _, answer := range answers {
			require.Len(t, (<-answer).Assignments, 1)
		}
	})
}

// crowdOfHosts has agents, four on each host, and a lane for each demand.
func crowdOfHosts(t testing.TB, agents int, demands ...api.Demand) (h *Hub, lanes []*lane) {
	t.Helper()
	h, _ = crowd(t, agents, func(i int, r *protocol.Register) {
		r.MaxTasks, r.Host = 6, fmt.Sprint("host-", i/4)
		r.Resources = &api.Inventory{Amounts: api.Amounts{CPU: "16", Memory: "64Gi"}, Ports: "20000-20003",
			Devices: []api.Device{{Kind: "gpu", Memory: "24Gi"}, {Kind: "gpu", Index: 1, Memory: "24Gi"}}}
	})
	d := h.directives["c"]
	for _, demand := range demands {
		require.NoError(t, demand.Validate())
		needs := api.LaneNeeds{Place: demand}
		d.Fits = append(d.Fits, task.Fit{Lane: task.LaneFor(&needs), LaneNeeds: needs})
	}
	h.directives["c"] = d
	for _, s := range h.sessions {
		h.serveLocked(s)
	}
	for i := range d.Fits {
		require.NotNil(t, h.lanes[contract.LaneQueue("c", d.Fits[i].Lane)])
		lanes = append(lanes, h.lanes[contract.LaneQueue("c", d.Fits[i].Lane)])
	}
	return h, lanes
}

func portsOf(static ...int) api.Demand {
	d := api.Demand{Ports: map[string]api.PortDemand{}}
	for i, port := range static {
		d.Ports[fmt.Sprint("p", i)] = api.PortDemand{Static: port}
	}
	return d
}

// What an agent has left is counted only when it changes. Whatever happens, it is what counting anew finds.
func TestWhatIsLeftIsCountedWhenItChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ram api.Demand
		ram.Resources.Memory = "20Gi"
		demands := []api.Demand{ram, memory("16Gi"), memory(""), portsOf(0), portsOf(80), portsOf(20001, 0)}
		h, lanes := crowdOfHosts(t, 12, demands...)
		random := rand.New(rand.NewPCG(5, 6))
		var running []*attempt
		seen := map[string]int{}
		for n := range 2000 {
			h.mu.Lock()
			var what string
			switch k := random.IntN(10); {
			case k < 5:
				l := lanes[random.IntN(len(lanes))]
				in := aTask(fmt.Sprint("t", n))
				in.Spec.Place = *l.need
				a := &attempt{attemptClaims: attemptClaims{Task: in.TaskID, Attempt: 1, Lane: l.name}, input: in}
				if l.place(a) {
					a.accepted, running, what = true, append(running, a), "placed"
				}
			case len(running) == 0:
			default:
				i := random.IntN(len(running))
				a := running[i]
				s := a.session
				running = slices.Delete(running, i, i+1)
				switch {
				case k < 8:
					h.forgetLocked(a)
					what = "ended"
				case k == 8:
					s.leave(a.key(), leftover{})
					h.forgetLocked(a)
					what = "left over"
				default:
					h.countLeftoversLocked(s, nil, time.Now())
					h.moveLocked(s, fmt.Sprint("192.0.2.", random.IntN(2)))
					h.forgetLocked(a)
					what = "moved"
				}
			}
			seen[what]++
			h.mu.Unlock()
			<-time.After(time.Duration(random.IntN(2000)) * time.Millisecond)
			synctest.Wait()
			h.mu.Lock()
			for _, s := range h.sessions {
				h.slotsChangedLocked(s) // as by a poll
			}
			for i, l := range lanes {
				for s, seat := range l.sessions {
					stock, ports := task.NewStock(s.registration.Resources), &task.Ports{}
					s.work.eachAllocation(stock.Take)
					for _, other := range h.sessions {
						if other.resources.host.name == s.resources.host.name {
							other.work.eachAllocation(ports.Take)
						}
					}
					for port, rest := range s.resources.host.rests {
						ports.TakePort(port, !time.Now().Before(rest.inUse))
					}
					require.Equal(t, min(s.serving.free, stock.On(ports).Room(&demands[i], 16)), seat.slots,
						"%d: %s: %s of %s", n, what, l.name, s.agent)
				}
			}
			h.mu.Unlock()
		}
		for _, what := range []string{"placed", "ended", "left over", "moved"} {
			require.Greater(t, seen[what], 50, what)
		}
	})
}

// BenchmarkManyFits has a tenant ask for as many different resources as it may: how long the hub's lock is held.
func BenchmarkManyFits(b *testing.B) {
	for _, agents := range []int{100, 1000} {
		for name, demand := range map[string]func(i int) api.Demand{
			"none":    nil,
			"memory":  func(i int) (d api.Demand) { d.Resources.Memory = fmt.Sprint(i + 1); return d },
			"devices": func(i int) api.Demand { return memory(fmt.Sprint(i + 1)) },
			"ports":   func(i int) api.Demand { return portsOf(0, 0, 21000+i) },
		} {
			var demands []api.Demand
			if demand != nil {
				for i := range cluster.MaxCapabilitySets / 2 {
					demands = append(demands, demand(i))
				}
			}
			h, lanes := crowdOfHosts(b, agents, demands...)
			s, l, in := h.sessions["agent-00007"], h.lanes["lane/c"], aTask("t")
			if len(lanes) > 0 {
				l = lanes[0]
				in.Spec.Place = *l.need
			}
			b.Run(fmt.Sprintf("poll/%d agents/%s", agents, name), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					s.reports.metrics.CPUPercent = new(float64(i % 100))
					h.slotsChangedLocked(s)
				}
			})
			b.Run(fmt.Sprintf("placement and end/%d agents/%s", agents, name), func(b *testing.B) {
				for b.Loop() {
					a := &attempt{attemptClaims: attemptClaims{Task: "t", Attempt: 1, Lane: l.name}, input: in}
					h.mu.Lock()
					require.True(b, l.place(a))
					h.forgetLocked(a)
					h.fresh = nil
					h.mu.Unlock()
				}
			})
			b.Run(fmt.Sprintf("directive/%d agents/%s", agents, name), func(b *testing.B) {
				for b.Loop() {
					h.serveLocked(s)
				}
			})
		}
	}
}
