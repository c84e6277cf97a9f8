package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

func TestWhyWaiting(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const at = "2026-11-21T12:00:00Z"
	online := func(id string, more ...func(*cluster.Member)) cluster.Member {
		m := cluster.Member{AgentID: id, Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 2}, Epoch: 1}
		for _, f := range more {
			f(&m)
		}
		return m
	}
	status := func(s api.AgentStatus) func(*cluster.Member) {
		return func(m *cluster.Member) { m.Status, m.StatusSince = s, since }
	}
	can := func(capabilities ...string) func(*cluster.Member) {
		return func(m *cluster.Member) { m.Capabilities = capabilities }
	}
	slots := func(n int) func(*cluster.Member) { return func(m *cluster.Member) { m.MaxTasks = n } }
	onlyBuild := func(m *cluster.Member) { m.TaskTypes = []string{"build"} }
	endsTrees := func(m *cluster.Member) { m.EndsProcessTrees = true }
	of := func(members ...cluster.Member) cluster.Cluster { return cluster.Cluster{Members: members} }
	paused := func(c cluster.Cluster, pauses ...cluster.Pause) cluster.Cluster { c.Pauses = pauses; return c }
	led := func(leader string, members ...cluster.Member) cluster.Cluster {
		return cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive}, Members: members,
			Leader: leader, LeaderEpoch: 5}
	}
	sharded := func(owner string, members ...cluster.Member) cluster.Cluster {
		return cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 2}, Members: members,
			Shards: []cluster.ShardOwner{{}, {Owner: owner, Epoch: 5}}}
	}
	needs := func(capabilities ...string) api.TaskSpec { return api.TaskSpec{RequiredCapabilities: capabilities} }
	pinned := api.TaskSpec{Agent: "a"}
	full := map[string]int{"a": 2, "b": 3}
	offers := func(memory, host string) func(*cluster.Member) {
		return func(m *cluster.Member) {
			m.Host, m.Resources = host, &api.Inventory{Amounts: api.Amounts{Memory: memory}}
		}
	}
	asks := api.TaskSpec{Place: api.Demand{Resources: api.Amounts{Memory: "4Gi"},
		Ports: map[string]api.PortDemand{"http": {Static: 80}}}}
	asksA := api.TaskSpec{Agent: "a", Place: asks.Place}
	holds := func(memory string, ports map[string]int) Waiting {
		return Waiting{Held: map[string][]api.HeldTask{"a": {{TaskID: "other", Allocation: &api.Allocation{
			Amounts: api.Amounts{Memory: memory}, Ports: ports}}}}}
	}
	for name, c := range map[string]struct {
		cluster cluster.Cluster
		task    Waiting
		spec    api.TaskSpec
		want    string
	}{
		"fits nowhere": {of(online("a", offers("2Gi", "")), online("b", offers("1Gi", "")), online("c")), Waiting{}, asks,
			"no online agent of cluster c that could take it has what it asks for: it lacks memory 4Gi " +
				"on 2 agents, resources that it tells of on 1 agent"},
		"fits, and what is free is not known": {of(online("a", offers("4Gi", ""))), Waiting{}, asks,
			"waiting for an agent of cluster c to take it"},
		"fits not now": {of(online("a", offers("4Gi", "")), online("b")), holds("1Gi", nil), asks,
			"no online agent of cluster c has room for it now: too little is free of memory 4Gi on 1 agent"},
		"an agent of the host has the port": {of(online("a", offers("8Gi", "h")), online("b", offers("8Gi", "h"))),
			holds("", map[string]int{"http": 80}), asks,
			"no online agent of cluster c has room for it now: too little is free of port 80 on 2 agents"},
		"the agent has the port": {of(online("a", offers("8Gi", "")), online("b", offers("8Gi", ""))),
			holds("", map[string]int{"http": 80}), asksA,
			"agent a has no room for it now: too little is free of port 80"},
		"another host has the port": {of(online("a", offers("8Gi", "h")), online("b", offers("8Gi", "i"))),
			holds("", map[string]int{"http": 80}), asks, "waiting for an agent of cluster c to take it"},
		"does not fit on its agent": {of(online("a", offers("2Gi", ""))), Waiting{}, asksA,
			"agent a lacks memory 4Gi"},
		"does not fit on its agent now": {of(online("a", offers("4Gi", ""))), holds("1Gi", nil), asksA,
			"agent a has no room for it now: too little is free of memory 4Gi"},
		"no members": {of(), Waiting{}, api.TaskSpec{}, "no online agent in cluster c"},
		"none online": {of(online("a", status(api.AgentOffline)),
			online("b", status(api.AgentMaintenance)),
			online("c", status(
				api.AgentOffline))), Waiting{}, api.TaskSpec{}, "no online agent in cluster c (2 offline, 1 in maintenance)"},
		"load not known": {of(online("a")), Waiting{}, api.TaskSpec{},
			"waiting for an agent of cluster c to take it"},
		"one has a slot": {of(online("a"), online("b")), Waiting{Running: map[string]int{"a": 2, "b": 1}},
			api.TaskSpec{}, "waiting for an agent of cluster c to take it"},
		"others are ahead": {of(online("a")), Waiting{Ahead: 7}, api.TaskSpec{},
			"waiting for an agent of cluster c to take it; up to about 7 tasks are ahead of it"},
		"all busy": {of(online("a"), online("b", slots(3))), Waiting{Running: full, Ahead: 1},
			api.TaskSpec{}, "all 5 slots of the 2 agents of cluster c are in use; perhaps 1 task is ahead of it"},
		"the only one is busy": {of(online("a")), Waiting{Running: full}, api.TaskSpec{},
			"all 2 slots of the only agent of cluster c are in use"},
		"its only slot is busy": {of(online("a", slots(1))), Waiting{Running: full}, api.TaskSpec{},
			"the only slot of the only agent of cluster c is in use"},
		"a suspect has no slot": {of(online("a"), online("b", status(api.AgentSuspect))),
			Waiting{Running: map[string]int{"a": 2}}, api.TaskSpec{},
			"all 4 slots of the 2 agents of cluster c are in use"},
		"one suspect": {of(online("a", status(api.AgentSuspect))), Waiting{}, api.TaskSpec{},
			"the only agent of cluster c is not answering"},
		"all suspect, held": {cluster.Cluster{Members: []cluster.Member{online("a", status(api.AgentSuspect)),
			online("b", status(
				api.AgentSuspect))}, Brakes: cluster.Brakes{BrakeHolds: []cluster.BrakeHold{{Since: since}}}},
			Waiting{}, api.TaskSpec{},
			"none of the 2 agents of cluster c is answering; the mass-loss brake holds since " + at},
		"capable are busy": {of(online("a", can("gpu")), online("b")), Waiting{Running: full}, needs("gpu"),
			"all 2 slots of the only agent of cluster c that could take it are in use"},
		"one capability missing": {of(online("a", can("gpu"))), Waiting{}, needs("gpu", "arm"),
			"no online agent of cluster c has the required capability arm"},
		"two missing": {of(online("a")), Waiting{}, needs("gpu", "arm"),
			"no online agent of cluster c has the required capabilities arm, gpu"},
		"nobody has both": {of(online("a", can("gpu")), online("b", can("arm"))), Waiting{}, needs("gpu", "arm"),
			"no online agent of cluster c has all of the required capabilities arm, gpu"},
		"one that has is away": {of(online("a"), online("b", can("gpu"), status(api.AgentOffline))), Waiting{},
			needs("gpu"),
			"no online agent of cluster c has the required capability gpu; agent b would, but it is offline since " + at},
		"nobody handles it": {of(online("a", onlyBuild)), Waiting{}, api.TaskSpec{Type: "exec"},
			"no agent handles type exec; agent a handles build"},
		"nobody ends trees": {of(online("a"), online("b")), Waiting{},
			api.TaskSpec{Type: "exec", RetrySafety: api.AtMostOnce},
			"no online agent of cluster c that could take it ends all processes of a command " +
				"when it is lost, as a task of type exec that is at_most_once needs: start an agent of this release on Linux, " +
				"or submit such work as idempotent"},
		"one that does is busy": {of(online("a", endsTrees), online("b")), Waiting{Running: full},
			api.TaskSpec{Type: "exec", RetrySafety: api.Fenced},
			"all 2 slots of the only agent of cluster c that could take it are in use"},

		"cluster paused": {paused(of(online("a")), cluster.Pause{Since: since, Reason: "new disks"}), Waiting{},
			api.TaskSpec{}, "cluster c is paused since " + at + ": new disks"},
		"cluster and lane paused": {paused(of(), cluster.Pause{Since: since},
			cluster.Pause{Lane: "default", Since: since,
				Reason: "x"}), Waiting{}, api.TaskSpec{}, "cluster c is paused since " + at},
		"lane paused": {paused(of(online("a")),
			cluster.Pause{Lane: "cap/arm+gpu", Since: since, Reason: "driver"}), Waiting{}, needs("gpu",
			"arm"), "lane cap/arm+gpu of cluster c is paused since " + at + ": driver"},
		"another lane paused": {paused(of(online("a")), cluster.Pause{Lane: "cap/gpu", Since: since}), Waiting{},
			api.TaskSpec{}, "waiting for an agent of cluster c to take it"},
		"pinned to a paused agent": {paused(of(online("a")), cluster.Pause{Lane: "agent/a", Since: since}), Waiting{},
			pinned, "lane agent/a of cluster c is paused since " + at},
		"pinned, cluster paused": {paused(of(online("a")), cluster.Pause{Since: since}), Waiting{}, pinned,
			"cluster c is paused since " + at},
		"shard paused": {paused(sharded("a", online("a")), cluster.Pause{Lane: "shard/1", Since: since}),
			Waiting{Lane: "shard/1"}, api.TaskSpec{}, "lane shard/1 of cluster c is paused since " + at},

		"pinned, unknown": {of(), Waiting{}, pinned, "agent a is not in cluster c; the task waits for it"},
		"pinned, left": {cluster.Cluster{Departures: []cluster.Departure{{AgentID: "b"},
			{AgentID: "a", At: since}}}, Waiting{}, pinned, "agent a left cluster c at " + at +
			"; the task waits for it"},
		"pinned, offline": {of(online("a", status(api.AgentOffline))), Waiting{}, pinned,
			"agent a is offline since " + at + "; the task waits for it"},
		"pinned, draining": {of(online("a", status(api.AgentDraining))), Waiting{}, pinned,
			"agent a is draining since " + at + "; the task waits for it"},
		"pinned, cordoned": {of(online("a", status(api.AgentMaintenance),
			func(m *cluster.Member) { m.StatusReason = "new disks" })), Waiting{}, pinned,
			"agent a is in maintenance since " + at + " (new disks); the task waits for it"},
		"pinned, suspect": {of(online("a", status(api.AgentSuspect))), Waiting{}, pinned,
			"agent a is not answering since " + at + "; the task waits for it"},
		"pinned, busy": {of(online("a"), online("b")), Waiting{Running: full, Ahead: 3}, pinned,
			"agent a is busy: all 2 slots are in use; up to about 3 tasks are ahead of it"},
		"pinned, one busy slot": {of(online("a", slots(1))), Waiting{Running: full}, pinned,
			"agent a is busy: its only slot is in use"},
		"pinned, has a slot": {of(online("a")), Waiting{Running: map[string]int{"a": 0}}, pinned,
			"waiting for agent a to take it"},
		"pinned, incapable": {of(online("a", can("arm"))), Waiting{},
			api.TaskSpec{Agent: "a", RequiredCapabilities: []string{"gpu", "arm"}},
			"agent a does not have the required capability gpu"},
		"pinned, another's type": {of(online("a", onlyBuild)), Waiting{}, api.TaskSpec{Agent: "a", Type: "exec"},
			"agent a does not handle tasks of type exec"},

		"pinned, leaves trees": {of(online("a")), Waiting{},
			api.TaskSpec{Agent: "a", Type: "exec", RetrySafety: api.Fenced},
			"agent a is not one that ends all processes of a command when it is lost, " +
				"as a task of type exec that is fenced needs: start an agent of this release on Linux, " +
				"or submit such work as idempotent"},

		"leader is busy": {led("a", online("a"), online("b")), Waiting{Running: full}, api.TaskSpec{},
			"agent a, the leader of cluster c, is busy: all 2 slots are in use"},
		"leader has a slot": {led("a", online("a"), online("b")), Waiting{}, api.TaskSpec{},
			"waiting for agent a, the leader of cluster c, to take it"},
		"leader can't": {led("a", online("a"), online("b", can("gpu"))), Waiting{}, needs("gpu"),
			"agent a, the leader of cluster c, does not have the required capability gpu"},
		"no leader": {cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
			Members:      []cluster.Member{online("a")},
			LeaderFreeAt: since}, Waiting{}, api.TaskSpec{},
			"cluster c has no leader now; it waits for the next, which the last one's lease allows from " + at},
		"leader's successor": {led("a", online("a", func(m *cluster.Member) { m.Epoch = 9 })), Waiting{},
			api.TaskSpec{}, "cluster c has no leader now; it waits for the next"},
		"leader, nobody": {led("a", online("a", status(api.AgentOffline))), Waiting{}, api.TaskSpec{},
			"no online agent in cluster c (1 offline)"},

		"shard's owner is busy": {sharded("a", online("a"), online("b")), Waiting{Lane: "shard/1", Running: full},
			api.TaskSpec{}, "agent a, which owns shard 1 of cluster c, is busy: all 2 slots are in use"},
		"shard without owner": {sharded("a", online("a")), Waiting{Lane: "shard/0"}, api.TaskSpec{},
			"shard 0 of cluster c has no owner now; it waits for the next"},
		"shard not known": {sharded("a", online("a")), Waiting{}, api.TaskSpec{},
			"waiting for the agent of cluster c that owns its shard"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := c.cluster
			cluster.Config.Name = "c"
			before := len(cluster.Members)
			c.task.Spec = &c.spec
			require.Equal(t, c.want, WhyWaiting(&cluster, c.task))
			require.Len(t, cluster.Members, before, "a question changes nothing")
		})
	}
}
