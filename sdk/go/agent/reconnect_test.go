package agent_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestResultIsSentUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	unavailable := agenttest.Fault{Status: http.StatusServiceUnavailable, Code: protocol.CodeUnavailable}
	for name, c := range map[string]struct {
		op     agenttest.Op
		faults []agenttest.Fault
		event  agent.EventKind
	}{
		"accepted after failures": {agenttest.OpResult, []agenttest.Fault{unavailable, {},
			{Status: http.StatusBadGateway}, {Status: http.StatusForbidden}}, agent.EventResultAccepted},
		"session unknown": {agenttest.OpResult, []agenttest.Fault{{Status: http.StatusConflict,
			Code: protocol.CodeUnknownSession}}, agent.EventResultAccepted},
		"token refused once": {agenttest.OpResult, []agenttest.Fault{{Status: http.StatusUnauthorized,
			Code: protocol.CodeUnauthorized}}, agent.EventResultAccepted},
		"the answer is lost": {agenttest.OpResultAnswer, []agenttest.Fault{{}}, agent.EventResultDropped},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				g := newGate()
				b := start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": g.handle})
				hub.WaitRegistered(1)
				hub.Fail(c.op, c.faults...)
				hub.Assign(assign("t1", "gate"))
				hub.WaitRunning("t1")
				close(g.open)
				synctest.Wait()
				if c.op == agenttest.OpResult {
					require.Empty(t, hub.Results())
					require.Equal(t, len(c.faults)-1, hub.FaultsLeft(c.op))
				}
				hub.WaitResult("t1")
				require.Zero(t, hub.FaultsLeft(c.op))
				synctest.Wait()
				if c.event == agent.EventResultDropped {
					pass(time.Second) // the second delivery
				}
				require.Equal(t, 1, b.count(c.event))
				require.Len(t, hub.Results(), 1)
				require.Len(t, hub.Registrations(), 1)
			})
		})
	}
}

func TestAttemptIsListedUntilItsResultIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, g, _ := atWork(t)
		hub.WaitRunning("t1")
		hub.Fail(agenttest.OpResult, make([]agenttest.Fault, 10)...)
		close(g.open)
		pass(12 * time.Second)
		require.Empty(t, hub.Results())
		last := hub.Polls()[len(hub.Polls())-1]
		require.Len(t, last.Running, 1)
		require.Empty(t, last.Running[0].Token, "the token is only needed once")
		hub.WaitResult("t1")
		count := len(hub.Polls())
		later := hub.WaitPoll("nothing listed", func(p protocol.Poll) bool { return p.Counters.Completed == 1 })
		require.Empty(t, later.Running)
		require.Greater(t, len(hub.Polls()), count)
	})
}

func TestResultThatNoHubTakesIsDropped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults []agenttest.Fault
		before func(*agenttest.Hub)
	}{
		"superseded": {before: func(h *agenttest.Hub) { h.Supersede("t1", 1) }},
		"refused": {faults: []agenttest.Fault{{Status: http.StatusNotFound,
			Code: protocol.CodeUnknownTask}}},
		"token is worthless": {faults: repeat(agenttest.Fault{Status: http.StatusUnauthorized,
			Code: protocol.CodeUnauthorized}, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, g, b := atWork(t)
				hub.WaitRunning("t1")
				hub.Fail(agenttest.OpResult, c.faults...)
				if c.before != nil {
					c.before(hub)
				}
				close(g.open)
				b.await(agent.EventResultDropped)
				require.Empty(t, hub.Results())
				hub.WaitPoll("a free slot", func(p protocol.Poll) bool { return p.Sequence > 2 && len(p.Running) == 0 })
			})
		})
	}
}

func TestHubRefusesAResultAsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		g := newGate()
		start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": g.handle})
		hub.WaitRegistered(1)
		hub.Fail(agenttest.OpResult, agenttest.Fault{Status: http.StatusRequestEntityTooLarge}) // as a proxy answers
		hub.Assign(assign("t1", "gate"))
		close(g.open)
		result := hub.WaitResult("t1")
		require.Equal(t, api.AttemptFailed, result.Outcome)
		require.Contains(t, result.Error, "too large")
		require.True(t, result.NonRetryable)
	})
}

