package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		min, desired, online, offline int
		want                          ClusterStatus
	}{
		"empty and wants none":      {0, 0, 0, 0, ClusterHealthy},
		"empty but wants some":      {0, 1, 0, 0, ClusterCritical},
		"all gone":                  {0, 0, 0, 2, ClusterCritical},
		"one gone, no count set":    {0, 0, 1, 1, ClusterDegraded},
		"one gone, enough are left": {1, 2, 2, 1, ClusterHealthy},
		"below desired":             {1, 3, 2, 0, ClusterDegraded},
		"at the minimum":            {2, 0, 2, 0, ClusterHealthy},
		"below the minimum":         {2, 3, 1, 2, ClusterCritical},
		"all there":                 {1, 2, 2, 0, ClusterHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := Cluster{Config: ClusterConfig{MinAgents: c.min, DesiredAgents: c.desired}}
			for range c.online {
				cluster.Members = append(cluster.Members, Member{Status: AgentOnline})
			}
			for range c.offline {
				cluster.Members = append(cluster.Members, Member{Status: AgentOffline})
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
		levels         []HealthLevel
		want           ClusterStatus
		online, health int
	}{
		"all are critical":             {1, 3, []HealthLevel{HealthCritical, HealthCritical, HealthFailed}, ClusterDegraded, 3, 0},
		"all are, and no count is set": {0, 0, []HealthLevel{HealthCritical}, ClusterDegraded, 1, 0},
		"enough are left":              {1, 1, []HealthLevel{HealthCritical, HealthDegraded}, ClusterHealthy, 2, 1},
		"one less than desired":        {1, 2, []HealthLevel{HealthFailed, HealthHealthy}, ClusterDegraded, 2, 1},
		"warnings":                     {1, 2, []HealthLevel{HealthWarning, HealthDegraded}, ClusterHealthy, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := Cluster{Config: ClusterConfig{MinAgents: c.min, DesiredAgents: c.desired}}
			for _, level := range c.levels {
				cluster.Members = append(cluster.Members, Member{Status: AgentOnline, Health: &MemberHealth{Level: level}})
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
		live AgentStatus
		want Connection
	}{
		"it polls":                          {Member{Status: AgentOnline, Hub: "h"}, AgentOnline, Connected},
		"nothing is published yet":          {Member{Status: AgentOnline, Hub: "h"}, "", Connected},
		"it finishes what it has":           {Member{Status: AgentOnline, Hub: "h"}, AgentStopping, Connected},
		"its connection closed":             {Member{Status: AgentOnline, Hub: "h"}, AgentSuspect, Reconnecting},
		"it is silent":                      {Member{Status: AgentOnline, Hub: "h"}, AgentWarning, Reconnecting},
		"drained, its connection closed":    {Member{Status: AgentDraining, Hub: "h"}, AgentSuspect, Reconnecting},
		"the brake holds it":                {Member{Status: AgentSuspect, Hub: "h"}, AgentSuspect, Disconnected},
		"the brake holds it without a hub":  {Member{Status: AgentOnline, Hub: "h", HubLostAt: time.Unix(1, 0)}, "", Disconnected},
		"it was given up":                   {Member{Status: AgentOffline, Hub: "h"}, AgentSuspect, GivenUp},
		"instances wait for it":             {Member{Status: AgentOffline, Hub: "h", AwaitedUntil: time.Unix(101, 0)}, "", Disconnected},
		"no instance waits for it any more": {Member{Status: AgentOffline, Hub: "h", AwaitedUntil: time.Unix(100, 0)}, "", GivenUp},
		"it left its maintenance":           {Member{Status: AgentMaintenance}, "", GivenUp},
	} {
		require.Equal(t, c.want, c.m.Connection(c.live, time.Unix(100, 0)), name)
	}
}
