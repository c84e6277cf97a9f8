package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func requireCode(t *testing.T, code string, err error) {
	t.Helper()
	got, ok := httpapi.Code(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, got)
}

func TestIdlePollIsHeldForTheHeartbeatInterval(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		begun := time.Now()
		got := <-a.poll()
		require.NoError(t, got.err)
		require.Empty(t, got.Polled)
		require.Equal(t, testTiming.HeartbeatInterval, time.Since(begun))
	})
}

func TestAssignmentAnswersAtOnceAndIsAccepted(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		begun := time.Now()
		answer := a.poll()
		b.queue("lane/c", aTask("t1"))
		got := <-answer
		require.Zero(t, time.Since(begun))
		require.Len(t, got.Assignments, 1)
		require.Equal(t, "t1", got.Assignments[0].TaskID)
		require.Equal(t, api.Idempotent, got.Assignments[0].RetrySafety)
		claims, err := b.seal.openAttempt(got.Assignments[0].Token)
		require.NoError(t, err)
		require.Equal(t, attemptClaims{Task: "t1", Attempt: 1, Agent: "a", Instance: "a-instance", Epoch: 1,
			Lane: "lane/c", Temporal: []byte("t1/1"), Type: "echo", StopGrace: api.Duration(api.DefaultStopGrace)}, claims)
		a.poll(lists(got.Assignments[0]))
		require.True(t, a.session().work.attempts[attemptKey{"t1", 1}].accepted)
		require.Empty(t, b.reported())
	})
}

// TestNoLeaseFromAHubThatTemporalDoesNotHear has the hub's own lease grow old and be renewed again.
func TestNoLeaseFromAHubThatTemporalDoesNotHear(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		for _, c := range []struct {
			age      time.Duration // of the hub's lease when it answers
			withheld bool
		}{{5 * time.Second, false}, {5*time.Second + 1, true}, {0, false}} {
			at := time.Now().Add(testTiming.HeartbeatInterval)
			b.lease.Renewed(at.Add(-c.age))
			got := <-a.poll()
			require.Equal(t, c.withheld, got.LeaseHeld, c.age)
			require.Equal(t, c.withheld, !a.session().lease.answeredAt.Equal(at), "the hub counts the same lease: %s", c.age)
		}
	})
}

// TestSessionOfAnotherHub has an agent that moved to another hub poll the first one, which has not noticed that it
// left.
func TestSessionOfAnotherHub(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.poll()
		a.claims.Hub = "hub-2"
		requireCode(t, protocol.CodeUnknownSession, (<-a.poll()).err)
	})
}

func TestAssignmentNamesItsShard(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 1, Mode: api.Sharded,
			Shards: []cluster.ShardOwner{{Owner: "b", Epoch: 2}, {Owner: "a", Epoch: 2}}}
		a := b.register("a", 2)
		<-a.poll() // its role
		answer := a.poll()
		b.queue("lane/c/shard/1", aTask("t1"))
		require.Equal(t, new(1), (<-answer).Assignments[0].Shard)
		answer = a.poll()
		b.queue("lane/c/agent/a", aTask("t2"))
		require.Nil(t, (<-answer).Assignments[0].Shard)
	})
}

func TestDuplicateAndSupersededPolls(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		first := a.poll()
		second := a.poll()
		require.Empty(t, (<-first).Polled, "a newer poll ends the held one")
		require.Empty(t, (<-a.pollAs(t.Context(), 1)).Polled, "a poll that comes late is answered and changes nothing")
		require.Empty(t, second, "it is still held")
		b.queue("lane/c", aTask("t1"))
		require.Len(t, (<-second).Assignments, 1, "the newest poll gets the work")
	})
}

