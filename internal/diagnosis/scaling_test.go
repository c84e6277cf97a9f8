package diagnosis

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/sdk/api"
)

// scaledCluster has n agents that a spawner started.
func scaledCluster(n, least, most int) *cluster.Cluster {
	config := api.ClusterConfig{Name: "c", MinAgents: least, MaxAgents: most,
		Scaling: api.ScalingPolicy{Mode: api.ScalingAuto}}
	c := &cluster.Cluster{Config: config.WithDefaults()}
	for i := range n {
		id := fmt.Sprintf("a-%02d", i)
		spawned := map[string]string{api.MetadataSpawner: "here", api.MetadataSpawnID: id}
		c.Join(cluster.Join{AgentID: id, Instance: "i-" + id,
			AgentProfile: api.AgentProfile{MaxTasks: 1, Metadata: spawned}}, "h", noon.Add(-time.Hour))
	}
	return c
}

// busyWith are facts in which every member is busy, and so much waits.
func busyWith(c *cluster.Cluster, queue int64) *scaling.ScalingFacts {
	f := &scaling.ScalingFacts{Queue: queue}
	for i := range c.Members {
		f.Agents = append(f.Agents, scaling.AgentActivity{AgentID: c.Members[i].AgentID, Running: 1, CPUPercent: new(10.)})
	}
	return f
}

