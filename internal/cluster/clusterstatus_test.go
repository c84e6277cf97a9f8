package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		min, desired, online, offline int
		want                          api.ClusterStatus
	}{
		"empty and wants none":      {0, 0, 0, 0, api.ClusterHealthy},
		"empty but wants some":      {0, 1, 0, 0, api.ClusterCritical},
		"all gone":                  {0, 0, 0, 2, api.ClusterCritical},
		"one gone, no count set":    {0, 0, 1, 1, api.ClusterDegraded},
		"one gone, enough are left": {1, 2, 2, 1, api.ClusterHealthy},
		"below desired":             {1, 3, 2, 0, api.ClusterDegraded},
		"at the minimum":            {2, 0, 2, 0, api.ClusterHealthy},
		"below the minimum":         {2, 3, 1, 2, api.ClusterCritical},
		"all there":                 {1, 2, 2, 0, api.ClusterHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := Cluster{Config: api.ClusterConfig{MinAgents: c.min, DesiredAgents: c.desired}}
			for range c.online {
				cluster.Members = append(cluster.Members, Member{Status: api.AgentOnline})
			}
			for range c.offline {
				cluster.Members = append(cluster.Members, Member{Status: api.AgentOffline})
			}
			require.Equal(t, c.want, cluster.Status())
			require.Equal(t, c.online, cluster.HealthyCount())
		})
	}
}

// An agent that is critical counts as online, and not as healthy.
func TestClusterStatusOfIllAgents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		min, desired   int
		levels         []api.HealthLevel
		want           api.ClusterStatus
		online, health int
	}{
		"all are critical":             {1, 3, []api.HealthLevel{api.HealthCritical, api.HealthCritical, api.HealthFailed}, api.ClusterDegraded, 3, 0},
		"all are, and no count is set": {0, 0, []api.HealthLevel{api.HealthCritical}, api.ClusterDegraded, 1, 0},
		"enough are left":              {1, 1, []api.HealthLevel{api.HealthCritical, api.HealthDegraded}, api.ClusterHealthy, 2, 1},
		"one less than desired":        {1, 2, []api.HealthLevel{api.HealthFailed, api.HealthHealthy}, api.ClusterDegraded, 2, 1},
		"warnings":                     {1, 2, []api.HealthLevel{api.HealthWarning, api.HealthDegraded}, api.ClusterHealthy, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := Cluster{Config: api.ClusterConfig{MinAgents: c.min, DesiredAgents: c.desired}}
			for _, level := range c.levels {
				cluster.Members = append(cluster.Members, Member{Status: api.AgentOnline, Health: &MemberHealth{Level: level}})
			}
			require.Equal(t, c.want, cluster.Status())
			require.Equal(t, []int{c.online, c.health}, []int{cluster.OnlineCount(), cluster.HealthyCount()})
		})
	}
}

func TestConnectionHasPhases(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m    Member
		live api.AgentStatus
		want api.Connection
	}{
		"it polls":                          {Member{Status: api.AgentOnline, Hub: "h"}, api.AgentOnline, api.Connected},
		"nothing is published yet":          {Member{Status: api.AgentOnline, Hub: "h"}, "", api.Connected},
		"it finishes what it has":           {Member{Status: api.AgentOnline, Hub: "h"}, api.AgentStopping, api.Connected},
		"its connection closed":             {Member{Status: api.AgentOnline, Hub: "h"}, api.AgentSuspect, api.Reconnecting},
		"it is silent":                      {Member{Status: api.AgentOnline, Hub: "h"}, api.AgentWarning, api.Reconnecting},
		"drained, its connection closed":    {Member{Status: api.AgentDraining, Hub: "h"}, api.AgentSuspect, api.Reconnecting},
		"the brake holds it":                {Member{Status: api.AgentSuspect, Hub: "h"}, api.AgentSuspect, api.Disconnected},
		"the brake holds it without a hub":  {Member{Status: api.AgentOnline, Hub: "h", HubLostAt: time.Unix(1, 0)}, "", api.Disconnected},
		"it was given up":                   {Member{Status: api.AgentOffline, Hub: "h"}, api.AgentSuspect, api.GivenUp},
		"instances wait for it":             {Member{Status: api.AgentOffline, Hub: "h", AwaitedUntil: time.Unix(101, 0)}, "", api.Disconnected},
		"no instance waits for it any more": {Member{Status: api.AgentOffline, Hub: "h", AwaitedUntil: time.Unix(100, 0)}, "", api.GivenUp},
		"it left its maintenance":           {Member{Status: api.AgentMaintenance}, "", api.GivenUp},
	} {
		require.Equal(t, c.want, c.m.Connection(c.live, time.Unix(100, 0)), name)
	}
}
