package fleet

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSelectTarget(t *testing.T) {
	t.Parallel()
	members := []Member{
		{AgentID: "a", Status: AgentOnline,
			AgentProfile: AgentProfile{MaxTasks: 10, Group: "g1", Zone: "z1", Capabilities: []string{"gpu"},
				TaskTypes: []string{"exec"}}},
		{AgentID: "b", Status: AgentOnline,
			AgentProfile: AgentProfile{MaxTasks: 10, Group: "g2", Zone: "z1", TaskTypes: []string{"tar"}}},
		{AgentID: "c", Status: AgentOnline,
			AgentProfile: AgentProfile{MaxTasks: 100, Group: "g2", Zone: "z2", Capabilities: []string{"disk", "gpu"},
				TaskTypes: []string{"tar", "zip"}}},
		{AgentID: "d", Status: AgentSuspect, AgentProfile: AgentProfile{MaxTasks: 10, Group: "g3", Zone: "z3"}},
		{AgentID: "e", Status: AgentDraining,
			AgentProfile: AgentProfile{MaxTasks: 10, Group: "g3", Zone: "z3", Capabilities: []string{"tpu"}}},
		{AgentID: "f", Status: AgentOffline, AgentProfile: AgentProfile{MaxTasks: 10, Group: "g2", Zone: "z2"}},
	}
	loads := map[string]int{"a": 3, "b": 2, "c": 10}
	standbys := func(ids ...string) []string { return ids }
	near := func(failed string, affinity ...string) FailoverNeed {
		return FailoverNeed{FailedAgent: failed, Affinity: affinity}
	}
	tests := []struct {
		name     string
		strategy SelectionStrategy
		standbys []string
		need     FailoverNeed
		counter  int64
		want     string // "" when none
	}{
		{"least loaded is a share of the slots", SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"not the failed one", SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "c"}, 0, "b"},
		{"capability", SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "c",
			RequiredCapabilities: []string{"gpu"}}, 0, "a"},
		{"every capability", SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "a",
			RequiredCapabilities: []string{"gpu", "disk"}}, 0, "c"},
		{"a capability nobody online has", SelectLeastLoaded, standbys(),
			FailoverNeed{FailedAgent: "a", RequiredCapabilities: []string{"tpu"}}, 0, ""},
		{"unknown strategy", "", standbys(), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"standby first", SelectStandby, standbys("a"), FailoverNeed{FailedAgent: "f"}, 0, "a"},
		{"the standby of longest", SelectStandby, standbys("a", "b"), FailoverNeed{FailedAgent: "f"}, 0, "a"},
		{"a type of the work", SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "f",
			TaskTypes: []string{"exec", "echo"}}, 0, "a"},
		{"a type nobody online handles", SelectLeastLoaded, standbys(), FailoverNeed{FailedAgent: "f",
			TaskTypes: []string{"echo"}}, 0, ""},
		{"a standby that is not online", SelectStandby, standbys("d"), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"a standby without the capability", SelectStandby, standbys("b"),
			FailoverNeed{FailedAgent: "a", RequiredCapabilities: []string{"gpu"}}, 0, "c"},
		{"round robin starts with the first", SelectRoundRobin, standbys(), FailoverNeed{FailedAgent: "f"}, 0, "a"},
		{"round robin goes on", SelectRoundRobin, standbys(), FailoverNeed{FailedAgent: "f"}, 1, "b"},
		{"round robin comes round", SelectRoundRobin, standbys(), FailoverNeed{FailedAgent: "f"}, 5, "c"},
		{"round robin skips the failed one", SelectRoundRobin, standbys(),
			FailoverNeed{FailedAgent: "b"}, 1, "c"},
		{"affinity names an agent", SelectAffinity, standbys(), near("f", "a"), 0, "a"},
		{"affinity names a group", SelectAffinity, standbys(), near("f", "g1"), 0, "a"},
		{"affinity names a zone", SelectAffinity, standbys(), near("f", "z1"), 0, "b"},
		{"the first affinity that is met", SelectAffinity, standbys(), near("f", "g9", "b", "g1"), 0, "b"},
		{"affinity before least loaded", SelectLeastLoaded, standbys(), near("f", "a"), 0, "a"},
		{"affinity before the turn", SelectRoundRobin, standbys(), near("f", "g2"), 0, "b"},
		{"affinity before standbys", SelectStandby, standbys("a"), near("f", "z2"), 0, "c"},
		{"affinity to the failed agent's group", SelectAffinity, standbys(), FailoverNeed{FailedAgent: "b"}, 0, "c"},
		{"affinity to the failed agent's zone", SelectAffinity, standbys(), FailoverNeed{FailedAgent: "a"}, 0, "b"},
		{"group before zone", SelectAffinity, standbys(), FailoverNeed{FailedAgent: "f"}, 0, "c"},
		{"affinity to nobody here", SelectAffinity, standbys(), near("e", "g9"), 0, "c"},
		{"affinity of an agent that is no member", SelectAffinity, standbys(), FailoverNeed{FailedAgent: "gone"}, 0, "c"},
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
		{AgentID: "failed", AgentProfile: AgentProfile{Zone: "z1"}},
		{AgentID: "near", Status: AgentOnline, AgentProfile: AgentProfile{Zone: "z1"}},
		{AgentID: "idle", Status: AgentOnline},
		{AgentID: "idler", Status: AgentOnline, AgentProfile: AgentProfile{Zone: "z2"}},
	}
	busy := map[string]int{"near": 2, "idle": 1}
	none := Cluster{Members: nowhere}
	got, _ := none.SelectTarget(SelectAffinity, FailoverNeed{FailedAgent: "failed"}, busy)
	require.Equal(t, "near", got)
	nowhere[0].Zone = ""
	got, _ = none.SelectTarget(SelectAffinity, FailoverNeed{FailedAgent: "failed"}, busy)
	require.Equal(t, "idler", got)

	_, ok := new(Cluster).SelectTarget(SelectLeastLoaded, FailoverNeed{}, nil)
	require.False(t, ok)
}

