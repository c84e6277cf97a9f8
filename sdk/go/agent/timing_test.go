package agent_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestLeaseStopsFencedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		fenced, free := newGate(), newGate()
		b := start(t, hub, inMemory(hub), map[string]agent.Handler{"fenced": fenced.handle, "free": free.handle,
			"deaf": func(context.Context, *agent.Task) (any, error) {
				pass(time.Minute)
				return "done", nil
			}})
		hub.WaitRegistered(1)
		one, two := assign("t1", "fenced"), assign("t2", "deaf")
		one.RetrySafety, two.RetrySafety = api.Fenced, api.Fenced
		hub.Assign(one, two, assign("t3", "free"))
		<-fenced.started
		pass(32 * time.Second)
		require.Empty(t, fenced.cause, "polls that are answered renew the lease")
		hub.Stop()
		cut := time.Now()
		require.ErrorIs(t, <-fenced.cause, agent.ErrLeaseExpired)
		// The poll that was answered at 30 s had been sent at 25 s: the lease ends at 39.25 s, 7.25 s from here.
		require.InDelta(t, 7250*time.Millisecond, time.Since(cut), float64(50*time.Millisecond))
		synctest.Wait() // both attempts are told, in any order
		require.Equal(t, 2, b.count(agent.EventLeaseExpired))
		require.Empty(t, b.agent.Role())

		pass(time.Minute)
		hub.Start()
		for _, task := range []string{"t1", "t2"} {
			result := hub.WaitResult(task)
			require.Equal(t, api.AttemptCancelled, result.Outcome,
				"a result after the lease is neither a success nor the handler's failure")
			require.Contains(t, result.Error, "lease")
		}
		require.Empty(t, free.cause, "other work goes on")
		close(free.open)
		require.Equal(t, api.AttemptCompleted, hub.WaitResult("t3").Outcome)
	})
}

// TestLeaseOfAnotherLength has the hub tell another lease at 12 s, in an answer or to a new registration, and renew
// none from 16 s on. A new registration renews nothing, whatever it tells; and the hub counts with what it told.
func TestLeaseOfAnotherLength(t *testing.T) {
	const shorter, longer = 9500 * time.Millisecond, 28500 * time.Millisecond // than 14.25 s
	for name, tt := range map[string]struct {
		lease     time.Duration
		registers bool
		ends      time.Duration
	}{
		"shorter, by the answer at 15 s to the poll of 10 s": {shorter, false, 10*time.Second + shorter},
		"longer, by the answer at 15 s to the poll of 10 s":  {longer, false, 10*time.Second + longer},
		"shorter, by a registration":                         {shorter, true, 5*time.Second + shorter},
		"longer, by a registration":                          {longer, true, 19250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				fenced := newGate()
				start(t, hub, inMemory(hub), map[string]agent.Handler{"fenced": fenced.handle})
				hub.WaitRegistered(1)
				began := time.Now()
				work := assign("t1", "fenced")
				work.RetrySafety = api.Fenced
				hub.Assign(work)
				<-fenced.started
				pass(12 * time.Second)
				require.Equal(t, 14250*time.Millisecond, newest(hub.Polls()).Lease.Std())
				hub.ChangeLease(tt.lease)
				if tt.registers {
					hub.WithholdLease(true)
					hub.ForgetSession()
				}
				time.AfterFunc(4*time.Second, func() { hub.WithholdLease(true) })
				require.ErrorIs(t, <-fenced.cause, agent.ErrLeaseExpired)
				require.InDelta(t, tt.ends, time.Since(began), float64(50*time.Millisecond))
				require.Equal(t, tt.lease, newest(hub.Polls()).Lease.Std(), "its polls name the new one")
			})
		})
	}
}

