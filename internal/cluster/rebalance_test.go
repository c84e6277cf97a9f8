package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

func withTargets(t require.TestingT, c *Cluster, n int) *Cluster {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("t-%d", i))
	}
	_, err := c.Targets.Change(ids, nil)
	require.NoError(t, err)
	return c
}

func targetCounts(c *Cluster) map[string]int {
	n := map[string]int{}
	for _, target := range c.Targets {
		n[c.AgentOfTarget(target)]++
	}
	return n
}

func spread(counts map[string]int, agents []string) int {
	low, high := counts[agents[0]], counts[agents[0]]
	for _, a := range agents {
		low, high = min(low, counts[a]), max(high, counts[a])
	}
	return high - low
}

func TestChangeTargets(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActiveActive, "a", "b")
	changed, err := c.Targets.Change([]string{"y", "x", "x"}, nil)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, []string{"x", "y"}, idsOfTargets(c))
	changed, err = c.Targets.Change([]string{"x"}, []string{"z"})
	require.NoError(t, err)
	require.False(t, changed)
	changed, err = c.Targets.Change(nil, []string{"x"})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, []string{"y"}, idsOfTargets(c))
	_, err = c.Targets.Change([]string{"Not a slug"}, nil)
	require.ErrorIs(t, err, api.ErrInvalidID)
	var many []string
	for i := range api.MaxTargets {
		many = append(many, fmt.Sprintf("m-%d", i))
	}
	_, err = c.Targets.Change(many, nil)
	require.ErrorContains(t, err, "at most 1000")
	require.Equal(t, []string{"y"}, idsOfTargets(c))
}

func TestTargetsFollowRoles(t *testing.T) {
	t.Parallel()
	c := withTargets(t, clusterOf(api.ActivePassive, "a", "b"), 3)
	require.Equal(t, map[string]int{"": 3}, targetCounts(c), "there is no leader yet")
	_, elected := c.Elect(api.SelectLeastLoaded, nil, noon)
	require.True(t, elected)
	require.Equal(t, []string{"t-0", "t-1", "t-2"}, c.TargetsOf("a"))
	require.Empty(t, c.TargetsOf("b"))
	require.Empty(t, c.TargetsOf(""))

	c = withTargets(t, clusterOf(api.Sharded, "a", "b"), 40)
	settle(t, c, noon)
	for _, target := range c.Targets {
		require.Equal(t, c.Shards[task.ShardOf(target.ID, 16)].Owner, c.AgentOfTarget(target))
	}
}

func TestAssignTargets(t *testing.T) {
	t.Parallel()
	c := withTargets(t, clusterOf(api.ActiveActive, "a", "b"), 10)
	require.Len(t, c.AssignTargets(), 10)
	require.Equal(t, map[string]int{"a": 5, "b": 5}, targetCounts(c))
	require.Empty(t, c.AssignTargets())
	become(c, "b", api.AgentSuspect)
	require.Empty(t, c.AssignTargets(), "a suspect keeps its own")
	c.Join(Join{AgentID: "c", Instance: "1"}, "h", noon)
	become(c, "b", api.AgentOnline)
	require.Len(t, c.AssignTargets(), 3)
	require.Equal(t, map[string]int{"a": 4, "b": 3, "c": 3}, targetCounts(c))
	become(c, "a", api.AgentOffline)
	moves := c.AssignTargets()
	require.Len(t, moves, 4, "only the lost agent's move")
	for _, m := range moves {
		require.Equal(t, "a", m.From)
	}
	require.Equal(t, map[string]int{"b": 5, "c": 5}, targetCounts(c))
}

func TestRebalanceMovesNothingWithoutNeed(t *testing.T) {
	t.Parallel()
	for _, mode := range []api.ReplicationMode{api.ActiveActive, api.ActivePassive, api.Sharded} {
		c := clusterOf(mode, "a", "b")
		settle(t, c, noon)
		before := slices.Clone(c.Shards)
		answer := c.Rebalance(roleLease, noon, false)
		require.Empty(t, answer.Moves, mode)
		require.Contains(t, answer.Why, "nothing to move")
		require.Len(t, answer.Agents, 2)
		require.Equal(t, before, c.Shards)
	}
}

