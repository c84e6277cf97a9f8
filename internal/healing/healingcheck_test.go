package healing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// TestCheckHealing has an action of healing come to its cluster after something changed since it was decided.
func TestCheckHealing(t *testing.T) {
	t.Parallel()
	const healings, operators = "c:healing-1", "c:d-1"
	cordon := func(status api.AgentStatus, drain string) func(*testing.T, *cluster.Cluster) {
		return func(t *testing.T, c *cluster.Cluster) {
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "a", Status: status, Since: noon, Drain: drain}))
		}
	}
	apply := func(change cluster.Transition) func(*testing.T, *cluster.Cluster) {
		return func(t *testing.T, c *cluster.Cluster) {
			own := change // the cases run side by side
			own.AgentID, own.Instance, own.Epoch, own.At = "a", "a1", 1, noon
			require.True(t, c.Apply(own, "h1"))
		}
	}
	then := func(steps ...func(*testing.T, *cluster.Cluster)) func(*testing.T, *cluster.Cluster) {
		return func(t *testing.T, c *cluster.Cluster) {
			for _, step := range steps {
				step(t, c)
			}
		}
	}
	well := apply(cluster.Transition{Health: &cluster.MemberHealth{Level: api.HealthHealthy, Since: noon}})
	act := []api.HealingType{api.HealFailover, api.HealDrain, api.HealReduce}
	all := append([]api.HealingType{api.HealRestore}, act...)
	restored := []api.HealingType{api.HealRestore}
	for name, tc := range map[string]struct {
		since   func(*testing.T, *cluster.Cluster) // what came in between
		drain   string                             // that asks
		actions []api.HealingType
		refused string
	}{
		"nothing": {actions: act},
		"an operator's maintenance": {since: cordon(api.AgentMaintenance, ""), actions: all,
			refused: "an operator keeps it out of service"},
		"an operator's drain": {since: cordon(api.AgentDraining, operators), actions: all,
			refused: "an operator keeps it out of service"},
		"what an operator's drain left": {since: cordon(api.AgentMaintenance, operators), actions: all,
			refused: "an operator keeps it out of service"},
		"a drain of scaling's": {since: cordon(api.AgentDraining, "c:scaling-1"), actions: all,
			refused: "an operator keeps it out of service"},
		"a drain of healing's is under way": {since: cordon(api.AgentDraining, healings), actions: all,
			refused: "it is being drained"},
		"healing took it out": {since: cordon(api.AgentMaintenance, healings), actions: act,
			refused: "out of service already"},
		"an operator took it from healing": {
			since:   then(cordon(api.AgentMaintenance, healings), cordon(api.AgentMaintenance, "")),
			actions: all,
			refused: "an operator keeps it out of service"},
		"its own drain goes on": {since: cordon(api.AgentDraining, healings), drain: healings,
			actions: []api.HealingType{api.HealDrain, api.HealFailover}},
		"its own drain goes on, it is well": {
			since:   then(cordon(api.AgentDraining, healings), well),
			drain:   healings,
			actions: []api.HealingType{api.HealDrain, api.HealFailover}},
		"the failure detector is at it": {since: apply(cluster.Transition{Status: api.AgentSuspect}), actions: act,
			refused: "the failure detector is at it"},
		"it was lost": {since: apply(cluster.Transition{Status: api.AgentOffline}), actions: all,
			refused: "not connected"},
		"it left": {since: apply(cluster.Transition{Status: api.AgentOffline, Left: true}), actions: all,
			refused: "not connected"},
		"another process has its id": {since: func(_ *testing.T,
			c *cluster.Cluster) {
			c.Join(cluster.Join{AgentID: "a", Instance: "a2"}, "h1", noon)
		},
			actions: all, refused: "another process"},
		"it came back to its hub": {since: func(_ *testing.T,
			c *cluster.Cluster) {
			c.Join(cluster.Join{AgentID: "a", Instance: "a1"}, "h1", noon)
		},
			actions: act, refused: "healthy again"},
		"it is well again": {since: well, actions: act, refused: "healthy again"},
		"the brake engaged": {since: func(_ *testing.T, c *cluster.Cluster) { c.SetBrake("h1", &cluster.BrakeHold{}) }, actions: act,
			refused: "brake"},
		"an operator reduced its load": {since: func(t *testing.T, c *cluster.Cluster) {
			_, err := c.ReduceLoad("a", cluster.Reduce{Slots: 1}, noon)
			require.NoError(t, err)
		}, actions: []api.HealingType{api.HealReduce}, refused: "reduced already"},
		"the others were lost": {
			since:   func(_ *testing.T, c *cluster.Cluster) { c.LoseHub("h2", noon) },
			actions: []api.HealingType{api.HealDrain},
			refused: "no healthy agent would be left"},
		"the others were lost, and it is critical": {
			since: then(apply(cluster.Transition{Health: &cluster.MemberHealth{Level: api.HealthCritical, Since: noon}}),
				func(_ *testing.T, c *cluster.Cluster) { c.LoseHub("h2", noon) }),
			actions: []api.HealingType{api.HealFailover}, refused: "no other agent is fit"},
		"half of the others are out of service": {since: func(t *testing.T, c *cluster.Cluster) {
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "b", Status: api.AgentMaintenance, Since: noon,
				Drain: healings}))
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "c", Status: api.AgentMaintenance, Since: noon,
				Drain: healings}))
		}, actions: []api.HealingType{api.HealFailover, api.HealDrain}, refused: "the cause is likelier elsewhere"},
		"min_agents was raised": {since: func(_ *testing.T, c *cluster.Cluster) { c.Config.MinAgents = 4 },
			actions: []api.HealingType{api.HealDrain}, refused: "min_agents is 4"},
		"it is in service": {actions: restored, refused: "in service"},
		"restored, well":   {since: then(cordon(api.AgentMaintenance, healings), well), actions: restored},
		"restored, ill again": {since: cordon(api.AgentMaintenance, healings), actions: restored,
			refused: "degraded again"},
		"restored, its drain goes on": {since: then(cordon(api.AgentDraining, healings), well), actions: restored,
			refused: "being drained"},
		"restored, and lost": {since: then(cordon(api.AgentMaintenance, healings), well,
			apply(cluster.Transition{Status: api.AgentOffline})), actions: restored, refused: "not connected"},
		"restored, now an operator's": {since: then(cordon(api.AgentMaintenance, healings), well,
			cordon(api.AgentMaintenance, "")), actions: restored, refused: "an operator keeps it out of service"},
		"restored, an operator ended it": {since: then(cordon(api.AgentMaintenance, healings), well,
			func(t *testing.T, c *cluster.Cluster) {
				_, err := c.LiftCordon("a", "", noon)
				require.NoError(t, err)
			}), actions: restored, refused: "in service"},
	} {
		for _, action := range tc.actions {
			t.Run(name+" "+string(action), func(t *testing.T) {
				t.Parallel()
				c := &cluster.Cluster{Config: api.ClusterConfig{Name: "c"}.WithDefaults()}
				c.Join(cluster.Join{AgentID: "a", Instance: "a1",
					AgentProfile: api.AgentProfile{MaxTasks: 4}}, "h1", noon.Add(-time.Hour))
				for _, other := range []string{"b", "c", "d"} {
					c.Join(cluster.Join{AgentID: other, Instance: other + "1",
						AgentProfile: api.AgentProfile{MaxTasks: 4}}, "h2", noon.Add(-time.Hour))
				}
				apply(cluster.Transition{Health: &cluster.MemberHealth{Level: api.HealthDegraded, Since: noon}})(t, c)
				if tc.since != nil {
					tc.since(t, c)
				}
				err := CheckHealing(c, "a", tc.drain, HealingCheck{Type: action, Epoch: 1})
				if tc.refused == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tc.refused)
			})
		}
	}
}
