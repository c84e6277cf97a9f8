package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// bench is a cluster whose agents hold work until they are told to finish it, and note when it begins and ends.
type bench struct {
	node    *plane.Node
	cluster string
	finish  atomic.Bool

	mu    sync.Mutex
	begun []entry
	ended []entry
}

type entry struct {
	task, agent string
	at          time.Time
}

func newBench(t *testing.T, config api.ClusterConfig) *bench {
	t.Helper()
	config.RoleLease = api.Duration(1250 * time.Millisecond)
	b := &bench{node: plane.NewNode(t, plane.NodeOptions{})}
	b.cluster = b.node.EnsureCluster(t, config)
	return b
}

// hold is a handler that holds work until it is told to finish it.
func (b *bench) hold(id string) agent.Handler {
	return func(ctx context.Context, task *agent.Task) (any, error) {
		b.note(&b.begun, task.ID, id)
		defer b.note(&b.ended, task.ID, id)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !b.finish.Load() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return id, nil
	}
}

// agent starts an agent with four slots on a network of its own.
func (b *bench) agent(t *testing.T, id string) (*running, *network) {
	t.Helper()
	n := newNetwork()
	r := startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: id, Slots: 4,
		StopTimeout: time.Millisecond, DialContext: n.dial},
		map[string]agent.Handler{"hold": b.hold(id)})
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+id, nil, nil)
		return status == http.StatusOK
	}, patience, 10*time.Millisecond, "agent %s joins", id)
	return r, n
}

func (b *bench) note(list *[]entry, task, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, entry{task, id, time.Now()})
}

func (b *bench) submit(t *testing.T, extra map[string]any) string {
	t.Helper()
	spec := map[string]any{"type": "hold", "cluster": b.cluster}
	for k, v := range extra {
		spec[k] = v
	}
	return submit(t, b.node.URL, spec)
}

// begins are the begins of a task, in order.
func (b *bench) begins(task string) []entry { return b.of(&b.begun, task) }

func (b *bench) of(list *[]entry, task string) []entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []entry
	for _, e := range *list {
		if e.task == task {
			found = append(found, e)
		}
	}
	return found
}

func (b *bench) waitBegins(t *testing.T, task string, n int) []entry {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.begins(task)) >= n }, patience, 5*time.Millisecond,
		"begin %d of %s", n, task)
	return b.begins(task)
}

func (b *bench) view(t *testing.T) *contract.ClusterView {
	t.Helper()
	value, err := plane.Temporal(t).QueryWorkflow(t.Context(), contract.ClusterWorkflowID(b.cluster), "",
		contract.ViewQuery.Name)
	require.NoError(t, err)
	var view contract.ClusterView
	require.NoError(t, value.Get(&view))
	return &view
}

// failover waits for the record of an agent's failover.
func (b *bench) failover(t *testing.T, agentID string, epoch int64) api.FailoverRecord {
	t.Helper()
	c := plane.Temporal(t)
	var record api.FailoverRecord
	require.Eventually(t, func() bool {
		id := contract.FailoverID(b.cluster, agentID, epoch)
		value, err := c.QueryWorkflow(t.Context(), contract.FailoverWorkflowID(id), "",
			contract.FailoverQuery.Name)
		return err == nil && value.Get(&record) == nil && record.Status != api.FailoverRunning
	}, patience, 20*time.Millisecond, "failover of %s", agentID)
	return record
}

