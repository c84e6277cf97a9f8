package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func (b *bench) drain(t *testing.T, agentID string, request map[string]any) api.DrainRecord {
	t.Helper()
	var record api.DrainRecord
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/"+agentID+"/drain", request, &record)
	require.Less(t, status, 300, "drain of %s: %+v", agentID, p)
	return record
}

// drained waits until a drain's record is as it should be.
func (b *bench) drained(t *testing.T, id string, is func(*api.DrainRecord) bool) api.DrainRecord {
	t.Helper()
	var record api.DrainRecord
	require.Eventually(t, func() bool {
		record = api.DrainRecord{}
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/drains/"+id, nil, &record)
		return status == http.StatusOK && is(&record)
	}, patience, 20*time.Millisecond, "drain %s", id)
	return record
}

func ended(r *api.DrainRecord) bool { return r.CompletedAt != nil }

func acknowledged(r *api.DrainRecord) bool {
	return len(r.Agents) > 0 && r.Agents[0].AcknowledgedAt != nil
}

func (b *bench) agentIs(t *testing.T, agentID string, status api.AgentStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		var a struct {
			Status api.AgentStatus `json:"status"`
		}
		code, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+agentID, nil, &a)
		return code == http.StatusOK && a.Status == status
	}, patience, 10*time.Millisecond, "agent %s is %s", agentID, status)
}

func (b *bench) maintenance(t *testing.T, agentID string, enabled bool) (int, protocol.Problem) {
	t.Helper()
	return call(t, http.MethodPost, b.node.URL+"/api/v1/agents/"+agentID+"/maintenance",
		map[string]any{"enabled": enabled}, nil)
}

func TestDrainLetsWorkFinish(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	held, _ := b.agent(t, first)
	old := b.submit(t, nil)
	b.waitBegins(t, old, 1)
	b.agent(t, second)

	plan := b.drain(t, first, map[string]any{"dry_run": true})
	require.Equal(t, api.DrainPlanned, plan.Status)
	require.Len(t, plan.Agents[0].Work, 1)
	require.Equal(t, api.DrainWork{TaskID: old, Attempt: 1, Type: "hold", Safety: api.Idempotent,
		StartedAt:  plan.Agents[0].Work[0].StartedAt,
		AtDeadline: "runs again on another agent"}, plan.Agents[0].Work[0])
	b.agentIs(t, first, api.AgentOnline)

	id := b.drain(t, first, map[string]any{"reason": "kernel update"}).ID
	b.drained(t, id, acknowledged)
	b.agentIs(t, first, api.AgentDraining)
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/"+first+"/drain", map[string]any{}, nil)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, p.Detail, id)
	status, p = b.maintenance(t, first, false)
	require.Equal(t, http.StatusConflict, status, "%+v", p)
	for range 3 {
		require.Equal(t, second, b.waitBegins(t, b.submit(t, nil), 1)[0].agent,
			"nothing new arrives at an agent that is drained")
	}
	pinned := b.submit(t, map[string]any{"agent": first})

	b.finish.Store(true)
	record := b.drained(t, id, ended)
	require.Equal(t, api.DrainCompleted, record.Status, "%+v", record)
	require.Equal(t, [2]int{1, 0}, [2]int{record.Agents[0].Finished, record.Agents[0].Moved})
	require.Len(t, b.begins(old), 1, "work that finished in time is not repeated")
	require.Equal(t, api.TaskCompleted, waitTask(t, b.node.URL, old, api.TaskCompleted).Status)
	b.agentIs(t, first, api.AgentMaintenance)
	require.Contains(t, getTask(t, b.node.URL, pinned, "").Why, "maintenance")

	t.Log("it stays in maintenance when it restarts, until that is ended")
	held.stop(t)
	b.agentIs(t, first, api.AgentMaintenance)
	b.agent(t, first)
	require.Eventually(t, func() bool { m := b.view(t).Member(first); return m != nil && m.Connected() },
		patience, 10*time.Millisecond)
	b.agentIs(t, first, api.AgentMaintenance)
	require.Empty(t, b.begins(pinned))
	status, p = b.maintenance(t, first, false)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	require.Equal(t, first, b.waitBegins(t, pinned, 1)[0].agent)
}

