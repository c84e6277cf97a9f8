package cluster

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

func TestSelectTarget(t *testing.T) {
	t.Parallel()
	members := []Member{
		{AgentID: "a", Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 10, Group: "g1", Zone: "z1", Capabilities: []string{"gpu"},
				TaskTypes: []string{"exec"}}},
		{AgentID: "b", Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 10, Group: "g2", Zone: "z1", TaskTypes: []string{"tar"}}},
		{AgentID: "c", Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 100, Group: "g2", Zone: "z2", Capabilities: []string{"disk", "gpu"},
				TaskTypes: []string{"tar", "zip"}}},
		{AgentID: "d", Status: api.AgentSuspect, AgentProfile: api.AgentProfile{MaxTasks: 10, Group: "g3", Zone: "z3"}},
		{AgentID: "e", Status: api.AgentDraining,
			AgentProfile: api.AgentProfile{MaxTasks: 10, Group: "g3", Zone: "z3", Capabilities: []string{"tpu"}}},
		{AgentID: "f", Status: api.AgentOffline, AgentProfile: api.AgentProfile{MaxTasks: 10, Group: "g2", Zone: "z2"}},
	}
	loads := map[string]int{"a": 3, "b": 2, "c": 10}
	standbys := func(ids ...string) []string { return ids }
	near := func(failed string, affinity ...string) FailoverNeed {
		return FailoverNeed{FailedAgent: failed, Affinity: affinity}
	}
	tests := []struct {
		name     string
		strategy api.SelectionStrategy
		standbys []string
		need     FailoverNeed
		counter  int64
		want     string // "" when none
	}{
		{"least loaded is a share of the slots", api.SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"not the failed one", api.SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "c"}, 0, "b"},
		{"capability", api.SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "c",
			RequiredCapabilities: []string{"gpu"}}, 0, "a"},
		{"every capability", api.SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "a",
			RequiredCapabilities: []string{"gpu", "disk"}}, 0, "c"},
		{"a capability nobody online has", api.SelectLeastLoaded, standbys(),
			FailoverNeed{FailedAgent: "a", RequiredCapabilities: []string{"tpu"}}, 0, ""},
		{"unknown strategy", "", standbys(), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"standby first", api.SelectStandby, standbys("a"), FailoverNeed{FailedAgent: "f"}, 0, "a"},
		{"the standby of longest", api.SelectStandby, standbys("a", "b"), FailoverNeed{FailedAgent: "f"}, 0, "a"},
		{"a type of the work", api.SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "f",
			TaskTypes: []string{"exec", "echo"}}, 0, "a"},
		{"a type nobody online handles", api.SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "f",
			TaskTypes: []string{"echo"}}, 0, ""},
		{"a standby that is not online", api.SelectStandby, standbys("d"), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"a standby without the capability", api.SelectStandby, standbys("b"),
			FailoverNeed{FailedAgent: "a", RequiredCapabilities: []string{"gpu"}}, 0, "c"},
		{"round robin starts with the first", api.SelectRoundRobin, standbys(), FailoverNeed{FailedAgent: "f"}, 0, "a"},
		{"round robin goes on", api.SelectRoundRobin, standbys(), FailoverNeed{FailedAgent: "f"}, 1, "b"},
		{"round robin comes round", api.SelectRoundRobin, standbys(), FailoverNeed{FailedAgent: "f"}, 5, "c"},
		{"round robin skips the failed one", api.SelectRoundRobin, standbys(),
			FailoverNeed{FailedAgent: "b"}, 1, "c"},
		{"affinity names an agent", api.SelectAffinity, standbys(), near("f", "a"), 0, "a"},
		{"affinity names a group", api.SelectAffinity, standbys(), near("f", "g1"), 0, "a"},
		{"affinity names a zone", api.SelectAffinity, standbys(), near("f", "z1"), 0, "b"},
		{"the first affinity that is met", api.SelectAffinity, standbys(), near("f", "g9", "b", "g1"), 0, "b"},
		{"affinity before least loaded", api.SelectLeastLoaded, standbys(), near("f", "a"), 0, "a"},
		{"affinity before the turn", api.SelectRoundRobin, standbys(), near("f", "g2"), 0, "b"},
		{"affinity before standbys", api.SelectStandby, standbys("a"), near("f", "z2"), 0, "c"},
		{"affinity to the failed agent's group", api.SelectAffinity, standbys(), FailoverNeed{FailedAgent: "b"}, 0, "c"},
		{"affinity to the failed agent's zone", api.SelectAffinity, standbys(), FailoverNeed{FailedAgent: "a"}, 0, "b"},
		{"group before zone", api.SelectAffinity, standbys(), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"affinity to nobody here", api.SelectAffinity, standbys(), near("e", "g9"), 0, "c"},
		{"affinity of an agent that is no member", api.SelectAffinity, standbys(), FailoverNeed{FailedAgent: "gone"}, 0, "c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := Cluster{Members: members, Standbys: tt.standbys, RoundRobin: tt.counter}
			got, ok := c.SelectTarget(tt.strategy, tt.need, loads)
			require.Equal(t, tt.want != "", ok)
			require.Equal(t, tt.want, got)
		})
	}
	t.Log("to have no group or no zone is nothing in common")
	nowhere := []Member{
		{AgentID: "failed", AgentProfile: api.AgentProfile{Zone: "z1"}},
		{AgentID: "near", Status: api.AgentOnline, AgentProfile: api.AgentProfile{Zone: "z1"}},
		{AgentID: "idle", Status: api.AgentOnline},
		{AgentID: "idler", Status: api.AgentOnline, AgentProfile: api.AgentProfile{Zone: "z2"}},
	}
	busy := map[string]int{"near": 2, "idle": 1}
	none := Cluster{Members: nowhere}
	got, _ := none.SelectTarget(api.SelectAffinity, FailoverNeed{FailedAgent: "failed"}, busy)
	require.Equal(t, "near", got)
	nowhere[0].Zone = ""
	got, _ = none.SelectTarget(api.SelectAffinity, FailoverNeed{FailedAgent: "failed"}, busy)
	require.Equal(t, "idler", got)

	_, ok := new(Cluster).SelectTarget(api.SelectLeastLoaded, FailoverNeed{}, nil)
	require.False(t, ok)
}

