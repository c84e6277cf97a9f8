package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestDepartures(t *testing.T) {
	t.Parallel()
	c := Cluster{Config: api.ClusterConfig{Name: "c"}.WithDefaults()}
	at := time.Unix(1_800_000_000, 0)
	leave := func(id string) {
		joined := c.Join(Join{AgentID: id, Instance: "i", AgentProfile: api.AgentProfile{MaxTasks: 1}}, "h", at)
		require.True(t, c.Apply(Transition{AgentID: id, Instance: "i", Epoch: joined.Epoch, Status: api.AgentOffline,
			At: at, Left: true}, "h"))
	}
	leave("a")
	got, known := c.Departures.Of("a")
	require.True(t, known)
	require.Equal(t, at, got.At)
	leave("a")
	require.Len(t, c.Departures, 1, "the newest departure counts")
	c.Join(Join{AgentID: "a", Instance: "j", AgentProfile: api.AgentProfile{MaxTasks: 1}}, "h", at)
	_, known = c.Departures.Of("a")
	require.False(t, known, "it is back")
	for i := range maxDepartures + 5 {
		leave(fmt.Sprint("b-", i))
	}
	require.Len(t, c.Departures, maxDepartures)
	_, known = c.Departures.Of("b-4")
	require.False(t, known, "the oldest gave way")
}

func TestBrakeHolds(t *testing.T) {
	t.Parallel()
	var c Cluster
	hold := func(hub, process string, lost int) *BrakeHold {
		return &BrakeHold{Hub: hub, Process: process, Lost: lost}
	}
	c.SetBrake("h2", hold("h2", "p", 3))
	c.SetBrake("h1", hold("h1", "p", 4))
	c.SetBrake("h2", hold("h2", "p", 5))
	require.Equal(t, []BrakeHold{*hold("h1", "p", 4), *hold("h2", "p", 5)}, c.BrakeHolds)
	c.HubProcess("h1", "p", time.Time{})
	require.Len(t, c.BrakeHolds, 2)
	c.HubProcess("h1", "q", time.Time{})
	require.Equal(t, []BrakeHold{*hold("h2", "p", 5)}, c.BrakeHolds, "a new process of the hub holds nothing")
	c.SetBrake("h3", nil)
	c.SetBrake("h2", nil)
	require.Empty(t, c.BrakeHolds)
	c.SetBrake("h1", hold("h1", "p", 1))
	c.LoseHub("h1", time.Time{})
	require.Empty(t, c.BrakeHolds)
}

func TestTenantWeights(t *testing.T) {
	t.Parallel()
	many := map[string]float64{}
	for i := range api.MaxTenantWeights + 1 {
		many[fmt.Sprint("t", i)] = 1
	}
	for name, c := range map[string]struct {
		weights map[string]float64
		want    string
	}{
		"none": {nil, ""}, "bounds": {map[string]float64{"a": .1, "b": 100}, ""},
		"too small": {map[string]float64{"a": .09}, "0.1 and 100"},
		"zero":      {map[string]float64{"a": 0}, "0.1 and 100"}, "too large": {map[string]float64{"a": 101}, "0.1 and 100"},
		"no slug": {map[string]float64{"A b": 1}, "tenant"}, "too many": {many, "at most 100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := api.ClusterConfig{Name: "c", TenantWeights: c.weights}.WithDefaults().Validate()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "A b")
		})
	}
}
