package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

func TestElect(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Cluster)
		loads  map[string]int
		leader string // "" when none is elected
		wait   time.Time
	}{
		{"lowest id among equals", nil, nil, "a", time.Time{}},
		{"least loaded", nil, map[string]int{"a": 2, "b": 1, "c": 1}, "b", time.Time{}},
		{"load is a share of the slots", func(c *Cluster) { c.Member("c").MaxTasks = 100 },
			map[string]int{"a": 1, "b": 1, "c": 5}, "c", time.Time{}},
		{"only the online", func(c *Cluster) { become(c, "a", api.AgentSuspect); become(c, "b", api.AgentDraining) },
			map[string]int{"c": 9}, "c", time.Time{}},
		{"nobody", func(c *Cluster) {
			become(c, "a", api.AgentSuspect)
			become(c, "b", api.AgentMaintenance)
			become(c, "c", api.AgentOffline)
		}, nil, "", time.Time{}},
		{"leader serves", func(c *Cluster) { c.Promote("b", noon) }, nil, "", time.Time{}},
		{"suspect leader serves", func(c *Cluster) { c.Promote("b", noon); become(c, "b", api.AgentSuspect) }, nil, "",
			time.Time{}},
		{"lost leader must be vacated first", func(c *Cluster) { c.Promote("b", noon); become(c, "b", api.AgentOffline) },
			nil, "", time.Time{}},
		{"lease may still run", func(c *Cluster) { c.Promote("b", noon); c.VacateLeader(time.Nanosecond, noon) }, nil,
			"", noon.Add(1)},
		{"lease is over", func(c *Cluster) { c.Promote("b", noon); c.VacateLeader(roleLease, noon.Add(-roleLease)) },
			nil, "a", time.Time{}},
		{"a lease below zero is over", func(c *Cluster) { c.Promote("b", noon); c.VacateLeader(-time.Second, noon) },
			nil, "a", time.Time{}},
		{"the leader before comes last", func(c *Cluster) { c.Promote("a", noon); c.VacateLeader(0, noon) },
			map[string]int{"b": 9, "c": 8}, "c", time.Time{}},
		{"the leader before when it is alone", func(c *Cluster) {
			c.Promote("a", noon)
			c.VacateLeader(0, noon)
			become(c, "b", api.AgentOffline)
			become(c, "c", api.AgentOffline)
		}, nil, "a", time.Time{}},
		{"not in active_active", func(c *Cluster) { c.Config.ReplicationMode = api.ActiveActive }, nil, "", time.Time{}},
		{"not in sharded", func(c *Cluster) { c.Config.ReplicationMode = api.Sharded }, nil, "", time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := clusterOf(api.ActivePassive, "a", "b", "c")
			if tt.change != nil {
				tt.change(c)
			}
			before := *c
			got, ok := c.Elect(api.SelectLeastLoaded, tt.loads, noon)
			require.Equal(t, tt.leader != "", ok)
			require.Equal(t, tt.leader, got.Leader)
			require.Equal(t, tt.wait, got.WaitUntil)
			if !ok {
				require.Equal(t, before.Leader, c.Leader)
				require.Equal(t, before.LastEpoch, c.LastEpoch, "no epoch is wasted")
				return
			}
			require.Equal(t, before.LastEpoch+1, got.Epoch)
			require.Equal(t, Election{Leader: c.Leader, Previous: before.LastLeader, Epoch: c.LeaderEpoch,
				At: c.LeaderSince}, got)
			require.NotContains(t, c.Standbys, c.Leader)
			require.Empty(t, c.LastLeader)
			require.Zero(t, c.LeaderFreeAt)
		})
	}
}

// Each strategy has its own choice here, so one that is ignored is noticed.
func TestElectByStrategy(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[api.SelectionStrategy][]string{
		api.SelectStandby:     {"d", "c"}, // as long as they stand by
		api.SelectLeastLoaded: {"c", "b"},
		api.SelectRoundRobin:  {"b", "d"},
		api.SelectAffinity:    {"e", "b"}, // the group of a, and then the group of e, which is nobody else's: the zone
	} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			c := clusterOf(api.ActivePassive, "a", "b", "c", "d", "e")
			c.Promote("a", noon)
			c.Standbys = []string{"d", "c", "b", "e"}
			c.Member("a").Group, c.Member("e").Group = "g1", "g1"
			c.Member("e").Zone, c.Member("b").Zone = "z1", "z1"
			loads := map[string]int{"b": 2, "c": 1, "d": 3, "e": 4}
			for _, leader := range want {
				become(c, c.Leader, api.AgentOffline)
				c.VacateLeader(roleLease, noon)
				chosen, ok := c.ChooseSuccessor(strategy, loads)
				require.True(t, ok)
				require.Equal(t, leader, chosen)
				won, ok := c.Elect(strategy, nil, noon.Add(time.Hour)) // with other loads: the choice stands
				require.True(t, ok)
				require.Equal(t, leader, won.Leader)
				require.Empty(t, c.Successor)
			}
		})
	}
}

