package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/health"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// series is one series of a metric: its value, or of a histogram its count and sum.
func (b *bench) series(name string, labels map[string]string) (value, sum float64, found bool) {
	b.t.Helper()
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if family.GetName() == name && equalLabels(has, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()),
					m.GetHistogram().GetSampleSum(), true
			}
		}
	}
	return 0, 0, false
}

func equalLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// Each case changes a metric of the hub from one value to another.
func TestMetricsMove(t *testing.T) {
	agent := map[string]string{"agent_id": "a"}
	cluster := map[string]string{"cluster_id": "c"}
	interval := testTiming.HeartbeatInterval
	for _, c := range []struct {
		name   string
		labels map[string]string
		do     func(b *bench, a *peer)
		from   float64
		to     float64
	}{
		{"stella_agent_health_score", agent, func(_ *bench, a *peer) { timeOut(a, 10) }, 1, .75},
		{"stella_agent_task_completion_rate", agent, func(_ *bench, a *peer) {
			timeOut(a, 3)
			_ = a.report(a.give(aTask("t4")), api.AttemptCompleted)
		}, 1, .25},
		{"stella_agent_heartbeat_age_seconds", agent, func(b *bench, _ *peer) { b.pass(7 * time.Second) }, 0, 7},
		{"stella_agent_heartbeat_success_total", agent, func(_ *bench, a *peer) { a.poll(); a.poll() }, 1, 3},
		{"stella_agent_heartbeat_failure_total", agent, func(b *bench,
			_ *peer) {
			b.pass(2*interval + interval/2 + detectEvery)
		}, 0, 2},
		{"stella_agent_heartbeat_failure_total", agent, func(b *bench, a *peer) { a.hangUp(); b.pass(3 * detectEvery) },
			0, 1},
		{"stella_agent_queue_latency_seconds", cluster, func(_ *bench, a *peer) { a.give(aTask("t1")) }, 0, 1},
		{"mainstay_hub_failover_seconds", cluster, func(b *bench,
			a *peer) {
			a.give(aTask("t1", lostAt(b, 2*time.Second)))
		}, 0, 1},
		{"mainstay_hub_lease_age_seconds", nil, func(b *bench,
			_ *peer) {
			b.lease.Renewed(time.Now().Add(-3 * time.Second))
		}, 0, 3},
		{"mainstay_hub_sessions", nil, func(b *bench, _ *peer) { b.register("b", 1) }, 1, 2},
		{"mainstay_hub_sessions_opened_total", nil, func(b *bench, _ *peer) { b.register("b", 1) }, 1, 2},
		{"mainstay_hub_sessions_ended_total", map[string]string{"kind": "lost"},
			func(b *bench, a *peer) { a.hangUp(); b.pass(2 * time.Second) }, 0, 1},
		{"mainstay_hub_attempts", nil, func(_ *bench, a *peer) { a.give(aTask("t1")) }, 0, 1},
		{"mainstay_hub_attempts_lost_total", nil, func(b *bench,
			a *peer) {
			a.give(aTask("t1"))
			a.hangUp()
			b.pass(2 * time.Second)
		}, 0, 1},
		{"mainstay_hub_attempts_returned_total", nil, func(b *bench, a *peer) {
			a.poll()
			b.queue("lane/c", aTask("t1"))
			a.poll(func(p *protocol.Poll) { p.Returned = []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1}} })
		}, 0, 1},
		{"mainstay_hub_attempts_reattached_total", nil, func(b *bench, _ *peer) {
			other := b.register("b", 1)
			given := other.give(aTask("t1", func(in *contract.RunTaskInput) { in.Spec.Agent = "b" }))
			b.mu.Lock()
			delete(b.sessions, "b") // as a new process of the hub: it knows nothing
			b.mu.Unlock()
			b.register("b", 1, func(r *protocol.Register) {
				r.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: given.Attempt,
					Token: given.Token}}
			})
		}, 0, 1},
		// of the cluster's lane and the agents' own
		{"mainstay_hub_lane_polls", nil, func(b *bench, _ *peer) { b.register("b", 1) }, 8, 10},
		{"mainstay_hub_tasks_parked_total", nil, func(b *bench, _ *peer) {
			for _, id := range []string{"t1", "t2", "t3", "t4"} {
				b.queue("lane/c", aTask(id))
			}
			b.queue("lane/c/agent/a", aTask("t5")) // its poll was opened while there were slots
		}, 0, 1},
		{"mainstay_hub_stuck_handlers", nil, func(_ *bench, a *peer) {
			_ = a.report(a.give(aTask("t1")), api.AttemptTimedOut, func(in *resultInput) { in.Body.Stuck = true })
		}, 0, 1},
		{"mainstay_hub_results_total", map[string]string{"outcome": "completed"},
			func(_ *bench, a *peer) { _ = a.report(a.give(aTask("t1")), api.AttemptCompleted) }, 0, 1},
		{"mainstay_hub_stale_results_total", nil, func(_ *bench, a *peer) {
			given := a.give(aTask("t1"))
			_ = a.report(given, api.AttemptCompleted)
			_ = a.report(given, api.AttemptCompleted)
		}, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 4)
				a.poll()
				from, _, _ := b.series(c.name, c.labels)
				require.InDelta(t, c.from, from, .001, "before")
				c.do(b, a)
				to, _, found := b.series(c.name, c.labels)
				require.True(t, found)
				require.InDelta(t, c.to, to, .001, "after")
			})
		})
	}
}

