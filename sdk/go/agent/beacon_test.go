package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// watched is an assignment with a beacon timeout.
func watched(task, taskType string, timeout time.Duration) protocol.Assignment {
	a := assign(task, taskType)
	a.Beacon = api.Duration(timeout)
	return a
}

func TestHandlerWithoutBeaconsIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		g := newGate()
		b := start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": g.handle})
		hub.WaitRegistered(1)
		hub.Assign(watched("t1", "gate", 45*time.Second))
		result := hub.WaitResult("t1")
		require.ErrorIs(t, <-g.cause, agent.ErrNoBeacon)
		require.Equal(t, api.AttemptTimedOut, result.Outcome)
		require.Equal(t, "no beacon for 45s", result.Error)
		require.Equal(t, agent.ErrorTypeNoBeacon, result.ErrorType)
		require.False(t, result.Stuck, "its handler has returned")
		require.Equal(t, 45*time.Second, result.EndedAt.Sub(result.StartedAt))
		b.await(agent.EventResultAccepted)
		pass(10 * time.Second)
		last := newest(hub.Polls())
		require.Empty(t, last.Running)
		require.Equal(t, protocol.Counters{Failed: 1}, last.Counters)
		require.Zero(t, b.count(agent.EventStuck))
	})
}

func TestWhatCountsAsABeacon(t *testing.T) {
	t.Parallel()
	for name, sign := range map[string]func(*agent.Task){
		"beacon":     func(task *agent.Task) { task.Beacon() },
		"progress":   func(task *agent.Task) { task.Progress(1, "on") },
		"checkpoint": func(task *agent.Task) { _ = task.SaveCheckpoint(1) },
		"log line":   func(task *agent.Task) { task.Log("on") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				start(t, hub, inMemory(hub), map[string]agent.Handler{"lively": func(ctx context.Context,
					task *agent.Task) (any, error) {
					for range 10 {
						pass(14 * time.Second)
						sign(task)
					}
					<-ctx.Done() // and then nothing more
					return nil, context.Cause(ctx)
				}})
				hub.WaitRegistered(1)
				hub.Assign(watched("t1", "lively", 15*time.Second))
				result := hub.WaitResult("t1")
				require.Equal(t, api.AttemptTimedOut, result.Outcome)
				require.Equal(t, 155*time.Second, result.EndedAt.Sub(result.StartedAt))
				var oldest api.Duration
				for _, p := range hub.Polls() {
					if len(p.Running) == 1 {
						oldest = max(oldest, *p.Running[0].BeaconAge)
					}
				}
				require.Greater(t, oldest.Std(), 5*time.Second, "polls tell how old the last sign of life is")
				require.LessOrEqual(t, oldest.Std(), 15*time.Second)
			})
		})
	}
}

func TestWithoutABeaconTimeoutNothingIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		start(t, hub, inMemory(hub), map[string]agent.Handler{"quiet": func(context.Context, *agent.Task) (any, error) {
			pass(24 * time.Hour)
			return "done", nil
		}})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "quiet"))
		require.Nil(t, hub.WaitRunning("t1").BeaconAge)
		pass(24 * time.Hour)
		require.Equal(t, api.AttemptCompleted, hub.WaitResult("t1").Outcome)
	})
}

// A handler that ignores its context keeps its slot. The hub gets both: the end of the attempt, and that it is stuck.
func TestHandlerThatIgnoresItsContextIsReportedAndKeepsItsSlot(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]struct {
		assignment func() protocol.Assignment
		reason     string
		limit      time.Duration
	}{
		"no beacon": {func() protocol.Assignment { return watched("t1", "deaf", 45*time.Second) }, "no beacon for 45s",
			45 * time.Second},
		"timeout": {func() protocol.Assignment {
			a := assign("t1", "deaf")
			a.Timeout = api.Duration(90 * time.Second)
			return a
		}, "timed out after 1m30s", 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				release := make(chan struct{})
				b := start(t, hub, inMemory(hub), map[string]agent.Handler{"deaf": func(context.Context,
					*agent.Task) (any, error) {
					<-release
					return "too late", nil
				}})
				hub.WaitRegistered(1)
				hub.Assign(a.assignment())
				result := hub.WaitResult("t1")
				require.Equal(t, api.AttemptTimedOut, result.Outcome)
				require.Equal(t, a.reason, result.Error)
				require.True(t, result.Stuck)
				require.Equal(t, a.limit+10*time.Second, result.EndedAt.Sub(result.StartedAt))
				b.await(agent.EventStuck)
				hub.WaitPoll("ending", func(p protocol.Poll) bool {
					return len(p.Running) == 1 && p.Running[0].State == protocol.RunningEnding
				})

				pass(time.Hour)
				last := newest(hub.Polls())
				require.Len(t, last.Running, 1)
				require.Equal(t, protocol.RunningStuck, last.Running[0].State)

				hub.ForgetSession()
				require.Empty(t, hub.WaitRegistered(2).Running, "its result was answered: no hub need take it over")

				hub.Assign(protocol.Assignment{TaskID: "t1", Type: "deaf", Attempt: 2})
				back := hub.WaitPoll("handed back", func(p protocol.Poll) bool { return len(p.Returned) == 1 })
				require.Equal(t, 2, back.Returned[0].Attempt, "two attempts of a task never run side by side")

				close(release)
				hub.WaitPoll("free again", func(p protocol.Poll) bool {
					return p.Sequence > last.Sequence &&
						len(p.Running) == 0
				})
				require.Len(t, hub.Results(), 1)
			})
		})
	}
}

