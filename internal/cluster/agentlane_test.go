package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

func TestAgentLanesOpenAndClose(t *testing.T) {
	t.Parallel()
	var c cluster.Cluster
	c.OpenAgentLane("b")
	c.OpenAgentLane("a")
	known := slices.Clone(c.OpenLanes)
	require.Equal(t, []cluster.OpenLane{{"a", 1}, {"b", 1}}, known)
	version := c.LanesVersion
	c.OpenAgentLane("a")
	require.Equal(t, version, c.LanesVersion, "hubs need not hear of it")
	c.CloseAgentLanes(known)
	require.Equal(t, []cluster.OpenLane{{"a", 2}}, c.OpenLanes, "it was asked for since")
	require.Greater(t, c.LanesVersion, version)
	require.Equal(t, version, c.LanesOpened, "a closed lane is no news for hubs")
}

func TestAgentLanesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	c := cluster.Cluster{Config: api.ClusterConfig{Name: "c"}.WithDefaults()}
	c.Join(cluster.Join{AgentID: "agent-0", Instance: "1"}, "hub", time.Now())
	require.Empty(t, c.OpenLanes)
	for i := range api.MaxMembers + 2000 {
		c.OpenAgentLane(fmt.Sprintf("agent-%d", i))
	}
	require.Len(t, c.OpenLanes, api.MaxMembers+1000)
	require.Equal(t, "agent-0", c.OpenLanes[0].AgentID, "members stay")
	c.CloseAgentLanes(slices.Clone(c.OpenLanes[1:]))
	c.Join(cluster.Join{AgentID: "agent-9", Instance: "1"}, "hub", time.Now())
	require.Len(t, c.OpenLanes, 2, "a forgotten one is open when its agent comes")
}
