package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhyWaiting(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const at = "2026-11-21T12:00:00Z"
	online := func(id string, more ...func(*Member)) Member {
		m := Member{AgentID: id, Status: AgentOnline, MaxTasks: 2, Epoch: 1}
		for _, f := range more {
			f(&m)
		}
		return m
	}
	status := func(s AgentStatus) func(*Member) { return func(m *Member) { m.Status, m.StatusSince = s, since } }
	can := func(capabilities ...string) func(*Member) { return func(m *Member) { m.Capabilities = capabilities } }
	slots := func(n int) func(*Member) { return func(m *Member) { m.MaxTasks = n } }
	onlyBuild := func(m *Member) { m.TaskTypes = []string{"build"} }
	endsTrees := func(m *Member) { m.EndsProcessTrees = true }
	of := func(members ...Member) Cluster { return Cluster{Members: members} }
	paused := func(c Cluster, pauses ...Pause) Cluster { c.Pauses = pauses; return c }
	led := func(leader string, members ...Member) Cluster {
		return Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive}, Members: members, Leader: leader, LeaderEpoch: 5}
	}
	sharded := func(owner string, members ...Member) Cluster {
		return Cluster{Config: ClusterConfig{ReplicationMode: Sharded, Shards: 2}, Members: members, Shards: []ShardOwner{{}, {Owner: owner, Epoch: 5}}}
	}
	needs := func(capabilities ...string) TaskSpec { return TaskSpec{RequiredCapabilities: capabilities} }
	pinned := TaskSpec{Agent: "a"}
	full := map[string]int{"a": 2, "b": 3}
	for name, c := range map[string]struct {
		cluster Cluster
		task    Waiting
		spec    TaskSpec
		want    string
	}{
		"no members":             {of(), Waiting{}, TaskSpec{}, "no online agent in cluster c"},
		"none online":            {of(online("a", status(AgentOffline)), online("b", status(AgentMaintenance)), online("c", status(AgentOffline))), Waiting{}, TaskSpec{}, "no online agent in cluster c (2 offline, 1 in maintenance)"},
		"load not known":         {of(online("a")), Waiting{}, TaskSpec{}, "waiting for an agent of cluster c to take it"},
		"one has a slot":         {of(online("a"), online("b")), Waiting{Running: map[string]int{"a": 2, "b": 1}}, TaskSpec{}, "waiting for an agent of cluster c to take it"},
		"others are ahead":       {of(online("a")), Waiting{Ahead: 7}, TaskSpec{}, "waiting for an agent of cluster c to take it; up to about 7 tasks are ahead of it"},
		"all busy":               {of(online("a"), online("b", slots(3))), Waiting{Running: full, Ahead: 1}, TaskSpec{}, "all 5 slots of the 2 agents of cluster c are in use; perhaps 1 task is ahead of it"},
		"the only one is busy":   {of(online("a")), Waiting{Running: full}, TaskSpec{}, "all 2 slots of the only agent of cluster c are in use"},
		"its only slot is busy":  {of(online("a", slots(1))), Waiting{Running: full}, TaskSpec{}, "the only slot of the only agent of cluster c is in use"},
		"a suspect has no slot":  {of(online("a"), online("b", status(AgentSuspect))), Waiting{Running: map[string]int{"a": 2}}, TaskSpec{}, "all 4 slots of the 2 agents of cluster c are in use"},
		"one suspect":            {of(online("a", status(AgentSuspect))), Waiting{}, TaskSpec{}, "the only agent of cluster c is not answering"},
		"all suspect, held":      {Cluster{Members: []Member{online("a", status(AgentSuspect)), online("b", status(AgentSuspect))}, BrakeHolds: []BrakeHold{{Since: since}}}, Waiting{}, TaskSpec{}, "none of the 2 agents of cluster c is answering; the mass-loss brake holds since " + at},
		"capable are busy":       {of(online("a", can("gpu")), online("b")), Waiting{Running: full}, needs("gpu"), "all 2 slots of the only agent of cluster c that could take it are in use"},
		"one capability missing": {of(online("a", can("gpu"))), Waiting{}, needs("gpu", "arm"), "no online agent of cluster c has the required capability arm"},
		"two missing":            {of(online("a")), Waiting{}, needs("gpu", "arm"), "no online agent of cluster c has the required capabilities arm, gpu"},
		"nobody has both":        {of(online("a", can("gpu")), online("b", can("arm"))), Waiting{}, needs("gpu", "arm"), "no online agent of cluster c has all of the required capabilities arm, gpu"},
		"one that has is away":   {of(online("a"), online("b", can("gpu"), status(AgentOffline))), Waiting{}, needs("gpu"), "no online agent of cluster c has the required capability gpu; agent b would, but it is offline since " + at},
		"nobody handles it":      {of(online("a", onlyBuild)), Waiting{}, TaskSpec{Type: "exec"}, "no online agent of cluster c that could take it handles tasks of type exec"},
		"nobody ends trees":      {of(online("a"), online("b")), Waiting{}, TaskSpec{Type: "exec", RetrySafety: AtMostOnce}, "no online agent of cluster c that could take it ends all processes of a command when it is lost, as a task of type exec that is at_most_once needs: start an agent of this release on Linux, or submit such work as idempotent"},
		"one that does is busy":  {of(online("a", endsTrees), online("b")), Waiting{Running: full}, TaskSpec{Type: "exec", RetrySafety: Fenced}, "all 2 slots of the only agent of cluster c that could take it are in use"},

		"cluster paused":           {paused(of(online("a")), Pause{Since: since, Reason: "new disks"}), Waiting{}, TaskSpec{}, "cluster c is paused since " + at + ": new disks"},
		"cluster and lane paused":  {paused(of(), Pause{Since: since}, Pause{Lane: "default", Since: since, Reason: "x"}), Waiting{}, TaskSpec{}, "cluster c is paused since " + at},
		"lane paused":              {paused(of(online("a")), Pause{Lane: "cap/arm+gpu", Since: since, Reason: "driver"}), Waiting{}, needs("gpu", "arm"), "lane cap/arm+gpu of cluster c is paused since " + at + ": driver"},
		"another lane paused":      {paused(of(online("a")), Pause{Lane: "cap/gpu", Since: since}), Waiting{}, TaskSpec{}, "waiting for an agent of cluster c to take it"},
		"pinned to a paused agent": {paused(of(online("a")), Pause{Lane: "agent/a", Since: since}), Waiting{}, pinned, "lane agent/a of cluster c is paused since " + at},
		"pinned, cluster paused":   {paused(of(online("a")), Pause{Since: since}), Waiting{}, pinned, "cluster c is paused since " + at},
		"shard paused":             {paused(sharded("a", online("a")), Pause{Lane: "shard/1", Since: since}), Waiting{Lane: "shard/1"}, TaskSpec{}, "lane shard/1 of cluster c is paused since " + at},

		"pinned, unknown":        {of(), Waiting{}, pinned, "agent a is not in cluster c; the task waits for it"},
		"pinned, left":           {Cluster{Departures: []Departure{{"b", time.Time{}}, {"a", since}}}, Waiting{}, pinned, "agent a left cluster c at " + at + "; the task waits for it"},
		"pinned, offline":        {of(online("a", status(AgentOffline))), Waiting{}, pinned, "agent a is offline since " + at + "; the task waits for it"},
		"pinned, draining":       {of(online("a", status(AgentDraining))), Waiting{}, pinned, "agent a is draining since " + at + "; the task waits for it"},
		"pinned, cordoned":       {of(online("a", status(AgentMaintenance), func(m *Member) { m.StatusReason = "new disks" })), Waiting{}, pinned, "agent a is in maintenance since " + at + " (new disks); the task waits for it"},
		"pinned, suspect":        {of(online("a", status(AgentSuspect))), Waiting{}, pinned, "agent a is not answering since " + at + "; the task waits for it"},
		"pinned, busy":           {of(online("a"), online("b")), Waiting{Running: full, Ahead: 3}, pinned, "agent a is busy: all 2 slots are in use; up to about 3 tasks are ahead of it"},
		"pinned, one busy slot":  {of(online("a", slots(1))), Waiting{Running: full}, pinned, "agent a is busy: its only slot is in use"},
		"pinned, has a slot":     {of(online("a")), Waiting{Running: map[string]int{"a": 0}}, pinned, "waiting for agent a to take it"},
		"pinned, incapable":      {of(online("a", can("arm"))), Waiting{}, TaskSpec{Agent: "a", RequiredCapabilities: []string{"gpu", "arm"}}, "agent a does not have the required capability gpu"},
		"pinned, another's type": {of(online("a", onlyBuild)), Waiting{}, TaskSpec{Agent: "a", Type: "exec"}, "agent a does not handle tasks of type exec"},

		"pinned, leaves trees": {of(online("a")), Waiting{}, TaskSpec{Agent: "a", Type: "exec", RetrySafety: Fenced}, "agent a is not one that ends all processes of a command when it is lost, as a task of type exec that is fenced needs: start an agent of this release on Linux, or submit such work as idempotent"},

		"leader is busy":     {led("a", online("a"), online("b")), Waiting{Running: full}, TaskSpec{}, "agent a, the leader of cluster c, is busy: all 2 slots are in use"},
		"leader has a slot":  {led("a", online("a"), online("b")), Waiting{}, TaskSpec{}, "waiting for agent a, the leader of cluster c, to take it"},
		"leader can't":       {led("a", online("a"), online("b", can("gpu"))), Waiting{}, needs("gpu"), "agent a, the leader of cluster c, does not have the required capability gpu"},
		"no leader":          {Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive}, Members: []Member{online("a")}, LeaderFreeAt: since}, Waiting{}, TaskSpec{}, "cluster c has no leader now; it waits for the next, which the last one's lease allows from " + at},
		"leader's successor": {led("a", online("a", func(m *Member) { m.Epoch = 9 })), Waiting{}, TaskSpec{}, "cluster c has no leader now; it waits for the next"},
		"leader, nobody":     {led("a", online("a", status(AgentOffline))), Waiting{}, TaskSpec{}, "no online agent in cluster c (1 offline)"},

		"shard's owner is busy": {sharded("a", online("a"), online("b")), Waiting{Lane: "shard/1", Running: full}, TaskSpec{}, "agent a, which owns shard 1 of cluster c, is busy: all 2 slots are in use"},
		"shard without owner":   {sharded("a", online("a")), Waiting{Lane: "shard/0"}, TaskSpec{}, "shard 0 of cluster c has no owner now; it waits for the next"},
		"shard not known":       {sharded("a", online("a")), Waiting{}, TaskSpec{}, "waiting for the agent of cluster c that owns its shard"},
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

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		min, desired, online, offline int
		want                          ClusterStatus
	}{
		"empty and wants none":      {0, 0, 0, 0, ClusterHealthy},
		"empty but wants some":      {0, 1, 0, 0, ClusterCritical},
		"all gone":                  {0, 0, 0, 2, ClusterCritical},
		"one gone, no count set":    {0, 0, 1, 1, ClusterDegraded},
		"one gone, enough are left": {1, 2, 2, 1, ClusterHealthy},
		"below desired":             {1, 3, 2, 0, ClusterDegraded},
		"at the minimum":            {2, 0, 2, 0, ClusterHealthy},
		"below the minimum":         {2, 3, 1, 2, ClusterCritical},
		"all there":                 {1, 2, 2, 0, ClusterHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := Cluster{Config: ClusterConfig{MinAgents: c.min, DesiredAgents: c.desired}}
			for range c.online {
				cluster.Members = append(cluster.Members, Member{Status: AgentOnline})
			}
			for range c.offline {
				cluster.Members = append(cluster.Members, Member{Status: AgentOffline})
			}
			require.Equal(t, c.want, cluster.Status())
			require.Equal(t, c.online, cluster.HealthyCount())
		})
	}
}

func TestReservedIDs(t *testing.T) {
	t.Parallel()
	for id, ok := range map[string]bool{"a-1": true, "tasks": false, "clusters": false, "register": false, "tasks-1": true, "A": false} {
		require.Equal(t, ok, ValidateAgentID(id) == nil, id)
	}
	for id, ok := range map[string]bool{"t-1": true, "queue": false, "batch": false, "tasks": true, "": false} {
		require.Equal(t, ok, ValidateTaskID(id) == nil, id)
	}
}