func TestLostAgentsWorkMoves(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, first)
	id := b.submit(t, nil)
	b.waitBegins(t, id, 1)
	b.agent(t, second)
	wire.cut()
	require.Equal(t, second, b.waitBegins(t, id, 2)[1].agent)
	b.finish.Store(true)
	got := getTask(t, b.node.URL, id, "20s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)
	require.Len(t, got.Attempts, 2)
	require.Equal(t, api.AttemptLost, got.Attempts[0].Outcome)
	require.Equal(t, first, got.Attempts[0].AgentID)
	require.Equal(t, second, got.Attempts[1].AgentID)
	require.JSONEq(t, fmt.Sprintf("%q", second), string(got.Result))

	record := b.failover(t, first, got.Attempts[0].Epoch)
	require.Equal(t, api.FailoverSucceeded, record.Status, record.Error)
	require.Empty(t, record.TargetAgentID, "no role moved")
	require.Equal(t, record.Transfers[0].At, record.ResumedAt)
	require.Equal(t, 1, record.TasksTransferred)
	require.Equal(t, api.Transfer{TaskID: id, From: first, To: second, Epoch: got.Attempts[1].Epoch, RetryCount: 1,
		Status: record.Transfers[0].Status, Why: record.Transfers[0].Why, At: record.Transfers[0].At}, record.Transfers[0])
	require.Contains(t, record.Transfers[0].Why, "connection closed")

	t.Log("the lost agent comes back and its late result counts for nothing")
	wire.heal()
	require.Eventually(t, func() bool { return b.view(t).Member(first).Status == api.AgentOnline }, patience,
		20*time.Millisecond)
	require.JSONEq(t, fmt.Sprintf("%q", second), string(getTask(t, b.node.URL, id, "0s").Result))
}

func TestNoTargetAvailable(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	only, later := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, only)
	id := b.submit(t, nil)
	b.waitBegins(t, id, 1)
	wire.cut()
	require.Equal(t, api.FailoverNoTarget, b.failover(t, only, 1).Status)
	b.agent(t, later)
	require.Equal(t, later, b.waitBegins(t, id, 2)[1].agent, "the work waited in its lane")
	require.Eventually(t, func() bool {
		record := b.failover(t, only, 1)
		return record.TasksTransferred == 1 && record.Transfers[0].To == later && record.ResumedAt != nil
	}, patience, 100*time.Millisecond, "the record tells of it")
}

func TestFencedWorkNeverRunsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	_, wire := b.agent(t, plane.UniqueID("a"))
	id := b.submit(t, map[string]any{"retry_safety": "fenced"})
	b.waitBegins(t, id, 1)
	b.agent(t, plane.UniqueID("b"))
	wire.cut()
	second := b.waitBegins(t, id, 2)[1]
	stopped := b.of(&b.ended, id)
	require.NotEmpty(t, stopped, "the cut-off agent stopped by itself")
	require.False(t, stopped[0].at.After(second.at), "the old attempt ended at %s, the new one began at %s",
		stopped[0].at, second.at)
}

func TestAtMostOnceGoesToReview(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	_, wire := b.agent(t, plane.UniqueID("a"))
	id := b.submit(t, map[string]any{"retry_safety": "at_most_once"})
	b.waitBegins(t, id, 1)
	b.agent(t, plane.UniqueID("b"))
	wire.cut()
	require.Contains(t, waitTask(t, b.node.URL, id, api.TaskReview).Why, "decide")
	require.Len(t, b.begins(id), 1)
	status, problem := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/tasks/"+id+"/review",
		map[string]any{"decision": "completed", "result": 7}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	got := getTask(t, b.node.URL, id, "20s")
	require.Equal(t, api.TaskCompleted, got.Status)
	require.JSONEq(t, "7", string(got.Result))
}

// An agent that is back within the disconnect grace of its work goes on with it.
func TestWorkWaitsForItsAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{TaskDefaults: api.TaskDefaults{DisconnectGrace: new(api.Duration(patience))}})
	a := plane.UniqueID("a")
	_, wire := b.agent(t, a)
	var ids []string
	for _, safety := range []api.RetrySafety{api.AtMostOnce, api.Unmarked} {
		ids = append(ids, b.submit(t, map[string]any{"retry_safety": safety}))
	}
	for _, id := range ids {
		b.waitBegins(t, id, 1)
	}
	b.agent(t, plane.UniqueID("b"))
	wire.cut()
	require.Eventually(t, func() bool { return time.Now().Before(b.view(t).Member(a).AwaitedUntil) }, patience,
		5*time.Millisecond)
	wire.heal()
	b.agentIs(t, a, api.AgentOnline)
	b.finish.Store(true)
	for _, id := range ids {
		got := getTask(t, b.node.URL, id, "20s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Len(t, got.Attempts, 1)
		require.Len(t, b.begins(id), 1)
	}
}