// A hub that has lost touch with Temporal answers, and renews no lease: fenced work stops as if it did not answer.
func TestLeaseThatTheHubWithholdsStopsFencedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		fenced, free := newGate(), newGate()
		b := start(t, hub, inMemory(hub), map[string]agent.Handler{"fenced": fenced.handle, "free": free.handle})
		hub.WaitRegistered(1)
		one := assign("t1", "fenced")
		one.RetrySafety = api.Fenced
		hub.Assign(one, assign("t2", "free"))
		<-fenced.started
		pass(12 * time.Second)
		hub.WithholdLease(true)
		cut := time.Now()
		var why error
		select {
		case why = <-fenced.cause:
		case <-time.After(time.Minute):
		}
		require.ErrorIs(t, why, agent.ErrLeaseExpired)
		// The poll that was answered at 10 s had been sent at 5 s: the lease ends at 19.25 s, 7.25 s from here.
		require.InDelta(t, 7250*time.Millisecond, time.Since(cut), float64(50*time.Millisecond))
		require.Equal(t, api.AttemptCancelled, hub.WaitResult("t1").Outcome)
		_, status := probe(t, b.agent, "/health")
		require.True(t, status.LastHeartbeatSuccess, "the hub answers all the time")
		require.False(t, status.MetadataStoreConnected)
		require.Empty(t, free.cause, "other work goes on")

		hub.Assign(protocol.Assignment{TaskID: "t3", Type: "fenced", RetrySafety: api.Fenced})
		pass(time.Minute)
		require.Equal(t, 1, b.count(agent.EventLeaseExpired), "fenced work does not begin without a lease")
		back := hub.WaitPoll("handed back", func(p protocol.Poll) bool { return len(p.Returned) == 1 })
		require.Equal(t, "t3", back.Returned[0].TaskID)
		hub.WithholdLease(false)
		pass(10 * time.Second)
		_, status = probe(t, b.agent, "/health")
		require.True(t, status.MetadataStoreConnected)
		close(free.open)
		require.Equal(t, api.AttemptCompleted, hub.WaitResult("t2").Outcome)
	})
}

// An agent whose hub renews no lease moves to another hub before its lease ends, if that one is in touch with Temporal.
func TestAgentMovesToAHubThatRenewsLeases(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		urls   []string
		second func(two *agenttest.Hub) // what is wrong with the second hub meanwhile; nil: nothing
		after  func(two *agenttest.Hub)
		moves  bool // before the lease ends
	}{
		"the other is in touch": {moves: true},
		"one name for both":     {moves: true, urls: []string{"http://both"}},
		"the other is not, either": {second: func(h *agenttest.Hub) { h.WithholdLease(true) },
			after: func(h *agenttest.Hub) { h.WithholdLease(false) }},
		"the other does not answer": {second: (*agenttest.Hub).Stop, after: (*agenttest.Hub).Start},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				two := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				fenced, free := newGate(), newGate()
				var cut atomic.Bool
				b := start(t, one, func(o *agent.Options) {
					if o.HubURLs = tt.urls; tt.urls == nil {
						o.HubURLs = []string{"http://one", "http://two"}
					}
					o.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
						if address == "two:80" || address == "both:80" && cut.Load() {
							return two.Dial(ctx, network, address)
						}
						return one.Dial(ctx, network, address)
					}
				}, map[string]agent.Handler{"fenced": fenced.handle, "free": free.handle})
				one.WaitRegistered(1)
				task := assign("t1", "fenced")
				task.RetrySafety = api.Fenced
				one.Assign(task, assign("t2", "free"))
				<-fenced.started
				<-free.started
				pass(12 * time.Second)
				if tt.second != nil {
					tt.second(two)
				}
				one.WithholdLease(true)
				cut.Store(true)
				pass(time.Minute)
				require.Equal(t, tt.moves, len(two.Registrations()) == 1)
				if !tt.moves {
					require.ErrorIs(t, <-fenced.cause, agent.ErrLeaseExpired)
					require.Empty(t, one.Registrations()[1:], "its session at the first hub goes on")
					polls := len(one.Polls())
					pass(11 * time.Second)
					require.Greater(t, len(one.Polls()), polls)
					tt.after(two)
				}
				again := two.WaitRegistered(1)
				require.Equal(t, one.Registrations()[0].InstanceID, again.InstanceID)
				two.WaitRunning("t2")
				if tt.moves {
					require.Zero(t, b.count(agent.EventLeaseExpired))
					require.Len(t, again.Running, 2)
					close(fenced.open)
					require.Equal(t, api.AttemptCompleted, two.WaitResult("t1").Outcome)
				}
				close(free.open)
				require.Equal(t, api.AttemptCompleted, two.WaitResult("t2").Outcome)
			})
		})
	}
}

