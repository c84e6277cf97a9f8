package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/health"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// rated is an agent's health by the hub's activity.
func (b *bench) rated(agent string) cluster.Health {
	result, err := b.health.Read(b.t.Context(), contract.ReadHealthInput{Cluster: "c", AgentID: agent})
	require.NoError(b.t, err)
	require.Contains(b.t, result.Agents, agent)
	return result.Agents[agent]
}

func TestHealthHasTimesAndFailuresInARow(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		for i, outcome := range []api.AttemptOutcome{api.AttemptFailed, api.AttemptCompleted, api.AttemptFailed,
			api.AttemptTimedOut} {
			_ = a.report(a.give(aTask(fmt.Sprint("t", i))), outcome)
		}
		b.pass(2 * time.Second)
		got := b.rated("a")
		require.Equal(t, 2, got.ConsecutiveFailures)
		for _, check := range got.Checks {
			require.Equal(t, check.Name == "agent", check.LastCheck.Equal(time.Now()), check.Name)
			require.WithinDuration(t, time.Now(), check.LastCheck, 10*time.Second)
		}
	})
}

// gives has an agent be given so many tasks, one after the other, and answer each with a poll.
func gives(a *peer, times int, answers func(*protocol.Poll, protocol.Assignment)) {
	for n := range times {
		answer := a.poll()
		a.b.queue("lane/c", aTask(fmt.Sprint("t", n)))
		given := (<-answer).Assignments
		require.Len(a.b.t, given, 1)
		a.poll(func(p *protocol.Poll) { answers(p, given[0]) })
		a.b.pass(0)
	}
	a.poll()
	a.b.pass(0)
}

func TestHealthOfWhatAnAgentDoes(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(a *peer)
		score float64
		level api.HealthLevel
	}{
		"nothing": {func(*peer) {}, 1, api.HealthHealthy},
		"it completes": {func(a *peer) { _ = a.report(a.give(aTask("t1")), api.AttemptCompleted) }, 1,
			api.HealthHealthy},
		"it fails": {func(a *peer) { _ = a.report(a.give(aTask("t1")), api.AttemptFailed) }, 1,
			api.HealthHealthy},
		"it fails again and again": {func(a *peer) {
			for n := range 10 {
				_ = a.report(a.give(aTask(fmt.Sprint("t", n))), api.AttemptFailed)
			}
		}, .9, api.HealthHealthy},
		"it times out once": {func(a *peer) { _ = a.report(a.give(aTask("t1")), api.AttemptTimedOut) }, 1,
			api.HealthHealthy},
		"it times out again and again": {func(a *peer) {
			for n := range 10 {
				_ = a.report(a.give(aTask(fmt.Sprint("t", n))), api.AttemptTimedOut)
			}
		}, .9, api.HealthHealthy},
		"it does not end what is out of time": {func(a *peer) {
			timeOut(a, 10)
		}, .75, api.HealthCritical},
		"it hands back what it is given": {func(a *peer) {
			gives(a, 10, func(p *protocol.Poll, t protocol.Assignment) {
				p.Returned = []protocol.RunningAttempt{{TaskID: t.TaskID, Attempt: t.Attempt}}
			})
		}, .75, api.HealthCritical},
		"it never lists what it is given": {func(a *peer) {
			gives(a, 10, func(*protocol.Poll, protocol.Assignment) {})
		}, .75, api.HealthCritical},
		"it drops what it has": {func(a *peer) {
			gives(a, 10, func(p *protocol.Poll, t protocol.Assignment) { lists(t)(p) })
		}, .75, api.HealthCritical},
		"it hands back nine": {func(a *peer) {
			gives(a, 9, func(*protocol.Poll, protocol.Assignment) {})
		}, 1, api.HealthHealthy},
		"it cannot read them": {func(a *peer) {
			gives(a, 10, func(p *protocol.Poll, t protocol.Assignment) {
				p.Returned = []protocol.RunningAttempt{{TaskID: t.TaskID, Attempt: t.Attempt, Unreadable: "no"}}
			})
		}, 1, api.HealthHealthy},
		"it hands the tenth back because it stops": {func(a *peer) {
			gives(a, 9, func(*protocol.Poll, protocol.Assignment) {})
			gives(a, 1, func(p *protocol.Poll, t protocol.Assignment) {
				p.Stopping, p.Returned = true, []protocol.RunningAttempt{{TaskID: t.TaskID, Attempt: t.Attempt}}
			})
		}, 1, api.HealthHealthy},
		"it rates itself low": {func(a *peer) {
			low := 0.25
			a.poll(func(p *protocol.Poll) { p.Health, p.HealthNote = &low, "disk errors" })
			a.b.pass(0)
		}, .85, api.HealthDegraded},
		"what was cancelled does not count": {func(a *peer) {
			given := a.give(aTask("t1"))
			a.b.cancelAttempt(a.session().work.attempts[attemptKey{given.TaskID, given.Attempt}])
			_ = a.report(given, api.AttemptCancelled)
		}, 1, api.HealthHealthy},
		"its host is full": {func(a *peer) {
			a.poll(func(p *protocol.Poll) { p.Metrics.DiskPercent = new(100.) })
			a.b.pass(0)
		}, .85, api.HealthDegraded},
		"it is silent": {func(a *peer) { a.b.pass(3 * testTiming.HeartbeatInterval) }, .7,
			api.HealthDegraded},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 2)
				a.poll()
				b.pass(0)
				c.do(a)
				got := b.rated("a")
				require.InDelta(t, c.score, got.Score, .0011, "%+v", got)
				require.Equal(t, c.level, got.Level)
			})
		})
	}
}