func TestStuckFencedHandlerIsNotReportedAsSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		start(t, hub, inMemory(hub), map[string]agent.Handler{"slow": func(ctx context.Context, _ *agent.Task) (any,
			error) {
			<-ctx.Done()
			pass(5 * time.Second) // within the grace
			return nil, errors.New("interrupted")
		}})
		hub.WaitRegistered(1)
		fenced := watched("t1", "slow", 20*time.Second)
		fenced.RetrySafety = api.Fenced
		hub.Assign(fenced)
		result := hub.WaitResult("t1")
		require.Equal(t, api.AttemptTimedOut, result.Outcome)
		require.False(t, result.Stuck, "nothing of it runs any more, so no lease need be waited out")
		require.Equal(t, 25*time.Second, result.EndedAt.Sub(result.StartedAt))
	})
}

// Work that cannot be ended is reported as stuck, not as failed, so that its task's retry safety holds.
func TestWorkThatCannotBeEndedIsStuck(t *testing.T) {
	t.Parallel()
	const text = "cannot be killed, and lives on"
	for name, c := range map[string]struct {
		lasts   time.Duration // after it was found
		err     error
		outcome api.AttemptOutcome
		stuck   bool
		reason  string
	}{
		"it ends soon": {lasts: 5 * time.Second, outcome: api.AttemptCompleted},
		"it ends soon, and fails": {lasts: 5 * time.Second, err: errors.New("exit"), outcome: api.AttemptFailed,
			reason: "exit"},
		"it does not end": {lasts: time.Hour, outcome: api.AttemptTimedOut, stuck: true, reason: text},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				handler := func(_ context.Context, task *agent.Task) (any, error) {
					require.True(t, agent.LivesOn(task))
					pass(c.lasts)
					return nil, c.err
				}
				start(t, hub, inMemory(hub), map[string]agent.Handler{"exec": handler})
				hub.WaitRegistered(1)
				bundle := assignBundle("a~.b1", 2)
				bundle.Type = "exec"
				hub.Assign(assign("t1", "exec"), bundle)
				result, elements := hub.WaitResult("t1"), hub.WaitResult("a~.b1")
				require.Len(t, elements.Elements, 1)
				one := elements.Elements[0]
				require.Equal(t, c.outcome, result.Outcome)
				require.Equal(t, c.outcome, one.Outcome)
				require.Equal(t, []bool{c.stuck, c.stuck, c.stuck}, []bool{result.Stuck, elements.Stuck, one.Stuck})
				require.Contains(t, result.Error, c.reason)
				require.Contains(t, one.Error, c.reason)
				hub.WaitPoll("with free slots", func(p protocol.Poll) bool {
					return p.Sequence > 1 && len(p.Running) == 0 && len(hub.Results()) == 2
				})
				require.False(t, agent.LivesOn(&agent.Task{}), "nothing waits for it outside of an attempt")
			})
		})
	}
}

func TestProgressMessage(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	proceed := make(chan struct{})
	start(t, hub, nil, map[string]agent.Handler{"talk": func(_ context.Context, task *agent.Task) (any, error) {
		task.ReportProgress(api.Progress{Percent: 130, Step: "two", Message: string(make([]byte, 999)) +
			"é and more", EstimatedDuration: api.Duration(time.Minute)})
		task.ReportProgress(api.Progress{Percent: 130, Step: "two", Message: string(make([]byte, 999)) + "é"})
		if err := task.SaveCheckpoint(1); err != nil { // sends a poll
			return nil, err
		}
		<-proceed
		return nil, nil
	}})
	hub.WaitRegistered(1)
	hub.Assign(assign("t1", "talk"))
	poll := hub.WaitPoll("progress", func(p protocol.Poll) bool {
		return len(p.Running) == 1 &&
			p.Running[0].Progress != nil
	})
	require.Equal(t, 100, poll.Running[0].Progress.Percent)
	require.Equal(t, "two", poll.Running[0].Progress.Step)
	require.Len(t, poll.Running[0].Progress.Message, 999, "cut at a character")
	require.Equal(t, api.Duration(time.Minute), poll.Running[0].Progress.EstimatedDuration, "until another is given")
	close(proceed)
	hub.WaitResult("t1")
}

func TestProviders(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	a, err := agent.New(agent.Options{HubURLs: []string{hub.URL()}, Cluster: "demo", ID: "worker-1"})
	require.NoError(t, err)
	a.Handle("gate", newGate().handle)
	require.NoError(t, a.SetProvider("llm", api.ProviderAccess{Available: true}))
	require.ErrorContains(t, a.SetProvider("No Slug", api.ProviderAccess{}), "provider")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	require.Equal(t, api.Providers{"llm": {Available: true}}, hub.WaitRegistered(1).Providers)

	until := time.Now().Add(time.Minute).UTC()
	hub.WaitPoll("first", func(protocol.Poll) bool { return true })
	changed := time.Now()
	require.NoError(t, a.SetProvider("llm", api.ProviderAccess{Available: true, RateLimitedUntil: &until}))
	hub.WaitPoll("rate limited", func(p protocol.Poll) bool {
		at := p.Providers["llm"].RateLimitedUntil
		return at != nil && at.Equal(until)
	})
	require.Less(t, time.Since(changed), 3*time.Second, "the hub hears of it before the next heartbeat")
	cancel()
	require.NoError(t, <-ended)
}