func TestAssignmentsThatArriveAfterTheLeaseAreNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The lease is shorter than a poll may take, so that an answer can come too late for it.
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true, HeartbeatInterval: 5 * time.Second,
			Lease: 2 * time.Second})
		fenced, free := newGate(), newGate()
		b := start(t, hub, inMemory(hub), map[string]agent.Handler{"fenced": fenced.handle, "free": free.handle})
		hub.WaitRegistered(1)
		one := assign("t1", "fenced")
		one.RetrySafety = api.Fenced
		pass(3 * time.Second)
		hub.Assign(one, assign("t2", "free"))
		back := hub.WaitPoll("handed back", func(p protocol.Poll) bool { return len(p.Returned) > 0 })
		require.Len(t, back.Returned, 2)
		require.Empty(t, back.Running)
		hub.Assign(one, assign("t2", "free"))
		<-fenced.started // this answer came in time
		<-free.started
		require.Equal(t, 2, b.count(agent.EventAssigned))
	})
}

func TestCheckpointsDoNotStarveTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		b := start(t, hub, inMemory(hub), map[string]agent.Handler{"busy": func(ctx context.Context,
			task *agent.Task) (any, error) {
			for i := range 6000 {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				if err := task.SaveCheckpoint(i); err != nil {
					return nil, err
				}
				pass(10 * time.Millisecond)
			}
			return nil, nil
		}})
		hub.WaitRegistered(1)
		busy := assign("t1", "busy")
		busy.RetrySafety = api.Fenced
		hub.Assign(busy)
		require.Equal(t, api.AttemptCompleted, hub.WaitResult("t1").Outcome)
		require.Zero(t, b.count(agent.EventLeaseExpired))
		require.Less(t, len(hub.Polls()), 60*4)
	})
}

func TestBeaconsAreSentInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		start(t, hub, inMemory(hub), map[string]agent.Handler{"lively": func(_ context.Context, task *agent.Task) (any,
			error) {
			for range 100 {
				pass(100 * time.Millisecond)
				task.Beacon()
			}
			return nil, nil
		}})
		hub.WaitRegistered(1)
		lively := assign("t1", "lively")
		lively.Beacon = api.Duration(3 * time.Second)
		hub.Assign(lively)
		hub.WaitResult("t1")
		var beacons []int64
		for _, p := range hub.Polls() {
			if len(p.Running) == 1 {
				beacons = append(beacons, p.Running[0].Beacons)
			}
		}
		require.InDelta(t, 11, len(beacons), 2, "about every third of the beacon timeout")
		require.IsIncreasing(t, beacons)
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		g := newGate()
		start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": g.handle})
		hub.WaitRegistered(1)
		slow := assign("t1", "gate")
		slow.Timeout = api.Duration(90 * time.Second)
		hub.Assign(slow)
		result := hub.WaitResult("t1")
		require.ErrorIs(t, <-g.cause, context.DeadlineExceeded)
		require.Equal(t, api.AttemptTimedOut, result.Outcome)
		require.Equal(t, "timed out after 1m30s", result.Error)
		require.False(t, result.NonRetryable)
		require.False(t, result.Stuck)
		require.Equal(t, agent.ErrorTypeTimeout, result.ErrorType)
		require.Equal(t, 90*time.Second, result.EndedAt.Sub(result.StartedAt))
	})
}