// A successor that is lost too is replaced by the next that the strategy picks.
func TestSuccessorIsLost(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "a", "b", "c")
	c.Promote("a", noon)
	become(c, "a", api.AgentOffline)
	c.VacateLeader(roleLease, noon)
	chosen, ok := c.ChooseSuccessor(api.SelectLeastLoaded, nil)
	require.True(t, ok)
	require.Equal(t, "b", chosen)
	become(c, "b", api.AgentOffline)
	won, ok := c.Elect(api.SelectLeastLoaded, nil, noon.Add(roleLease))
	require.True(t, ok)
	require.Equal(t, "c", won.Leader)
}

func TestLeaderIsDemoted(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "a", "b", "c")
	_, _ = c.Elect(api.SelectLeastLoaded, nil, noon)
	require.Equal(t, []string{"b", "c"}, c.Standbys)

	require.Equal(t, "a", c.VacateLeader(roleLease, noon))
	require.Empty(t, c.VacateLeader(time.Hour, noon), "once")
	require.Equal(t, noon.Add(roleLease), c.LeaderFreeAt, "the second call did not prolong the wait")
	c.RefreshStandbys()
	won, ok := c.Elect(api.SelectLeastLoaded, nil, noon.Add(roleLease))
	require.True(t, ok)
	require.Equal(t, "b", won.Leader)
	require.Equal(t, "a", won.Previous)
	require.Equal(t, []string{"c", "a"}, c.Standbys, "it became standby last")

	t.Log("a leader that died is no standby")
	become(c, "b", api.AgentOffline)
	c.VacateLeader(0, noon)
	won, ok = c.Elect(api.SelectLeastLoaded, nil, noon.Add(2*roleLease))
	require.True(t, ok)
	require.Equal(t, "a", won.Leader, "the id decides, not how long one stands by")
	require.Equal(t, "b", won.Previous)
	require.Equal(t, []string{"c"}, c.Standbys)
}

func TestPromote(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "a", "b", "c")
	become(c, "c", api.AgentSuspect)
	for _, id := range []string{"c", "z", ""} {
		_, ok := c.Promote(id, noon)
		require.False(t, ok, id)
	}
	won, ok := c.Promote("b", noon)
	require.True(t, ok)
	require.Equal(t, Election{Leader: "b", Epoch: 4, At: noon}, won)
	_, ok = c.Promote("a", noon)
	require.False(t, ok, "there is a leader")
	c.VacateLeader(roleLease, noon)
	refused, ok := c.Promote("a", noon)
	require.False(t, ok)
	require.Equal(t, noon.Add(roleLease), refused.WaitUntil)
	won, ok = c.Promote("a", refused.WaitUntil)
	require.True(t, ok)
	require.Equal(t, "b", won.Previous)
	require.Equal(t, []string{"b"}, c.Standbys)
}

// process is one run of one agent.
type process struct{ agent, instance string }

// world is the real fleet, beside the cluster's view of it: agents hold leases that hubs renew while the cluster names
// them as holders.
type world struct {
	*Cluster
	now   time.Time
	runs  int
	alive map[string]string // instance by agent
}

var modelAgents = []string{"a", "b", "c", "d", "e"}

// disturb does one thing to the fleet. It calls vacate for an agent that no longer serves, with whether it said
// goodbye.
func (w *world) disturb(t *rapid.T, vacate func(agent string, goodbye bool)) {
	agent := rapid.SampledFrom(modelAgents).Draw(t, "agent")
	m := w.Member(agent)
	switch rapid.SampledFrom([]string{"start", "start", "attach", "lose", "leave", "status", "wait", "wait"}).Draw(t,
		"what") {
	case "start":
		w.runs++
		w.alive[agent] = string(rune('A' + w.runs))
		if w.Join(Join{AgentID: agent, Instance: w.alive[agent],
			AgentProfile: api.AgentProfile{MaxTasks: 4}}, "h", w.now).Replaced != "" {
			vacate(agent, false)
		}
	case "attach":
		if w.alive[agent] != "" && m != nil {
			w.Join(Join{AgentID: agent, Instance: w.alive[agent],
				AgentProfile: api.AgentProfile{MaxTasks: 4}}, "h", w.now)
		}
	case "lose":
		if m != nil {
			w.Apply(Transition{AgentID: agent, Instance: m.Instance, Epoch: m.Epoch, Status: api.AgentOffline, At: w.now},
				"h")
			vacate(agent, false)
		}
	case "leave":
		if m != nil && m.Serving() {
			w.Apply(Transition{AgentID: agent, Instance: m.Instance, Epoch: m.Epoch, Left: true, At: w.now}, "h")
			vacate(agent, true)
			delete(w.alive, agent)
		}
	case "status":
		if m != nil && m.Status != api.AgentOffline {
			m.SetStatus(rapid.SampledFrom([]api.AgentStatus{api.AgentOnline, api.AgentSuspect, api.AgentDraining,
				api.AgentMaintenance}).Draw(t, "status"), "", w.now)
			if !m.Serving() {
				vacate(agent, false)
			}
		}
	case "wait":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 7000).Draw(t, "ms")) * time.Millisecond)
	}
}