// Work goes to an agent that has a free slot, whatever the strategy prefers. A leader may be full.
func TestSelectTargetHasAFreeSlot(t *testing.T) {
	t.Parallel()
	members := []Member{
		{AgentID: "a", Status: AgentOnline, AgentProfile: AgentProfile{MaxTasks: 1, Group: "g"}},
		{AgentID: "b", Status: AgentOnline, AgentProfile: AgentProfile{MaxTasks: 4}},
		{AgentID: "f", AgentProfile: AgentProfile{Group: "g"}},
	}
	for _, strategy := range []SelectionStrategy{SelectStandby, SelectLeastLoaded, SelectRoundRobin, SelectAffinity} {
		c := Cluster{Config: ClusterConfig{ReplicationMode: ActiveActive}, Members: members, Standbys: []string{"a"}}
		got, _ := c.SelectTarget(strategy, FailoverNeed{FailedAgent: "f"}, map[string]int{"a": 1, "b": 3})
		require.Equal(t, "b", got, strategy)
	}
	c := Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive}, Members: members, Standbys: []string{"a"}}
	got, _ := c.SelectTarget(SelectStandby, FailoverNeed{FailedAgent: "f"}, map[string]int{"a": 1, "b": 3})
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
				Status: AgentStatus(pick("status", "online", "online", "suspect", "offline", "draining",
					"maintenance")),
				AgentProfile: AgentProfile{MaxTasks: rapid.IntRange(0, 3).Draw(t, "max"), Group: pick("group",
					"", "g1", "g2"), Zone: pick("zone", "", "z1", "z2")},
			}
			if rapid.Bool().Draw(t, "capable") {
				m.Capabilities = []string{"gpu"}
			}
			loads[id] = rapid.IntRange(0, 3).Draw(t, "load")
			members = append(members, m)
		}
		counter := rapid.Int64().Draw(t, "counter")
		selectTarget := func(members []Member, strategy SelectionStrategy, need FailoverNeed) (string, bool) {
			c := Cluster{Members: members, Standbys: []string{"b", "a"}, RoundRobin: counter}
			return c.SelectTarget(strategy, need, loads)
		}
		strategy := SelectionStrategy(pick("strategy", "standby", "least_loaded", "round_robin", "affinity"))
		need := FailoverNeed{
			FailedAgent: pick("failed", "a", "e", "z"),
			Affinity:    rapid.SliceOfN(rapid.SampledFrom([]string{"", "b", "g1", "z2"}), 0, 2).Draw(t, "affinity"),
		}
		if rapid.Bool().Draw(t, "needs gpu") {
			need.RequiredCapabilities = []string{"gpu"}
		}
		allowed := func(m Member) bool {
			return m.Status == AgentOnline && m.AgentID != need.FailedAgent &&
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
	ill := func(id string, level HealthLevel) Member {
		return Member{AgentID: id, Status: AgentOnline, Health: &MemberHealth{Level: level},
			AgentProfile: AgentProfile{MaxTasks: 2}}
	}
	for _, strategy := range []SelectionStrategy{SelectStandby, SelectLeastLoaded, SelectRoundRobin, SelectAffinity} {
		c := &Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive}, Standbys: []string{"a", "b"},
			Members: []Member{ill("a", HealthCritical), ill("b", HealthDegraded)}}
		need := FailoverNeed{Affinity: []string{"a"}}
		got, ok := c.SelectTarget(strategy, need, map[string]int{"b": 2})
		require.True(t, ok)
		require.Equal(t, "b", got, strategy)
		elected, _ := c.Elect(strategy, map[string]int{"b": 2}, scaleNow)
		require.Equal(t, "b", elected.Leader, strategy)
		c.Members = c.Members[:1]
		got, ok = c.SelectTarget(strategy, need, nil)
		require.True(t, ok, "nobody better is there")
		require.Equal(t, "a", got)
	}
	candidates := []Candidate{{AgentID: "a", MaxTasks: 2, Health: HealthCritical},
		{AgentID: "b", MaxTasks: 2, Running: 1, Health: HealthDegraded}}
	spec := &TaskSpec{Affinity: "a"}
	require.Equal(t, 1, Place(spec, candidates, Hint{}, scaleNow))
	require.Equal(t, 0, Place(spec, candidates, Hint{Avoid: "b"}, scaleNow))
	require.Greater(t, candidates[1].Room(), candidates[0].Room())
}
