package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// What becomes of an instance with a disconnect grace of ten seconds, and of another task, after their agent's
// connection closed.
func TestDisconnectGrace(t *testing.T) {
	const grace = 10 * time.Second
	back := func(instance string, with bool) func(b *bench, given protocol.Assignment) {
		return func(b *bench, given protocol.Assignment) {
			b.register("a", 2, func(r *protocol.Register) {
				r.InstanceID = instance
				if with {
					r.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token}}
				}
			})
		}
	}
	direct := func(change func(*contract.Directive)) func(*bench, protocol.Assignment) {
		return func(b *bench, _ protocol.Assignment) {
			d := contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive}
			change(&d)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.applyDirectiveLocked(d)
		}
	}
	for name, c := range map[string]struct {
		then func(b *bench, given protocol.Assignment) // three seconds later
		hub  string                                    // that has the attempt in the end
		why  string                                    // it was lost; empty: it was not
		soon bool                                      // it was lost before the grace was over
	}{
		"it stays away": {hub: "hub-1", why: "its connection closed and it did not come back within 1.05s, " +
			"nor within its disconnect grace of 10s"},
		"it comes back":                     {back("a-instance", true), "hub-1", "", false},
		"it comes back to another hub":      {hub: "hub-2"},
		"it has reported the end elsewhere": {hub: ""},
		"it comes back without the instance": {back("a-instance", false), "hub-1", "the agent no longer has the attempt",
			true},
		"a newer process takes its id": {back("a-2", false), "hub-1", "a newer process took its agent id", true},
		"a newer process comes to another hub": {direct(func(d *contract.Directive) {
			d.Fences = []contract.Fence{{AgentID: "a", MinEpoch: 9}}
		}), "hub-1", "a newer process took its agent id", true},
		"its death is proven": {direct(func(d *contract.Directive) {
			d.Deaths = cluster.Deaths{{AgentID: "a", Instance: "a-instance", Reason: "its host was deleted"}}
		}), "hub-1", "its host was deleted", true},
		"the instance is cancelled in the time": {func(b *bench, _ protocol.Assignment) {
			facts{b.Hub}.cancel([]byte("j~~0.1/1"))
		}, "hub-1", "it was cancelled while its agent was out of touch", true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 2)
				b.pass(0)
				given := a.give(aTask("j~~0.1", func(in *contract.RunTaskInput) {
					in.Instance = &api.InstanceOf{Job: "j", Name: "0", DisconnectGrace: api.Duration(grace)}
				}))
				a.takes("lane/c", aTask("t1"), given)
				a.hangUp()
				b.pass(3 * time.Second)
				require.Nil(t, a.session())
				require.Len(t, b.reported(), 1, "the other task goes elsewhere at once")
				require.Equal(t, "t1/1", b.reported()[0].token)
				lost := b.changed()[0]
				require.Equal(t, []cluster.HeldAttempt{{TaskID: "t1", Attempt: 1}}, lost.Attempts)
				require.WithinDuration(t, time.Now().Add(grace-3*time.Second), lost.AwaitedUntil, 2*detectEvery)
				held, err := b.holdsAttempts(t.Context(), contract.HoldsAttemptsInput{Cluster: "c",
					Attempts: []cluster.HeldAttempt{{TaskID: "j~~0.1", Attempt: 1}}})
				require.NoError(t, err)
				require.Len(t, held.Held, 1, "healing leaves it alone")

				b.temporal.mu.Lock()
				b.temporal.hasIt = c.hub
				b.temporal.mu.Unlock()
				if c.then != nil {
					c.then(b, given)
				}
				b.pass(time.Second)
				require.Equal(t, c.soon, len(b.reported()) == 2)
				b.pass(grace)
				if c.why == "" {
					require.Len(t, b.reported(), 1)
					return
				}
				require.Len(t, b.reported(), 2)
				end := b.reported()[1]
				require.Equal(t, api.AttemptLost, end.Outcome)
				require.Equal(t, c.why, end.Reason)
				require.True(t, end.Awaits)
			})
		})
	}
}

