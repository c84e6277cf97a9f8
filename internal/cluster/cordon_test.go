package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

func TestCordon(t *testing.T) {
	t.Parallel()
	later := noon.Add(time.Minute)
	drain := Cordon{AgentID: "a", Status: api.AgentDraining, Since: noon, Reason: "update", Drain: "c:d1"}
	rest := Cordon{AgentID: "a", Status: api.AgentMaintenance, Since: later, Drain: "c:d1"}
	c := newCluster(0)
	require.ErrorContains(t, c.SetCordon(drain), "not a member")
	c.Join(Join{AgentID: "a", Instance: "a1"}, "h1", noon)
	c.Join(Join{AgentID: "b", Instance: "b1"}, "h1", noon)
	status := func() api.AgentStatus { return c.Member("a").Status }

	require.NoError(t, c.SetCordon(drain))
	require.Equal(t, api.AgentDraining, status())
	require.Equal(t, "update", c.Member("a").StatusReason)
	require.False(t, c.Member("a").Serving())
	require.Equal(t, []string{"h1"}, c.Hubs(), "its hub must hear of changes all the same")

	t.Log("only its own drain may go on with it, or give it up")
	require.ErrorContains(t, c.SetCordon(Cordon{AgentID: "a", Status: api.AgentDraining, Drain: "c:d2"}), "c:d1")
	require.ErrorContains(t, c.SetCordon(Cordon{AgentID: "a", Status: api.AgentMaintenance}), "c:d1")
	_, err := c.LiftCordon("a", "", later)
	require.ErrorContains(t, err, "c:d1")
	require.NoError(t, c.SetCordon(drain), "asking twice changes nothing")

	t.Log("maintenance stays over a restart, and over a loss; what is lost while it drains is offline")
	require.True(t, c.Apply(Transition{AgentID: "a", Instance: "a1", Epoch: 1, Status: api.AgentOffline, Reason: "gone",
		At: later}, "h1"))
	require.Equal(t, api.AgentOffline, status())
	require.NoError(t, c.SetCordon(rest))
	require.Equal(t, api.AgentMaintenance, status())
	require.Equal(t, "update", c.Cordons.Of("a").Reason, "the reason is kept where none is given")
	require.False(t, c.Member("a").Connected())
	c.Join(Join{AgentID: "a", Instance: "a2"}, "h2", later)
	require.Equal(t, api.AgentMaintenance, status())
	require.True(t, c.Member("a").Connected())
	require.True(t, c.Apply(Transition{AgentID: "a", Instance: "a2", Epoch: 3, Status: api.AgentOffline, Left: true,
		At: later}, "h2"))
	require.NotNil(t, c.Member("a"), "an agent in maintenance is not forgotten when it stops")
	require.Equal(t, api.AgentMaintenance, status())
	require.Equal(t, api.ClusterHealthy, c.Status(), "who is in maintenance is not missing")

	t.Log("what an operator makes of it, a drain that is cancelled late does not end")
	require.NoError(t, c.SetCordon(Cordon{AgentID: "a", Status: api.AgentMaintenance, Since: later}))
	lifted, err := c.LiftCordon("a", "c:d1", later)
	require.NoError(t, err)
	require.False(t, lifted)
	require.Equal(t, api.AgentMaintenance, status())

	t.Log("ending it tells whether the agent is there")
	lifted, err = c.LiftCordon("a", "", later)
	require.NoError(t, err)
	require.True(t, lifted)
	require.Equal(t, api.AgentOffline, status())
	require.NoError(t, c.SetCordon(Cordon{AgentID: "b", Status: api.AgentMaintenance, Since: noon}))
	_, err = c.LiftCordon("b", "", later)
	require.NoError(t, err)
	require.Equal(t, api.AgentOnline, c.Member("b").Status)
	lifted, err = c.LiftCordon("b", "", later)
	require.NoError(t, err)
	require.False(t, lifted)
}

// Whatever happens to the agents, one with a cordon is never given work, and one without is when it is connected.
func TestCordonHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(0)
		instances := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			agent := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "agent")
			hub := rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "hub")
			m := c.Member(agent)
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				instances++
				c.Join(Join{AgentID: agent, Instance: fmt.Sprint(instances)}, hub, noon)
			case 1:
				if m != nil {
					c.Join(Join{AgentID: agent, Instance: m.Instance}, hub, noon)
				}
			case 2:
				if m != nil {
					c.Apply(Transition{AgentID: agent, Instance: m.Instance, Epoch: m.Epoch, Status: api.AgentOffline,
						Left: rapid.Bool().Draw(t, "left")}, m.Hub)
				}
			case 3:
				c.LoseHub(hub, noon)
			case 4:
				_ = c.SetCordon(Cordon{AgentID: agent, Status: rapid.SampledFrom([]api.AgentStatus{api.AgentDraining,
					api.AgentMaintenance}).Draw(t, "status"), Drain: "c:d"})
			case 5:
				_, _ = c.LiftCordon(agent, "c:d", noon)
			}
			for i := range c.Members {
				m := &c.Members[i]
				if c.Cordons.Of(m.AgentID) != nil && m.Serving() {
					t.Fatalf("%s is cordoned and serves: %+v", m.AgentID, m)
				}
				if c.Cordons.Of(m.AgentID) == nil && m.Connected() != m.Serving() {
					t.Fatalf("%s has no cordon: connected %t, serving %t: %+v", m.AgentID, m.Connected(), m.Serving(),
						m)
				}
			}
		}
	})
}