func TestOfScaling(t *testing.T) {
	t.Parallel()
	blocked := &api.ScalingBlocked{Reason: "no spawner is there", Since: noon.Add(-time.Hour), Failures: 3,
		NextAt: noon.Add(time.Minute)}
	for name, c := range map[string]struct {
		change func(c *cluster.Cluster)
		queue  int64
		oldest time.Duration
		what   string // empty: no problem
		why    string
		todo   string
		since  time.Time
	}{
		"as it should be": {change: func(*cluster.Cluster) {}},
		"off": {change: func(c *cluster.Cluster) {
			c.Config.Scaling.Mode = api.ScalingOff
			c.Scaling = &cluster.ScalingState{Blocked: blocked}
		}},
		"the brake holds": {change: func(c *cluster.Cluster) {
			c.BrakeHolds = []cluster.BrakeHold{{Hub: "h"}}
			c.Scaling = &cluster.ScalingState{Blocked: blocked}
		}},
		"being started": {change: func(c *cluster.Cluster) { c.Config.DesiredAgents = 3 }},
		"cooling down": {change: func(
			c *cluster.Cluster) {
			c.Config.MaxAgents = 9
			c.Scaling = &cluster.ScalingState{LastUp: noon}
		}, queue: 50, oldest: time.Hour},
		"full, little waits": {change: func(*cluster.Cluster) {}, queue: 5, oldest: time.Hour},
		"full, for a moment": {change: func(*cluster.Cluster) {}, queue: 50, oldest: time.Second},
		"blocked": {change: func(
			c *cluster.Cluster) {
			c.Config.DesiredAgents = 3
			c.Scaling = &cluster.ScalingState{Blocked: blocked}
		},
			what:  "scaling cannot start agents of cluster c: 1 of 3 are missing",
			why:   "no spawner is there; tried 3 times, the next try is at 2026-11-21T12:01:00Z",
			todo:  "spawner comes up",
			since: blocked.Since},
		"blocked, and tried now": {change: func(c *cluster.Cluster) {
			c.Config.DesiredAgents = 3
			c.Scaling = &cluster.ScalingState{Blocked: &api.ScalingBlocked{Reason: "no room", Failures: 1, NextAt: noon}}
		}, what: "1 of 3 are missing", why: "no room; tried once, the next try is under way", todo: "tried again"},
		"stuck": {change: func(c *cluster.Cluster) { c.Scaling = &cluster.ScalingState{Stuck: blocked} },
			what:  "scaling cannot stop agents of cluster c",
			why:   "no spawner is there",
			todo:  "Start their spawner again",
			since: blocked.Since},
		"as many as may be": {change: func(*cluster.Cluster) {}, queue: 50, oldest: 5 * time.Minute,
			what:  "cluster c has as many agents as it may, and work waits",
			why:   "max_agents of 3",
			todo:  "mainstay cluster scale c --max 6",
			since: noon.Add(-5 * time.Minute)},
		"only the leader works": {change: func(c *cluster.Cluster) { c.Config.ReplicationMode = api.ActivePassive },
			queue: 50, oldest: 5 * time.Minute,
			what:  "work waits in cluster c, and scaling cannot help",
			why:   "more agents would be standbys",
			todo:  "mainstay cluster update c --replication-mode active_active",
			since: noon.Add(-5 * time.Minute)},
		"a rollout has failed": {change: func(c *cluster.Cluster) {
			c.Scaling = &cluster.ScalingState{Rollout: &api.Rollout{Number: 3, Status: api.RolloutFailed,
				Reason: "no agent became healthy", EndedAt: noon.Add(-time.Hour)}}
		}, what: "rollout 3 of the agents of cluster c has failed", why: "no agent became healthy; agents",
			todo: "mainstay cluster scaling c", since: noon.Add(-time.Hour)},
		"a rollout was reverted": {change: func(c *cluster.Cluster) {
			c.Scaling = &cluster.ScalingState{Rollout: &api.Rollout{Number: 4, Status: api.RolloutSuccessful, Revert: true,
				Reason: "rollout 3 failed", StartedAt: noon.Add(-time.Hour), EndedAt: noon.Add(-time.Minute)}}
		}, what: "a rollout of the agents of cluster c was reverted", why: "rollout 3 failed; the former settings",
			todo: "spawn", since: noon.Add(-time.Hour)},
		"canaries are healthy": {change: func(c *cluster.Cluster) {
			c.Scaling = &cluster.ScalingState{Rollout: &api.Rollout{Number: 3, Status: api.RolloutWaiting,
				ProgressAt: noon.Add(-time.Hour)}}
		}, what: "rollout 3 of the agents of cluster c waits for a person", why: "its canaries are healthy",
			todo: "mainstay scaling rollout promote c", since: noon.Add(-time.Hour)},
		"a rollout was reverted long ago": {change: func(c *cluster.Cluster) {
			c.Scaling = &cluster.ScalingState{Rollout: &api.Rollout{Number: 4, Status: api.RolloutSuccessful, Revert: true,
				Reason: "rollout 3 failed", EndedAt: noon.Add(-2 * time.Hour)}}
		}},
		"no place left": {change: func(c *cluster.Cluster) {
			c.Config.MaxAgents, c.Config.DesiredAgents = 2, 2
			takeOut(c, "a-00", noon, "")
		}, what: "scaling cannot start agents of cluster c", why: "the cluster is full", todo: "End the drains"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := scaledCluster(2, 1, 3)
			if c.what == "" || c.queue > 0 {
				cluster = scaledCluster(3, 1, 3)
			}
			c.change(cluster)
			got := OfScaling(cluster, busyWith(cluster, c.queue), c.oldest, noon)
			if c.what == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1, "%+v", got)
			require.Equal(t, api.SeverityWarning, got[0].Severity)
			require.Equal(t, api.ProblemScaling, got[0].Kind)
			require.Contains(t, got[0].What, c.what)
			require.Contains(t, got[0].Why, c.why)
			require.Contains(t, got[0].Do, c.todo)
			require.Equal(t, since(c.since), got[0].Since)
		})
	}
}

func TestOfScalingRun(t *testing.T) {
	t.Parallel()
	p, there := OfScalingRun(ScheduleRun{Paused: true, Note: "budget"}, 2)
	require.True(t, there)
	require.Equal(t, api.SeverityNotice, p.Severity)
	require.Equal(t, "budget", p.Why)
	_, there = OfScalingRun(ScheduleRun{Paused: true}, 0)
	require.False(t, there, "no cluster goes by the rules")
	_, there = OfScalingRun(ScheduleRun{}, 2)
	require.False(t, there)
}