// TestCommandsAreRepeatedUntilTheirAnswerWasRead has a command in an answer that the agent does not get, and then
// another poll.
func TestCommandsAreRepeatedUntilTheirAnswerWasRead(t *testing.T) {
	for name, c := range map[string]struct {
		answered *int64 // of the poll after the lost answer, which is the second
		repeated bool
	}{
		"no answer was read":                 {new(int64(0)), true},
		"the one before was read":            {new(int64(1)), true},
		"it was read after all":              {new(int64(2)), false},
		"the agent does not say what it has": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				<-a.poll()
				lost := a.poll()
				role := protocol.Command{Type: protocol.CommandRole, Role: api.RoleLeader, Epoch: 7}
				session := a.session()
				b.mu.Lock()
				session.command(role)
				b.mu.Unlock()
				require.Equal(t, []protocol.Command{role}, (<-lost).Commands)
				// the agent polls on another connection, and the hub does not see the first one close
				a.conn = &connection{}
				next := a.poll(func(p *protocol.Poll) { p.Answered = c.answered })
				if !c.repeated {
					require.Empty(t, next, "it is held: there is nothing to say")
					return
				}
				require.Equal(t, []protocol.Command{role}, (<-next).Commands)
				require.Empty(t, a.poll(func(p *protocol.Poll) { p.Answered = new(int64(3)) }), "it was read now")
			})
		})
	}
}

// An agent that never says that it has read an answer does not have its hub keep more and more for it.
func TestRepeatedCommandsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSession(protocol.Register{}, 1, time.Now())
	running := attemptKey{"running", 1}
	s.work.attempts[running] = &attempt{attemptClaims: attemptClaims{Task: "running", Attempt: 1}}
	ask := func(kind protocol.CommandType, n int) protocol.Command {
		return protocol.Command{Type: kind, Request: fmt.Sprint(n)}
	}
	of := func(kind protocol.CommandType, task string) protocol.Command {
		return protocol.Command{Type: kind, TaskID: task, Attempt: 1}
	}
	repeated := func() []protocol.Command { // an answer, and that it was not read
		s.orders.told, s.orders.waiting = s.orders.waiting, nil
		s.orders.repeat(s.work.attempts)
		return s.orders.waiting
	}
	for n := range 1000 {
		s.command(of(protocol.CommandCancel, fmt.Sprint("ended", n)))
		s.command(of(protocol.CommandDrop, fmt.Sprint("dropped", n)))
		s.command(of(protocol.CommandCancel, "running"))
		s.command(protocol.Command{Type: protocol.CommandRole, Epoch: int64(n)})
		s.command(ask(protocol.CommandSync, n))
		repeated()
	}
	require.Len(t, s.orders.waiting, maxDropped+3)
	require.Equal(t, []protocol.Command{of(protocol.CommandDrop, "dropped999"), of(protocol.CommandCancel, "running"),
		{Type: protocol.CommandRole, Epoch: 999}, ask(protocol.CommandSync, 999)}, s.orders.waiting[maxDropped-1:])
	require.Equal(t, s.orders.waiting[:maxDropped+2], repeated(), "a request for state is repeated once")
}

