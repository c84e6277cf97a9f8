package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func (b *bench) changeLoad(t *testing.T, agentID, word string, body any) api.Agent {
	t.Helper()
	var g api.Agent
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/"+agentID+"/"+word, body, &g)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	return g
}

// runs is how many of its tasks an agent has begun and not ended.
func (b *bench) runs(agentID string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.begun {
		if e.agent == agentID {
			n++
		}
	}
	for _, e := range b.ended {
		if e.agent == agentID {
			n--
		}
	}
	return n
}

// An agent with reduced load keeps what it runs, is given nothing above its limit, also by another hub, and gets its
// slots back by itself.
func TestReducedLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	id := plane.UniqueID("a")
	for range 3 {
		b.submit(t, map[string]any{"agent": id})
	}
	running, _ := b.agent(t, id)
	require.Eventually(t, func() bool { return b.runs(id) == 3 }, patience, 5*time.Millisecond)
	g := b.changeLoad(t, id, "reduce-load", map[string]any{"slots": 2, "for": "10m", "reason": "slow disk"})
	require.Equal(t, 4, g.MaxTasks)
	require.Equal(t, 2, g.EffectiveSlots)
	require.Equal(t, "slow disk", g.LoadReduction.Reason)
	waiting := b.submit(t, map[string]any{"agent": id})
	require.Eventually(t, func() bool {
		return getTask(t, b.node.URL, waiting,
			"").Why == "agent "+id+" is busy: all 2 slots are in use (its load is reduced to 2 of 4)"
	}, patience, 20*time.Millisecond, "why it waits")
	require.Equal(t, 3, b.runs(id), "what it runs goes on")

	// The agent restarts at another hub: it is still limited.
	running.stop(t)
	other := plane.NewNode(t, plane.NodeOptions{})
	n := newNetwork()
	startAgent(t, agent.Options{HubURLs: []string{other.URL}, Cluster: b.cluster, ID: id, Slots: 4,
		StopTimeout: time.Millisecond, DialContext: n.dial},
		map[string]agent.Handler{"hold": b.hold(id)})
	require.Eventually(t, func() bool { return b.runs(id) == 2 }, patience, 5*time.Millisecond,
		"two of the four tasks")
	require.Never(t, func() bool { return b.runs(id) > 2 }, time.Second, 5*time.Millisecond)

	g = b.changeLoad(t, id, "restore-load", nil)
	require.Equal(t, 4, g.EffectiveSlots)
	require.Nil(t, g.LoadReduction)
	require.Eventually(t, func() bool { return b.runs(id) == 4 }, patience, 5*time.Millisecond)
	g = b.changeLoad(t, id, "reduce-load", map[string]any{"slots": 3, "for": "4s"})
	require.Equal(t, 3, g.EffectiveSlots)
	require.Eventually(t, func() bool {
		var now api.Agent
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+id, nil, &now)
		return status == http.StatusOK && now.EffectiveSlots == 4
	}, patience, 20*time.Millisecond, "by itself")
	b.finish.Store(true)
}

func TestReduceLoadRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	id := plane.UniqueID("a")
	b.agent(t, id)
	for name, tt := range map[string]struct {
		agent  string
		body   any
		status int
		code   string
	}{
		"unknown agent":   {"nobody-here", map[string]any{}, 404, protocol.CodeUnknownAgent},
		"too many":        {id, map[string]any{"slots": 4}, 409, protocol.CodeConflict},
		"both":            {id, map[string]any{"slots": 2, "factor": 0.5}, 422, protocol.CodeInvalidRequest},
		"whole":           {id, map[string]any{"factor": 1}, 422, protocol.CodeInvalidRequest},
		"negative":        {id, map[string]any{"slots": -1}, 422, protocol.CodeInvalidRequest},
		"no time":         {id, map[string]any{"for": "0s"}, 422, protocol.CodeInvalidRequest},
		"nonsense time":   {id, map[string]any{"for": "soon"}, 422, protocol.CodeInvalidRequest},
		"unknown field":   {id, map[string]any{"slot": 2}, 422, protocol.CodeInvalidRequest},
		"restore nothing": {"nobody-here", nil, 404, protocol.CodeUnknownAgent},
	} {
		status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/"+tt.agent+"/reduce-load", tt.body, nil)
		require.Equal(t, tt.status, status, "%s: %+v", name, p)
		require.Equal(t, tt.code, p.Code, name)
	}
}