// timeOut lets attempts of an agent time out, whose handlers the agent cannot end at once.
func timeOut(a *peer, times int) {
	for n := range times {
		_ = a.report(a.give(aTask(fmt.Sprint("out", n))), api.AttemptTimedOut,
			func(in *resultInput) { in.Body.Stuck = true })
	}
}

// lostAt makes a task one that was lost with its agent some time ago.
func lostAt(_ *bench, ago time.Duration) func(*contract.RunTaskInput) {
	return func(in *contract.RunTaskInput) {
		at := time.Now().Add(-ago)
		in.LostAt = &at
	}
}

func TestFailoverTimeIsThatFromNoticingToAcceptance(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 4)
		a.give(aTask("t1", lostAt(b, 1500*time.Millisecond)))
		a.give(aTask("t2"))
		count, sum, _ := b.series("mainstay_hub_failover_seconds", map[string]string{"cluster_id": "c"})
		require.EqualValues(t, 1, count, "a task that was not lost is no failover")
		require.InDelta(t, 1.5, sum, .001)
		a.poll(lists(protocol.Assignment{TaskID: "t1", Attempt: 1}, protocol.Assignment{TaskID: "t2", Attempt: 1}))
		count, _, _ = b.series("mainstay_hub_failover_seconds", map[string]string{"cluster_id": "c"})
		require.EqualValues(t, 1, count, "one acceptance counts once")
	})
}

// A loss that was noticed carries the time, a planned move does not: it is no fault.
func TestOnlyFaultsAreTimed(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		a.give(aTask("t1"))
		a.give(aTask("t2"))
		b.mu.Lock()
		b.sessions["a"].work.attempts[attemptKey{"t2", 1}].evacuation = &contract.EvacuateInput{}
		b.mu.Unlock()
		a.hangUp()
		b.pass(2 * time.Second)
		for _, r := range b.reported() {
			require.Equal(t, r.token == "t1/1", r.NoticedAt != nil, r.token)
		}
		require.Len(t, b.reported(), 2)
	})
}

// Nothing stays of an agent that is gone; the heartbeats it missed last stay for a while, to be seen.
func TestAgentsThatAreGoneAreNotTold(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		agent := map[string]string{"agent_id": "a"}
		gauges := []string{"stella_agent_health_score", "stella_agent_heartbeat_age_seconds",
			"stella_agent_task_completion_rate"}
		counters := []string{"stella_agent_heartbeat_success_total", "stella_agent_heartbeat_failure_total"}
		told := func(names []string, want bool, when string) {
			t.Helper()
			for _, name := range names {
				_, _, found := b.series(name, agent)
				require.Equal(t, want, found, "%s %s", name, when)
			}
		}
		a := b.register("a", 1)
		a.poll()
		told(gauges, true, "while it is there")
		a.hangUp()
		b.pass(2 * time.Second)
		told(gauges, false, "when it is lost")
		told(counters, true, "when it is lost")
		b.pass(health.Kept + time.Second)
		told(counters, false, "long after")
	})
}
