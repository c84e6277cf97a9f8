package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSyncIsDueWhenStatesDiffer(t *testing.T) {
	t.Parallel()
	c := clusterOf(ActivePassive, "a", "b")
	c.Join(Join{AgentID: "c", Instance: "1"}, "h2", noon)
	hub := c.Member("a").Hub
	require.False(t, c.SyncDue(noon))
	c.SetStateDigests(hub, []string{"d1"}, noon)
	require.False(t, c.SyncDue(noon), "one hub, one digest")
	c.SetStateDigests("h2", []string{"d1"}, noon)
	require.False(t, c.SyncDue(noon))
	c.SetStateDigests("h2", []string{"d2"}, noon)
	require.True(t, c.SyncDue(noon), "at once")
	require.False(t, c.SyncDue(noon.Add(syncAgain-1)), "it is under way")
	require.True(t, c.SyncDue(noon.Add(syncAgain)))
	require.False(t, c.SyncDue(noon.Add(2*syncAgain)), "ever more rarely")
	now := noon
	for range 20 {
		require.True(t, c.SyncDue(c.SyncAt))
		require.LessOrEqual(t, c.SyncAt.Sub(now), 10*time.Hour)
	}
	last := c.SyncAt
	require.True(t, c.SyncDue(last))
	require.Equal(t, syncAgainMax, c.SyncAt.Sub(last))
	c.SetStateDigests("h2", []string{"d1"}, now)
	require.Zero(t, c.SyncAt)
	require.Zero(t, c.Syncs)

	c.SetStateDigests("h2", []string{"d1", "d2"}, now)
	require.True(t, c.SyncDue(now), "two on one hub")
	c.become("c", AgentOffline)
	c.DropStateDigests(now)
	require.Zero(t, c.SyncAt, "its hub has no members any more")
	require.Len(t, c.StateDigests, 1)
	c.SetStateDigests(hub, nil, now)
	require.Empty(t, c.StateDigests)
	require.True(t, c.StatesAgree())

	c = clusterOf(ActiveActive, "a", "b")
	c.SetStateDigests("h", []string{"d1", "d2"}, noon)
	require.False(t, c.SyncDue(noon), "in an active_active cluster nobody leads")
}

func TestTargetsHeld(t *testing.T) {
	t.Parallel()
	for _, mode := range []ReplicationMode{ActiveActive, ActivePassive, Sharded} {
		c := withTargets(t, clusterOf(mode, "a"), 5)
		settle(t, c, noon)
		c.Elect(nil, noon)
		c.AssignTargets()
		c.become("a", AgentOffline)
		require.Len(t, c.TargetsHeld("a"), 5, "it is gone, and its roles were not given away yet: %s", mode)
		require.Empty(t, c.TargetsHeld("b"))
		require.Empty(t, c.TargetsHeld(""))
	}
}
