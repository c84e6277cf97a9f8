package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func beacon(d time.Duration) func(*contract.RunTaskInput) {
	return func(in *contract.RunTaskInput) { in.Spec.BeaconTimeout = api.Duration(d) }
}

// says makes a poll list one attempt, with further fields.
func says(a protocol.Assignment, change func(*protocol.RunningAttempt)) func(*protocol.Poll) {
	return func(p *protocol.Poll) {
		r := protocol.RunningAttempt{TaskID: a.TaskID, Attempt: a.Attempt}
		change(&r)
		p.Running = append(p.Running, r)
	}
}

func aged(age time.Duration, state protocol.RunningState) func(*protocol.RunningAttempt) {
	return func(r *protocol.RunningAttempt) {
		d := api.Duration(age)
		r.BeaconAge, r.State = &d, state
	}
}

// An agent that lives and does not end an attempt without beacons does not keep the task.
func TestHubEndsAttemptsWithoutBeacons(t *testing.T) {
	t.Parallel()
	const timeout, heartbeat = 45 * time.Second, 5 * time.Second
	for name, c := range map[string]struct {
		age   time.Duration
		state protocol.RunningState
		ends  bool
	}{
		"alive":                        {time.Second, "", false},
		"the agent may yet end it":     {timeout + heartbeat, "", false},
		"overdue":                      {timeout + heartbeat + time.Millisecond, "", true},
		"the agent ends it":            {timeout + heartbeat + 10*time.Second, protocol.RunningEnding, false},
		"the agent's result is coming": {timeout + heartbeat + 12*time.Second, protocol.RunningStuck, false},
		"the agent does not end it": {timeout + heartbeat + 15*time.Second + time.Millisecond,
			protocol.RunningEnding, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				given := a.give(aTask("t1", beacon(timeout)))
				require.Equal(t, timeout, given.Beacon.Std())
				answer := a.poll(says(given, aged(c.age, c.state)))
				b.pass(0)
				if !c.ends {
					require.Empty(t, b.reported())
					return
				}
				require.Equal(t, []protocol.Command{{Type: protocol.CommandDrop, TaskID: "t1", Attempt: 1,
					Reason: "no beacon for 45s"}}, (<-answer).Commands)
				require.Len(t, b.reported(), 1)
				got := b.reported()[0]
				require.Equal(t, api.AttemptTimedOut, got.Outcome)
				require.Equal(t, "no beacon for 45s", got.Reason)
				require.Equal(t, api.ErrorTypeNoBeacon, got.ErrorType)
				require.True(t, got.Begun)
				require.Equal(t, "a", got.AgentID)
				require.NotNil(t, got.EndedAt)
				require.Nil(t, got.LeaseRemaining, "nobody knows how long the handler runs on")
				require.EqualValues(t, 1, b.counted("mainstay_hub_beacons_missed_total"))
				require.Zero(t, a.session().serving.free, "its slot is in use")

				answer = a.poll(says(given, aged(c.age, "")))
				b.pass(heartbeat - time.Millisecond)
				require.Empty(t, answer, "it was told once; a poll is not answered over and over")
				require.Zero(t, a.session().serving.free)
				a.poll()
				require.Equal(t, 1, a.session().serving.free, "the agent no longer lists it")
			})
		})
	}
}

// For agents that only count their handlers' signs of life, the hub keeps the time.
func TestHubKeepsTimeForAgentsThatOnlyCount(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1", beacon(20*time.Second)))
		for i := range 30 {
			b.pass(4 * time.Second)
			a.poll(says(given, func(r *protocol.RunningAttempt) { r.Beacons = int64(i / 5) }))
		}
		require.Empty(t, b.reported(), "a sign every 20 s")
		quiet := time.Now()
		for len(b.reported()) == 0 {
			b.pass(time.Second)
			a.poll(says(given, func(r *protocol.RunningAttempt) { r.Beacons = 5 }))
		}
		require.Equal(t, api.AttemptTimedOut, b.reported()[0].Outcome)
		require.InDelta(t, 10*time.Second, time.Since(quiet), float64(time.Second),
			"25 s after the last sign, which was 16 s ago")
	})
}