// A rebalance moves shards so that targets are spread evenly, moves nothing twice, and agents hear what they look
// after.
func TestRebalanceMovesTargets(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 4})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, first)
	b.agent(t, second)
	require.Eventually(t, func() bool {
		view := b.view(t)
		return len(view.ShardsOf(first)) == 2 && len(view.ShardsOf(second)) == 2
	}, patience, 10*time.Millisecond)
	view := b.view(t)
	mine, targets := view.ShardsOf(first), []string{}
	for i := 0; len(targets) < 8; i++ {
		if id := fmt.Sprintf("host-%d", i); slices.Contains(mine, task.ShardOf(id, 4)) {
			targets = append(targets, id)
		}
	}
	path := b.node.URL + "/api/v1/agents/clusters/" + b.cluster
	var list struct{ Targets []api.Target }
	status, p := call(t, http.MethodPost, path+"/targets", map[string]any{"add": targets}, &list)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	require.Len(t, list.Targets, 8)
	for _, target := range list.Targets {
		require.Equal(t, first, target.Agent)
	}
	pinned := b.submit(t, map[string]any{"agent": "nobody-" + first})

	rebalance := func(dry bool) api.Rebalance {
		var answer api.Rebalance
		status, p := call(t, http.MethodPost, path+"/rebalance", map[string]any{"dry_run": dry}, &answer)
		require.Equal(t, http.StatusOK, status, "%+v", p)
		return answer
	}
	plan := rebalance(true)
	require.NotEmpty(t, plan.Moves)
	done := rebalance(false)
	require.Equal(t, plan.Moves, done.Moves)
	require.Empty(t, rebalance(false).Moves, "asked again")
	require.Eventually(t, func() bool {
		view := b.view(t)
		moved := true
		for _, m := range done.Moves {
			moved = moved && view.Shards[*m.Shard].Owner == m.To
		}
		return moved
	}, patience, 20*time.Millisecond)
	require.Empty(t, rebalance(false).Moves)
	view = b.view(t)
	require.Len(t, view.ShardsOf(first), 2)
	require.Less(t, len(view.TargetsOf(first)), 8)
	require.Len(t, view.TargetsOf(first), 8-len(view.TargetsOf(second)))
	require.Equal(t, api.TaskQueued, getTask(t, b.node.URL, pinned, "").Status, "pinned work is untouched")
	var g api.Agent
	call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+second, nil, &g)
	require.Equal(t, view.TargetsOf(second), g.Targets)
	status, _ = call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/nothing-here/rebalance", nil, nil)
	require.Equal(t, http.StatusNotFound, status)
}

// A rebalance of tasks moves running tasks to an idle agent, each once, and those that must not run twice stay.
func TestRebalanceMovesTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, first)
	once := b.submit(t, map[string]any{"retry_safety": "at_most_once"})
	require.Eventually(t, func() bool { return b.runs(first) == 1 }, patience, 5*time.Millisecond)
	for range 3 {
		b.submit(t, nil)
	}
	require.Eventually(t, func() bool { return b.runs(first) == 4 }, patience, 5*time.Millisecond)
	b.agent(t, second)
	rebalance := func(dry bool) api.Rebalance {
		var answer api.Rebalance
		status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/rebalance",
			map[string]any{"tasks": true, "dry_run": dry, "reason": "even"}, &answer)
		require.Equal(t, http.StatusOK, status, "%+v", p)
		return answer
	}
	var plan api.Rebalance
	require.Eventually(t, func() bool { plan = rebalance(true); return len(plan.Moves) == 2 }, patience,
		50*time.Millisecond, "the hub has accepted all")
	require.Equal(t, 4, b.runs(first), "a dry run moves nothing")
	done := rebalance(false)
	require.Equal(t, plan.Moves, done.Moves)
	require.Eventually(t, func() bool { return b.runs(first) == 2 && b.runs(second) == 2 }, patience,
		5*time.Millisecond)
	for _, m := range done.Moves {
		require.Equal(t, []string{first, second}, []string{m.From, m.To})
		require.NotEqual(t, once, m.Task)
		require.Equal(t, second, b.waitBegins(t, m.Task, 2)[1].agent)
	}
	require.Empty(t, rebalance(false).Moves)
}