// Work goes to an agent that has a free slot, whatever the strategy prefers. A leader may be full.
func TestSelectTargetHasAFreeSlot(t *testing.T) {
	t.Parallel()
	members := []Member{
		{AgentID: "a", Status: api.AgentOnline, AgentProfile: api.AgentProfile{MaxTasks: 1, Group: "g"}},
		{AgentID: "b", Status: api.AgentOnline, AgentProfile: api.AgentProfile{MaxTasks: 4}},
		{AgentID: "f", AgentProfile: api.AgentProfile{Group: "g"}},
	}
	for _, strategy := range []api.SelectionStrategy{api.SelectStandby, api.SelectLeastLoaded, api.SelectRoundRobin, api.SelectAffinity} {
		c := Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActiveActive}, Members: members, Standbys: []string{"a"}}
		got, _ := c.SelectTarget(strategy, FailoverNeed{FailedAgent: "f"}, map[string]int{"a": 1, "b": 3})
		require.Equal(t, "b", got, strategy)
	}
	c := Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive}, Members: members, Standbys: []string{"a"}}
	got, _ := c.SelectTarget(api.SelectStandby, FailoverNeed{FailedAgent: "f"}, map[string]int{"a": 1, "b": 3})
	require.Equal(t, "a", got)
}

