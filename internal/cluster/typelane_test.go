package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// typed is an active_active cluster whose members handle the types in words; "*": any. A word that begins with "-" is
// of a member that is offline.
func typed(words ...string) *Cluster {
	c := &Cluster{Config: api.ClusterConfig{Name: "c", ReplicationMode: api.ActiveActive}}
	setTypes(c, words...)
	return c
}

func setTypes(c *Cluster, words ...string) {
	c.Members = nil
	for i, w := range words {
		m := Member{AgentID: string(rune('a' + i)), Status: api.AgentOnline}
		if rest, offline := strings.CutPrefix(w, "-"); offline {
			w, m.Status = rest, api.AgentOffline
		}
		if w != "*" {
			m.TaskTypes = strings.Split(w, ",")
		}
		c.Members = append(c.Members, m)
	}
}

// servers are the numbers of the members that serve a lane.
func servers(c *Cluster, lane string) string {
	var ids []string
	for _, m := range c.ServersOf(lane, nil) {
		ids = append(ids, m.AgentID)
	}
	return strings.Join(ids, "")
}

func TestTypesThatMembersDoNotShareHaveLanesOfTheirOwn(t *testing.T) {
	now := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
	type step struct {
		after   time.Duration
		members []string
		serve   string   // the default lane
		own     []string // types
	}
	for name, steps := range map[string][]step{
		"all handle any":   {{0, []string{"*", "*"}, "ab", nil}},
		"all the same":     {{0, []string{"x,y", "x,y"}, "ab", nil}},
		"others join":      {{0, []string{"x"}, "a", nil}, {0, []string{"x", "y"}, "a", []string{"y"}}},
		"others than any":  {{0, []string{"*"}, "a", nil}, {0, []string{"*", "y"}, "a", []string{"y"}}},
		"some handle more": {{0, []string{"x"}, "a", nil}, {0, []string{"x", "x,y"}, "ab", []string{"y"}}},
		"some handle less": {{0, []string{"x,y"}, "a", nil}, {0, []string{"x,y", "y"}, "a", []string{"y"}}},
		"an upgrade adds a type": {{0, []string{"x", "x"}, "ab", nil}, {0, []string{"x", "x,y"}, "ab", []string{"y"}},
			{0, []string{"x,y", "x,y"}, "ab", []string{"y"}}, {time.Minute, []string{"x,y", "x,y"}, "ab", nil}},
		"an upgrade takes one away": {{0, []string{"x,y", "x,y"}, "ab", nil}, {0, []string{"x,y", "x"}, "a", []string{"x"}},
			{0, []string{"x", "x"}, "ab", []string{"x"}}, {time.Minute, []string{"x", "x"}, "ab", nil}},
		"a restart changes nothing": {{0, []string{"x"}, "a", nil}, {0, []string{"x", "y"}, "a", []string{"y"}},
			{0, []string{"-x", "y"}, "b", []string{"y"}}, {time.Minute - 1, []string{"x", "y"}, "a", []string{"y"}}},
		"they stay away": {{0, []string{"x"}, "a", nil}, {0, []string{"-x", "y"}, "b", []string{"y"}},
			{time.Minute, []string{"-x", "y"}, "b", nil}, {0, []string{"x", "y"}, "b", []string{"x"}}},
		"nothing in common": {{0, []string{"x,y"}, "a", nil}, {0, []string{"x", "y"}, "ab", []string{"x", "y"}},
			{time.Minute, []string{"x", "y"}, "ab", []string{"x", "y"}}},
		"none is online": {{0, []string{"x"}, "a", nil}, {time.Hour, []string{"-x"}, "", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, now := typed(), now
			for i, s := range steps {
				now = now.Add(s.after)
				setTypes(c, s.members...)
				c.SettleTypes(now)
				require.Equal(t, s.serve, servers(c, task.DefaultLane), "step %d", i)
				require.Equal(t, s.own, c.OwnTypes, "step %d", i)
				if at := c.TypesChangeAt(); !at.IsZero() {
					require.False(t, at.Before(now))
				}
			}
		})
	}
}

