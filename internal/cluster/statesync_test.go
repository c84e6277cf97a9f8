package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/statesync"
	"mainstay.dev/sdk/api"
)

func TestSyncIsDueWhenStatesDiffer(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "a", "b")
	c.Join(Join{AgentID: "c", Instance: "1"}, "h2", noon)
	hub := c.Member("a").Hub
	require.False(t, c.SyncDue(noon))
	c.SetStateDigests(hub, []string{"d1"}, c.Config.ReplicationMode, noon)
	require.False(t, c.SyncDue(noon), "one hub, one digest")
	c.SetStateDigests("h2", []string{"d1"}, c.Config.ReplicationMode, noon)
	require.False(t, c.SyncDue(noon))
	c.SetStateDigests("h2", []string{"d2"}, c.Config.ReplicationMode, noon)
	require.True(t, c.SyncDue(noon), "at once")
	require.False(t, c.SyncDue(noon.Add(statesync.SyncAgain-1)), "it is under way")
	require.True(t, c.SyncDue(noon.Add(statesync.SyncAgain)))
	require.False(t, c.SyncDue(noon.Add(2*statesync.SyncAgain)), "ever more rarely")
	now := noon
	for range 20 {
		require.True(t, c.SyncDue(c.SyncAt))
		require.LessOrEqual(t, c.SyncAt.Sub(now), 10*time.Hour)
	}
	last := c.SyncAt
	require.True(t, c.SyncDue(last))
	require.Equal(t, statesync.SyncAgainMax, c.SyncAt.Sub(last))
	c.SetStateDigests("h2", []string{"d1"}, c.Config.ReplicationMode, now)
	require.Zero(t, c.SyncAt)
	require.Zero(t, c.Syncs)

	c.SetStateDigests("h2", []string{"d1", "d2"}, c.Config.ReplicationMode, now)
	require.True(t, c.SyncDue(now), "two on one hub")
	become(c, "c", api.AgentOffline)
	c.DropStateDigests(c.Hubs(), c.Config.ReplicationMode, now)
	require.Zero(t, c.SyncAt, "its hub has no members any more")
	require.Len(t, c.StateDigests, 1)
	c.SetStateDigests(hub, nil, c.Config.ReplicationMode, now)
	require.Empty(t, c.StateDigests)
	require.True(t, c.StatesAgree())

	c = clusterOf(api.ActiveActive, "a", "b")
	c.SetStateDigests("h", []string{"d1", "d2"}, c.Config.ReplicationMode, noon)
	require.False(t, c.SyncDue(noon), "in an active_active cluster nobody leads")
}

// TestSyncIsDueSoonWhenStatesChange: a sync did not help only if the states differ afterwards as they did before.
func TestSyncIsDueSoonWhenStatesChange(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "a", "b")
	hub, now := c.Member("a").Hub, noon
	// tell applies a hub's report like the cluster workflow.
	tell := func(digests ...string) (changed bool) {
		if changed = c.SetStateDigests(hub, digests, c.Config.ReplicationMode, now); changed {
			c.SyncSoon(now)
		}
		return changed
	}
	require.False(t, tell("d1"), "they agree")
	require.True(t, tell("d1", "d2"))
	require.True(t, c.SyncDue(now), "the first is due at once")
	require.False(t, tell("d1", "d2"), "nothing new")
	require.Equal(t, now.Add(statesync.SyncAgain), c.SyncAt)

	now = now.Add(time.Second) // the leader writes while the sync is under way
	require.True(t, tell("d1", "d3"))
	require.Equal(t, now.Add(statesync.SyncSoon), c.SyncAt)
	now = now.Add(time.Second)
	require.True(t, tell("d3", "d4"))
	require.Equal(t, now.Add(statesync.SyncSoon-time.Second), c.SyncAt, "more changes do not put it off")

	for i := range 20 { // a leader that writes all the time
		now = c.SyncAt
		require.True(t, c.SyncDue(now))
		require.True(t, tell("d3", fmt.Sprint("d", 5+i)))
		wait := c.SyncAt.Sub(now)
		require.LessOrEqual(t, wait, statesync.SyncAgain)
		require.True(t, i < 2 || wait == statesync.SyncAgain, "the waits grow: %s", wait)
	}
	require.False(t, tell("d3"), "they agree")
	require.Zero(t, c.SyncAt)
	c.SyncSoon(now)
	require.Zero(t, c.SyncAt, "nothing is to be synced")
}

func TestTargetsHeld(t *testing.T) {
	t.Parallel()
	for _, mode := range []api.ReplicationMode{api.ActiveActive, api.ActivePassive, api.Sharded} {
		c := withTargets(t, clusterOf(mode, "a"), 5)
		settle(t, c, noon)
		c.Elect(api.SelectLeastLoaded, nil, noon)
		c.AssignTargets()
		become(c, "a", api.AgentOffline)
		require.Len(t, c.TargetsHeld("a"), 5, "it is gone, and its roles were not given away yet: %s", mode)
		require.Empty(t, c.TargetsHeld("b"))
		require.Empty(t, c.TargetsHeld(""))
	}
}