func TestForgottenSessionIsRegisteredAgainAndWorkGoesOn(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*agenttest.Hub){
		"unknown session": func(h *agenttest.Hub) { h.ForgetSession() },
		"token refused": func(h *agenttest.Hub) {
			h.Fail(agenttest.OpPoll, agenttest.Fault{Status: http.StatusUnauthorized, Code: protocol.CodeUnauthorized})
			h.DropConnections()
		},
		"hub down and up": func(h *agenttest.Hub) {
			h.Stop()
			h.ForgetSession()
			h.Start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{HeartbeatInterval: 100 * time.Millisecond})
			g := newGate()
			start(t, hub, nil, map[string]agent.Handler{"gate": g.handle,
				"save": func(_ context.Context, task *agent.Task) (any, error) {
					if err := task.SaveCheckpoint(7); err != nil {
						return nil, err
					}
					<-g.open
					return nil, nil
				}})
			first := hub.WaitRegistered(1)
			require.Empty(t, first.Running)
			require.Zero(t, hub.Proven())
			hub.Assign(assign("t1", "gate"), assign("t2", "save"))
			hub.WaitPoll("the checkpoint", hasCheckpoint)
			hub.Until("the checkpoint to be sent only once", func() bool {
				polls := hub.Polls()
				last := polls[len(polls)-1]
				return len(last.Running) == 2 && !hasCheckpoint(last)
			})
			before := len(hub.Polls())
			forget(hub)
			again := hub.WaitRegistered(2)
			require.Equal(t, first.InstanceID, again.InstanceID)
			require.Equal(t, 1, hub.Proven(), "it shows its session, so that its join token's limit does not hold it up")
			require.Len(t, again.Running, 2)
			for _, r := range again.Running {
				require.NotEmpty(t, r.Token)
				require.Equal(t, 1, r.Attempt)
			}
			hub.Until("the checkpoint again, for a hub that may have lost it", func() bool {
				for _, p := range hub.Polls()[before:] {
					if hasCheckpoint(p) {
						return true
					}
				}
				return false
			})
			close(g.open)
			require.Equal(t, api.AttemptCompleted, hub.WaitResult("t1").Outcome)
			require.Equal(t, api.AttemptCompleted, hub.WaitResult("t2").Outcome)
			require.Equal(t, 1, g.count(), "the work was not touched")
		})
	}
}

func TestAnotherHubTakesOver(t *testing.T) {
	t.Parallel()
	one, two := agenttest.NewHub(t, agenttest.Options{}), agenttest.NewHub(t, agenttest.Options{})
	g := newGate()
	start(t, one, func(o *agent.Options) { o.HubURLs = []string{one.URL(), two.URL()} },
		map[string]agent.Handler{"gate": g.handle})
	first := one.WaitRegistered(1)
	one.Assign(assign("t1", "gate"))
	one.WaitRunning("t1")
	one.Stop()
	again := two.WaitRegistered(1)
	require.Equal(t, first.InstanceID, again.InstanceID)
	require.Len(t, again.Running, 1)
	two.WaitRunning("t1")
	close(g.open)
	require.Equal(t, api.AttemptCompleted, two.WaitResult("t1").Outcome)
}

func TestResultGoesToAnotherHub(t *testing.T) {
	t.Parallel()
	one, two := agenttest.NewHub(t, agenttest.Options{}), agenttest.NewHub(t, agenttest.Options{})
	g := newGate()
	b := start(t, one, func(o *agent.Options) { o.HubURLs = []string{one.URL(), two.URL()} },
		map[string]agent.Handler{"gate": g.handle})
	one.WaitRegistered(1)
	one.Fail(agenttest.OpResult, repeat(agenttest.Fault{Status: http.StatusServiceUnavailable,
		Code: protocol.CodeUnavailable}, 1000)...)
	one.Assign(assign("t1", "gate"))
	one.WaitRunning("t1")
	close(g.open)
	// The fake hubs share no state, so the second refuses the result; the test is that the agent asked it.
	require.ErrorContains(t, b.await(agent.EventResultDropped).Err, protocol.CodeSuperseded)
}

func TestHubAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, g, b := atWork(t)
		hub.WaitRunning("t1")
		hub.Stop()
		pass(time.Hour)
		tries := b.count(agent.EventReconnecting)
		require.Greater(t, tries, 1000, "it keeps trying at least every two seconds or so")
		require.Less(t, tries, 5000, "and not in a rush")
		close(g.open)
		pass(time.Minute)
		require.Empty(t, hub.Results())
		hub.Start()
		require.Equal(t, api.AttemptCompleted, hub.WaitResult("t1").Outcome)
	})
}

func TestFirstRegistration(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		protocol.CodeUnknownCluster: "refused the registration: the test asked for it (404 unknown_cluster)",
		protocol.CodeAgentIDInUse:   "refused the registration: the test asked for it (409 agent_id_in_use)",
		protocol.CodeClusterFull:    "refused the registration: the test asked for it (409 cluster_full)",
	} {
		t.Run(code+" is final", func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{})
			status := http.StatusConflict
			if code == protocol.CodeUnknownCluster {
				status = http.StatusNotFound
			}
			hub.Fail(agenttest.OpRegister, agenttest.Fault{Status: status, Code: code})
			b := start(t, hub, nil, map[string]agent.Handler{"gate": newGate().handle})
			require.ErrorContains(t, b.ends(), want)
		})
	}
	t.Run("no hub yet is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
			hub.Fail(agenttest.OpRegister, agenttest.Fault{Status: http.StatusServiceUnavailable,
				Code: protocol.CodeUnavailable}, agenttest.Fault{}, agenttest.Fault{Status: http.StatusNotFound})
			start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": newGate().handle})
			hub.WaitRegistered(1)
			require.Zero(t, hub.FaultsLeft(agenttest.OpRegister))
		})
	})
	t.Run("later refusals are waited out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
			start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": newGate().handle})
			hub.WaitRegistered(1)
			hub.Fail(agenttest.OpRegister, repeat(agenttest.Fault{Status: http.StatusNotFound,
				Code: protocol.CodeUnknownCluster}, 5)...)
			hub.ForgetSession()
			hub.WaitRegistered(2)
			require.Zero(t, hub.FaultsLeft(agenttest.OpRegister))
		})
	})
}