func TestATypeKeepsItsLaneWhileItsAgentsAreAway(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
	c := typed("x", "y")
	c.SharedTypes = TypeSet{List: []string{"x"}}
	c.SettleTypes(now)
	require.True(t, c.OpenLane(api.LaneNeeds{Type: "y"}, "", now))
	setTypes(c, "x")
	c.SettleTypes(now)
	require.True(t, apart(c, "y"))
	require.Empty(t, servers(c, "type/y"))
	setTypes(c, "x", "y")
	require.Equal(t, "b", servers(c, "type/y"))
}

func apart(c *Cluster, taskType string) bool {
	types := c.LaneTypes()
	return types.Apart(taskType)
}

// TestATypeThatNobodyHandlesWaitsApart has a task wait for the agents of its type behind no other's backlog.
func TestATypeThatNobodyHandlesWaitsApart(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]struct {
		members []string
		apart   string
	}{
		"no members":        {nil, ""},
		"all handle any":    {[]string{"*"}, ""},
		"one type":          {[]string{"x"}, "yz"},
		"others handle it":  {[]string{"x", "y"}, "yz"},
		"some handle any":   {[]string{"x", "*"}, "yz"},
		"nothing in common": {[]string{"x,y", "x", "y"}, "xyz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, got := typed(), ""
			for i := range w.members { // they join one by one
				setTypes(c, w.members[:i+1]...)
				c.SettleTypes(time.Time{})
			}
			for _, taskType := range []string{"x", "y", "z"} {
				if apart(c, taskType) {
					got += taskType
				}
			}
			require.Equal(t, w.apart, got)
		})
	}
}

func TestTypesBeyondTheLanesShareTheDefaultLane(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
	c := typed("x")
	c.SettleTypes(now)
	setTypes(c, "x", "y")
	c.CrowdTypes("z")
	c.SettleTypes(now)
	require.Equal(t, "a", servers(c, task.DefaultLane), "z waits there, which nobody handles")
	c.CrowdTypes("y")
	c.SettleTypes(now)
	require.Equal(t, "ab", servers(c, task.DefaultLane), "y waits there")
	setTypes(c, "x", "x")
	c.SettleTypes(now)
	require.False(t, c.TypesCrowded)
}

func TestOnlyActiveActiveClustersHaveLanesOfTypes(t *testing.T) {
	t.Parallel()
	c := typed("x")
	c.SettleTypes(time.Time{})
	setTypes(c, "x", "y")
	c.Config.ReplicationMode = api.ActivePassive
	c.SettleTypes(time.Time{})
	require.Zero(t, c.TypeLanes)
}

func TestLanesOfTypes(t *testing.T) {
	t.Parallel()
	for lane, spec := range map[string]api.TaskSpec{
		"type/x":         {Type: "x"},
		"type/x/cap/a+b": {Type: "x", RequiredCapabilities: []string{"b", "a"}},
		"agent/z":        {Type: "x", Agent: "z"},
	} {
		require.Equal(t, lane, task.LaneOf(&spec, 0, true))
		require.Equal(t, spec.Agent == "", task.IsTypeLane(lane))
		parsed, err := task.ParseLane(lane)
		require.NoError(t, err)
		require.Equal(t, lane, parsed)
	}
	require.Equal(t, []string{"a", "b"}, task.CapabilitiesOfLane("type/x/cap/a+b"))
	require.Nil(t, task.CapabilitiesOfLane("type/x"))
	require.Equal(t, "x", task.TypeOfLane("type/x/cap/a+b"))
	require.Empty(t, task.TypeOfLane("cap/x"))
	fit := api.TaskSpec{Type: "x", Place: api.Demand{Ports: map[string]api.PortDemand{"web": {}}}}
	own := task.LaneOf(&fit, 0, true)
	require.NotEqual(t, own, task.LaneOf(&fit, 0, false))
	require.True(t, task.IsTypeLane(own))
	for _, bad := range []string{"type/", "type/X", "type/x/", "type/x/fit/1", "type/x/cap/", "type//cap/a"} {
		_, err := task.ParseLane(bad)
		require.ErrorIs(t, err, task.ErrLane, bad)
	}
}