func TestHealthIsOfOneClusterAndAgent(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 1)
		b.register("b", 1)
		for in, want := range map[contract.ReadHealthInput]int{{Cluster: "c"}: 2, {Cluster: "c", AgentID: "a"}: 1,
			{Cluster: "other"}: 0, {Cluster: "c", AgentID: "z"}: 0} {
			result, err := b.health.Read(t.Context(), in)
			require.NoError(t, err)
			require.Len(t, result.Agents, want, "%+v", in)
		}
	})
}

// healthTold returns the changes of health that the hub reported to the cluster.
func (b *bench) healthTold() []api.HealthLevel {
	var levels []api.HealthLevel
	for _, c := range b.changed() {
		if c.Health != nil {
			require.Empty(b.t, c.Status)
			levels = append(levels, c.Health.Level)
		}
	}
	return levels
}

// rate lets the agent go on for a while with an opinion of itself.
func (a *peer) rate(own float64, d time.Duration) {
	for ; d > 0; d -= time.Second {
		a.poll(func(p *protocol.Poll) { p.Health = &own })
		a.b.pass(min(d, time.Second))
	}
}

func TestLastingChangesOfHealthAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(a *peer)
		told []api.HealthLevel
	}{
		"nothing is written while nothing is wrong": {func(a *peer) { a.rate(1, time.Minute) }, nil},
		"a worse level, once": {func(a *peer) { a.rate(0, time.Minute) },
			[]api.HealthLevel{api.HealthDegraded}},
		"what passes is not told": {func(a *peer) {
			a.rate(0,
				health.WorseAfter-time.Second)
			a.rate(1, time.Minute)
		}, nil},
		"better again, later": {func(a *peer) {
			a.rate(0, time.Minute)
			a.rate(1, health.BetterAfter-time.Second)
			require.Len(a.b.t, a.b.healthTold(), 1)
			a.rate(1, 10*time.Second)
		}, []api.HealthLevel{api.HealthDegraded, api.HealthHealthy}},
		"what comes and goes stays as it was told": {func(a *peer) {
			a.rate(0, time.Minute)
			for range 10 {
				a.rate(1, 5*time.Second)
				a.rate(0, 5*time.Second)
			}
		}, []api.HealthLevel{api.HealthDegraded}},
		"that it is busy is not told": {func(a *peer) {
			for range 60 {
				a.poll(func(p *protocol.Poll) { p.Metrics.CPUPercent = new(100.) })
				a.b.pass(time.Second)
			}
			rated := a.b.rated("a")
			require.Equal(a.b.t, api.HealthDegraded, rated.Level)
			require.True(a.b.t, rated.Busy)
		}, nil},
		"that its handlers fail on a busy host is not told": {func(a *peer) {
			for n := range 60 {
				if n < 10 {
					_ = a.report(a.give(aTask(fmt.Sprint("t", n))), api.AttemptFailed)
				}
				a.poll(func(p *protocol.Poll) { p.Metrics.CPUPercent = new(100.) })
				a.b.pass(time.Second)
			}
			rated := a.b.rated("a")
			require.Equal(a.b.t, api.HealthDegraded, rated.Level)
			require.True(a.b.t, rated.Busy)
		}, nil},
		"silence is the failure detector's": {func(a *peer) { a.b.pass(14 * time.Second) }, nil},
		"a session that re-attaches is told of anew": {func(a *peer) {
			a.rate(0, time.Minute)
			a.b.register("a", 1)
			a.rate(0, 10*time.Second)
		}, []api.HealthLevel{api.HealthDegraded, api.HealthDegraded}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.start(b.health)
				a := b.register("a", 1)
				c.do(a)
				require.Equal(t, c.told, b.healthTold())
			})
		})
	}
}
