package e2e

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// look is how a task's recovery stands; nil while nobody answers for it.
func (b *bench) look(t *testing.T, id string) *api.Task {
	t.Helper()
	var task api.Task
	if status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/tasks/"+id, nil, &task); status != http.StatusOK ||
		task.PolicyState == nil {
		return nil
	}
	return &task
}

// recovery waits until a task's recovery stands as is says, and returns it.
func (b *bench) recovery(t *testing.T, id string, is func(*api.Task) bool) *api.Task {
	t.Helper()
	var task *api.Task
	require.Eventually(t, func() bool {
		found := b.look(t, id)
		if found == nil || !is(found) {
			return false
		}
		task = found
		return true
	}, patience, 20*time.Millisecond, "recovery of %s", id)
	return task
}

func whatever(*api.Task) bool { return true }

func wasLost(task *api.Task) bool { return task.PolicyState.LastFailure != "" }

// soon is a recovery whose waits are short.
func soon(mode api.RecoveryMode) map[string]any {
	return map[string]any{"mode": mode, "restart": map[string]any{"delay": "100ms"},
		"reschedule": map[string]any{"attempts": 9, "delay": "100ms"}}
}

// TestRecoveryModes has the agent of a task lost in each mode, beside another agent that could have it.
func TestRecoveryModes(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, mode api.RecoveryMode) (b *bench, id, first, second string, wire *network) {
		t.Helper()
		b, first, second = newBench(t, api.ClusterConfig{}), plane.UniqueID("a"), plane.UniqueID("b")
		_, wire = b.agent(t, first)
		id = b.submit(t, map[string]any{"recovery": soon(mode)})
		b.waitBegins(t, id, 1)
		b.agent(t, second)
		require.Equal(t, "ok", b.recovery(t, id, whatever).RecoveryStatus)
		wire.cut()
		return b, id, first, second, wire
	}
	t.Run("cluster_recover", func(t *testing.T) {
		t.Parallel()
		b, id, first, second, _ := begin(t, api.ClusterRecover)
		require.Equal(t, second, b.waitBegins(t, id, 2)[1].agent)
		b.finish.Store(true)
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
		state := b.recovery(t, id, whatever).PolicyState
		require.Len(t, state.Reschedules, 1)
		require.Equal(t, []string{first}, state.Excluded)
	})
	t.Run("local_restart", func(t *testing.T) {
		t.Parallel()
		b, id, first, _, wire := begin(t, api.LocalRestart)
		b.recovery(t, id, func(task *api.Task) bool {
			return task.RecoveryStatus == "waiting_for_agent" || len(b.begins(id)) > 1
		})
		require.Len(t, b.begins(id), 1)
		wire.heal()
		require.Equal(t, first, b.waitBegins(t, id, 2)[1].agent)
	})
	t.Run("manual_recover", func(t *testing.T) {
		t.Parallel()
		b, id, _, _, _ := begin(t, api.ManualRecover)
		require.Equal(t, api.TaskReview, getTask(t, b.node.URL, id, "20s").Status)
		task := b.recovery(t, id, whatever)
		require.Equal(t, "review", task.RecoveryStatus)
		require.True(t, task.RecoveryRequiresReview)
		require.Equal(t, api.ActionReview, task.PolicyState.NextAction)
		require.Len(t, b.begins(id), 1)

		t.Log("after a failure that its agent reports, too")
		b.failing(t, plane.UniqueID("c"))
		failed := b.submit(t, map[string]any{"type": "fail", "recovery": soon(api.ManualRecover)})
		require.Equal(t, api.TaskReview, getTask(t, b.node.URL, failed, "20s").Status)
		require.Len(t, b.begins(failed), 1)
	})
}

// failing is an agent whose handler fails as soon as it begins, and keeps when that was.
func (b *bench) failing(t *testing.T, id string) {
	t.Helper()
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: id, Slots: 4},
		map[string]agent.Handler{"fail": func(_ context.Context, task *agent.Task) (any, error) {
			b.note(&b.begun, task.ID, id)
			return nil, errors.New("no luck")
		}})
}

// TestRestartsBeginWhenTheyShould compares when attempts begin with what their policy says. None begins before its
// time; after it there is what a busy machine takes.
func TestRestartsBeginWhenTheyShould(t *testing.T) {
	t.Parallel()
	const ms, late = time.Millisecond, 20 * time.Second
	for name, c := range map[string]struct {
		restart map[string]any
		waits   []time.Duration
	}{
		"exponential": {map[string]any{"attempts": 4, "delay": "100ms", "delay_function": "exponential"},
			[]time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms}},
		"fibonacci, capped": {map[string]any{"attempts": 5, "delay": "200ms", "delay_function": "fibonacci",
			"max_delay": "500ms"}, []time.Duration{200 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms}},
		"constant": {map[string]any{"attempts": 3, "delay": "150ms", "delay_function": "constant"},
			[]time.Duration{150 * ms, 150 * ms, 150 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, id := newBench(t, api.ClusterConfig{}), plane.UniqueID("a")
			b.failing(t, id)
			task := b.submit(t, map[string]any{"type": "fail",
				"recovery": map[string]any{"mode": "local_restart", "restart": c.restart}})
			state := b.recovery(t, task, func(now *api.Task) bool {
				return now.RecoveryStatus == "exhausted" || len(b.begins(task)) > 1+len(c.waits)
			})
			require.Equal(t, api.TaskDeadLetter, state.Status)
			begins := b.begins(task)
			require.Len(t, begins, 1+len(c.waits))
			require.Equal(t, len(c.waits), state.PolicyState.ActiveRestarts)
			require.Contains(t, state.PolicyState.Exhausted, "restarts")
			for i, want := range c.waits {
				got := begins[i+1].at.Sub(begins[i].at)
				require.GreaterOrEqual(t, got, want, i)
				require.Less(t, got, want+late, i)
				off := begins[i+1].at.Sub(state.PolicyState.Restarts[i])
				require.GreaterOrEqual(t, off, time.Duration(0), "what it says is what it does")
				require.Less(t, off, late)
			}
		})
	}
	t.Run("window", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, api.ClusterConfig{})
		b.failing(t, plane.UniqueID("a"))
		task := b.submit(t, map[string]any{"type": "fail", "recovery": map[string]any{"mode": "local_restart",
			"restart": map[string]any{"attempts": 2, "interval": "4s", "delay": "100ms", "mode": "delay"}}})
		begins := b.waitBegins(t, task, 5)
		require.GreaterOrEqual(t, begins[3].at.Sub(begins[0].at), 4100*ms, "it waits until the first restart is 4 s old")
	})
}