func (w *world) process(agent string) process { return process{agent, w.Member(agent).Instance} }

// Two processes never hold the leader's lease at one instant, and leadership epochs strictly grow.
func TestElectionModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{Cluster: clusterOf(api.ActivePassive), now: noon, alive: map[string]string{}}
		leases := map[process]time.Time{}
		var lastEpoch int64
		leading := process{}
		vacate := func(agent string, goodbye bool) {
			if agent != w.Leader {
				return
			}
			if goodbye {
				delete(leases, leading)
			}
			w.VacateLeader(leases[leading].Sub(w.now), w.now)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			w.disturb(t, vacate)
			if rapid.IntRange(0, 9).Draw(t, "by hand") == 0 && w.Leader != "" {
				vacate(w.Leader, false)
			}
			w.RefreshStandbys()
			if w.LeaderLost() {
				t.Fatalf("the leader %s is lost and nobody vacated", w.Leader)
			}
			freeAt, vacant := w.LeaderFreeAt, w.Leader == ""
			loads := map[string]int{"a": rapid.IntRange(0, 4).Draw(t, "load")}
			won, ok := w.Elect(api.SelectLeastLoaded, loads, w.now)
			switch {
			case ok:
				if !vacant || w.now.Before(freeAt) || won.Epoch <= lastEpoch {
					t.Fatalf("%+v at %v: vacant %v, free at %v, last epoch %d", won, w.now, vacant, freeAt, lastEpoch)
				}
				lastEpoch, leading = won.Epoch, w.process(won.Leader)
			case vacant && !w.now.Before(freeAt) && w.HealthyCount() > 0:
				t.Fatal("a vacant, free seat and an online member, but no leader")
			}
			if w.Leader != "" && w.RoleOf(w.Leader) == api.RoleLeader {
				leases[w.process(w.Leader)] = w.now.Add(roleLease)
			}
			var holders []process
			for p, end := range leases {
				if w.now.Before(end) {
					holders = append(holders, p)
				}
			}
			if len(holders) > 1 {
				t.Fatalf("two lead at once: %v", holders)
			}
			leaders := 0
			for _, m := range w.Members {
				role := w.RoleOf(m.AgentID)
				if role == api.RoleLeader {
					leaders++
				}
				if (role == api.RoleStandby) != (m.Status == api.AgentOnline && m.AgentID != w.Leader) {
					t.Fatalf("%s is %s and has role %s", m.AgentID, m.Status, role)
				}
			}
			if leaders > 1 {
				t.Fatalf("%d leaders", leaders)
			}
		}
	})
}

// TestManualElection: where elections are off, the first leader is elected as ever, and then only the one before comes
// back.
func TestManualElection(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	c := Cluster{Config: api.ClusterConfig{Name: "c", ReplicationMode: api.ActivePassive, ManualElection: true}.WithDefaults(),
		Members: []Member{{AgentID: "a", Status: api.AgentOnline}, {AgentID: "b", Status: api.AgentOnline}}}
	first, elected := c.Elect(api.SelectLeastLoaded, nil, now)
	require.True(t, elected)
	require.Equal(t, "a", first.Leader)

	c.VacateLeader(0, now)
	c.Member("a").Status = api.AgentOffline
	_, elected = c.Elect(api.SelectLeastLoaded, nil, now)
	require.False(t, elected, "nobody takes the seat by itself")
	require.False(t, c.Contested(now))
	c.Member("a").Status = api.AgentOnline
	again, elected := c.Elect(api.SelectLeastLoaded, nil, now)
	require.True(t, elected)
	require.Equal(t, "a", again.Leader, "it is back")
	require.Greater(t, again.Epoch, first.Epoch)

	c.VacateLeader(0, now)
	byHand, promoted := c.Promote("b", now)
	require.True(t, promoted, "a person may")
	require.Equal(t, "b", byHand.Leader)
	c.VacateLeader(0, now)
	c.Member("b").Status = api.AgentOffline
	c.Config.ManualElection = false
	on, elected := c.Elect(api.SelectLeastLoaded, nil, now)
	require.True(t, elected, "elections were turned on")
	require.Equal(t, "a", on.Leader)
}
