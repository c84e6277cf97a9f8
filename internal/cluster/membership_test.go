package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newCluster(maxAgents int) *Cluster {
	return &Cluster{Config: api.ClusterConfig{Name: "c", MaxAgents: maxAgents}.WithDefaults()}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	c := newCluster(2)
	first := c.Join(Join{AgentID: "b", Instance: "b1",
		AgentProfile: api.AgentProfile{MaxTasks: 4, Capabilities: []string{"y", "x", "x"}}}, "h1", noon)
	require.Equal(t, Joined{AgentID: "b", Epoch: 1}, first)
	require.Equal(t, []string{"x", "y"}, c.Member("b").Capabilities)

	require.EqualValues(t, 2, c.Join(Join{AgentID: "a", Instance: "a1"}, "h1", noon).Epoch)
	require.Equal(t, "a", c.Members[0].AgentID, "members are sorted")

	t.Log("the same instance keeps its epoch, also at another hub")
	require.Equal(t, Joined{AgentID: "b", Epoch: 1}, c.Join(Join{AgentID: "b", Instance: "b1"}, "h2", noon))
	require.Equal(t, "h2", c.Member("b").Hub)

	t.Log("a new instance fences the old one for good")
	require.Equal(t, Joined{AgentID: "b", Epoch: 3, Replaced: "b1", ReplacedHub: "h2"},
		c.Join(Join{AgentID: "b", Instance: "b2"}, "h1", noon))
	require.Equal(t, RefusedFenced, c.Join(Join{AgentID: "b", Instance: "b1"}, "h1", noon).Refused)
	require.Equal(t, "b2", c.Member("b").Instance)

	t.Log("a full cluster refuses, but forgets a member that is offline")
	require.Equal(t, RefusedFull, c.Join(Join{AgentID: "d", Instance: "d1"}, "h1", noon).Refused)
	require.True(t, c.Apply(Transition{AgentID: "a", Instance: "a1", Epoch: 2, Status: api.AgentOffline, At: noon}, "h1"))
	require.EqualValues(t, 4, c.Join(Join{AgentID: "d", Instance: "d1"}, "h1", noon).Epoch)
	require.Nil(t, c.Member("a"))
}

// A registration may be under way for so long that the process gives it up and is with another hub when it comes.
func TestJoinRefusesALateRegistration(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		numbers []int64 // of the registrations of one process, in the order in which they come, each at the next hub
		late    bool    // the last one
		hub     string  // that the cluster counts the process on
	}{
		"one after the other":            {[]int64{1, 2}, false, "h2"},
		"the earlier one comes later":    {[]int64{2, 1}, true, "h1"},
		"far too late":                   {[]int64{1, 3, 4, 2}, true, "h3"},
		"the same one twice":             {[]int64{1, 1}, false, "h2"},
		"a process that does not count":  {[]int64{0, 0}, false, "h2"},
		"and one that began to count":    {[]int64{0, 1}, false, "h2"},
		"nothing is known of its number": {[]int64{5, 0}, false, "h2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			var last Joined
			for i, number := range tc.numbers {
				last = c.Join(Join{AgentID: "a", Instance: "a1", Registration: number}, fmt.Sprintf("h%d", i+1), noon)
			}
			want := Joined{AgentID: "a", Epoch: 1}
			if tc.late {
				want = Joined{AgentID: "a", Refused: RefusedLate}
			}
			require.Equal(t, want, last)
			require.Equal(t, tc.hub, c.Member("a").Hub)
			require.EqualValues(t, 2, c.Join(Join{AgentID: "a", Instance: "a2", Registration: 1}, "h9", noon).Epoch,
				"a new process counts anew")
		})
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActiveActive, "a", "b")
	require.ErrorContains(t, c.Forget("a", noon), "connected")
	require.ErrorContains(t, c.Forget("z", noon), "not a member")
	require.NoError(t, c.SetCordon(Cordon{AgentID: "a", Status: api.AgentMaintenance, Since: noon}))
	c.Member("a").disconnect(c, "gone", noon)
	was := c.Snapshot()
	require.NoError(t, c.Forget("a", noon))
	require.Nil(t, c.Member("a"))
	require.Nil(t, c.Cordons.Of("a"))
	events := c.Changes(was, noon)
	require.Len(t, events, 1)
	require.Equal(t, api.EventAgentLeft, events[0].Type)
	require.Equal(t, "a person forgot it", events[0].Reason)
	require.EqualValues(t, 3, c.Join(Join{AgentID: "a", Instance: "1"}, "h", noon).Epoch, "it joins anew")
}