// TestAttemptsThatAreNotReceived has an agent get assignments and not list them. It counts against the task only where
// the agent certainly had the answer.
func TestAttemptsThatAreNotReceived(t *testing.T) {
	for name, c := range map[string]struct {
		next func(a *peer, given protocol.Assignment)
		want bool
		why  string
	}{
		"its next poll on the same connection does not list it": {
			next: func(a *peer, _ protocol.Assignment) { a.poll() },
			want: true,
			why:  "agent a was given it and did not list it in its next poll"},
		"a poll on another connection, which may be older than the answer": {
			next: func(a *peer, _ protocol.Assignment) { a.conn = &connection{}; a.poll() },
			why:  "the agent did not receive it"},
		"the connection broke": {
			next: func(a *peer, _ protocol.Assignment) { a.hangUp(); a.poll() }, why: "the agent did not receive it"},
		"the agent cannot read it": {
			next: func(a *peer, given protocol.Assignment) {
				a.conn = &connection{}
				a.poll(func(p *protocol.Poll) {
					p.Returned = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: given.Attempt,
						Unreadable: "too deep"}}
				})
			}, want: true, why: "agent a cannot read it: too deep"},
		"the agent hands it back": {
			next: func(a *peer, given protocol.Assignment) {
				a.poll(func(p *protocol.Poll) {
					p.Returned = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: given.Attempt}}
				})
			}, why: "the agent handed it back"},
		"the agent registers again": {
			next: func(a *peer, _ protocol.Assignment) { a.b.register("a", 1) }, why: "the agent did not receive it"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				answer := a.poll()
				b.queue("lane/c", aTask("t1"))
				got := <-answer
				require.Len(t, got.Assignments, 1)
				c.next(a, got.Assignments[0])
				b.pass(0)
				require.Len(t, b.reported(), 1)
				report := b.reported()[0]
				require.Equal(t, api.AttemptReturned, report.Outcome)
				require.Equal(t, c.want, report.NotReceived)
				require.Equal(t, c.why, report.Reason)
				require.EqualValues(t, map[bool]int{true: 1}[c.want],
					b.counted("mainstay_hub_attempts_not_received_total"))
				require.EqualValues(t, 1, b.counted("mainstay_hub_attempts_returned_total"))
			})
		})
	}
}

func TestUnlistedAttempts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 3)
		lost := a.give(aTask("accepted"))
		answer := a.poll(lists(lost))
		b.queue("lane/c", aTask("missed"))
		require.Len(t, (<-answer).Assignments, 1)
		a.poll() // lists neither
		b.pass(0)
		ended := map[string]report{}
		for _, r := range b.reported() {
			ended[r.token] = r
		}
		require.Len(t, ended, 2)
		require.Equal(t, api.AttemptLost, ended["accepted/1"].Outcome)
		require.Zero(t, *ended["accepted/1"].LeaseRemaining, "the agent says itself that it runs no more")
		require.Equal(t, api.AttemptReturned, ended["missed/1"].Outcome)
		require.False(t, ended["missed/1"].Begun)
		require.Empty(t, a.session().work.attempts)
	})
}

func TestReturnedAndUnknownAttempts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 3)
		answer := a.poll()
		b.queue("lane/c", aTask("back"))
		got := (<-answer).Assignments[0]
		a.poll(func(p *protocol.Poll) {
			p.Returned = []protocol.RunningAttempt{{TaskID: got.TaskID, Attempt: got.Attempt},
				{TaskID: "nobody's", Attempt: 1}}
		})
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptReturned, b.reported()[0].Outcome)

		answer = a.poll(lists(protocol.Assignment{TaskID: "old", Attempt: 4}))
		require.Equal(t, []protocol.Command{{Type: protocol.CommandDrop, TaskID: "old", Attempt: 4,
			Reason: "the attempt no longer counts"}}, (<-answer).Commands)
	})
}

func TestStoppingAgentGetsNothingNew(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		running := a.give(aTask("t1"))
		a.poll(lists(running), func(p *protocol.Poll) { p.Stopping = true })
		require.Zero(t, a.session().serving.free)
		b.queue("lane/c", aTask("t2")) // its poll was open already
		b.pass(b.config.Park)
		require.Len(t, b.reported(), 1)
		require.Equal(t, "t2/1", b.reported()[0].token)
		require.Equal(t, api.AttemptReturned, b.reported()[0].Outcome)
	})
}

func TestClosedRequestMakesTheSessionSuspect(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		answer := a.pollAs(ctx, 1)
		cancel()
		require.Empty(t, (<-answer).Polled)
		require.False(t, a.session().link.closedAt.IsZero())
		require.Zero(t, a.session().serving.free, "nobody can be given work who is not there")
		a.pollAs(t.Context(), 2)
		require.True(t, a.session().link.closedAt.IsZero())
		require.Equal(t, 1, a.session().serving.free)
	})
}

