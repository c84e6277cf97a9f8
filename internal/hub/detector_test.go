package hub

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestLostSessions(t *testing.T) {
	timing := testTiming
	for name, c := range map[string]struct {
		hangUp   bool
		after    time.Duration
		evidence api.Evidence
		reason   string
	}{
		"silent": {false, timing.FailureThreshold, api.EvidenceSilence,
			"no heartbeat for "},
		"disconnected": {true, timing.DisconnectGrace, api.EvidenceClosed,
			"its connection closed and it did not come back within "},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 2)
				a.give(aTask("t1"))
				<-a.poll(lists(protocol.Assignment{TaskID: "t1", Attempt: 1})) // answered: it begins to be silent here
				last := a.session().link.lastContact
				if c.hangUp {
					a.hangUp()
					last = time.Now()
				}
				answered := a.session().lease.answeredAt
				b.pass(time.Until(last.Add(c.after - detectEvery)))
				require.NotNil(t, a.session(), "not yet")
				b.pass(3 * detectEvery)
				require.Nil(t, a.session())
				require.Len(t, b.reported(), 1)
				require.Equal(t, api.AttemptLost, b.reported()[0].Outcome)
				require.True(t, b.reported()[0].Begun)
				require.Contains(t, b.reported()[0].Reason, c.reason)
				lease := time.Until(answered.Add(timing.FailureThreshold))
				require.InDelta(t, lease, b.reported()[0].LeaseRemaining.Std(), float64(3*detectEvery),
					"the agent counts its lease from the last answer")
				changed := b.changed()
				require.Len(t, changed, 1)
				require.Equal(t, api.AgentOffline, changed[0].Status)
				require.False(t, changed[0].Left)
				require.Equal(t, c.evidence, changed[0].Evidence)
				require.InDelta(t, c.after, changed[0].NoticedAfter.Std(), float64(3*detectEvery))
				require.Equal(t, 1.0, b.counted("mainstay_hub_agents_given_up_total"))
				require.Equal(t, []cluster.HeldAttempt{{TaskID: "t1", Attempt: 1}}, changed[0].Attempts)
			})
		})
	}
}

// brokenConn is a connection that ended with an error.
type brokenConn struct {
	net.Conn
	err error
}

func (c brokenConn) RemoteAddr() net.Addr     { return &net.TCPAddr{} }
func (c brokenConn) Read([]byte) (int, error) { return 0, &net.OpError{Op: "read", Err: c.err} }

// The kernel probes an agent's connection: what it finds is why the agent is lost.
func TestHostThatIsGone(t *testing.T) {
	for broken, evidence := range map[syscall.Errno]api.Evidence{
		syscall.ETIMEDOUT:    api.EvidenceUnreachable,
		syscall.EHOSTUNREACH: api.EvidenceUnreachable,
		syscall.ENETUNREACH:  api.EvidenceUnreachable,
		syscall.ECONNRESET:   api.EvidenceClosed,
	} {
		t.Run(broken.Error(), func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				conn := &watchedConn{Conn: brokenConn{err: os.NewSyscallError("read", broken)}}
				a.conn, _ = b.ConnContext(t.Context(), conn).Value(connectionKey{}).(*connection)
				<-a.poll()
				_, err := conn.Read(nil)
				require.ErrorIs(t, err, broken)
				b.ConnState(conn, http.StateClosed)
				b.pass(testTiming.DisconnectGrace + 3*detectEvery)
				require.Nil(t, a.session())
				require.Len(t, b.changed(), 1)
				require.Equal(t, evidence, b.changed()[0].Evidence)
			})
		})
	}
}

// A hub that is out of touch with Temporal gives up an agent that has moved to another hub with its work, and must not
// end the work there.
func TestLossAtAHubOutOfTouch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hub      string        // that has the attempt
		late     time.Duration // how long after its loss Temporal took this hub's heartbeat
		reported int
	}{
		"the agent moved":       {hub: "hub-2"},
		"it ended there":        {hub: ""},
		"nobody has it":         {hub: "hub-1", reported: 1},
		"its own beat was late": {hub: "hub-1", late: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.temporal.hasIt, b.temporal.seenAt = c.hub, time.Now().Add(c.late)
				a := b.register("a", 1)
				a.give(aTask("t1"))
				b.lease.Renewed(time.Now().Add(-time.Minute))
				away := serviceerror.NewUnavailable("Temporal is away")
				b.temporal.away = away
				a.hangUp()
				b.pass(5 * time.Second)
				require.Nil(t, a.session())
				b.lease.Renewed(time.Now().Add(24 * time.Hour)) // before anything else gets through
				b.temporal.mu.Lock()
				b.temporal.away = nil
				b.temporal.mu.Unlock()
				b.pass(5 * time.Second)
				require.Len(t, b.reported(), c.reported)
			})
		})
	}
}