func TestApply(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		change  Transition
		hub     string
		changed bool
		status  api.AgentStatus // "" when the member is gone
	}{
		{"offline", Transition{AgentID: "a", Instance: "a1", Epoch: 1, Status: api.AgentOffline}, "h1", true, api.AgentOffline},
		{"another instance is stale", Transition{AgentID: "a", Instance: "a0", Epoch: 1, Status: api.AgentOffline}, "h1",
			false, api.AgentOnline},
		{"another epoch is stale", Transition{AgentID: "a", Instance: "a1", Epoch: 0, Status: api.AgentOffline}, "h1",
			false, api.AgentOnline},
		{"an earlier registration is stale", Transition{AgentID: "a", Instance: "a1", Epoch: 1, Registration: 1,
			Status: api.AgentOffline}, "h1", false, api.AgentOnline},
		{"the same registration", Transition{AgentID: "a", Instance: "a1", Epoch: 1, Registration: 2,
			Status: api.AgentOffline}, "h1", true, api.AgentOffline},
		{"a hub the agent left is stale", Transition{AgentID: "a", Instance: "a1", Epoch: 1, Status: api.AgentOffline},
			"h0", false, api.AgentOnline},
		{"unknown agent", Transition{AgentID: "z", Instance: "a1", Epoch: 1, Status: api.AgentOffline}, "h1", false,
			api.AgentOnline},
		{"nothing new", Transition{AgentID: "a", Instance: "a1", Epoch: 1, Status: api.AgentOnline}, "h1", false,
			api.AgentOnline},
		{"goodbye", Transition{AgentID: "a", Instance: "a1", Epoch: 1, Status: api.AgentOffline, Left: true}, "h1", true,
			""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			c.Join(Join{AgentID: "a", Instance: "a1", Registration: 2}, "h1", noon)
			require.Equal(t, tt.changed, c.Apply(tt.change, tt.hub))
			if tt.status == "" {
				require.Nil(t, c.Member("a"))
				return
			}
			require.Equal(t, tt.status, c.Member("a").Status)
		})
	}
}

func TestLoseHub(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	c.Join(Join{AgentID: "a", Instance: "a1"}, "h1", noon)
	c.Join(Join{AgentID: "b", Instance: "b1"}, "h2", noon)
	c.Join(Join{AgentID: "c", Instance: "c1"}, "h1", noon)
	require.Equal(t, []string{"h1", "h2"}, c.Hubs())
	require.Equal(t, []string{"a", "c"}, c.LoseHub("h1", noon))
	require.Empty(t, c.LoseHub("h1", noon), "once")
	require.Equal(t, api.AgentOnline, c.Member("b").Status)
	require.Equal(t, 1, c.ServingCount())
}

func TestOpenLane(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	open := func(capabilities ...string) bool {
		return c.OpenLane(api.LaneNeeds{Capabilities: capabilities}, "", noon)
	}
	require.True(t, open("b", "a"))
	require.True(t, open("a", "b", "a"))
	require.Len(t, c.CapabilitySets, 1, "the same set in another order")
	for i := len(c.CapabilitySets); i < MaxCapabilitySets; i++ {
		require.True(t, open(fmt.Sprintf("x%d", i)))
	}
	require.False(t, open("one-more"))
}

// Epochs strictly grow with every new instance, members stay sorted and unique, and a fenced instance never comes back.
func TestMembershipModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(5)
		newest := map[string]string{}
		var lastEpoch int64
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			agent := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "agent")
			if rapid.Bool().Draw(t, "join") {
				instance := rapid.SampledFrom([]string{"i1", "i2", "i3"}).Draw(t, "instance")
				before := c.Member(agent)
				had := before != nil && before.Instance == instance
				got := c.Join(Join{AgentID: agent, Instance: instance}, "h", noon.Add(time.Duration(step)))
				switch {
				case got.Refused != "":
				case had:
					if got.Epoch > lastEpoch {
						t.Fatalf("a re-attached instance got a new epoch: %+v", got)
					}
				default:
					if got.Epoch <= lastEpoch {
						t.Fatalf("epoch %d after %d", got.Epoch, lastEpoch)
					}
					lastEpoch, newest[agent] = got.Epoch, instance
				}
			} else if m := c.Member(agent); m != nil {
				c.Apply(Transition{AgentID: agent, Instance: m.Instance, Epoch: m.Epoch, Status: api.AgentOffline, At: noon,
					Left: rapid.Bool().Draw(t, "left")}, "h")
			}
			if !slices.IsSortedFunc(c.Members, func(a, b Member) int {
				return map[bool]int{true: -1,
					false: 1}[a.AgentID < b.AgentID]
			}) {
				t.Fatalf("members are not sorted or not unique: %+v", c.Members)
			}
			if len(c.Members) > 5 {
				t.Fatal("more members than the cluster allows")
			}
		}
	})
}

