package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// keeper is an agent that keeps state.
type keeper struct {
	id      string
	state   *agent.State
	running *running
	network *network

	mu      sync.Mutex
	changes []agent.StateChange
}

func (b *bench) keeper(t *testing.T, id, url string) *keeper {
	t.Helper()
	k := &keeper{id: id, state: agent.NewState(), network: newNetwork()}
	k.state.OnChange = func(c agent.StateChange) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.changes = append(k.changes, c)
	}
	k.running = startAgent(t, agent.Options{HubURLs: []string{url}, Cluster: b.cluster, ID: id, Slots: 4,
		StopTimeout: time.Millisecond,
		DialContext: k.network.dial, State: k.state}, map[string]agent.Handler{"hold": b.hold(id)})
	return k
}

// leads waits until one of the agents leads and the others are standbys, and returns it first.
func (b *bench) leads(t *testing.T, keepers ...*keeper) (leader *keeper, others []*keeper) {
	t.Helper()
	require.Eventually(t, func() bool {
		leader, others = nil, nil
		view := b.view(t)
		for _, k := range keepers {
			switch view.RoleOf(k.id) {
			case api.RoleLeader:
				leader = k
			case api.RoleStandby:
				others = append(others, k)
			}
		}
		return leader != nil && len(others) == len(keepers)-1
	}, patience, 10*time.Millisecond, "a leader and its standbys")
	return leader, others
}

func same(t *testing.T, keepers ...*keeper) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, k := range keepers {
			if k.state.Summary().Digest != keepers[0].state.Summary().Digest {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond, "the states are the same")
}

func (b *bench) sync(t *testing.T) api.SyncReport {
	t.Helper()
	var report api.SyncReport
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/sync",
		map[string]any{"reason": "test"}, &report)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	return report
}

func (b *bench) comparison(t *testing.T) api.ClusterSync {
	t.Helper()
	var k api.ClusterSync
	status, p := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/sync", nil, &k)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	return k
}

// What the leader writes comes to the standbys by itself, at two hubs, and who is promoted has it.
func TestPromotedStandbyHasTheLeadersState(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive})
	other := plane.NewNode(t, plane.NodeOptions{})
	keepers := []*keeper{b.keeper(t, plane.UniqueID("a"), b.node.URL), b.keeper(t, plane.UniqueID("b"), b.node.URL),
		b.keeper(t, plane.UniqueID("c"), other.URL)}
	leader, standbys := b.leads(t, keepers...)
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/targets",
		map[string]any{"add": []string{"host-1", "host-2"}}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	running := b.submit(t, nil)
	b.waitBegins(t, running, 1)
	require.Eventually(t, func() bool { return len(leader.state.Targets(leader.id)) == 2 }, patience,
		10*time.Millisecond)
	require.NoError(t, leader.state.SetConfiguration("retention", map[string]int{"days": 30}))
	require.NoError(t, leader.state.SetDigest("registry/app:1", "sha256:<abc>"))
	same(t, keepers...)
	for _, s := range standbys {
		require.JSONEq(t, `{"days":30}`, string(s.state.Configuration()["retention"]))
		require.Equal(t, map[string]string{"registry/app:1": "sha256:<abc>"}, s.state.Digests())
		require.Equal(t, []string{"host-1", "host-2"}, s.state.Targets(leader.id))
		require.ErrorIs(t, s.state.SetConfiguration("retention", 1), agent.ErrStandby)
	}
	report := b.sync(t)
	require.Equal(t, api.SyncConsistent, report.Status, "%+v", report)
	for _, s := range standbys {
		require.Equal(t, running, s.state.Tasks(leader.id)[0].TaskID, "what the leader runs")
	}
	now := b.comparison(t)
	require.True(t, now.Consistent, "%+v", now)
	require.Len(t, now.Members, 3)
	require.Equal(t, api.SyncConsistent, now.LastSync.Status)

	// The leader dies. Who is promoted has its state and may write; a new agent gets it.
	leader.network.cut()
	next, _ := b.leads(t, standbys...)
	require.Equal(t, map[string]string{"registry/app:1": "sha256:<abc>"}, next.state.Digests())
	require.Eventually(t, func() bool { return next.state.SetConfiguration("retention", 60) == nil }, patience,
		10*time.Millisecond)
	fresh := b.keeper(t, plane.UniqueID("d"), b.node.URL)
	same(t, append(standbys, fresh)...)
	require.Equal(t, json.RawMessage("60"), fresh.state.Configuration()["retention"])

	// The old leader comes back: what it did not have time to tell does not win over its successor's.
	leader.network.heal()
	same(t, next, leader)
	require.Equal(t, json.RawMessage("60"), leader.state.Configuration()["retention"])
	require.NoError(t, next.state.RemoveDigest("registry/app:1"))
	same(t, append(standbys, fresh, leader)...)
	require.Empty(t, leader.state.Digests())
	leader.mu.Lock()
	defer leader.mu.Unlock()
	require.Contains(t, leader.changes, agent.StateChange{Section: api.StateDigests, Key: "registry/app:1"},
		"it is told of the removal")
	b.finish.Store(true)
}

// In a sharded cluster every owner writes, and all have everything. Large states travel in parts.
func TestShardedStatesAreMerged(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 4})
	first, second := b.keeper(t, plane.UniqueID("a"), b.node.URL), b.keeper(t, plane.UniqueID("b"), b.node.URL)
	require.Eventually(t, func() bool {
		view := b.view(t)
		return len(view.ShardsOf(first.id)) == 2 && len(view.ShardsOf(second.id)) == 2
	}, patience, 10*time.Millisecond)
	large := make([]byte, 20<<10)
	for i := range large {
		large[i] = 'x'
	}
	for i := range 30 { // 600 KiB: three parts
		require.NoError(t, first.state.SetConfiguration(fmt.Sprintf("large-%d", i), string(large)))
	}
	require.NoError(t, second.state.SetConfiguration("small", true))
	same(t, first, second)
	require.Len(t, first.state.Configuration(), 31)
	require.Equal(t, first.state.Configuration(), second.state.Configuration())
	require.Equal(t, api.SyncConsistent, b.sync(t).Status)
}

func TestStateSyncRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	b.agent(t, plane.UniqueID("a"))
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/sync", nil, nil)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, protocol.CodeConflict, p.Code)
	status, p = call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/nothing-here/sync", nil, nil)
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, protocol.CodeUnknownCluster, p.Code)
	require.True(t, b.comparison(t).Consistent)

	passive := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive})
	passive.agent(t, plane.UniqueID("a"))
	require.Equal(t, api.SyncSkipped, passive.sync(t).Status, "no agent keeps state")
}