// TestRestartKeepsTheCheckpoint: a restart is on the same agent, goes on from the checkpoint, and disturbs no other.
func TestRestartKeepsTheCheckpoint(t *testing.T) {
	t.Parallel()
	b, id := newBench(t, api.ClusterConfig{}), plane.UniqueID("a")
	var mu sync.Mutex
	var got []string
	saved := make(chan struct{}, 1)
	fail := make(chan struct{})
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: id, Slots: 4},
		map[string]agent.Handler{"hold": b.hold(id), "count": func(ctx context.Context, task *agent.Task) (any, error) {
			mu.Lock()
			got = append(got, string(task.Checkpoint))
			first := len(got) == 1
			mu.Unlock()
			if !first {
				return task.Checkpoint, nil
			}
			if err := task.SaveCheckpoint(map[string]any{"z": 7, "a": "<&>"}); err != nil {
				return nil, err
			}
			task.Progress(50, "saved") // it travels with the checkpoint
			saved <- struct{}{}
			select {
			case <-fail:
			case <-ctx.Done():
			}
			return nil, errors.New("no luck")
		}})
	other := b.submit(t, nil)
	b.waitBegins(t, other, 1)
	b.agent(t, plane.UniqueID("b"))
	task := b.submit(t, map[string]any{"type": "count", "recovery": soon(api.ClusterRecover)})
	<-saved
	require.Eventually(t, func() bool {
		now := getTask(t, b.node.URL, task, "0s")
		return len(now.Attempts) > 0 && now.Attempts[0].Progress != nil
	}, patience, 50*time.Millisecond)
	close(fail)
	done := getTask(t, b.node.URL, task, "30s")
	require.Equal(t, api.TaskCompleted, done.Status, done.Why)
	require.JSONEq(t, `{"z": 7, "a": "<&>"}`, string(done.Result))
	require.Equal(t, id, done.Attempts[len(done.Attempts)-1].AgentID)
	require.Len(t, b.begins(other), 1)
	require.Empty(t, b.of(&b.ended, other))
	require.Len(t, b.recovery(t, task, whatever).PolicyState.Restarts, 1)
}

// TestOnlyTheLostAgentsWorkMoves has ten tasks on five agents and one agent lost, which comes back at once.
func TestOnlyTheLostAgentsWorkMoves(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	wires := map[string]*network{}
	for range 5 {
		id := plane.UniqueID("a")
		_, wires[id] = b.agent(t, id)
	}
	ids, on := make([]string, 10), map[string]string{}
	for i := range ids {
		ids[i] = b.submit(t, map[string]any{"recovery": soon(api.ClusterRecover)})
		on[ids[i]] = b.waitBegins(t, ids[i], 1)[0].agent
	}
	lost := on[ids[0]]
	wires[lost].cut()
	b.recovery(t, ids[0], wasLost)
	wires[lost].heal()
	for _, id := range ids {
		if on[id] == lost {
			require.NotEqual(t, lost, b.waitBegins(t, id, 2)[1].agent, "it is excluded")
		}
	}
	b.finish.Store(true)
	for _, id := range ids {
		done := getTask(t, b.node.URL, id, "20s")
		require.Equal(t, api.TaskCompleted, done.Status, done.Why)
		require.Equal(t, on[id] == lost, len(b.begins(id)) == 2)
	}
}

// TestBlockedPlacementCountsNothing: work that no agent may take waits, uncounted, until one joins.
func TestBlockedPlacementCountsNothing(t *testing.T) {
	t.Parallel()
	b, first, second := newBench(t, api.ClusterConfig{}), plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, first)
	id := b.submit(t, map[string]any{"recovery": soon(api.ClusterRecover)})
	b.waitBegins(t, id, 1)
	wire.cut()
	b.recovery(t, id, wasLost)
	wire.heal() // it is excluded
	var waits []time.Time
	blocked := b.recovery(t, id, func(task *api.Task) bool { // its time moves
		waiting := task.NextAttemptAt != nil && strings.Contains(task.Why, "no agent here can run it but "+first)
		if waiting && !slices.ContainsFunc(waits, task.NextAttemptAt.Equal) {
			waits = append(waits, *task.NextAttemptAt)
		}
		return waiting && len(waits) >= 4 || len(b.begins(id)) > 1
	})
	require.Equal(t, "blocked", blocked.RecoveryStatus)
	require.Empty(t, blocked.PolicyState.Reschedules)
	b.agent(t, second)
	joined := time.Now()
	begun := b.waitBegins(t, id, 2)[1]
	require.Equal(t, second, begun.agent)
	t.Logf("it began %s after the agent had joined", begun.at.Sub(joined))
}