func TestHealthOfAMember(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	told := func(level api.HealthLevel) Transition {
		return Transition{AgentID: "a", Instance: "i", Epoch: 1, At: at,
			Health: &MemberHealth{Level: level, Score: 0.8, Since: at}}
	}
	stale := told(api.HealthFailed)
	stale.Epoch = 0
	for name, c := range map[string]struct {
		do   func(c *Cluster)
		want api.HealthLevel
		kept bool
	}{
		"nothing was told":     {func(*Cluster) {}, api.HealthHealthy, false},
		"healthy all along":    {func(c *Cluster) { c.Apply(told(api.HealthHealthy), "h") }, api.HealthHealthy, false},
		"a worse one is kept":  {func(c *Cluster) { c.Apply(told(api.HealthWarning), "h") }, api.HealthWarning, true},
		"a stale one is not":   {func(c *Cluster) { c.Apply(stale, "h") }, api.HealthHealthy, false},
		"another hub's is not": {func(c *Cluster) { c.Apply(told(api.HealthWarning), "other") }, api.HealthHealthy, false},
		"recovered, and since when": {func(c *Cluster) {
			c.Apply(told(api.HealthWarning), "h")
			c.Apply(told(api.HealthHealthy),
				"h")
		}, api.HealthHealthy, true},
		"a cordoned agent's counts too": {func(c *Cluster) {
			_ = c.SetCordon(Cordon{AgentID: "a", Status: api.AgentMaintenance})
			c.Apply(told(api.HealthCritical), "h")
		}, api.HealthCritical, true},
		"a join begins anew": {func(c *Cluster) {
			c.Apply(told(api.HealthWarning), "h")
			c.Join(Join{AgentID: "a", Instance: "i"}, "h", at)
		}, api.HealthHealthy, false},
		"so does a loss": {func(c *Cluster) {
			c.Apply(told(api.HealthWarning), "h")
			c.Apply(Transition{AgentID: "a", Instance: "i", Epoch: 1, Status: api.AgentOffline, At: at}, "h")
		}, api.HealthHealthy, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &Cluster{Config: api.ClusterConfig{Name: "c"}.WithDefaults()}
			cluster.Join(Join{AgentID: "a", Instance: "i", AgentProfile: api.AgentProfile{MaxTasks: 1}}, "h", at)
			c.do(cluster)
			m := cluster.Member("a")
			require.Equal(t, c.want, m.HealthLevel())
			require.Equal(t, c.kept, m.Health != nil)
		})
	}
}

func TestSpawnedBy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spawner, id string
		ok          bool
	}{
		"by a spawner":      {"yard", "a", true},
		"of another agent":  {"yard", "b", false},
		"by none":           {"", "a", false},
		"no spawner's name": {"../tasks", "a", false}, // it would be part of a task queue's name
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Member{AgentID: "a", AgentProfile: api.AgentProfile{
				Metadata: map[string]string{api.MetadataSpawner: c.spawner, api.MetadataSpawnID: c.id}}}
			_, ok := m.SpawnedBy()
			require.Equal(t, c.ok, ok)
		})
	}
}