// An agent's connection closed because it moved to another hub with its work. This hub is in touch with Temporal, and
// must leave the work alone there, whatever its retry safety.
func TestLossOfAnAgentThatMoved(t *testing.T) {
	t.Parallel()
	for _, s := range []api.RetrySafety{api.Idempotent, api.Fenced, api.AtMostOnce} {
		for hub, reported := range map[string]int{"hub-2": 0, "hub-1": 1} {
			t.Run(fmt.Sprint(s, " is at ", hub), func(t *testing.T) {
				inBubble(t, Config{}, func(t *testing.T, b *bench) {
					a := b.register("a", 1)
					a.give(aTask("t1", safety(s)))
					b.temporal.mu.Lock()
					b.temporal.hasIt, b.temporal.seenAt = hub, time.Now().Add(time.Hour) // Temporal's clock is fast
					b.temporal.mu.Unlock()
					a.hangUp()
					b.pass(5 * time.Second)
					require.Nil(t, a.session())
					b.pass(api.DefaultDisconnectGrace)
					require.Len(t, b.reported(), reported)
				})
			})
		}
	}
}

// Temporal hears at once of an attempt that an agent brings with it: the hub that had it asks there.
func TestAttemptsThatMoveBeatAtOnce(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.start(beater{b.Hub})
		given := b.register("a", 1).give(aTask("t1"))
		b.pass(time.Second)
		facts{b.Hub}.rejoin()
		b.temporal.mu.Lock()
		clear(b.temporal.beats)
		b.temporal.mu.Unlock()
		b.register("a", 1, func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token}}
		})
		b.pass(beatTick)
		b.temporal.mu.Lock()
		defer b.temporal.mu.Unlock()
		require.Equal(t, 1, b.temporal.beats["t1/1"])
	})
}

func TestComingBackWithinTheGrace(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		a.hangUp()
		require.Equal(t, cluster.Suspect, b.judgeLocked(a.session(), time.Now()))
		b.pass(b.config.Timing.DisconnectGrace - detectEvery)
		a.poll(lists(given))
		b.pass(2 * b.config.Timing.DisconnectGrace)
		require.NotNil(t, a.session())
		require.Empty(t, b.reported())
		require.Empty(t, b.changed(), "nothing of that is written anywhere")
	})
}

// An agent that promises to reconnect at once has a few of its round trips for it, and more after a mistake.
func TestLearntGrace(t *testing.T) {
	for name, c := range map[string]struct {
		roundTrip time.Duration
		mistakes  int
		grace     time.Duration
	}{
		"near":      {time.Millisecond, 0, 150 * time.Millisecond},
		"far":       {100 * time.Millisecond, 0, 500 * time.Millisecond},
		"very far":  {time.Second, 0, time.Second},
		"a mistake": {30 * time.Millisecond, 1, 440 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.temporal.epochs["a"] = cluster.Joined{AgentID: "a", Epoch: 1, Replaced: "a-instance", Mistakes: c.mistakes,
					GivenUp: c.mistakes > 0}
				a := b.register("a", 1, func(r *protocol.Register) { r.Reconnects = true })
				for range 3 {
					<-a.poll()
					b.pass(c.roundTrip)
				}
				a.poll()
				require.Equal(t, c.roundTrip, a.session().link.roundTrip)
				a.hangUp()
				b.pass(c.grace - detectEvery)
				require.NotNil(t, a.session(), "not yet")
				b.pass(3 * detectEvery)
				require.Nil(t, a.session())
				require.Equal(t, float64(c.mistakes), b.counted("mainstay_hub_agents_given_up_wrongly_total"))
			})
		})
	}
}

// A poll that crosses an answer tells nothing of the round trip.
func TestRoundTripOfCrossingPolls(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		<-a.poll()
		b.pass(time.Second)
		a.poll(func(p *protocol.Poll) { p.Answered = new(int64(0)) })
		require.Zero(t, a.session().link.roundTrip)
	})
}

// One task that kills agent after agent does not look like a broken network: the third loss of five agents is failed
// over too.
func TestPoisonTaskDoesNotEngageTheBrake(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		var peers []*peer
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			peers = append(peers, b.register(id, 1))
		}
		for i, p := range peers[:4] {
			given := p.give(aTask("poison", func(in *contract.RunTaskInput) { in.Attempt, in.Tally.Losses = i+1, i }))
			p.poll(lists(given))
			p.hangUp()
			b.pass(b.config.Timing.DisconnectGrace + 3*detectEvery)
			require.Nil(t, p.session(), "agent %d is given up", i+1)
			require.Len(t, b.reported(), i+1)
			require.Nil(t, b.brakeTold())
			for _, other := range peers[i+1:] {
				other.poll()
			}
		}
	})
}

func TestGoodbyeNeedsNoWaiting(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		answer := a.poll()
		token := b.seal.session(a.claims)
		_, err := b.goodbye(t.Context(), &goodbyeInput{Authorized: Authorized{ID: "a", Authorization: "Bearer " + token}})
		require.NoError(t, err)
		requireCode(t, protocol.CodeUnknownSession, (<-answer).err)
		b.pass(0)
		require.True(t, b.changed()[0].Left)
		require.Zero(t, *b.changed()[0].LeaseRemaining)
		_, err = b.goodbye(t.Context(), &goodbyeInput{Authorized: Authorized{ID: "a", Authorization: "Bearer " + token}})
		requireCode(t, protocol.CodeUnknownSession, err)
		_, err = b.goodbye(t.Context(), &goodbyeInput{Authorized: Authorized{ID: "b", Authorization: "Bearer " + token}})
		requireCode(t, protocol.CodeUnauthorized, err)
	})
}