func TestOneLeaderServes(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive})
	leader, standby := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, leader)
	require.Eventually(t, func() bool { return b.view(t).Leader == leader }, patience, 10*time.Millisecond)
	b.agent(t, standby)
	require.Eventually(t, func() bool { return len(b.view(t).Standbys) == 1 }, patience, 10*time.Millisecond)
	var tasks []string
	for range 3 {
		tasks = append(tasks, b.submit(t, map[string]any{"retry_safety": "fenced"}))
	}
	for _, id := range tasks {
		require.Equal(t, leader, b.waitBegins(t, id, 1)[0].agent, "only the leader serves")
	}
	before := b.view(t).LeaderEpoch
	wire.cut()
	for _, id := range tasks {
		next := b.waitBegins(t, id, 2)[1]
		require.Equal(t, standby, next.agent)
		require.False(t, b.of(&b.ended, id)[0].at.After(next.at), "never two at once")
	}
	view := b.view(t)
	require.Equal(t, standby, view.Leader)
	require.Greater(t, view.LeaderEpoch, before)
	record := b.failover(t, leader, view.Member(leader).Epoch)
	require.Equal(t, api.FailoverSucceeded, record.Status, record.Error)
	require.Equal(t, standby, record.Promoted)

	t.Log("the old leader comes back as a standby")
	wire.heal()
	require.Eventually(t, func() bool { return b.view(t).RoleOf(leader) == api.RoleStandby }, patience,
		20*time.Millisecond)
}

func TestShardsMoveWithTheirOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 6})
	b.finish.Store(true)
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, first)
	_, wire := b.agent(t, second)
	owned := func(agentID string) int { view := b.view(t); return len(view.ShardsOf(agentID)) }
	require.Eventually(t, func() bool { return owned(first) == 3 && owned(second) == 3 }, patience,
		20*time.Millisecond, "the shards are balanced")
	view := b.view(t)
	for i := range 12 {
		key := fmt.Sprintf("key-%d", i)
		id := b.submit(t, map[string]any{"shard_key": key})
		got := getTask(t, b.node.URL, id, "20s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Equal(t, view.Shards[task.ShardOf(key, 6)].Owner, got.Attempts[0].AgentID)
	}
	wire.cut()
	require.Eventually(t, func() bool { return owned(first) == 6 }, patience, 20*time.Millisecond,
		"the shards move")
	for i := range 12 {
		id := b.submit(t, map[string]any{"shard_key": fmt.Sprintf("key-%d", i)})
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
	}
}

func TestGracefulStopMovesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive})
	leader, standby := plane.UniqueID("a"), plane.UniqueID("b")
	r, _ := b.agent(t, leader)
	b.agent(t, standby)
	id := b.submit(t, map[string]any{"retry_safety": "fenced"})
	b.waitBegins(t, id, 1)
	r.stop(t)
	require.Equal(t, standby, b.waitBegins(t, id, 2)[1].agent)
	require.Nil(t, b.view(t).Member(leader), "it deregistered")
}

func TestSecondProcessFencesTheFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	id := plane.UniqueID("a")
	first, _ := b.agent(t, id)
	task := b.submit(t, nil)
	b.waitBegins(t, task, 1)
	b.agent(t, id)
	select {
	case err := <-first.done:
		require.ErrorIs(t, err, agent.ErrFenced)
	case <-time.After(20 * time.Second):
		t.Fatal("the first process was not fenced")
	}
	b.waitBegins(t, task, 2)
	require.EqualValues(t, 2, b.view(t).Member(id).Epoch)
}

