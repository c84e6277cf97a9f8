package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

func TestClusterChanges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	join := func(id, instance, hub string) func(*cluster.Cluster) {
		return func(c *cluster.Cluster) {
			c.Join(cluster.Join{AgentID: id, Instance: instance,
				AgentProfile: api.AgentProfile{MaxTasks: 2}}, hub, now)
		}
	}
	apply := func(id string, status api.AgentStatus, left bool) func(*cluster.Cluster) {
		return func(c *cluster.Cluster) {
			m := c.Member(id)
			require.True(t, c.Apply(cluster.Transition{AgentID: id, Instance: m.Instance, Epoch: m.Epoch, Status: status,
				Left: left, Reason: "gone", At: now}, m.Hub))
		}
	}
	for name, c := range map[string]struct {
		config api.ClusterConfig
		before []func(*cluster.Cluster)
		step   func(*cluster.Cluster)
		want   string
	}{
		"nothing":     {step: func(*cluster.Cluster) {}, want: ""},
		"a new agent": {step: join("a", "i1", "h1"), want: "agent.joined a 1"},
		"between others": {before: []func(*cluster.Cluster){join("a", "i", "h1"), join("c", "i", "h1")},
			step: join("b", "i", "h1"), want: "agent.joined b 3"},
		"a new process": {before: []func(*cluster.Cluster){join("a", "i1", "h1")}, step: join("a", "i2", "h1"),
			want: "agent.replaced a 2"},
		"after it was lost": {before: []func(*cluster.Cluster){join("a", "i1", "h1"),
			apply("a", api.AgentOffline, false)}, step: join("a", "i2", "h1"), want: "agent.joined a 2"},
		"lost": {before: []func(*cluster.Cluster){join("a", "i1", "h1")},
			step: apply("a", api.AgentOffline, false), want: "agent.lost a 1: gone"},
		"back": {before: []func(*cluster.Cluster){join("a", "i1", "h1"),
			apply("a", api.AgentOffline, false)}, step: join("a", "i1", "h1"), want: "agent.recovered a 1"},
		"another hub": {before: []func(*cluster.Cluster){join("a", "i1", "h1")}, step: join("a", "i1", "h2"),
			want: "agent.moved a 1"},
		"the same again": {before: []func(*cluster.Cluster){join("a", "i1", "h1")}, step: join("a", "i1", "h1"),
			want: ""},
		"suspect": {before: []func(*cluster.Cluster){join("a", "i1", "h1")},
			step: apply("a", api.AgentSuspect, false), want: "agent.suspect a 1: gone"},
		"no longer suspect": {before: []func(*cluster.Cluster){join("a", "i1", "h1"),
			apply("a", api.AgentSuspect, false)}, step: apply("a", api.AgentOnline,
			false), want: "agent.recovered a 1: gone"},
		"goodbye": {before: []func(*cluster.Cluster){join("a", "i1", "h1"), join("b", "i1", "h1")},
			step: apply("a", api.AgentOffline, true), want: "agent.left a 1: it said goodbye"},
		"the last of the list": {before: []func(*cluster.Cluster){join("a", "i1", "h1"), join("b", "i1", "h1")},
			step: apply("b", api.AgentOffline, true), want: "agent.left b 2: it said goodbye"},
		"forgotten": {config: api.ClusterConfig{MaxAgents: 1},
			before: []func(*cluster.Cluster){join("a", "i1", "h1"), apply("a", api.AgentOffline, false)},
			step:   join("b", "i1", "h1"),
			want:   "agent.left a 1: it was offline for longest, and the cluster was full; agent.joined b 2"},
		"a hub is lost": {before: []func(*cluster.Cluster){join("a", "i", "h1"), join("b", "i", "h2"),
			join("c", "i", "h1")}, step: func(c *cluster.Cluster) { c.LoseHub("h1", now) },
			want: "agent.lost a 1: its hub was lost and it did not re-attach to another; agent.lost c 3: its hub was lost and it did not re-attach to another"},
		"draining": {before: []func(*cluster.Cluster){join("a", "i", "h1")}, step: func(c *cluster.Cluster) {
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "a", Status: api.AgentDraining, Since: now,
				Reason: "upgrade", Drain: "c:d"}))
		}, want: "agent.draining a 1: upgrade"},
		"maintenance ends": {before: []func(*cluster.Cluster){join("a", "i", "h1"), func(c *cluster.Cluster) {
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "a", Status: api.AgentMaintenance, Since: now}))
		}}, step: func(c *cluster.Cluster) { _, _ = c.LiftCordon("a", "", now) }, want: "agent.in_service a 1"},
		"gone in maintenance": {before: []func(*cluster.Cluster){join("a", "i", "h1"), func(c *cluster.Cluster) {
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "a", Status: api.AgentMaintenance, Since: now}))
		}}, step: apply("a", api.AgentOffline, true), want: "agent.left a 1: not connected any more; it stays in maintenance"},
		"a leader": {config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
			before: []func(*cluster.Cluster){join("a", "i", "h1")},
			step:   func(c *cluster.Cluster) { c.Elect(api.SelectLeastLoaded, nil, now) }, want: "leader.elected a 2"},
		"no leader": {config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
			before: []func(*cluster.Cluster){join("a", "i", "h1"), func(c *cluster.Cluster) {
				c.Elect(api.SelectLeastLoaded, nil, now)
			}},
			step: func(c *cluster.Cluster) { c.VacateLeader(time.Second, now) }, want: "leader.vacated a 0"},
		"shards": {config: api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 4},
			before: []func(*cluster.Cluster){join("a", "i", "h1"), join("b", "i", "h1")},
			step:   func(c *cluster.Cluster) { c.AssignShards(time.Second, now) },
			want:   "shard.assigned a 0 [0 2]; shard.assigned b 0 [1 3]"},
		"pause": {step: func(c *cluster.Cluster) { _, _ = c.Pause("", "night", now) }, want: "lane.paused : night"},
		"resume": {before: []func(*cluster.Cluster){func(c *cluster.Cluster) { _, _ = c.Pause("", "night", now) }},
			step: func(c *cluster.Cluster) { c.Pauses.Resume("") }, want: "lane.resumed "},
		"brake": {step: func(c *cluster.Cluster) { c.SetBrake("h1", &cluster.BrakeHold{Hub: "h1", Lost: 3}) },
			want: "brake.engaged "},
		"brake off": {before: []func(*cluster.Cluster){func(c *cluster.Cluster) {
			c.SetBrake("h1",
				&cluster.BrakeHold{Hub: "h1", Lost: 3})
		}},
			step: func(c *cluster.Cluster) { c.SetBrake("h1", nil) }, want: "brake.released "},
		"configured": {step: func(c *cluster.Cluster) { c.Config.DesiredAgents = 5 }, want: "cluster.configured "},
		"worse health": {before: []func(*cluster.Cluster){join("a", "i", "h1")}, step: func(c *cluster.Cluster) {
			require.True(t, c.Apply(cluster.Transition{AgentID: "a", Instance: "i", Epoch: 1, At: now,
				Health: &cluster.MemberHealth{Level: api.HealthDegraded, Why: "cpu"}}, "h1"))
		}, want: "agent.health a 1 degraded: cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Name = "c"
			state := &cluster.Cluster{Config: c.config.WithDefaults()}
			for _, step := range c.before {
				step(state)
			}
			was := state.Snapshot()
			c.step(state)
			events := state.Changes(was, now)
			require.Equal(t, c.want, inShort(events))
			events = state.Changes(was, now)
			require.Empty(t, events, "what was told is not told again")
		})
	}
}