// Until the cluster hears of a goodbye it admits the process again, and then removes it: a session that was opened in
// between took tasks, and was in no list.
func TestASessionIsNotOpenedAgainWhileItsGoodbyeIsUnderWay(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		_, err := b.goodbye(t.Context(),
			&goodbyeInput{Authorized: Authorized{ID: "a", Authorization: "Bearer " + b.seal.session(a.claims)}})
		require.NoError(t, err)
		again := protocol.Register{AgentID: "a", InstanceID: "a-instance", Cluster: "c",
			AgentProfile: api.AgentProfile{MaxTasks: 1}}
		_, err = b.openSession(t.Context(), again, cluster.JoinToken{}, true)
		requireCode(t, protocol.CodeRateLimited, err)
		again.Registration = 5 // the goodbye has no number, so it counts nevertheless
		_, err = b.openSession(t.Context(), again, cluster.JoinToken{}, true)
		requireCode(t, protocol.CodeRateLimited, err)
		require.Nil(t, a.session())
		again.InstanceID = "another"
		_, err = b.openSession(t.Context(), again, cluster.JoinToken{}, false)
		require.NoError(t, err, "a new process has an epoch of its own")
		b.pass(goodbyeKept + time.Second)
		require.Empty(t, b.Hub.goodbyes)
	})
}

func TestNotAcceptedInTime(t *testing.T) {
	for name, c := range map[string]struct {
		safety    api.RetrySafety
		delivered bool
		wants     api.AttemptOutcome
	}{
		"idempotent, in no answer": {api.Idempotent, false, api.AttemptReturned},
		"fenced, in no answer":     {api.Fenced, false, api.AttemptReturned},
		"fenced, in an answer":     {api.Fenced, true, api.AttemptLost},
		"once, in no answer":       {api.AtMostOnce, false, api.AttemptReturned},
		"once, in an answer":       {api.AtMostOnce, true, api.AttemptLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				var answer <-chan answered
				if c.delivered {
					answer = a.poll()
				}
				b.queue("lane/c", aTask("t1", safety(c.safety)))
				if c.delivered {
					require.Len(t, (<-answer).Assignments, 1)
				}
				b.pass(b.config.AcceptTimeout + 2*detectEvery)
				require.Len(t, b.reported(), 1)
				require.Equal(t, c.wants, b.reported()[0].Outcome)
				require.NotNil(t, a.session())
			})
		})
	}
}

// An agent that was frozen when it was given idempotent work may begin it until its lease ends: it goes nowhere else
// sooner.
func TestNotAcceptedWithinTheLease(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		answer, asked := a.poll(), time.Now()
		b.queue("lane/c", aTask("t1"))
		require.Len(t, (<-answer).Assignments, 1)
		b.pass(b.config.AcceptTimeout + 2*detectEvery)
		require.Empty(t, b.reported())
		b.pass(b.config.Timing.FailureThreshold)
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptLost, b.reported()[0].Outcome)
		require.GreaterOrEqual(t, b.reported()[0].NoticedAt.Sub(asked), cluster.AgentLease(b.config.Timing.FailureThreshold))
	})
}

func TestBrakeHoldsWhenManyVanish(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		var peers []*peer
		for _, id := range []string{"a", "b", "d", "e", "f"} {
			peers = append(peers, b.register(id, 1))
		}
		var given []protocol.Assignment
		for _, id := range []string{"t1", "t2", "t3", "t4", "t5"} {
			b.queue("lane/c", aTask(id))
		}
		for _, p := range peers {
			got := (<-p.poll()).Assignments
			require.Len(t, got, 1)
			given = append(given, got[0])
			p.poll(lists(got[0]))
		}
		for _, p := range peers[:4] {
			p.hangUp()
		}
		b.pass(2 * b.config.Timing.DisconnectGrace)
		require.Empty(t, b.reported(), "their work waits for them")
		held := b.changed()
		require.Len(t, held, 4)
		for _, h := range held {
			require.Equal(t, api.AgentSuspect, h.Status)
			require.Contains(t, h.Reason, "held by the mass-loss brake")
		}
		hold := b.brakeTold()
		require.NotNil(t, hold)
		require.Equal(t, 4, hold.Lost)
		require.Equal(t, b.store.Process, hold.Process)
		require.False(t, hold.Since.IsZero())
		b.pass(2 * b.config.Timing.DisconnectGrace)
		peers[4].poll(lists(given[4]))
		require.Len(t, b.changed(), 4, "the cluster is told once")

		// Two come back: the brake clears, and the others get some time before they are given up.
		for i := range 2 {
			peers[i].poll(lists(given[i]))
		}
		b.pass(2 * detectEvery)
		require.Len(t, b.changed(), 6)
		require.Equal(t, api.AgentOnline, b.changed()[4].Status)
		require.Nil(t, b.brakeTold(), "the cluster hears that the brake cleared")
		require.NotNil(t, peers[2].session())
		require.Empty(t, b.reported())
		b.pass(reprieveGraces*b.config.Timing.DisconnectGrace - time.Second)
		require.NotNil(t, peers[2].session())
		b.pass(time.Second + 2*detectEvery)
		require.Nil(t, peers[2].session())
		require.Len(t, b.reported(), 2)
		require.NotNil(t, peers[0].session())
	})
}