func TestDeclareDead(t *testing.T) {
	t.Parallel()
	joined := func() *Cluster {
		c := newCluster(5)
		c.Join(Join{AgentID: "a", Instance: "a1",
			AgentProfile: api.AgentProfile{PID: 7, Host: "h", StartedAt: noon.Add(time.Millisecond),
				Metadata: map[string]string{api.MetadataSpawner: "s"}}}, "h1", noon)
		return c
	}
	for name, tc := range map[string]struct {
		proof DeathProof
		want  string
	}{
		"its newest process": {DeathProof{Instance: "a1"}, ""},
		"its spawner":        {DeathProof{Spawner: "s", PID: 7, Host: "h"}, ""},
		"another process":    {DeathProof{Instance: "a0"}, "another one"},
		"a wrapper's end":    {DeathProof{Spawner: "s", PID: 8, Host: "h"}, "another one"},
		"another spawner":    {DeathProof{Spawner: "z"}, "another one"},
		"after it began":     {DeathProof{Spawner: "s", EndedAt: noon.Add(time.Second)}, ""},
		"before it began":    {DeathProof{Spawner: "s", EndedAt: noon.Add(-time.Second)}, "another one"},
		"in the same second": {DeathProof{Spawner: "s", EndedAt: noon}, ""},
		"and exactly":        {DeathProof{Spawner: "s", EndedAt: noon.Add(time.Microsecond)}, "another one"},
		"no member":          {DeathProof{AgentID: "z"}, "not a member"},
	} {
		c := joined()
		if tc.proof.AgentID == "" {
			tc.proof.AgentID = "a"
		}
		tc.proof.By, tc.proof.Proof = "ops", "no power"
		err := c.DeclareDead(tc.proof, noon)
		if tc.want != "" {
			require.ErrorContains(t, err, tc.want, name)
			require.Empty(t, c.Deaths, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, "proof of death by ops: no power", c.Deaths.Of("a", "a1").Reason, name)
	}

	c := joined()
	require.NoError(t, c.DeclareDead(DeathProof{AgentID: "a", By: "ops", Proof: "x"}, noon))
	require.Empty(t, c.Join(Join{AgentID: "a", Instance: "a2"}, "h1", noon).Refuted, "a new process")
	require.Empty(t, c.Deaths)
	require.NoError(t, c.DeclareDead(DeathProof{AgentID: "a", By: "ops", Proof: "x"}, noon))
	require.NotEmpty(t, c.Join(Join{AgentID: "a", Instance: "a2"}, "h1", noon).Refuted, "it lives")
}

// What waits for the lease of an agent that was given up is free at once when its death is proved.
func TestProofFreesRoles(t *testing.T) {
	t.Parallel()
	c := newCluster(5)
	c.Config.ReplicationMode = api.ActivePassive
	c.Join(Join{AgentID: "a", Instance: "a1"}, "h1", noon)
	c.Leader = "a"
	require.True(t, c.Apply(Transition{AgentID: "a", Instance: "a1", Epoch: 1, Status: api.AgentOffline, At: noon,
		AwaitedUntil: noon.Add(time.Hour)}, "h1"))
	require.Equal(t, api.Disconnected, c.Member("a").Connection("", noon))
	c.VacateLeader(3*time.Second, noon)
	c.Shards = Shards{{From: "a", FreeAt: noon.Add(time.Minute)}, {From: "b", FreeAt: noon.Add(time.Minute)}}
	require.NoError(t, c.DeclareDead(DeathProof{AgentID: "a", By: "ops", Proof: "x"}, noon))
	require.Equal(t, api.GivenUp, c.Member("a").Connection("", noon), "no instance waits for it")
	require.Equal(t, noon, c.LeaderFreeAt)
	require.Equal(t, noon, c.Shards[0].FreeAt)
	require.Equal(t, noon.Add(time.Minute), c.Shards[1].FreeAt, "another agent's")
}

// A process that comes back after it was given up has more time from then on.
func TestJoinCountsMistakes(t *testing.T) {
	t.Parallel()
	c := newCluster(5)
	c.Join(Join{AgentID: "a", Instance: "a1"}, "h1", noon)
	for n := range 2 {
		require.True(t, c.Apply(Transition{AgentID: "a", Instance: "a1", Epoch: 1, Status: api.AgentOffline, At: noon}, "h1"))
		require.Equal(t, Joined{AgentID: "a", Epoch: 1, GivenUp: true, Mistakes: n + 1},
			c.Join(Join{AgentID: "a", Instance: "a1"}, "h1", noon))
	}
	require.Zero(t, c.Join(Join{AgentID: "a", Instance: "a2"}, "h1", noon).Mistakes)
}

func TestNotesAreCutToTheSameLength(t *testing.T) {
	t.Parallel()
	const lost = "its hub was lost"
	c := Cluster{}
	for i := range 2000 {
		note := lost
		if i%2 == 1 {
			note = fmt.Sprint(i, strings.Repeat("x", 400))
		}
		c.Members = append(c.Members, Member{AgentID: fmt.Sprint(i), StatusReason: note,
			Health: &MemberHealth{Why: lost}})
	}
	view := c.View()
	require.Equal(t, lost, view.Members[0].StatusReason, "a short one stays, however many have it")
	require.Equal(t, lost, view.Members[1].Health.Why)
	require.Greater(t, len(view.Members[1].StatusReason), 150)
	require.Less(t, len(view.Members[1].StatusReason), 200)
	require.True(t, strings.HasSuffix(view.Members[1].StatusReason, "x…"))
	require.Len(t, c.Members[1].StatusReason, 401, "a view changes nothing")
	require.Less(t, view.NotesSize(), 192<<10)
	c.ForgetReplaced()
	require.Zero(t, c.NotesSize())
}