// Targets that fell unevenly are evened out by exchanging shards, without upsetting their number.
func TestRebalanceEvensTargets(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.Sharded, "a", "b")
	_, now := settle(t, c, noon)
	// All targets are in shards of a.
	mine := c.ShardsOf("a")
	var ids []string
	for i := 0; len(ids) < 12; i++ {
		if id := fmt.Sprintf("t-%d", i); slices.Contains(mine, task.ShardOf(id, 16)) {
			ids = append(ids, id)
		}
	}
	_, err := c.Targets.Change(ids, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 12}, targetCounts(c))

	before := slices.Clone(c.Shards)
	plan := c.Rebalance(roleLease, now, true)
	require.True(t, plan.DryRun)
	require.NotEmpty(t, plan.Moves)
	require.Equal(t, before, c.Shards, "a dry run changes nothing")

	done := c.Rebalance(roleLease, now, false)
	require.Equal(t, plan.Moves, done.Moves)
	for _, m := range done.Moves {
		require.Empty(t, c.Shards[*m.Shard].Owner, "nobody has it until the lease has run out")
		require.Equal(t, m.To, c.Shards[*m.Shard].Next)
	}
	require.Empty(t, c.Rebalance(roleLease, now, false).Moves, "what is on its way is not moved again")
	_, now = settle(t, c, now)
	require.Equal(t, map[string]int{"a": 8, "b": 8}, counts(c))
	require.LessOrEqual(t, spread(targetCounts(c), []string{"a", "b"}), 1)
	for _, m := range done.Moves {
		require.Equal(t, m.To, c.Shards[*m.Shard].Owner)
	}
	require.Empty(t, c.Rebalance(roleLease, now, false).Moves, "asked again, nothing moves")
}

// The planned owner of a shard went away meanwhile: another gets it.
func TestRebalancePlanThatCannotBeKept(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.Sharded, "a", "b", "c")
	_, now := settle(t, c, noon)
	c.Shards[0].release(0, now.Add(roleLease))
	c.Shards[0].Next = "b"
	become(c, "b", api.AgentOffline)
	settle(t, c, now)
	require.Empty(t, counts(c)[""])
	require.Zero(t, counts(c)["b"])
	require.Empty(t, c.Shards[0].Next)
}

func TestRebalanceProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var agents []string
		for i := range rapid.IntRange(1, 6).Draw(t, "agents") {
			agents = append(agents, fmt.Sprintf("a-%d", i))
		}
		mode := rapid.SampledFrom([]api.ReplicationMode{api.ActiveActive, api.Sharded}).Draw(t, "mode")
		c := clusterOf(mode, agents...)
		_, now := settle(t, c, noon)
		withTargets(t, c, rapid.IntRange(0, 60).Draw(t, "targets"))
		c.AssignTargets()
		shardsBefore, targetsBefore := counts(c), spread(targetCounts(c), agents)
		owners := slices.Clone(c.Shards)

		answer := c.Rebalance(roleLease, now, false)
		again := c.Rebalance(roleLease, now, false)
		require.Empty(t, again.Moves)
		_, now = settle(t, c, now.Add(time.Millisecond))
		c.AssignTargets()
		require.LessOrEqual(t, spread(targetCounts(c), agents), max(1, targetsBefore), "it never makes it worse")
		if mode == api.Sharded {
			low, high := 16, 0
			for _, a := range agents {
				low, high = min(low, counts(c)[a]), max(high, counts(c)[a])
			}
			require.LessOrEqual(t, high-low, 1, "from %v", shardsBefore)
			moved := 0
			for i := range c.Shards {
				if c.Shards[i].Owner != owners[i].Owner {
					moved++
				}
			}
			require.Len(t, answer.Moves, moved, "what it told is what moved")
		}
		require.Empty(t, c.Rebalance(roleLease, now, false).Moves)
	})
}

func idsOfTargets(c *Cluster) (ids []string) {
	for _, target := range c.Targets {
		ids = append(ids, target.ID)
	}
	return ids
}
