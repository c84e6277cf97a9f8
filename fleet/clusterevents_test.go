package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

func TestClusterChanges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	join := func(id, instance, hub string) func(*fleet.Cluster) {
		return func(c *fleet.Cluster) {
			c.Join(fleet.Join{AgentID: id, Instance: instance,
				AgentProfile: api.AgentProfile{MaxTasks: 2}}, hub, now)
		}
	}
	apply := func(id string, status api.AgentStatus, left bool) func(*fleet.Cluster) {
		return func(c *fleet.Cluster) {
			m := c.Member(id)
			require.True(t, c.Apply(fleet.Transition{AgentID: id, Instance: m.Instance, Epoch: m.Epoch, Status: status,
				Left: left, Reason: "gone", At: now}, m.Hub))
		}
	}
	for name, c := range map[string]struct {
		config api.ClusterConfig
		before []func(*fleet.Cluster)
		step   func(*fleet.Cluster)
		want   string
	}{
		"nothing":     {step: func(*fleet.Cluster) {}, want: ""},
		"a new agent": {step: join("a", "i1", "h1"), want: "agent.joined a 1"},
		"between others": {before: []func(*fleet.Cluster){join("a", "i", "h1"), join("c", "i", "h1")},
			step: join("b", "i", "h1"), want: "agent.joined b 3"},
		"a new process": {before: []func(*fleet.Cluster){join("a", "i1", "h1")}, step: join("a", "i2", "h1"),
			want: "agent.replaced a 2"},
		"after it was lost": {before: []func(*fleet.Cluster){join("a", "i1", "h1"),
			apply("a", api.AgentOffline, false)}, step: join("a", "i2", "h1"), want: "agent.joined a 2"},
		"lost": {before: []func(*fleet.Cluster){join("a", "i1", "h1")},
			step: apply("a", api.AgentOffline, false), want: "agent.lost a 1: gone"},
		"back": {before: []func(*fleet.Cluster){join("a", "i1", "h1"),
			apply("a", api.AgentOffline, false)}, step: join("a", "i1", "h1"), want: "agent.recovered a 1"},
		"another hub": {before: []func(*fleet.Cluster){join("a", "i1", "h1")}, step: join("a", "i1", "h2"),
			want: "agent.moved a 1"},
		"the same again": {before: []func(*fleet.Cluster){join("a", "i1", "h1")}, step: join("a", "i1", "h1"),
			want: ""},
		"suspect": {before: []func(*fleet.Cluster){join("a", "i1", "h1")},
			step: apply("a", api.AgentSuspect, false), want: "agent.suspect a 1: gone"},
		"no longer suspect": {before: []func(*fleet.Cluster){join("a", "i1", "h1"),
			apply("a", api.AgentSuspect, false)}, step: apply("a", api.AgentOnline,
			false), want: "agent.recovered a 1: gone"},
		"goodbye": {before: []func(*fleet.Cluster){join("a", "i1", "h1"), join("b", "i1", "h1")},
			step: apply("a", api.AgentOffline, true), want: "agent.left a 1: it said goodbye"},
		"the last of the list": {before: []func(*fleet.Cluster){join("a", "i1", "h1"), join("b", "i1", "h1")},
			step: apply("b", api.AgentOffline, true), want: "agent.left b 2: it said goodbye"},
		"forgotten": {config: api.ClusterConfig{MaxAgents: 1},
			before: []func(*fleet.Cluster){join("a", "i1", "h1"), apply("a", api.AgentOffline, false)},
			step:   join("b", "i1", "h1"),
			want:   "agent.left a 1: it was offline for longest, and the cluster was full; agent.joined b 2"},
		"a hub is lost": {before: []func(*fleet.Cluster){join("a", "i", "h1"), join("b", "i", "h2"),
			join("c", "i", "h1")}, step: func(c *fleet.Cluster) { c.LoseHub("h1", now) },
			want: "agent.lost a 1: its hub was lost and it did not re-attach to another; agent.lost c 3: its hub was lost and it did not re-attach to another"},
		"draining": {before: []func(*fleet.Cluster){join("a", "i", "h1")}, step: func(c *fleet.Cluster) {
			require.NoError(t, c.SetCordon(fleet.Cordon{AgentID: "a", Status: api.AgentDraining, Since: now,
				Reason: "upgrade", Drain: "c:d"}))
		}, want: "agent.draining a 1: upgrade"},
		"maintenance ends": {before: []func(*fleet.Cluster){join("a", "i", "h1"), func(c *fleet.Cluster) {
			require.NoError(t, c.SetCordon(fleet.Cordon{AgentID: "a", Status: api.AgentMaintenance, Since: now}))
		}}, step: func(c *fleet.Cluster) { _, _ = c.LiftCordon("a", "", now) }, want: "agent.in_service a 1"},
		"gone in maintenance": {before: []func(*fleet.Cluster){join("a", "i", "h1"), func(c *fleet.Cluster) {
			require.NoError(t, c.SetCordon(fleet.Cordon{AgentID: "a", Status: api.AgentMaintenance, Since: now}))
		}}, step: apply("a", api.AgentOffline, true), want: "agent.left a 1: not connected any more; it stays in maintenance"},
		"a leader": {config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
			before: []func(*fleet.Cluster){join("a", "i", "h1")},
			step:   func(c *fleet.Cluster) { c.Elect(api.SelectLeastLoaded, nil, now) }, want: "leader.elected a 2"},
		"no leader": {config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
			before: []func(*fleet.Cluster){join("a", "i", "h1"), func(c *fleet.Cluster) {
				c.Elect(api.SelectLeastLoaded, nil, now)
			}},
			step: func(c *fleet.Cluster) { c.VacateLeader(time.Second, now) }, want: "leader.vacated a 0"},
		"shards": {config: api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 4},
			before: []func(*fleet.Cluster){join("a", "i", "h1"), join("b", "i", "h1")},
			step:   func(c *fleet.Cluster) { c.AssignShards(time.Second, now) },
			want:   "shard.assigned a 0 [0 2]; shard.assigned b 0 [1 3]"},
		"pause": {step: func(c *fleet.Cluster) { _, _ = c.Pause("", "night", now) }, want: "lane.paused : night"},
		"resume": {before: []func(*fleet.Cluster){func(c *fleet.Cluster) { _, _ = c.Pause("", "night", now) }},
			step: func(c *fleet.Cluster) { c.Pauses.Resume("") }, want: "lane.resumed "},
		"brake": {step: func(c *fleet.Cluster) { c.SetBrake("h1", &fleet.BrakeHold{Hub: "h1", Lost: 3}) },
			want: "brake.engaged "},
		"brake off": {before: []func(*fleet.Cluster){func(c *fleet.Cluster) {
			c.SetBrake("h1",
				&fleet.BrakeHold{Hub: "h1", Lost: 3})
		}},
			step: func(c *fleet.Cluster) { c.SetBrake("h1", nil) }, want: "brake.released "},
		"configured": {step: func(c *fleet.Cluster) { c.Config.DesiredAgents = 5 }, want: "cluster.configured "},
		"worse health": {before: []func(*fleet.Cluster){join("a", "i", "h1")}, step: func(c *fleet.Cluster) {
			require.True(t, c.Apply(fleet.Transition{AgentID: "a", Instance: "i", Epoch: 1, At: now,
				Health: &fleet.MemberHealth{Level: api.HealthDegraded, Why: "cpu"}}, "h1"))
		}, want: "agent.health a 1 degraded: cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Name = "c"
			cluster := &fleet.Cluster{Config: c.config.WithDefaults()}
			for _, step := range c.before {
				step(cluster)
			}
			was := cluster.Snapshot()
			c.step(cluster)
			events := cluster.Changes(was, now)
			require.Equal(t, c.want, inShort(events))
			events = cluster.Changes(was, now)
			require.Empty(t, events, "what was told is not told again")
		})
	}
}

// A new leader's event names the leader before, although the seat was empty in between.
func TestElectedLeaderHasAPrevious(t *testing.T) {
	t.Parallel()
	c := &fleet.Cluster{Config: api.ClusterConfig{Name: "c", ReplicationMode: api.ActivePassive}.WithDefaults()}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, id := range []string{"a", "b"} {
		c.Join(fleet.Join{AgentID: id, Instance: "i"}, "h1", now)
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

func inShort(events []fleet.Event) string {
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
