package hub

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// crowd is a hub with a cluster's agents, each with two slots.
func crowd(t testing.TB, agents int, change func(int, *protocol.Register)) (*Hub, *lane) {
	t.Helper()
	h, err := New(Options{ID: "hub-1", Store: fakeStore(newFakeTemporal()),
		Key: []byte("0123456789abcdef")})
	require.NoError(t, err)
	h.stopping = true // it opens no polls
	h.directives["c"] = contract.Directive{Cluster: "c", Mode: api.ActiveActive, AgentLanes: 1}
	for i := range agents {
		reg := protocol.Register{AgentID: fmt.Sprintf("agent-%05d", i), Cluster: "c", InstanceID: "instance",
			AgentProfile: api.AgentProfile{MaxTasks: 2}}
		change(i, &reg)
		s := newSession(reg, 1, time.Now())
		s.health = h.health.Open(s.agent)
		h.sessions[s.agent] = s
		h.moveLocked(s, "192.0.2.1")
		h.slotsChangedLocked(s)
		h.serveLocked(s)
	}
	return h, h.lanes["lane/c"]
}

// Whatever has happened, a placement that looks at few sessions chooses as one that looks at all.
func TestPlacementByRankIsPlacementByAll(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	kinds := [][]string{nil, {"gpu"}, {"gpu", "ssd"}}
	h, l := crowd(t, 200, func(i int, r *protocol.Register) {
		r.Capabilities, r.Bundles = kinds[i%3], i%2 == 0
	})
	name := func() string { return fmt.Sprintf("agent-%05d", random.IntN(200)) }
	var running []*attempt
	for n := range 3000 {
		s := h.sessions[name()]
		s.reports.metrics = protocol.Metrics{CPUPercent: new(float64(random.IntN(5))),
			MemoryPercent: new(float64(random.IntN(5)))}
		h.slotsChangedLocked(s)
		if len(running) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(running))
			h.forgetLocked(running[i])
			running = append(running[:i], running[i+1:]...)
		}
		if random.IntN(20) == 0 { // it registers anew as another kind
			s.candidate.Capabilities = kinds[random.IntN(3)]
			s.kind = kindOf(&s.candidate, s.registration.Bundles)
			h.slotsChangedLocked(s)
		}
		in := aTask(fmt.Sprintf("t%d", n), func(in *contract.RunTaskInput) {
			in.Spec.RequiredCapabilities = kinds[random.IntN(3)]
			in.Spec.PreferredCapabilities = kinds[random.IntN(3)]
			in.PreferAgent, in.TransferredFrom, in.Spec.Affinity = name(), name(), name()
			if random.IntN(2) == 0 {
				bundleOf(1, 2)(in)
			}
		})
		var all []task.Candidate
		for s := range l.sessions {
			if s.serving.free > 0 && s.takes(&in) {
				all = append(all, s.live())
			}
		}
		wants := ""
		if i := task.Place(&in.Spec, all, task.Hint{Prefer: in.PreferAgent, Avoid: in.TransferredFrom}, time.Now()); i >= 0 {
			wants = all[i].AgentID
		}
		a := &attempt{attemptClaims: attemptClaims{Task: in.TaskID, Attempt: 1, Lane: l.name}, input: in}
		got := ""
		if l.place(a) {
			got = a.session.agent
			running = append(running, a)
		}
		require.Equal(t, wants, got, "placement %d", n)
	}
	require.Greater(t, len(running), 50)
}

// Where none of the least loaded agents can take a task, the others are asked.
func TestPlacementBeyondTheRank(t *testing.T) {
	t.Parallel()
	h, l := crowd(t, 50, func(int, *protocol.Register) {})
	for i := range 49 {
		h.sessions[fmt.Sprintf("agent-%05d", i)].candidate.MaxTasks = 0
	}
	a := &attempt{attemptClaims: attemptClaims{Task: "t", Attempt: 1, Lane: l.name}, input: aTask("t")}
	require.True(t, l.place(a))
	require.Equal(t, "agent-00049", a.session.agent)
}

func BenchmarkPlacement(b *testing.B) {
	for _, agents := range []int{100, 10_000} {
		b.Run(fmt.Sprint(agents), func(b *testing.B) {
			h, l := crowd(b, agents, func(int, *protocol.Register) {})
			in := aTask("t")
			for b.Loop() {
				a := &attempt{attemptClaims: attemptClaims{Task: "t", Attempt: 1, Lane: l.name}, input: in}
				require.True(b, l.place(a))
				h.forgetLocked(a)
				h.fresh = nil
			}
		})
	}
}
