package cluster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

const roleLease = 5 * time.Second

// clusterOf returns a cluster of the given mode with these agents online, each with ten slots and instance "1".
func clusterOf(mode api.ReplicationMode, agents ...string) *Cluster {
	c := &Cluster{Config: api.ClusterConfig{Name: "c", ReplicationMode: mode}.WithDefaults()}
	for _, id := range agents {
		c.Join(Join{AgentID: id, Instance: "1", AgentProfile: api.AgentProfile{MaxTasks: 10}}, "h", noon)
	}
	return c
}

func become(c *Cluster, agentID string, s api.AgentStatus) { c.Member(agentID).SetStatus(s, "", noon) }

func TestRoleOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Cluster)
		agent  string
		role   api.Role
	}{
		{"leader", nil, "a", api.RoleLeader},
		{"standby", nil, "b", api.RoleStandby},
		{"unknown", nil, "z", api.RoleMember},
		{"no id", func(c *Cluster) { c.VacateLeader(0, noon) }, "", api.RoleMember},
		{"suspect leader leads", func(c *Cluster) { become(c, "a", api.AgentSuspect) }, "a", api.RoleLeader},
		{"leader offline", func(c *Cluster) { become(c, "a", api.AgentOffline) }, "a", api.RoleMember},
		{"leader in maintenance", func(c *Cluster) { become(c, "a", api.AgentMaintenance) }, "a", api.RoleMember},
		{"leader re-attached", func(c *Cluster) { c.Join(Join{AgentID: "a", Instance: "1"}, "h2", noon) }, "a",
			api.RoleLeader},
		{"another process as the leader", func(c *Cluster) { c.Join(Join{AgentID: "a", Instance: "2"}, "h", noon) },
			"a", api.RoleMember},
		{"leader vacated", func(c *Cluster) { c.VacateLeader(0, noon) }, "a", api.RoleMember},
		{"leader vacated but online", func(c *Cluster) { c.VacateLeader(0, noon); c.RefreshStandbys() }, "a",
			api.RoleStandby},
		{"draining standby", func(c *Cluster) { become(c, "b", api.AgentDraining); c.RefreshStandbys() }, "b", api.RoleMember},
		{"no leader in active_active", func(c *Cluster) { c.Config.ReplicationMode = api.ActiveActive }, "a", api.RoleMember},
		{"no standby in active_active", func(c *Cluster) { c.Config.ReplicationMode = api.ActiveActive }, "b", api.RoleMember},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := clusterOf(api.ActivePassive, "a", "b")
			_, ok := c.Promote("a", noon)
			require.True(t, ok)
			if tt.change != nil {
				tt.change(c)
			}
			require.Equal(t, tt.role, c.RoleOf(tt.agent))
			require.Equal(t, c.Leader != "" && c.RoleOf(c.Leader) != api.RoleLeader &&
				c.Config.ReplicationMode == api.ActivePassive,
				c.Config.ReplicationMode == api.ActivePassive && c.LeaderLost(), "a leader is either leading or lost")
		})
	}
}

func TestRefreshStandbys(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "b", "d", "a")
	c.RefreshStandbys()
	require.Equal(t, []string{"a", "b", "d"}, c.Standbys, "new ones by id")

	c.Join(Join{AgentID: "c", Instance: "1"}, "h", noon)
	become(c, "a", api.AgentSuspect)
	c.RefreshStandbys()
	require.Equal(t, []string{"b", "d", "c"}, c.Standbys, "those that were keep their order")

	become(c, "a", api.AgentOnline)
	c.Apply(Transition{AgentID: "d", Instance: "1", Epoch: c.Member("d").Epoch, Left: true}, "h")
	c.RefreshStandbys()
	require.Equal(t, []string{"b", "c", "a"}, c.Standbys, "who left is gone, who is back is last")

	c.Config.ReplicationMode = api.ActiveActive
	c.RefreshStandbys()
	require.Empty(t, c.Standbys)
}

func TestSwitchMode(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActiveActive, "a", "b")
	c.SwitchMode(api.ActivePassive, roleLease, noon)
	require.Equal(t, api.ActivePassive, c.Config.ReplicationMode)
	require.Equal(t, []string{"a", "b"}, c.Standbys)
	refused, ok := c.Elect(api.SelectLeastLoaded, nil, noon)
	require.False(t, ok, "every member may still be serving")
	require.Equal(t, noon.Add(roleLease), refused.WaitUntil)
	won, ok := c.Elect(api.SelectLeastLoaded, nil, refused.WaitUntil)
	require.True(t, ok)
	require.Equal(t, "a", won.Leader)

	c.SwitchMode(api.ActivePassive, roleLease, noon)
	require.Equal(t, "a", c.Leader, "the same mode changes nothing")

	c.SwitchMode(api.ActiveActive, roleLease, won.WaitUntil)
	require.Empty(t, c.Leader)
	require.Empty(t, c.Standbys)
	require.Equal(t, api.RoleMember, c.RoleOf("a"))
}

// A continue-as-new carries the whole state over.
func TestClusterCarriesItsRoles(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "a", "b")
	_, _ = c.Elect(api.SelectLeastLoaded, nil, noon)
	c.VacateLeader(roleLease, noon)
	c.RoundRobin = 7
	c.Shards = []ShardOwner{{Owner: "a", Epoch: 9}, {From: "a", Epoch: 8, FreeAt: noon}}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	var carried Cluster
	require.NoError(t, json.Unmarshal(text, &carried))
	require.Equal(t, *c, carried)

	text, err = json.Marshal(clusterOf(api.ActiveActive))
	require.NoError(t, err)
	for _, field := range []string{"leader", "standbys", "shards\":[", "round_robin"} {
		require.NotContains(t, string(text), field, "a cluster without roles carries none")
	}
}