func TestDrainMovesWhatIsLeftAtTheDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, first)
	repeated := b.submit(t, map[string]any{"retry": map[string]any{"max_transfers": 1}})
	fenced := b.submit(t, map[string]any{"retry_safety": "fenced"})
	once := b.submit(t, map[string]any{"retry_safety": "at_most_once"})
	for _, id := range []string{repeated, fenced, once} {
		b.waitBegins(t, id, 1)
	}
	b.agent(t, second)
	record := b.drained(t, b.drain(t, first, map[string]any{"deadline": "0s"}).ID, ended)
	require.Equal(t, api.DrainCompleted, record.Status, "%+v", record)
	require.Equal(t, [2]int{0, 3}, [2]int{record.Agents[0].Finished, record.Agents[0].Moved})
	for _, id := range []string{repeated, fenced} {
		begins, ends := b.waitBegins(t, id, 2), b.of(&b.ended, id)
		require.Equal(t, second, begins[1].agent)
		require.False(t, ends[0].at.After(begins[1].at), "%s ran in two places at once", id)
		require.Equal(t, api.AttemptMoved, getTask(t, b.node.URL, id, "0s").Attempts[0].Outcome, "it was not lost")
	}
	require.Contains(t, waitTask(t, b.node.URL, once, api.TaskReview).Why, "taken off its agent")

	t.Log("being moved by drains is no loss: it does not use up the transfers that the task has")
	b.maintenance(t, first, false)
	b.agentIs(t, first, api.AgentOnline)
	for _, from := range []string{second, first} {
		b.maintenance(t, from, false)
		b.drained(t, b.drain(t, from, map[string]any{"deadline": "0s"}).ID, ended)
		b.maintenance(t, from, false)
	}
	require.Eventually(t, func() bool {
		return len(b.begins(repeated)) == 4 || getTask(t, b.node.URL, repeated, "0s").Status == api.TaskDeadLetter
	}, patience, 20*time.Millisecond)
	b.finish.Store(true)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, repeated, "20s").Status)
}

func TestDrainIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, first)
	b.agent(t, second)
	old := b.submit(t, map[string]any{"agent": first})
	b.waitBegins(t, old, 1)
	var record api.DrainRecord
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/drain",
		map[string]any{"agents": []string{first, second}}, &record)
	require.Equal(t, http.StatusAccepted, status, "%+v", p)
	record = b.drained(t, record.ID, acknowledged)
	require.Equal(t, api.DrainWaiting, record.Agents[1].Status, "one after the other")
	status, _ = call(t, http.MethodPost, b.node.URL+"/api/v1/agents/drains/"+record.ID+"/cancel", nil, nil)
	require.Equal(t, http.StatusAccepted, status)
	record = b.drained(t, record.ID, ended)
	require.Equal(t, []api.DrainStatus{api.DrainCancelled, api.DrainCancelled, api.DrainCancelled},
		[]api.DrainStatus{record.Status, record.Agents[0].Status, record.Agents[1].Status}, "%+v", record)
	status, p = call(t, http.MethodPost, b.node.URL+"/api/v1/agents/drains/"+record.ID+"/cancel", nil, nil)
	require.Equal(t, http.StatusConflict, status, "%+v", p)
	b.agentIs(t, first, api.AgentOnline)
	b.waitBegins(t, b.submit(t, map[string]any{"agent": first}), 1)
	b.finish.Store(true)
	waitTask(t, b.node.URL, old, api.TaskCompleted)
	require.Len(t, b.begins(old), 1)
}

func TestDrainedLeaderGivesUpItsRole(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, first)
	b.waitBegins(t, b.submit(t, nil), 1)
	b.agent(t, second)
	id := b.drain(t, first, map[string]any{}).ID
	b.drained(t, id, acknowledged)
	next := b.submit(t, nil)
	require.Equal(t, second, b.waitBegins(t, next, 1)[0].agent)
	require.Equal(t, second, b.view(t).Leader)
	b.finish.Store(true)
	require.Equal(t, api.DrainCompleted, b.drained(t, id, ended).Status)
}

func TestDrainOutlivesAHubRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	b.agent(t, first)
	old := b.submit(t, nil)
	b.waitBegins(t, old, 1)
	b.agent(t, second)
	id := b.drain(t, first, map[string]any{"deadline": "1m"}).ID
	b.drained(t, id, acknowledged)
	address := strings.TrimPrefix(b.node.URL, "http://")
	hubID := b.node.Hub.ID()
	b.node.Stop()
	b.node = plane.NewNode(t, plane.NodeOptions{HubID: hubID, Listen: address})
	require.Eventually(t, func() bool {
		m := b.view(t).Member(second)
		return m != nil &&
			m.Status == api.AgentOnline
	}, patience, 10*time.Millisecond)
	require.Equal(t, second, b.waitBegins(t, b.submit(t, nil), 1)[0].agent)
	b.finish.Store(true)
	record := b.drained(t, id, ended)
	require.Equal(t, api.DrainCompleted, record.Status, "%+v", record)
	attempts := waitTask(t, b.node.URL, old, api.TaskCompleted).Attempts
	require.Len(t, attempts, 1, "%+v", attempts)
	require.Len(t, b.begins(old), 1)
}