// TestClusterJudgesLosses has a hub with four agents lose one of them, or three, while the cluster's brake judges over
// all hubs.
func TestClusterJudgesLosses(t *testing.T) {
	promises := func(r *protocol.Register) { r.Reconnects = true }
	tests := map[string]struct {
		lost       int
		braked     bool // by the cluster
		unanswered bool
		held       bool
	}{
		"few here, many in all":        {lost: 1, braked: true, held: true},
		"many here, few in all":        {lost: 3},
		"few, without an answer":       {lost: 1, unanswered: true},
		"many here, without an answer": {lost: 3, unanswered: true, held: true},
		"few here, few in all":         {lost: 1},
		"many everywhere":              {lost: 3, braked: true, held: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				rules := contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive, JudgesLosses: true}
				b.temporal.direct["c"] = rules
				var peers []*peer
				for _, id := range []string{"a", "b", "d", "e"} {
					p := b.register(id, 1, promises)
					p.poll()
					p.hasWorked()
					peers = append(peers, p)
				}
				b.temporal.mu.Lock()
				rules.Version, rules.Braked = 3, tt.braked
				b.temporal.direct["c"], b.temporal.unjudged = rules, tt.unanswered
				b.temporal.mu.Unlock()
				want := []string{"a", "b", "d"}[:tt.lost]
				for _, p := range peers[:tt.lost] {
					p.hangUp()
				}
				b.pass(100 * time.Millisecond)
				require.NotNil(t, peers[0].session())
				if !tt.unanswered {
					require.Equal(t, [][]string{want}, b.temporal.missed, "it is reported once, before the grace is over")
				}
				b.pass(400 * time.Millisecond)
				require.Equal(t, !tt.held && !tt.unanswered, peers[0].session() == nil)
				b.pass(judgeLimit)
				require.Equal(t, !tt.held, peers[0].session() == nil)
				b.mu.Lock()
				own := b.brakes["c"].EngagedAt
				b.mu.Unlock()
				require.True(t, own.IsZero() || tt.held, "what the cluster let go counts no more")
				if tt.braked {
					require.Nil(t, b.brakeTold(), "the cluster knows its own brake")
					peers[0].poll()
					b.pass(2 * detectEvery)
					require.Len(t, b.temporal.missed, 2)
					require.ElementsMatch(t, want[1:], b.temporal.missed[1], "the first is back")
				}
			})
		})
	}
}

// Agents whose deaths are proven have not vanished: the brake does not wait for them.
func TestProofsOfDeathReleaseTheBrake(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		var peers []*peer
		for _, id := range []string{"a", "b", "d", "e"} {
			p := b.register(id, 1)
			p.poll(lists(p.give(aTask("of-" + id))))
			peers = append(peers, p)
		}
		for _, p := range peers {
			p.hangUp()
		}
		b.pass(2 * b.config.Timing.DisconnectGrace)
		require.Empty(t, b.reported())
		require.NotNil(t, b.brakeTold())
		directive := contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive}
		for _, p := range peers {
			directive.Deaths = append(directive.Deaths, cluster.Death{AgentID: p.claims.Agent, Instance: p.claims.Instance,
				Reason: "proof of death by a spawner: its container ended"})
		}
		require.NoError(t, b.direct(t.Context(), directive))
		b.pass(2 * detectEvery)
		require.Len(t, b.reported(), 4, "their work moves")
		require.Nil(t, b.brakeTold())
	})
}

// TestFakesDoNotEngageTheBrake has agents that register, poll for an hour without work and fall silent, beside one that
// works.
func TestFakesDoNotEngageTheBrake(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		real := b.register("real", 1)
		b.queue("lane/c", aTask("t1"))
		given := (<-real.poll()).Assignments
		require.Len(t, given, 1)
		real.poll(lists(given[0]))
		var fakes []*peer
		for i := range 12 {
			fakes = append(fakes, b.register(fmt.Sprintf("fake-%d", i), 1))
		}
		pause := b.config.Timing.FailureThreshold / 3
		for begun := time.Now(); time.Since(begun) < time.Hour; b.pass(pause) {
			real.poll(lists(given[0]))
			for _, fake := range fakes {
				fake.poll()
			}
		}
		for _, fake := range fakes {
			fake.hangUp()
		}
		real.hangUp()
		b.pass(3 * b.config.Timing.DisconnectGrace)
		require.Nil(t, real.session())
		require.Len(t, b.reported(), 1, "its work moves")
		require.Nil(t, b.brakeTold())
	})
}