// The older process is fenced also where its hub has no other agent of the cluster, and so would hear of nothing.
func TestSecondProcessFencesTheFirstAtAnotherHub(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	id := plane.UniqueID("a")
	first, _ := b.agent(t, id)
	old := b.node
	b.node = plane.NewNode(t, plane.NodeOptions{})
	b.agent(t, id)
	select {
	case err := <-first.done:
		require.ErrorIs(t, err, agent.ErrFenced)
	case <-time.After(20 * time.Second):
		t.Fatal("the first process was not fenced")
	}
	require.Equal(t, b.node.Hub.ID(), b.view(t).Member(id).Hub)
	require.NotEqual(t, old.Hub.ID(), b.node.Hub.ID())
}

// rawSignal sends a signal as tctl and temporal do: JSON text as it was typed.
func (b *bench) rawSignal(t *testing.T, encoding, text string) {
	t.Helper()
	_, err := plane.Temporal(t).WorkflowService().SignalWorkflowExecution(t.Context(),
		&workflowservice.SignalWorkflowExecutionRequest{
			Namespace:         "default",
			WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: contract.ClusterWorkflowID(b.cluster)},
			SignalName:        contract.ManualFailoverSignal.Name, Identity: "tctl@test",
			Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte(
				encoding)}, Data: []byte(text)}}},
		})
	require.NoError(t, err)
}

func TestManualFailoverBySignal(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	from, other, target := plane.UniqueID("a"), plane.UniqueID("b"), plane.UniqueID("c")
	b.agent(t, from)
	id := b.submit(t, nil)
	once := b.submit(t, map[string]any{"retry_safety": "at_most_once"})
	b.waitBegins(t, id, 1)
	b.waitBegins(t, once, 1)
	b.agent(t, other)
	b.agent(t, target)

	t.Log("malformed signals do the cluster no harm")
	for _, text := range []string{``, `not json`, `[]`, `"agent-1"`, `{"agent_id": 7}`, `{}`,
		`{"agent_id": "NOT A SLUG"}`} {
		b.rawSignal(t, "json/plain", text)
	}
	b.rawSignal(t, "binary/unknown", "\x00\x01")

	b.rawSignal(t, "json/plain", fmt.Sprintf(`{"agent_id": %q, "target_agent_id": %q, "reason": "disk is failing"}`,
		from, target))
	require.Equal(t, target, b.waitBegins(t, id, 2)[1].agent)
	require.False(t, b.of(&b.ended, id)[0].at.After(b.begins(id)[1].at), "the old attempt stopped first")
	record := b.failover(t, from, b.view(t).Member(from).Epoch)
	require.Equal(t, api.FailoverSucceeded, record.Status, record.Error)
	require.Equal(t, api.TriggerManual, record.Trigger)
	require.Equal(t, "disk is failing", record.Reason)
	require.Len(t, record.Transfers, 2)
	require.Equal(t, api.TaskReview, waitTask(t, b.node.URL, once, api.TaskReview).Status)
	require.Equal(t, api.AgentOnline, b.view(t).Member(from).Status, "the agent goes on")

	unknown := plane.UniqueID("z")
	b.rawSignal(t, "json/plain", fmt.Sprintf(`{"agent_id": %q}`, unknown))
	require.Equal(t, api.FailoverNotInCluster, b.failover(t, unknown, 0).Status)
}

// Work goes to the target that a person named, also when another hub takes it from the lane.
func TestManualFailoverReachesItsTargetAtAnotherHub(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	from, target := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, from)
	var tasks []string
	for range 4 {
		tasks = append(tasks, b.submit(t, nil))
	}
	for _, id := range tasks {
		b.waitBegins(t, id, 1)
	}
	b.agent(t, plane.UniqueID("c"))
	near := b.node
	b.node = plane.NewNode(t, plane.NodeOptions{})
	b.agent(t, target)
	b.node = near
	status, problem := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/"+from+"/failover",
		map[string]any{"target_agent_id": target}, nil)
	require.Equal(t, http.StatusAccepted, status, "%+v", problem)
	for _, id := range tasks {
		require.Equal(t, target, b.waitBegins(t, id, 2)[1].agent)
	}
	record := b.failover(t, from, b.view(t).Member(from).Epoch)
	require.Equal(t, api.FailoverSucceeded, record.Status, record.Error)
	require.Equal(t, target, record.TargetAgentID)
	require.Equal(t, "4 of 4 tasks", cluster.MovedBy(&record))
}