func TestGracefulStop(t *testing.T) {
	t.Parallel()
	t.Run("before any hub was found", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
			hub.Stop()
			b := start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": newGate().handle})
			pass(time.Minute)
			b.stop()
			require.NoError(t, b.ends())
		})
	})
	t.Run("finishes what runs and takes nothing new", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub, g, b := atWork(t)
			hub.WaitRunning("t1")
			pass(time.Second)
			b.stop()
			stopped := time.Now()
			hub.WaitPoll("stopping", func(p protocol.Poll) bool { return p.Stopping && len(p.Running) == 1 })
			require.Less(t, time.Since(stopped), time.Second, "the hub is told at once")
			pass(20 * time.Second)
			require.Zero(t, hub.Goodbyes())
			close(g.open)
			require.NoError(t, b.ends())
			require.Equal(t, api.AttemptCompleted, hub.WaitResult("t1").Outcome)
			require.Equal(t, 1, hub.Goodbyes())
		})
	})
	t.Run("hands back what takes too long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub, g, b := atWork(t)
			b.stop()
			stopped := time.Now()
			require.NoError(t, b.ends())
			require.ErrorIs(t, <-g.cause, agent.ErrStopping)
			require.InDelta(t, agent.DefaultStopTimeout, time.Since(stopped), float64(time.Second))
			result := hub.WaitResult("t1")
			require.Equal(t, api.AttemptCancelled, result.Outcome)
			require.Contains(t, result.Error, "the agent stopped")
			require.Equal(t, 1, hub.Goodbyes())
		})
	})
	t.Run("without a hub it ends all the same", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub, g, b := atWork(t)
			hub.Stop()
			close(g.open)
			b.stop()
			stopped := time.Now()
			require.NoError(t, b.ends())
			require.LessOrEqual(t, time.Since(stopped), agent.DefaultStopTimeout+15*time.Second)
		})
	})
	t.Run("a handler that does not stop is an error, and there is no goodbye", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
			release, begun := make(chan struct{}), make(chan struct{})
			b := start(t, hub, inMemory(hub), map[string]agent.Handler{"deaf": func(context.Context, *agent.Task) (any,
				error) {
				close(begun)
				<-release
				return nil, nil
			}})
			hub.WaitRegistered(1)
			hub.Assign(assign("t1", "deaf"))
			<-begun
			b.stop()
			require.ErrorContains(t, b.ends(), "handlers did not return")
			require.Zero(t, hub.Goodbyes(), "the hub must not give the work away as if it had stopped")
			close(release)
		})
	})
	t.Run("an assignment on its way when the agent stops is not begun", func(t *testing.T) {
		t.Parallel()
		for range 20 {
			hub := agenttest.NewHub(t, agenttest.Options{})
			g := newGate()
			b := start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
			hub.WaitRegistered(1)
			hub.Assign(assign("t1", "gate"))
			<-g.started
			b.stop()
			hub.Assign(assign("t2", "gate"))
			close(g.open)
			require.NoError(t, b.ends())
			if g.count() > 1 { // it arrived before the stop: then it must be finished
				hub.WaitResult("t2")
			}
			hub.WaitResult("t1")
		}
	})
}

func TestNonRetryableKeepsTheError(t *testing.T) {
	t.Parallel()
	cause := errors.New("broken")
	require.ErrorIs(t, agent.NonRetryable(cause), cause)
	require.NoError(t, agent.NonRetryable(nil))
}

func TestTaskWorksWithoutAnAgent(t *testing.T) {
	t.Parallel()
	task := &agent.Task{Payload: []byte(`{"a":1}`)}
	task.Progress(10, "x")
	task.Beacon()
	require.NoError(t, task.SaveCheckpoint(1))
	var v map[string]int
	require.NoError(t, task.Decode(&v))
	require.Equal(t, 1, v["a"])
}