// Agents that never had work count neither as lost nor, once they vanish, as online. Work from before the hub's restart
// counts.
func TestWhoCountsForTheBrake(t *testing.T) {
	for name, c := range map[string]struct {
		workers, idle, lost int // the workers are lost first
		held                bool
	}{
		"all have worked":                {4, 0, 4, true},
		"all vanish and some worked":     {4, 6, 10, true},
		"all vanish and few worked":      {2, 8, 10, false},
		"workers vanish from the idle":   {4, 6, 4, false},
		"as many worked as are left":     {3, 7, 7, false},
		"more have worked than are left": {4, 6, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.start(beater{b.Hub})
				var peers []*peer
				for i := range c.workers + c.idle {
					id := fmt.Sprintf("a-%d", i)
					peers = append(peers, b.register(id, 1, func(r *protocol.Register) {
						if i < c.workers { // since before the hub was restarted
							token := b.seal.attempt(attemptClaims{Task: "of-" + id, Attempt: 1, Agent: id, Instance: id + "-instance",
								Lane: "lane/c"})
							r.Running = []protocol.RunningAttempt{{TaskID: "of-" + id, Attempt: 1, Token: token}}
						}
					}))
				}
				for begun := time.Now(); time.Since(begun) < 3*time.Minute; b.pass(b.config.Timing.FailureThreshold / 3) {
					for i, p := range peers {
						var running []protocol.Assignment
						if i < c.workers {
							running = []protocol.Assignment{{TaskID: fmt.Sprintf("of-a-%d", i), Attempt: 1}}
						}
						p.poll(lists(running...))
					}
				}
				for _, p := range peers[:c.lost] {
					p.hangUp()
				}
				b.pass(3 * b.config.Timing.DisconnectGrace)
				require.Equal(t, c.held, peers[0].session() != nil)
				require.Equal(t, c.held, b.brakeTold() != nil)
			})
		})
	}
}

// A held agent whose session a person ends, or that says goodbye, has not vanished: the brake does not wait for it.
func TestEndedSessionsReleaseTheBrake(t *testing.T) {
	for name, end := range map[string]func(b *bench, p *peer) error{
		"by a goodbye": func(b *bench, p *peer) error {
			_, err := b.goodbye(b.t.Context(), &goodbyeInput{Authorized: Authorized{ID: p.claims.Agent,
				Authorization: "Bearer " + b.seal.session(p.claims)}})
			return err
		},
		"by a revocation": func(b *bench, _ *peer) error {
			return b.direct(b.t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive,
				EndedTokens: []string{someToken}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				revoked, _ := b.joinWith("a", access.Identity{Kind: api.IdentityJoin, ID: someToken, Joins: true})
				peers := []*peer{revoked}
				for _, id := range []string{"b", "d", "e", "f", "g", "h"} {
					peers = append(peers, b.register(id, 1))
				}
				work := map[*peer]protocol.Assignment{}
				for _, p := range peers {
					work[p] = p.give(aTask("of-" + p.claims.Agent))
				}
				for _, p := range peers[:4] {
					p.hangUp()
				}
				b.pass(2 * b.config.Timing.DisconnectGrace)
				require.NotNil(t, b.brakeTold(), "four of seven")
				require.NoError(t, end(b, revoked))
				b.pass(2 * detectEvery)
				require.Nil(t, b.brakeTold(), "three of six are not more than half")
				for _, p := range peers[4:] {
					p.poll(lists(work[p]))
				}
				b.pass(reprieveGraces * b.config.Timing.DisconnectGrace)
				require.Nil(t, peers[1].session(), "the others are given up")
			})
		})
	}
}

// Whom a hub held when it was out of touch with Temporal is no longer its own: the reclaimer looks for those.
func TestRejoiningReleasesTheBrake(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		var peers []*peer
		for _, id := range []string{"a", "b", "d", "e", "f"} {
			p := b.register(id, 1)
			p.give(aTask("of-" + id))
			peers = append(peers, p)
		}
		for _, p := range peers[:3] {
			p.hangUp()
		}
		b.pass(2 * b.config.Timing.DisconnectGrace)
		require.NotNil(t, b.brakeTold())
		facts{b.Hub}.rejoin()
		e := b.register("e", 1)
		given := e.give(aTask("t1"))
		f := b.register("f", 1)
		f.give(aTask("t2"))
		b.pass(2 * detectEvery)
		require.Nil(t, b.brakeTold())
		f.hangUp()
		b.pass(2 * b.config.Timing.DisconnectGrace)
		require.Nil(t, f.session())
		e.poll(lists(given))
		require.NotNil(t, e.session())
	})
}