func TestMassLossBrake(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	var wires []*network
	var tasks, agents []string
	for range 4 {
		id := plane.UniqueID("a")
		agents = append(agents, id)
		_, wire := b.agent(t, id)
		wires = append(wires, wire)
		task := b.submit(t, map[string]any{"agent": id})
		tasks = append(tasks, task)
		b.waitBegins(t, task, 1)
	}
	for _, w := range wires[:3] {
		w.cut()
	}
	held := func() int {
		n := 0
		view := b.view(t)
		for _, id := range agents[:3] {
			if m := view.Member(id); m.Status == api.AgentSuspect {
				require.Contains(t, m.StatusReason, "mass-loss brake")
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return held() == 3 }, patience, 10*time.Millisecond)
	holds := b.ask(t, http.MethodGet, "", nil).BrakeHolds
	require.Len(t, holds, 1)
	require.Equal(t, b.node.Hub.ID(), holds[0].Hub)
	require.Equal(t, 3, holds[0].Lost)
	require.WithinDuration(t, time.Now(), holds[0].Since, time.Minute)

	t.Log("agents that come back go on with what they had")
	wires[0].heal()
	wires[1].heal()
	require.Eventually(t, func() bool {
		return b.view(t).Member(agents[0]).Status == api.AgentOnline &&
			b.view(t).Member(agents[1]).Status == api.AgentOnline
	}, patience, 10*time.Millisecond)
	t.Log("the one that is still away is given up: one of four is no mass loss")
	require.Eventually(t, func() bool { return b.view(t).Member(agents[2]).Status == api.AgentOffline },
		patience, 10*time.Millisecond)
	require.Empty(t, b.ask(t, http.MethodGet, "", nil).BrakeHolds)
	wires[2].heal()
	b.finish.Store(true)
	for i, id := range tasks {
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
		if i < 2 || i == 3 {
			require.Len(t, b.begins(id), 1, "nothing was run again")
		}
	}
}

// Two of the three agents of each of two hubs vanish: too few for either hub to tell, and two thirds of the cluster.
func TestMassLossBrakeKnowsAllHubs(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	nodes := []*plane.Node{b.node, plane.NewNode(t, plane.NodeOptions{})}
	wires := make([][]*network, len(nodes))
	var agents, tasks []string // of the second hub
	for i, node := range nodes {
		b.node = node
		for range 3 {
			id := plane.UniqueID("a")
			_, wire := b.agent(t, id)
			wires[i] = append(wires[i], wire)
			task := b.submit(t, map[string]any{"agent": id}) // the loss of an agent without work does not count
			b.waitBegins(t, task, 1)
			if i == 1 {
				agents, tasks = append(agents, id), append(tasks, task)
			}
		}
	}
	vanish := func(hub int) {
		for _, w := range wires[hub][:2] {
			w.cut()
		}
	}
	vanish(0)
	require.Eventually(t, func() bool { return len(b.view(t).Vanished.Losses) == 2 }, patience, 10*time.Millisecond)
	require.Empty(t, b.view(t).BrakeHolds, "two of six")
	vanish(1)
	held := func() bool {
		view := b.view(t)
		return view.Member(agents[0]).Status == api.AgentSuspect && view.Member(agents[1]).Status == api.AgentSuspect
	}
	require.Eventually(t, held, patience, 10*time.Millisecond)
	require.Contains(t, b.view(t).Member(agents[0]).StatusReason, "mass-loss brake: too many agents of all hubs")
	holds := b.ask(t, http.MethodGet, "", nil).BrakeHolds
	require.Len(t, holds, 1)
	require.Empty(t, holds[0].Hub)
	require.Equal(t, 4, holds[0].Lost)

	t.Log("the second hub's agents come back with what they had: two of six are lost")
	for _, w := range wires[1] {
		w.heal()
	}
	require.Eventually(t, func() bool { return len(b.view(t).BrakeHolds) == 0 }, patience, 10*time.Millisecond)
	b.finish.Store(true)
	for _, id := range tasks {
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
		require.Len(t, b.begins(id), 1, "nothing was run again")
	}
}

func TestMassLossBrakeIsReleasedByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	var wires []*network
	for range 3 {
		agent := plane.UniqueID("a")
		_, wire := b.agent(t, agent)
		wires = append(wires, wire)
		b.waitBegins(t, b.submit(t, map[string]any{"agent": agent}), 1)
	}
	id := b.submit(t, nil)
	b.waitBegins(t, id, 1)
	for _, w := range wires {
		w.cut()
	}
	require.Eventually(t, func() bool {
		n := 0
		for _, m := range b.view(t).Members {
			if m.Status == api.AgentSuspect {
				n++
			}
		}
		return n == 3
	}, patience, 10*time.Millisecond)
	spare := plane.UniqueID("spare")
	b.agent(t, spare)
	require.Len(t, b.begins(id), 1, "three of four are still too many")
	c := plane.Temporal(t)
	release(t, c, b.cluster)
	require.Equal(t, spare, b.waitBegins(t, id, 2)[1].agent)
}

func TestHubRestartRunsNothingAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	for range 3 {
		b.agent(t, plane.UniqueID("a"))
	}
	var tasks []string
	for range 9 {
		tasks = append(tasks, b.submit(t, nil))
	}
	for _, id := range tasks {
		b.waitBegins(t, id, 1)
	}
	hubID, listen := b.node.Hub.ID(), b.node.URL[len("http://"):]
	b.node.Stop()
	b.node = plane.NewNode(t, plane.NodeOptions{HubID: hubID, Listen: listen})
	b.finish.Store(true)
	for _, id := range tasks {
		got := getTask(t, b.node.URL, id, "30s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Len(t, b.begins(id), 1, "nothing was run again")
	}
}

// An agent that died while its hub was down is noticed by the hub's next process.
func TestAgentThatDiedWithItsHub(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	alive, dead := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, dead)
	id := b.submit(t, nil)
	b.waitBegins(t, id, 1)
	require.Eventually(t, func() bool { // Temporal knows who runs it
		attempts := getTask(t, b.node.URL, id, "0s").Attempts
		return len(attempts) == 1 && attempts[0].AgentID == dead
	}, patience, 20*time.Millisecond)
	b.agent(t, alive)
	hubID, listen := b.node.Hub.ID(), b.node.URL[len("http://"):]
	b.node.Stop()
	wire.cut()
	b.node = plane.NewNode(t, plane.NodeOptions{HubID: hubID, Listen: listen})
	require.Eventually(t, func() bool { return b.view(t).Member(dead).Status == api.AgentOffline }, patience,
		20*time.Millisecond)
	require.Contains(t, b.view(t).Member(dead).StatusReason, "hub restarted")
	require.Equal(t, api.AgentOnline, b.view(t).Member(alive).Status)
	started := b.event(t, api.EventFailoverStarted)
	require.Equal(t, dead, started.AgentID)
	require.Equal(t, 1, started.Of, "its failover watches the task that it had")
}

// An agent that holds its connection and is silent has the status warning before it is lost.
func TestSilentAgentHasAWarning(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	w := newWireAgent(t, b.node.URL, b.cluster)
	w.register(t)
	require.Eventually(t, func() bool {
		var a api.Agent
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+w.id, nil, &a)
		return status == http.StatusOK && a.Status == api.AgentWarning
	}, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return b.view(t).Member(w.id).Status == api.AgentOffline }, patience,
		20*time.Millisecond)
}