// The attempt's token tells a hub that takes it over, too.
func TestAHubThatTakesAnInstanceOverKnowsItsDisconnectGrace(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		b.pass(0)
		given := a.give(aTask("j~~0.1", func(in *contract.RunTaskInput) {
			in.Instance = &api.InstanceOf{Job: "j", Name: "0", DisconnectGrace: api.Duration(10 * time.Second),
				Health: &api.ServiceCheck{TCP: &api.TCPCheck{Port: "80"}}}
		}))
		facts{b.Hub}.rejoin()
		a = b.register("a", 1, func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token}}
		})
		<-a.poll(lists(given))
		a.hangUp()
		b.pass(9 * time.Second)
		require.Empty(t, b.reported())
		b.pass(2 * time.Second)
		require.Len(t, b.reported(), 1)
	})
}

// How long work of each kind is held for an agent whose connection closed, and that it goes on with an agent that comes
// back in time.
func TestWorkThatMustNotRunTwiceIsHeldForItsAgent(t *testing.T) {
	for name, c := range map[string]struct {
		safety api.RetrySafety
		grace  *api.Duration
		held   time.Duration // since the connection closed; 0: it is lost at once
		why    string
		awaits bool // also after its hub is lost
	}{
		"idempotent": {api.Idempotent, nil, 0, "", false},
		"idempotent, given": {api.Idempotent, new(api.Duration(9 * time.Second)), 9 * time.Second,
			"its disconnect grace of 9s", true},
		"fenced":       {api.Fenced, nil, 14 * time.Second, "its lease", false}, // of 15 s, granted a second before
		"at_most_once": {api.AtMostOnce, nil, api.DefaultDisconnectGrace, "its disconnect grace of 30s", true},
		"unmarked":     {api.Unmarked, nil, api.DefaultDisconnectGrace, "its disconnect grace of 30s", true},
		"unmarked, given": {api.Unmarked, new(api.Duration(8 * time.Second)), 8 * time.Second,
			"its disconnect grace of 8s", true},
		"unmarked, none": {api.Unmarked, new(api.Duration(0)), 0, "", false},
	} {
		start := func(b *bench) (*peer, protocol.Assignment) {
			a := b.register("a", 1)
			b.pass(0)
			given := a.give(aTask("t1", func(in *contract.RunTaskInput) {
				in.Spec.RetrySafety, in.Spec.DisconnectGrace = c.safety, c.grace
			}))
			b.pass(time.Second)
			a.hangUp()
			return a, given
		}
		t.Run(name+", away", func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				start(b)
				if c.held == 0 {
					b.pass(1500 * time.Millisecond)
					require.Len(t, b.reported(), 1)
					require.Zero(t, b.changed()[0].AwaitedUntil)
					return
				}
				b.pass(c.held - 500*time.Millisecond)
				require.Empty(t, b.reported())
				lost := b.changed()[0]
				require.Len(t, lost.Attempts, 1, "its failover's record tells of it")
				require.Equal(t, lost.AwaitedUntil, lost.Attempts[0].AwaitedUntil)
				b.pass(time.Second)
				require.Len(t, b.reported(), 1)
				end := b.reported()[0]
				require.Equal(t, api.AttemptLost, end.Outcome)
				require.Contains(t, end.Reason, "did not come back within 1.05s, nor within "+c.why)
				require.Equal(t, c.awaits, end.Awaits)
				require.True(t, c.safety != api.Fenced || *end.LeaseRemaining == 0)
			})
		})
		if c.held == 0 {
			continue
		}
		t.Run(name+", back", func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				_, given := start(b)
				b.pass(c.held - time.Second)
				a := b.register("a", 1, func(r *protocol.Register) {
					r.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token}}
				})
				<-a.poll(lists(given))
				b.pass(2 * time.Second)
				require.Empty(t, b.reported(), "it goes on")
				require.Contains(t, a.session().work.attempts, attemptKey{"t1", 1})
			})
		})
		t.Run(name+", its result comes first", func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a, given := start(b)
				b.pass(c.held - time.Second)
				require.NoError(t, a.report(given, api.AttemptCompleted))
				require.Empty(t, b.awaited)
				b.pass(api.DefaultDisconnectGrace)
				require.Len(t, b.reported(), 1)
				require.Equal(t, "completed", b.reported()[0].how)
			})
		})
	}
}