// Agents without work of which always one goes and one comes delay no judgement, and make few reports.
func TestFakesInTurnsDelayNoJudgement(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive, JudgesLosses: true}
		workers, work := []*peer{}, map[*peer]protocol.Assignment{}
		for _, id := range []string{"w1", "w2"} {
			p := b.register(id, 1)
			work[p] = p.give(aTask("of-" + id))
			workers = append(workers, p)
		}
		var fakes []*peer
		for i := range 20 {
			fakes = append(fakes, b.register(fmt.Sprintf("fake-%d", i), 1))
			fakes[i].poll()
		}
		turn := 0
		flip := func(duration time.Duration, alive []*peer) {
			for begun := time.Now(); time.Since(begun) < duration; turn++ {
				fakes[turn%20].hangUp()
				fakes[(turn+10)%20].poll()
				for _, p := range alive {
					p.poll(lists(work[p]))
				}
				b.pass(detectEvery)
			}
		}
		workers[0].hangUp() // for a moment, so that the cluster hears of the fakes
		flip(300*time.Millisecond, workers[1:])
		flip(time.Minute, workers)
		require.Less(t, len(b.temporal.missed), 10, "in peace")
		workers[0].hangUp()
		flip(2*b.config.Timing.DisconnectGrace, workers[1:])
		require.Nil(t, workers[0].session())
		require.Len(t, b.reported(), 1)
	})
}

// Agents without work that vanish just after those with some are reported before these are given up: else they would
// count as online.
func TestClusterHearsOfIdleAgentsBeforeItJudges(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive, JudgesLosses: true}
		worker := b.register("w", 1, func(r *protocol.Register) { r.Reconnects = true })
		worker.give(aTask("t1"))
		idle := b.register("i", 1, func(r *protocol.Register) { r.Reconnects = true })
		idle.poll()
		worker.hangUp()
		b.pass(detectEvery)
		idle.hangUp()
		for worker.session() != nil {
			b.pass(detectEvery)
		}
		require.Equal(t, []string{"i", "w"}, b.temporal.missed[len(b.temporal.missed)-1])
	})
}

// A cluster hears that agents without work are back also when those with work came first.
func TestClusterHearsWhoIsBack(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive, JudgesLosses: true,
			Braked: true}
		worker := b.register("w", 1)
		given := worker.give(aTask("t1"))
		idle := b.register("i", 1)
		idle.poll()
		for _, p := range []*peer{worker, idle} {
			p.hangUp()
		}
		b.pass(time.Second)
		worker.poll(lists(given))
		b.pass(time.Second)
		idle.poll()
		b.pass(time.Second)
		require.Equal(t, [][]string{{"i", "w"}, {"i"}, nil}, b.temporal.missed)
	})
}

// Agents that never had work and are away again and again do not keep the failovers of others back, nor their cluster
// busy.
func TestFakesThatFlapDoNotEngageTheBrake(t *testing.T) {
	for _, judges := range []bool{false, true} {
		t.Run(fmt.Sprintf("the cluster judges %t", judges), func(t *testing.T) { fakesFlap(t, judges) })
	}
}

func fakesFlap(t *testing.T, judges bool) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive, JudgesLosses: judges}
		var workers, fakes []*peer
		work := map[*peer]protocol.Assignment{}
		for i := range 6 {
			p := b.register(fmt.Sprintf("w-%d", i), 1)
			work[p] = p.give(aTask("of-" + p.claims.Agent))
			workers = append(workers, p)
		}
		for i := range 25 {
			fakes = append(fakes, b.register(fmt.Sprintf("fake-%d", i), 1))
		}
		flap := func(alive []*peer) {
			for _, p := range fakes {
				p.poll()
			}
			b.pass(detectEvery)
			for _, p := range alive {
				p.poll(lists(work[p]))
			}
			for _, p := range fakes {
				p.hangUp()
			}
			b.pass(b.config.Timing.DisconnectGrace / 2)
		}
		for begun := time.Now(); time.Since(begun) < 3*time.Minute; {
			flap(workers)
		}
		require.Empty(t, b.temporal.missed)
		for _, p := range workers[:3] {
			p.hangUp()
		}
		for range 6 {
			flap(workers[3:])
		}
		require.Nil(t, b.brakeTold())
		require.Len(t, b.reported(), 3, "their work moves")
	})
}

// TestFakesWithTasksDoNotEngageTheBrake has agents that take a task, report nothing, and stay held for long.
func TestFakesWithTasksDoNotEngageTheBrake(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		for i := range 12 {
			fake := b.register(fmt.Sprintf("fake-%d", i), 1)
			answer := fake.poll()
			b.queue("lane/c", aTask(fmt.Sprintf("t%d", i)))
			require.Len(t, (<-answer).Assignments, 1)
			fake.hangUp()
		}
		for range 20 {
			b.pass(10 * time.Second)
			require.Nil(t, b.brakeTold())
		}
	})
}