// A task that kills each agent that begins it ends as a dead letter, and the brake takes it for no broken network: the
// agents that are left go on with other work.
func TestPoisonTaskIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	b.finish.Store(true)
	for range 5 {
		id, n := plane.UniqueID("a"), newNetwork()
		startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: id, Slots: 4,
			StopTimeout: time.Millisecond, DialContext: n.dial}, map[string]agent.Handler{
			"hold": b.hold(id),
			"poison": func(ctx context.Context, _ *agent.Task) (any, error) {
				n.cut()
				<-ctx.Done()
				return nil, ctx.Err()
			}})
	}
	require.Eventually(t, func() bool { return b.view(t).HealthyCount() == 5 }, patience, 10*time.Millisecond)
	id := submit(t, b.node.URL, map[string]any{"type": "poison", "cluster": b.cluster})
	dead := waitTask(t, b.node.URL, id, api.TaskDeadLetter)
	require.Contains(t, dead.Why, "lost with its agent 4 times, 3 are allowed")
	agents := map[string]bool{}
	for _, a := range dead.Attempts {
		if a.Outcome == api.AttemptLost {
			agents[a.AgentID] = true
		}
	}
	require.Len(t, agents, 4)
	require.Empty(t, b.view(t).BrakeHolds)
	other := b.submit(t, nil)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, other, "20s").Status)
}

// The target of a failover dies under the work that it has just got: the work goes on to the next agent.
func TestFailoverTargetDiesUnderTheLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	from, target, last := plane.UniqueID("a"), plane.UniqueID("b"), plane.UniqueID("c")
	_, first := b.agent(t, from)
	var tasks []string
	for range 4 {
		tasks = append(tasks, b.submit(t, nil))
	}
	for _, id := range tasks {
		b.waitBegins(t, id, 1)
	}
	_, second := b.agent(t, target)
	first.cut()
	for _, id := range tasks {
		require.Equal(t, target, b.waitBegins(t, id, 2)[1].agent)
	}
	b.agent(t, last)
	second.cut()
	for _, id := range tasks {
		require.Equal(t, last, b.waitBegins(t, id, 3)[2].agent)
	}
	b.finish.Store(true)
	for _, id := range tasks {
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
	}
	for _, lost := range []string{from, target} {
		record := b.failover(t, lost, b.view(t).Member(lost).Epoch)
		require.Equal(t, "4 of 4 tasks", cluster.MovedBy(&record))
	}
	require.Empty(t, b.view(t).BrakeHolds)
}

// event waits for the cluster's first event of a type.
func (b *bench) event(t *testing.T, kind api.EventType) cluster.Event {
	t.Helper()
	var found cluster.Event
	require.Eventually(t, func() bool {
		answer, err := contract.EventsQuery.Ask(t.Context(), plane.Temporal(t), contract.ClusterWorkflowID(b.cluster),
			contract.EventsSince{})
		i := slices.IndexFunc(answer.Events, func(e cluster.Event) bool { return e.Type == kind })
		if err != nil || i < 0 {
			return false
		}
		found = answer.Events[i]
		return true
	}, patience, 20*time.Millisecond, kind)
	return found
}

// Work that was lost with its agent does not wait again behind what was queued after it.
func TestMovedWorkGoesAheadOfTheBacklog(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, first) // four slots
	var running, backlog []string
	for range 4 {
		id := b.submit(t, nil)
		b.waitBegins(t, id, 1)
		running = append(running, id)
	}
	for range 8 {
		backlog = append(backlog, b.submit(t, nil))
	}
	wire.cut()
	for _, id := range running {
		require.Eventually(t, func() bool {
			return len(getTask(t, b.node.URL, id, "0s").Attempts) >= 1 &&
				getTask(t, b.node.URL, id, "0s").Status == api.TaskQueued
		},
			patience, 10*time.Millisecond)
	}
	b.agent(t, second)
	for _, id := range running {
		require.Equal(t, second, b.waitBegins(t, id, 2)[1].agent)
	}
	for _, id := range backlog {
		require.Empty(t, b.begins(id), "the second agent's four slots went to what was lost")
	}
}
