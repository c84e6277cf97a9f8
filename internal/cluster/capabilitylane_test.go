package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestLanesAreSharedAmongTenants(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	greedy := func(tenant string) int {
		n := 0
		for c.OpenLane(api.LaneNeeds{Capabilities: []string{fmt.Sprintf("%s-%d", tenant, n)}}, tenant, noon) {
			n++
		}
		return n
	}
	require.Equal(t, 128, greedy("acme"), "half of all")
	require.Equal(t, 64, greedy("beta"), "half of what was left")
	require.True(t, c.OpenLane(api.LaneNeeds{Capabilities: []string{"acme-7"}}, "beta", noon), "what is open is everybody's")
	require.True(t, c.OpenLane(api.LaneNeeds{Capabilities: []string{"mine"}}, "", noon))
	require.Equal(t, 32, greedy("gamma"))
	require.Equal(t, 31, greedy(""), "those without a tenant may have all that is left")
	require.False(t, c.OpenLane(api.LaneNeeds{Capabilities: []string{"one-more"}}, "delta", noon))
	require.Len(t, c.CapabilitySets, MaxCapabilitySets)

	long := newCluster(0)
	set := make([]string, 32)
	n := 0
	for ; n < MaxCapabilitySets; n++ {
		for i := range set {
			set[i] = fmt.Sprintf("%s-%d-%d", strings.Repeat("x", 50), n, i)
		}
		if !long.OpenLane(api.LaneNeeds{Capabilities: set}, "", noon) {
			break
		}
	}
	require.InDelta(t, 72, n, 6, "their names are bounded too")
}

func TestUnusedLanesAreGivenBack(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	require.True(t, c.OpenLane(api.LaneNeeds{Capabilities: []string{"b", "a"}}, "acme", noon))
	require.True(t, c.OpenLane(api.LaneNeeds{Capabilities: []string{"c"}}, "acme", noon))
	require.Empty(t, c.LanesToLookAt(noon.Add(LaneIdle)))
	at := c.NextLaneLook()
	require.WithinRange(t, at, noon.Add(LaneIdle), noon.Add(LaneIdle+laneLooks))
	require.Equal(t, []string{"cap/a+b", "cap/c"}, c.LanesToLookAt(at))

	c.SettleLanes([]string{"cap/c"}, at)
	require.True(t, c.LaneOpen("cap/c"), "a task uses it")
	require.False(t, c.LaneOpen("cap/a+b"), "who needs it must ask")
	require.Contains(t, c.CapabilitySets, []string{"a", "b"}, "but it is served yet")
	require.Equal(t, at.Add(laneCloses), c.NextLaneLook())

	again := *c
	again.LaneUses = append([]LaneUse(nil), c.LaneUses...)
	again.SettleLanes([]string{"cap/a+b"}, at.Add(laneCloses))
	require.True(t, again.LaneOpen("cap/a+b"), "a task came by somebody who believed it open")
	again.LaneUses = append([]LaneUse(nil), c.LaneUses...)
	require.True(t, again.OpenLane(api.LaneNeeds{Capabilities: []string{"a", "b"}}, "beta", at.Add(time.Second)))
	again.SettleLanes(nil, at.Add(laneCloses))
	require.True(t, again.LaneOpen("cap/a+b"), "it was asked for while the look was under way")

	c.SettleLanes(nil, at.Add(laneCloses))
	require.Equal(t, [][]string{{"c"}}, c.CapabilitySets)
	require.Len(t, c.LaneUses, 1)
}
