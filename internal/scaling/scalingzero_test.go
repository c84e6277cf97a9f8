package scaling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// A cluster that may have no agent keeps none while nothing is to be done, and starts one as soon as something waits.
func TestScalingStaysAtZero(t *testing.T) {
	t.Parallel()
	c := &cluster.Cluster{Config: api.ClusterConfig{Name: "c", DesiredAgents: 2, MaxAgents: 5,
		Scaling: api.ScalingPolicy{Mode: api.ScalingAuto}}.WithDefaults()}
	now, idleSince := scaleNow, map[string]time.Time{}
	starts, stops := 0, 0
	look := func(queue int64) {
		facts := &ScalingFacts{Queue: queue}
		for i := range c.Members {
			id := c.Members[i].AgentID
			facts.Agents = append(facts.Agents, AgentActivity{AgentID: id, IdleSince: idleSince[id]})
		}
		d := DecideScaling(c, facts, now)
		if d.Change == api.ScaleNone {
			return
		}
		a := BeginScaling(c, d, scaleNow, now)
		for _, id := range a.Agents {
			if d.Change == api.ScaleUp {
				addSpawned(c, id)
				idleSince[id] = now
				starts++
			} else {
				c.Member(id).Status = api.AgentOffline
				require.True(t, Retire(c, id))
				stops++
			}
		}
		EndScaling(c, ScalingResult{Number: a.Number}, now)
	}
	for end := now.Add(24 * time.Hour); now.Before(end); now = now.Add(15 * time.Second) {
		look(0)
	}
	require.Equal(t, []int{2, 2}, []int{starts, stops})
	require.Empty(t, c.Members)
	require.Zero(t, c.Wanted())
	require.Equal(t, api.ClusterHealthy, c.Status())

	look(1)
	require.Equal(t, 3, starts)
	require.Equal(t, "1 task waits, and there is no agent", c.Scaling.Last.Reason)
	now = now.Add(time.Hour)
	c.Config.Scaling.ScaleDown.QueueThreshold = new(3)
	look(2)
	require.Equal(t, 2, stops, "the only agent stays while something waits")
}

// A person's zero is a number too.
func TestScaledToZeroByHand(t *testing.T) {
	t.Parallel()
	for _, mode := range []api.ScalingMode{api.ScalingManual, api.ScalingAuto} {
		c := scaledCluster(1, 0, 5)
		c.Config.Scaling.Mode, c.Config.DesiredAgents = mode, 2
		ScaleTo(c, 0)
		d := DecideScaling(c, idleFor(c, 0, 0), scaleNow)
		require.Equal(t, api.ScaleDown, d.Change, mode)
		require.Equal(t, "1 agent, and 0 are wanted", d.Reason)

		c = scaledCluster(1, 0, 5)
		c.Config.Scaling.Mode, c.Config.DesiredAgents = mode, 1
		BeginScaling(c, TerminateOne(c, "a-00", "ann", "", scaleNow), scaleNow, scaleNow)
		require.Equal(t, api.ScaleNone, DecideScaling(c, idleFor(c, 0, 0), scaleNow).Change, "no other is started")
	}
}

// What spawned agents can serve is known by those that were spawned; while there is none, one is tried.
func TestScalingLanesWithoutAnAgent(t *testing.T) {
	t.Parallel()
	c := scaledCluster(0, 0, 5)
	c.Fits = []task.Fit{{Lane: "lane/c/fit", LaneNeeds: api.LaneNeeds{Place: api.Demand{Resources: api.Amounts{CPU: "100"}}}}}
	require.Equal(t, []string{task.DefaultLane, "lane/c/fit"}, ScalingLanes(c))
	addSpawned(c, "a")
	require.Equal(t, []string{task.DefaultLane}, ScalingLanes(c))
}