// TestAnAgentIDRegistersSeldom registers one id again and again.
func TestAnAgentIDRegistersSeldom(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		process := func(i int) protocol.Register {
			return protocol.Register{AgentID: "a", InstanceID: fmt.Sprintf("instance-%d", i), Cluster: "c",
				AgentProfile: api.AgentProfile{MaxTasks: 1}}
		}
		taken := 0
		var refused error
		for i := range 2 * registerBurst {
			_, err := b.openSession(t.Context(), process(i), cluster.JoinToken{}, false)
			if err == nil {
				taken++
			} else {
				refused = err
			}
		}
		require.Equal(t, registerBurst, taken)
		code, _ := httpapi.Code(refused)
		require.Equal(t, protocol.CodeRateLimited, code)
		b.register("b", 1) // another is not held back
		b.pass(time.Second)
		_, err := b.openSession(t.Context(), process(-1), cluster.JoinToken{}, false)
		require.NoError(t, err)
	})
}

func TestBrakeIsReleasedByHand(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		var peers []*peer
		for _, id := range []string{"a", "b", "d"} {
			p := b.register(id, 1)
			p.poll()
			p.hasWorked()
			peers = append(peers, p)
		}
		for _, p := range peers {
			p.hangUp()
		}
		b.pass(3 * b.config.Timing.DisconnectGrace)
		require.NotNil(t, peers[0].session())
		require.NotNil(t, b.brakeTold())
		require.NoError(t, b.releaseBrake(t.Context(), releaseOf("c")))
		b.pass(0)
		for _, p := range peers {
			require.Nil(t, p.session())
		}
		require.Nil(t, b.brakeTold())
		require.Equal(t, api.AgentOffline, b.changed()[len(b.changed())-1].Status)
	})
}

// TestMembersThatDidNotComeBack has a cluster count an agent on a hub that has no session of it.
func TestMembersThatDidNotComeBack(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		view := &contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c"},
			Members: []cluster.Member{
				{AgentID: "a", Instance: "a-instance", Epoch: 1, Registration: 4, Hub: "hub-1",
					Status: api.AgentOnline}}}}
		done, err := b.registers("a")
		require.NoError(t, err)
		l := &look{reclaimer: b.reclaimer, began: time.Now()}
		l.giveUpMissing(view, nil)
		require.True(t, l.waits, "it registers at this moment")
		b.pass(time.Second)
		require.Empty(t, b.changed())

		done()
		l.waits, l.promisesOnly = false, true
		l.giveUpMissing(view, nil)
		b.pass(time.Second)
		require.True(t, l.waits, "it has not promised to reconnect at once")
		require.Empty(t, b.changed())

		view.Members[0].Reconnects, l.waits = true, false
		l.giveUpMissing(view, nil)
		require.False(t, l.waits)
		b.pass(time.Second)
		require.Len(t, b.changed(), 1)
		require.Equal(t, int64(4), b.changed()[0].Registration, "one that registers meanwhile is not meant")
		require.Equal(t, api.EvidenceHubLost, b.changed()[0].Evidence)
	})
}

// TestTheTimeOfAStartIsNotTheAgents has a hub wait for Temporal before it can start: nobody could come back meanwhile.
func TestTheTimeOfAStartIsNotTheAgents(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.pass(time.Minute)
		require.Empty(t, b.reclaimer.begin())
	})
}

// TestRegistrationsThatEndHalfWay has the cluster admit an agent that gets no answer and never comes again.
func TestRegistrationsThatEndHalfWay(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.start(b.unanswered)
		b.temporal.members = []cluster.Member{{AgentID: "a", Instance: "a-instance", Epoch: 1, Registration: 4,
			Hub: "hub-1", Status: api.AgentOnline}}
		b.temporal.unanswered = 1
		_, err := b.openSession(t.Context(), protocol.Register{AgentID: "a", InstanceID: "a-instance", Cluster: "c",
			AgentProfile: api.AgentProfile{MaxTasks: 1}}, cluster.JoinToken{}, false)
		require.ErrorContains(t, err, "Temporal does not answer")
		b.pass(b.config.Timing.FailureThreshold - time.Second)
		require.Empty(t, b.changed(), "it may try again")
		b.pass(3 * time.Second)
		require.Len(t, b.changed(), 1)
		require.Equal(t, int64(4), b.changed()[0].Registration)
	})
}

// Agents go after they were admitted, one in a cluster that does not answer at first.
func TestASilentClusterDelaysNoOther(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.start(b.unanswered)
		b.temporal.members = []cluster.Member{{AgentID: "a", Instance: "a-instance", Epoch: 1, Hub: "hub-1",
			Status: api.AgentOnline}}
		b.temporal.silent = "broken"
		b.unanswered.ask("broken")
		soon := max(b.config.Timing.FailureThreshold, joinTimeout) + time.Second
		for n := range 20 {
			b.unanswered.ask("c")
			b.pass(soon)
			require.Len(t, b.changed(), n+1, "whatever the other cluster's looks are at")
		}
		b.temporal.mu.Lock()
		b.temporal.silent = ""
		b.temporal.mu.Unlock()
		b.pass(2 * time.Minute)
		require.Len(t, b.changed(), 21, "the cluster that was silent is looked at once it answers")
	})
}