// The target is always allowed, found whenever there is one, and the same whatever order the members come in.
func TestSelectTargetModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		var members []Member
		loads := map[string]int{}
		for _, id := range rapid.Permutation([]string{"a", "b", "c", "d", "e"}).Draw(t, "ids") {
			m := Member{
				AgentID: id,
				Status: api.AgentStatus(pick("status", "online", "online", "suspect", "offline", "draining",
					"maintenance")),
				AgentProfile: api.AgentProfile{MaxTasks: rapid.IntRange(0, 3).Draw(t, "max"), Group: pick("group",
					"", "g1", "g2"), Zone: pick("zone", "", "z1", "z2")},
			}
			if rapid.Bool().Draw(t, "capable") {
				m.Capabilities = []string{"gpu"}
			}
			loads[id] = rapid.IntRange(0, 3).Draw(t, "load")
			members = append(members, m)
		}
		counter := rapid.Int64().Draw(t, "counter")
		selectTarget := func(members []Member, strategy api.SelectionStrategy, need FailoverNeed) (string, bool) {
			c := Cluster{Members: members, Standbys: []string{"b", "a"}, RoundRobin: counter}
			return c.SelectTarget(strategy, need, loads)
		}
		strategy := api.SelectionStrategy(pick("strategy", "standby", "least_loaded", "round_robin", "affinity"))
		need := FailoverNeed{
			FailedAgent: pick("failed", "a", "e", "z"),
			Affinity:    rapid.SliceOfN(rapid.SampledFrom([]string{"", "b", "g1", "z2"}), 0, 2).Draw(t, "affinity"),
		}
		if rapid.Bool().Draw(t, "needs gpu") {
			need.RequiredCapabilities = []string{"gpu"}
		}
		allowed := func(m Member) bool {
			return m.Status == api.AgentOnline && m.AgentID != need.FailedAgent &&
				(need.RequiredCapabilities == nil || m.Capabilities != nil)
		}
		got, ok := selectTarget(members, strategy, need)
		if ok != slices.ContainsFunc(members, allowed) {
			t.Fatalf("found %v among %+v", ok, members)
		}
		if ok && !slices.ContainsFunc(members, func(m Member) bool { return m.AgentID == got && allowed(m) }) {
			t.Fatalf("%s may not take over", got)
		}
		slices.Reverse(members)
		if again, _ := selectTarget(members, strategy, need); again != got {
			t.Fatalf("%s, and in another order %s", got, again)
		}
	})
}

// Who takes over, leads or gets a task is one of the best level of health, whatever else speaks for others.
func TestTheHealthiestAreChosen(t *testing.T) {
	t.Parallel()
	ill := func(id string, level api.HealthLevel) Member {
		return Member{AgentID: id, Status: api.AgentOnline, Health: &MemberHealth{Level: level},
			AgentProfile: api.AgentProfile{MaxTasks: 2}}
	}
	for _, strategy := range []api.SelectionStrategy{api.SelectStandby, api.SelectLeastLoaded, api.SelectRoundRobin, api.SelectAffinity} {
		c := &Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive}, Standbys: []string{"a", "b"},
			Members: []Member{ill("a", api.HealthCritical), ill("b", api.HealthDegraded)}}
		need := FailoverNeed{Affinity: []string{"a"}}
		got, ok := c.SelectTarget(strategy, need, map[string]int{"b": 2})
		require.True(t, ok)
		require.Equal(t, "b", got, strategy)
		elected, _ := c.Elect(strategy, map[string]int{"b": 2}, noon)
		require.Equal(t, "b", elected.Leader, strategy)
		c.Members = c.Members[:1]
		got, ok = c.SelectTarget(strategy, need, nil)
		require.True(t, ok, "nobody better is there")
		require.Equal(t, "a", got)
	}
	candidates := []task.Candidate{{AgentID: "a", MaxTasks: 2, Health: api.HealthCritical},
		{AgentID: "b", MaxTasks: 2, Running: 1, Health: api.HealthDegraded}}
	spec := &api.TaskSpec{Affinity: "a"}
	require.Equal(t, 1, task.Place(spec, candidates, task.Hint{}, noon))
	require.Equal(t, 0, task.Place(spec, candidates, task.Hint{Avoid: "b"}, noon))
	require.Greater(t, candidates[1].Room(), candidates[0].Room())
}