// A new leader's event names the leader before, although the seat was empty in between.
func TestElectedLeaderHasAPrevious(t *testing.T) {
	t.Parallel()
	c := &cluster.Cluster{Config: api.ClusterConfig{Name: "c", ReplicationMode: api.ActivePassive}.WithDefaults()}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, id := range []string{"a", "b"} {
		c.Join(cluster.Join{AgentID: id, Instance: "i"}, "h1", now)
	}
	c.Elect(api.SelectLeastLoaded, nil, now)
	c.VacateLeader(0, now)
	was := c.Snapshot()
	c.Elect(api.SelectLeastLoaded, nil, now)
	events := c.Changes(was, now)
	require.Len(t, events, 1)
	require.Equal(t, "b", events[0].AgentID)
	require.Equal(t, "a", events[0].PreviousAgentID)
}

func inShort(events []cluster.Event) string {
	var list []string
	for _, e := range events {
		line := strings.TrimPrefix(string(e.Type), api.EventPrefix) + " " + e.AgentID
		if e.AgentID != "" {
			line += fmt.Sprintf(" %d", e.Epoch)
		}
		if len(e.Shards) > 0 {
			line += fmt.Sprint(" ", e.Shards)
		}
		if e.Level != "" {
			line += " " + e.Level
		}
		if e.Reason != "" {
			line += ": " + e.Reason
		}
		list = append(list, line)
	}
	return strings.Join(list, "; ")
}