// TestABacklogKeepsNobodyFromBeingGivenUp has the attempts of a cluster take longer to find than there is time.
func TestABacklogKeepsNobodyFromBeingGivenUp(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.temporal.backlog = true
		b.temporal.members = []cluster.Member{{AgentID: "a", Instance: "a-instance", Epoch: 1, Hub: "hub-1",
			Status: api.AgentOnline}}
		b.start(b.reclaimer)
		b.reclaimer.ask("c")
		b.pass(b.config.Timing.FailureThreshold + 2*heldTime + time.Second)
		require.NotEmpty(t, b.changed())
	})
}

// What a hub had before it was restarted and no agent brought back ends once no member may bring it back any more.
func TestAttemptsOfAnEarlierRun(t *testing.T) {
	delivery := func(task, agent string) store.Task {
		d := &store.Delivery{State: enumspb.PENDING_ACTIVITY_STATE_STARTED}
		d.Attempt.Number, d.Attempt.AgentID, d.Attempt.Hub = 1, agent, "hub-1"
		return store.Task{Task: api.Task{ID: task}, Delivery: d}
	}
	member := func(id, hub string, reconnects bool) cluster.Member {
		return cluster.Member{AgentID: id, Instance: id + "-instance", Epoch: 1, Hub: hub, Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{Reconnects: reconnects}}
	}
	held := store.Held{delivery("brought", "back"), delivery("dropped", "back"), delivery("died", "gone"),
		delivery("elsewhere", "moved"), delivery("nobody", ""), delivery("stranger", "forgotten")}
	for name, c := range map[string]struct {
		look  look
		gone  []string // further members that are not back
		want  []string
		waits bool
	}{
		"all had their time":      {look: look{promisesOnly: true}, want: []string{"dropped", "died", "nobody", "stranger"}},
		"one has made no promise": {look{promisesOnly: true}, []string{"slow"}, []string{"dropped", "died"}, true},
		"too many: it may be us":  {look{}, []string{"slow", "slower"}, []string{"dropped"}, true},
		"too many, for a minute": {look: look{last: true}, gone: []string{"slow", "slower"},
			want: []string{"dropped", "died", "nobody", "stranger"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("back", 2)
				a.session().work.attempts[attemptKey{"brought", 1}] = &attempt{}
				view := &contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c"}}}
				view.Members = []cluster.Member{member("back", "hub-1", true), member("gone", "hub-1", true),
					member("moved", "hub-2", true)}
				for _, id := range c.gone {
					view.Members = append(view.Members, member(id, "hub-1", false))
				}
				l := c.look
				l.reclaimer = b.reclaimer
				var ended []string
				for _, task := range l.giveUpMissing(view, slices.Clone(held)) {
					ended = append(ended, task.ID)
				}
				require.Equal(t, c.want, ended)
				require.Equal(t, c.waits, l.waits)
				delete(a.session().work.attempts, attemptKey{"brought", 1})
			})
		})
	}
}

// TestAnAgentDiesSeldom proves one agent's death again and again: each proof is an update of its cluster's workflow.
func TestAnAgentDiesSeldom(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		token := b.seal.session(b.register("a", 1).claims)
		var refused error
		for range 2 * registerBurst {
			_, err := b.goodbye(t.Context(), &goodbyeInput{Died: "exit code 1",
				Authorized: Authorized{ID: "a", Authorization: "Bearer " + token}})
			if err != nil {
				refused = err
			}
		}
		require.LessOrEqual(t, len(b.temporal.deaths), registerBurst)
		code, _ := httpapi.Code(refused)
		require.Equal(t, protocol.CodeRateLimited, code)
	})
}

// TestASupervisorsProofEndsTheSession gives a proof with the session's token: nothing waits for the agent's lease.
func TestASupervisorsProofEndsTheSession(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.give(aTask("t1", safety(api.Fenced)))
		b.endProven(a.claims, "proof of death by its supervisor: killed")
		b.pass(0)
		require.Nil(t, a.session())
		require.Zero(t, *b.reported()[0].LeaseRemaining)
		gone := b.changed()[len(b.changed())-1]
		require.Equal(t, api.EvidenceProof, gone.Evidence)
		require.Zero(t, *gone.LeaseRemaining)
		b.endProven(a.claims, "again")
		require.Len(t, b.reported(), 1)
	})
}

// What an agent ran beyond what its failover lists is counted.
func TestLostAttemptsAreCounted(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", api.MaxTransfers+2)
		a.give(aTask("t1"))
		b.mu.Lock()
		s := b.sessions["a"]
		for n := range api.MaxTransfers + 1 {
			at := &attempt{attemptClaims: attemptClaims{Task: "t", Attempt: n, Lane: "lane/c"}, session: s, accepted: true}
			s.work.attempts[at.key()] = at
		}
		b.mu.Unlock()
		a.hangUp()
		b.pass(5 * time.Second)
		lost := b.changed()[len(b.changed())-1]
		require.Equal(t, api.AgentOffline, lost.Status)
		require.Len(t, lost.Attempts, api.MaxTransfers)
		require.Equal(t, 2, lost.Unlisted)
	})
}