func TestSecondProcessFencesTheFirst(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	g := newGate()
	first := start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
	hub.WaitRegistered(1)
	hub.Assign(assign("t1", "gate"))
	<-g.started
	second := start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
	require.ErrorIs(t, first.ends(), agent.ErrFenced)
	require.ErrorIs(t, <-g.cause, agent.ErrFenced)
	require.Equal(t, 1, first.count(agent.EventFenced))
	require.Empty(t, hub.Results())
	require.Zero(t, hub.Goodbyes())
	hub.Assign(assign("t2", "gate"))
	close(g.open)
	hub.WaitResult("t2")
	second.stop()
	require.NoError(t, second.ends())
}

func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		g := newGate()
		b := start(t, hub, func(o *agent.Options) {
			o.DialContext = hub.Dial
			o.GiveUpAfter = time.Minute
		}, map[string]agent.Handler{"gate": g.handle})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "gate"))
		<-g.started
		pass(10 * time.Minute) // a hub is there
		gone := time.Now()
		hub.Stop()
		require.ErrorIs(t, b.ends(), agent.ErrGaveUp)
		require.ErrorIs(t, <-g.cause, agent.ErrGaveUp)
		require.InDelta(t, time.Minute, time.Since(gone), float64(5*time.Second))
	})
}

func TestHubThatAnswersAtOnceIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true, HeartbeatInterval: time.Nanosecond})
		start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": newGate().handle})
		pass(time.Minute)
		require.Less(t, len(hub.Polls()), 150)
	})
}

func hasCheckpoint(p protocol.Poll) bool {
	for _, r := range p.Running {
		if string(r.Checkpoint) == "7" {
			return true
		}
	}
	return false
}

func repeat(f agenttest.Fault, n int) []agenttest.Fault {
	faults := make([]agenttest.Fault, n)
	for i := range faults {
		faults[i] = f
	}
	return faults
}

// TestATokenThatDoesNotCountAnyMore has an agent register again after its join token was revoked or has expired: it
// goes on with its session, unless that was ended too.
func TestATokenThatDoesNotCountAnyMore(t *testing.T) {
	t.Parallel()
	over := agenttest.Fault{Status: http.StatusUnauthorized, Code: protocol.CodeUnauthorized}
	for name, c := range map[string]struct {
		register, resume []agenttest.Fault
		end              error
	}{
		"goes on": {[]agenttest.Fault{over}, nil, nil},
		"again after a failure": {[]agenttest.Fault{over, over},
			[]agenttest.Fault{{Status: http.StatusServiceUnavailable, Code: protocol.CodeUnavailable}}, nil},
		"the session helps neither": {[]agenttest.Fault{over}, []agenttest.Fault{over}, nil}, // and then the token does
		"a hub that cannot do it": {[]agenttest.Fault{over},
			[]agenttest.Fault{{Status: http.StatusMethodNotAllowed, Code: protocol.CodeMethodNotAllowed}}, nil},
		"ended": {[]agenttest.Fault{over},
			[]agenttest.Fault{{Status: http.StatusForbidden, Code: protocol.CodeSessionRevoked}}, agent.ErrRevoked},
		"ended, as the join says": {[]agenttest.Fault{{Status: http.StatusForbidden,
			Code: protocol.CodeSessionRevoked}}, nil, agent.ErrRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
				g := newGate()
				b := start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": g.handle})
				hub.WaitRegistered(1)
				hub.Assign(assign("t1", "gate"))
				<-g.started
				hub.Fail(agenttest.OpRegister, c.register...)
				hub.Fail(agenttest.OpResume, c.resume...)
				hub.ForgetSession()
				if c.end != nil {
					require.ErrorIs(t, b.ends(), c.end)
					require.ErrorIs(t, <-g.cause, c.end)
					require.Equal(t, 1, b.count(agent.EventRevoked))
					require.Zero(t, hub.Goodbyes())
					return
				}
				again := hub.WaitRegistered(2)
				require.Equal(t, hub.Registrations()[0].InstanceID, again.InstanceID)
				require.Greater(t, again.Registration, hub.Registrations()[0].Registration,
					"hubs can tell the later one")
				require.Len(t, again.Running, 1, "it brings its work back")
				require.Zero(t, hub.FaultsLeft(agenttest.OpRegister)+hub.FaultsLeft(agenttest.OpResume))
				close(g.open)
				hub.WaitResult("t1")
			})
		})
	}
	t.Run("a poll says so", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
			b := start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": newGate().handle})
			hub.WaitRegistered(1)
			hub.Fail(agenttest.OpPoll, agenttest.Fault{Status: http.StatusForbidden, Code: protocol.CodeSessionRevoked})
			hub.DropConnections()
			require.ErrorIs(t, b.ends(), agent.ErrRevoked)
		})
	})
}
