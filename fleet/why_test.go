package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhyWaiting(t *testing.T) {
	t.Parallel()
	online := func(id string, more ...func(*Member)) Member {
		m := Member{AgentID: id, Status: AgentOnline, MaxTasks: 2}
		for _, f := range more {
			f(&m)
		}
		return m
	}
	status := func(s AgentStatus) func(*Member) { return func(m *Member) { m.Status = s } }
	gpu := func(m *Member) { m.Capabilities = []string{"gpu"} }
	onlyBuild := func(m *Member) { m.TaskTypes = []string{"build"} }
	for name, c := range map[string]struct {
		members []Member
		spec    TaskSpec
		running map[string]int
		want    string
	}{
		"no members":           {nil, TaskSpec{}, nil, "no online agent in cluster c"},
		"none online":          {[]Member{online("a", status(AgentOffline)), online("b", status(AgentMaintenance)), online("c", status(AgentOffline))}, TaskSpec{}, nil, "no online agent in cluster c (2 offline, 1 in maintenance)"},
		"suspects serve":       {[]Member{online("a", status(AgentSuspect))}, TaskSpec{}, nil, "waiting for an agent of cluster c to take it"},
		"load not known":       {[]Member{online("a")}, TaskSpec{}, nil, "waiting for an agent of cluster c to take it"},
		"one has a slot":       {[]Member{online("a"), online("b")}, TaskSpec{}, map[string]int{"a": 2, "b": 1}, "waiting for an agent of cluster c to take it"},
		"all busy":             {[]Member{online("a"), online("b")}, TaskSpec{}, map[string]int{"a": 2, "b": 3}, "all 2 agents of cluster c are busy"},
		"the only one is busy": {[]Member{online("a")}, TaskSpec{}, map[string]int{"a": 2}, "the only agent of cluster c is busy"},
		"capable are busy":     {[]Member{online("a", gpu), online("b")}, TaskSpec{RequiredCapabilities: []string{"gpu"}}, map[string]int{"a": 2}, "the only agent of cluster c that could take it is busy"},
		"nobody is capable":    {[]Member{online("a", gpu)}, TaskSpec{RequiredCapabilities: []string{"gpu", "arm"}}, nil, "no online agent of cluster c has the required capabilities gpu, arm"},
		"nobody handles it":    {[]Member{online("a", onlyBuild)}, TaskSpec{Type: "exec"}, nil, "no online agent of cluster c that could take it handles tasks of type exec"},
		"pinned, unknown":      {nil, TaskSpec{Agent: "a"}, nil, "agent a is not in cluster c; the task waits for it"},
		"pinned, offline":      {[]Member{online("a", status(AgentOffline))}, TaskSpec{Agent: "a"}, nil, "agent a is offline; the task waits for it"},
		"pinned, draining":     {[]Member{online("a", status(AgentDraining))}, TaskSpec{Agent: "a"}, nil, "agent a is draining; the task waits for it"},
		"pinned, cordoned":     {[]Member{online("a", status(AgentMaintenance))}, TaskSpec{Agent: "a"}, nil, "agent a is in maintenance; the task waits for it"},
		"pinned, suspect":      {[]Member{online("a", status(AgentSuspect))}, TaskSpec{Agent: "a"}, nil, "agent a is not answering; the task waits for it"},
		"pinned, busy":         {[]Member{online("a"), online("b")}, TaskSpec{Agent: "a"}, map[string]int{"a": 2}, "agent a is busy: all of its 2 slots are in use"},
		"pinned, has a slot":   {[]Member{online("a")}, TaskSpec{Agent: "a"}, map[string]int{"a": 0}, "waiting for agent a to take it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := Cluster{Config: ClusterConfig{Name: "c"}, Members: c.members}
			require.Equal(t, c.want, WhyWaiting(&cluster, &c.spec, c.running))
			require.Len(t, cluster.Members, len(c.members), "a question changes nothing")
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