func TestCommandsOfAnAnswerThatWasNotReadAreRepeated(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		b.pass(b.config.Timing.HeartbeatInterval) // no poll is held
		b.cancelAttempt(a.session().work.attempts[attemptKey{"t1", 1}])
		cancel := protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1,
			Reason: "the task was cancelled"}
		require.Equal(t, []protocol.Command{cancel}, (<-a.poll(lists(given))).Commands)
		a.hangUp() // before the answer got through
		require.Equal(t, []protocol.Command{cancel}, (<-a.poll(lists(given))).Commands)
		require.Empty(t, (<-a.poll(lists(given))).Commands,
			"the next poll on the same connection shows that it was read")

		b.cancelAttempt(a.session().work.attempts[attemptKey{"t1", 1}])
		require.Equal(t, []protocol.Command{cancel}, (<-a.poll(lists(given))).Commands,
			"Temporal asks again when the attempt goes on")
		again := b.register("a", 1, func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: given.Token}}
		})
		require.Equal(t, []protocol.Command{cancel}, (<-again.poll(lists(given))).Commands,
			"a registration follows an answer that was not read")
	})
}

func TestReattachedAttempts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		sealed := func(agent, instance, task string) string {
			return b.seal.attempt(attemptClaims{Task: task, Attempt: 1, Agent: agent, Instance: instance, Epoch: 1,
				Lane: "lane/c", Temporal: []byte(task + "/1")})
		}
		a := b.register("a", 4, func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{
				{TaskID: "mine", Attempt: 1, Token: sealed("a", "a-instance", "mine")},
				{TaskID: "foreign", Attempt: 1, Token: sealed("b", "a-instance", "foreign")},
				{TaskID: "old", Attempt: 1, Token: sealed("a", "older-instance", "old")},
				{TaskID: "other", Attempt: 1, Token: sealed("a", "a-instance", "mine")},
			}
		})
		var dropped []string
		for _, c := range (<-a.poll(lists(protocol.Assignment{TaskID: "mine", Attempt: 1}))).Commands {
			require.Equal(t, protocol.CommandDrop, c.Type)
			dropped = append(dropped, c.TaskID)
		}
		require.ElementsMatch(t, []string{"foreign", "old", "other"}, dropped)
		require.Len(t, a.session().work.attempts, 1)
		require.Equal(t, 3, a.session().serving.free)
		require.Empty(t, b.reported(), "what others may run is not this agent's to end")
	})
}

func TestPollsOfOtherSessions(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		older := b.register("a", 1)
		newer := b.register("a", 1, func(r *protocol.Register) { r.InstanceID = "another-instance" })
		requireCode(t, protocol.CodeFenced, (<-older.poll()).err)
		stranger := &peer{b: b, claims: sessionClaims{Hub: "hub-1", Agent: "x", Instance: "12345678", Epoch: 1}}
		requireCode(t, protocol.CodeUnknownSession, (<-stranger.poll()).err)
		newer.claims.Epoch++
		requireCode(t, protocol.CodeUnknownSession, (<-newer.poll()).err)
	})
}

func TestProgressAndCheckpointAreKept(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		progress := &api.Progress{Percent: 50, EstimatedDuration: api.Duration(time.Minute)}
		large := json.RawMessage(`"` + string(make([]byte, api.MaxCheckpointBytes)) + `"`)
		for _, checkpoint := range []json.RawMessage{json.RawMessage(`1`), large} {
			a.poll(func(p *protocol.Poll) {
				p.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1,
					Progress: progress, Checkpoint: checkpoint}}
			})
		}
		a.hangUp()
		b.pass(2 * time.Second)
		require.Len(t, b.reported(), 1)
		require.JSONEq(t, `1`, string(b.reported()[0].Checkpoint), "one that is too large does not replace it")
		require.Equal(t, progress, b.reported()[0].Progress)
	})
}
