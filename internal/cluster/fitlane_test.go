package cluster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

func TestFitLanes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	spec := api.TaskSpec{Type: "train", Cluster: "c", RequiredCapabilities: []string{"b", "a"}, Place: gpu()}
	lane := task.LaneOf(&spec, 0, false)
	require.Regexp(t, "^fit/[0-9a-f]{16}$", lane)
	require.Equal(t, task.AgentLane("x"), task.LaneOf(&api.TaskSpec{Agent: "x", Place: gpu()}, 0, false))
	require.Equal(t, lane, task.LaneOf(&api.TaskSpec{RequiredCapabilities: []string{"a", "b", "a"}, Place: gpu()}, 0, false))
	require.NotEqual(t, lane, task.LaneOf(&api.TaskSpec{Place: gpu()}, 0, false))
	parsed, err := task.ParseLane(lane)
	require.NoError(t, err)
	require.Equal(t, lane, parsed)

	c := Cluster{Members: []Member{
		{AgentID: "able", Status: api.AgentOnline, AgentProfile: api.AgentProfile{Capabilities: []string{"a", "b"},
			Resources: gpus("24Gi")}},
		{AgentID: "small", Status: api.AgentOnline, AgentProfile: api.AgentProfile{Capabilities: []string{"a", "b"},
			Resources: gpus("4Gi")}},
		{AgentID: "other", Status: api.AgentOnline, AgentProfile: api.AgentProfile{Resources: gpus("24Gi")}},
	}}
	require.True(t, c.OpenLane(task.LaneNeedsOf(&spec, false)[0], "", now))
	require.True(t, c.OpenLane(task.LaneNeedsOf(&spec, false)[0], "", now), "again")
	require.Len(t, c.Fits, 1)
	require.Empty(t, c.CapabilitySets)
	require.True(t, c.LaneOpen(lane))
	require.Contains(t, c.Lanes(nil), lane)
	servers := c.ServersOf(lane, nil)
	require.Len(t, servers, 1)
	require.Equal(t, "able", servers[0].AgentID)
	text, err := json.Marshal(&c)
	require.NoError(t, err)
	var again Cluster
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, lane, task.LaneFor(&again.Fits[0].LaneNeeds), "the class survives the state")

	for range 2 { // at two looks in a row nobody uses it
		now = c.NextLaneLook()
		c.SettleLanes(nil, now)
	}
	require.False(t, c.LaneOpen(lane))
	require.Empty(t, c.Fits)
}

func gpu(change ...func(*api.DeviceDemand)) api.Demand {
	d := api.DeviceDemand{Kind: "gpu", Memory: "8Gi"}
	for _, c := range change {
		c(&d)
	}
	return api.Demand{Devices: []api.DeviceDemand{d}}
}

func gpus(memory ...string) *api.Inventory {
	v := &api.Inventory{Amounts: api.Amounts{CPU: "4", Memory: "8Gi", Disk: "100Gi"}, Ports: "20000-20002",
		Volumes: []api.Volume{{Name: "models", Path: "/models"}, {Name: "base", Path: "/base", ReadOnly: true}}}
	for i, m := range memory {
		v.Devices = append(v.Devices, api.Device{Kind: "gpu", Vendor: "nvidia", Model: "a10-24gb", Index: i, Memory: m})
	}
	return v
}