func TestWithoutABeaconTimeoutNothingEnds(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		for range 100 {
			b.pass(4 * time.Second)
			a.poll(lists(given))
		}
		require.Empty(t, b.reported())
	})
}

// The token carries the timeout to the hub that takes the attempt over.
func TestBeaconsOfReattachedAttemptsAreWatched(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		token := b.seal.attempt(attemptClaims{Task: "t1", Attempt: 1, Agent: "a", Instance: "a-instance", Epoch: 1,
			Lane:     "lane/c",
			Temporal: []byte("t1/1"), Beacon: api.Duration(30 * time.Second)})
		a := b.register("a", 1, func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: token}}
		})
		given := protocol.Assignment{TaskID: "t1", Attempt: 1}
		a.poll(says(given, aged(34*time.Second, "")))
		require.Empty(t, b.reported())
		a.poll(says(given, aged(36*time.Second, "")))
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptTimedOut, b.reported()[0].Outcome)
	})
}

func TestTimedOutResults(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]bool{"returned": false, "stuck": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				given := a.give(aTask("t1"))
				require.NoError(t, a.report(given, api.AttemptTimedOut,
					func(in *resultInput) { in.Body.Stuck, in.Body.Error = stuck, "timed out after 1m" }))
				require.Len(t, b.reported(), 1)
				got := b.reported()[0]
				require.Equal(t, api.AttemptTimedOut, got.Outcome)
				require.Equal(t, "timed out after 1m", got.Reason)
				if !stuck {
					require.Zero(t, *got.LeaseRemaining, "nothing of it runs any more")
					require.Equal(t, 1, a.session().serving.free)
					return
				}
				require.Nil(t, got.LeaseRemaining)
				require.Zero(t, a.session().serving.free, "the handler has its slot")
				for range 3 {
					answer := a.poll(says(given, func(r *protocol.RunningAttempt) { r.State = protocol.RunningStuck }))
					b.pass(time.Second)
					require.Empty(t, answer, "there is nothing to tell the agent")
					require.Zero(t, a.session().serving.free)
				}
				a.poll()
				require.Equal(t, 1, a.session().serving.free)
			})
		})
	}
}

// A poll that crosses a result on its way lists an attempt that has just ended. That must not cost a slot.
func TestPollThatCrossesAResultCostsNoSlot(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		require.NoError(t, a.report(given, api.AttemptCompleted))
		a.poll(lists(given))
		require.Equal(t, 1, a.session().serving.free)
	})
}

// A heartbeat says when the handler last gave a sign of life and until when it may run, so that people see both.
func TestHeartbeatsTellSignsAndDeadlines(t *testing.T) {
	t.Parallel()
	soon := time.Date(2000, 1, 1, 0, 0, 30, 0, time.UTC) // in a bubble, time begins in 2000
	for name, c := range map[string]struct {
		change func(*contract.RunTaskInput)
		ends   time.Duration // after its start; 0: never
	}{
		"its timeout":         {func(in *contract.RunTaskInput) { in.Spec.Timeout = api.Duration(time.Hour) }, time.Hour},
		"the default":         {func(*contract.RunTaskInput) {}, api.DefaultTaskTimeout},
		"its step's deadline": {func(in *contract.RunTaskInput) { in.DeadlineAt = &soon }, 30 * time.Second},
		"work without end":    {func(in *contract.RunTaskInput) { in.Spec.KeepRunning = true }, 0},
		"the earlier of the two": {func(in *contract.RunTaskInput) {
			in.Spec.Timeout, in.DeadlineAt = api.Duration(10*time.Second), &soon
		}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				given := a.give(aTask("t1", c.change))
				a.poll(says(given, aged(12*time.Second, "")))
				b.pass(0)
				session := a.session()
				b.mu.Lock()
				defer b.mu.Unlock()
				running := session.work.attempts[attemptKey{"t1", 1}]
				r := running.heartbeat("h")
				require.WithinDuration(t, time.Now().Add(-12*time.Second), *r.AliveAt, time.Second)
				if c.ends == 0 {
					require.Nil(t, r.DeadlineAt)
					return
				}
				require.WithinDuration(t, r.StartedAt.Add(c.ends), *r.DeadlineAt, time.Second)
				require.Nil(t, new(running.report("h")).AliveAt, "what workflows keep lacks them")
			})
		})
	}
}
