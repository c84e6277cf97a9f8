package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

func TestOfCluster(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	now := since.Add(time.Minute)
	member := func(id string, s api.AgentStatus, reason string) cluster.Member {
		return cluster.Member{AgentID: id, Status: s, StatusSince: since, StatusReason: reason,
			AgentProfile: api.AgentProfile{MaxTasks: 2}, Epoch: 1}
	}
	online := func(id string) cluster.Member { return member(id, api.AgentOnline, "") }
	lost := member("lost", api.AgentOffline, "its host is gone")
	type told struct {
		severity        api.Severity
		kind            api.ProblemKind
		what, why, todo string
	}
	for name, c := range map[string]struct {
		cluster cluster.Cluster
		want    []told
	}{
		"empty and wanted so": {},
		"never had a leader": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive}},
			want: []told{{api.SeverityWarning, api.ProblemNoLeader, "cluster c has no agent, and so no leader", "",
				"mainstay cluster delete c"}},
		},
		"never had an owner": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 1},
				Shards: []cluster.ShardOwner{{}}},
			want: []told{{api.SeverityWarning, api.ProblemNoOwner, "cluster c has no agent, and so no owner", "",
				"mainstay agent run --cluster c"}},
		},
		"a leader wanted, and agents too": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive, MinAgents: 1}},
			want: []told{{api.SeverityCritical, api.ProblemAgents, "cluster c has no online agent", "",
				"mainstay agent run --cluster c"}},
		},
		"as it should be": {cluster: cluster.Cluster{Config: api.ClusterConfig{MinAgents: 1, DesiredAgents: 2},
			Members: []cluster.Member{online("a"), online("b")}}},
		"one lost": {
			cluster: cluster.Cluster{Members: []cluster.Member{online("a"), lost}},
			want: []told{{api.SeverityWarning, api.ProblemAgents, "1 agent of cluster c is lost", "lost lost: its host is gone",
				"Their work has moved"}},
		},
		"one flaps, and others have settled": {
			cluster: cluster.Cluster{
				Members: []cluster.Member{online("a"),
					{AgentID: "f", Status: api.AgentOnline, StatusSince: since, Mistakes: 3},
					{AgentID: "s", Status: api.AgentOnline, StatusSince: now.Add(-steadyAfter), Mistakes: 30},
					{AgentID: "t", Status: api.AgentOnline, StatusSince: since, Mistakes: 2}},
			},
			want: []told{{api.SeverityWarning, api.ProblemFlapping, "agent f of cluster c flaps: it was lost 3 times", "stalls",
				"mainstay agent maintenance f on"}},
		},
		"fewer than desired": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{DesiredAgents: 3},
				Members: []cluster.Member{online("a"), member("s", api.AgentSuspect, "")}},
			want: []told{{api.SeverityWarning, api.ProblemAgents, "cluster c has 1 of 3 desired agents online",
				"s not answering", ""}},
		},
		"fewer than needed": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{MinAgents: 2},
				Members: []cluster.Member{online("a"), lost}},
			want: []told{{api.SeverityCritical, api.ProblemAgents, "cluster c has 1 agent online; at least 2 are needed",
				"lost", "Their work has moved"}},
		},
		"none": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{MinAgents: 1}},
			want: []told{{api.SeverityCritical, api.ProblemAgents, "cluster c has no online agent", "",
				"mainstay agent run --cluster c"}},
		},
		"none, and scaling is at it": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{MinAgents: 1,
				Scaling: api.ScalingPolicy{Mode: api.ScalingManual}}},
			want: []told{{api.SeverityCritical, api.ProblemAgents, "cluster c has no online agent", "", "Scaling starts"}},
		},
		"none, and scaling cannot help": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{MinAgents: 1,
				Scaling: api.ScalingPolicy{Mode: api.ScalingManual}},
				Scaling: &cluster.ScalingState{Blocked: &api.ScalingBlocked{Reason: "no spawner"}}},
			want: []told{{api.SeverityCritical, api.ProblemAgents, "cluster c has no online agent",
				"scaling cannot start agents: no spawner", "mainstay agent run --cluster c"}},
		},
		"all lost": {
			cluster: cluster.Cluster{Members: []cluster.Member{lost}},
			want: []told{{api.SeverityCritical, api.ProblemAgents, "cluster c has no online agent", "lost",
				"waits in its lanes"}},
		},
		"no leader": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
				Members: []cluster.Member{online("a")}},
			want: []told{{api.SeverityCritical, api.ProblemNoLeader, "cluster c has no leader", "", ""}},
		},
		"no leader yet": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive},
				Members: []cluster.Member{online("a")}, LeaderFreeAt: now.Add(time.Second)},
			want: []told{{api.SeverityWarning, api.ProblemNoLeader, "cluster c has no leader", "2026-11-21T12:01:01Z", ""}},
		},
		"a shard without owner": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.Sharded, Shards: 2},
				Members: []cluster.Member{online("a")}, Shards: []cluster.ShardOwner{{Owner: "a", Epoch: 2}, {}}},
			want: []told{{api.SeverityCritical, api.ProblemNoOwner, "1 shard of cluster c has no owner", "shard 1", ""}},
		},
		"braked, paused, drained": {
			cluster: cluster.Cluster{Members: []cluster.Member{online("a"), member("d", api.AgentDraining, "")},
				Brakes:  cluster.Brakes{BrakeHolds: []cluster.BrakeHold{{Hub: "h", Since: since, Lost: 4}}},
				Pauses:  []cluster.Pause{{Since: since, Reason: "disks"}, {Lane: "cap/gpu", Since: since}},
				Cordons: []cluster.Cordon{{AgentID: "d", Status: api.AgentDraining, Since: since, Reason: "new disk"}}},
			want: []told{
				{api.SeverityCritical, api.ProblemBrake, "4 agents of cluster c vanished at once", "hub h", "release the brake"},
				{api.SeverityWarning, api.ProblemAgents, "cluster c is degraded", "", ""},
				{api.SeverityNotice, api.ProblemCordoned, "1 agent of cluster c is being drained", "new disk", ""},
				{api.SeverityNotice, api.ProblemPaused, "cluster c is paused", "disks", "Resume it"},
				{api.SeverityNotice, api.ProblemPaused, "lane cap/gpu of cluster c is paused", "", "Resume it"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cluster.Config.Name = "c"
			problems := OfCluster(&c.cluster, now)
			Sort(problems)
			require.Len(t, problems, len(c.want), "%+v", problems)
			for i, want := range c.want {
				got := problems[i]
				require.Equal(t, want.severity, got.Severity, got.What)
				require.Equal(t, want.kind, got.Kind, got.What)
				require.Equal(t, "c", got.Cluster)
				require.Contains(t, got.What, want.what)
				require.Contains(t, got.Why, want.why)
				require.Contains(t, got.Do, want.todo)
			}
		})
	}
}

func TestOfLane(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		lane     LaneFacts
		severity api.Severity    // empty: none
		kind     api.ProblemKind // empty: not looked at
		what     string
		todo     string
	}{
		"empty":  {lane: LaneFacts{Lane: "default"}},
		"young":  {lane: LaneFacts{Lane: "default", Depth: 9, Oldest: OldWork - time.Second, Agents: 1}},
		"paused": {lane: LaneFacts{Lane: "default", Depth: 9, Oldest: time.Hour, Paused: true}},
		"old": {lane: LaneFacts{Lane: "default", Depth: 9, Oldest: OldWork, Agents: 1, Slots: 2},
			severity: api.SeverityWarning, what: "9 tasks wait in lane default", todo: "more agents"},
		"nobody": {lane: LaneFacts{Lane: "cap/arm+gpu", Depth: 1}, severity: api.SeverityWarning,
			what: "1 task waits in lane cap/arm+gpu of cluster c, which no online agent serves", todo: "arm, gpu"},
		"nobody is large enough": {lane: LaneFacts{Lane: "fit/b6c11bc8bd78f8e1", Depth: 1}, severity: api.SeverityWarning,
			what: "which no online agent serves", todo: "ask for resources that no online agent has"},
		"nobody handles its type": {lane: LaneFacts{Lane: "type/sing", Depth: 2, Needs: &api.LaneNeeds{Type: "sing"},
			In: &cluster.Cluster{Config: api.ClusterConfig{Name: "c"},
				Members: []cluster.Member{{AgentID: "a", Status: api.AgentOnline,
					AgentProfile: api.AgentProfile{TaskTypes: []string{"build"}}}}}},
			severity: api.SeverityWarning, kind: api.ProblemUnhandled, what: "2 tasks of type sing in cluster c: no agent handles it",
			todo: "Start an agent that handles it"},
		"its agents are gone": {lane: LaneFacts{Lane: "type/sing", Depth: 1, Needs: &api.LaneNeeds{Type: "sing"},
			In: &cluster.Cluster{}}, severity: api.SeverityWarning, kind: api.ProblemNotServed, what: "1 task waits in lane type/sing",
			todo: "Start an agent that handles type sing"},
		"nobody at all": {lane: LaneFacts{Lane: "default", Depth: 1}, severity: api.SeverityCritical,
			what: "no online agent serves", todo: "Start an agent"},
		"pinned and old": {lane: LaneFacts{Lane: "agent/a", Depth: 9, Oldest: OldWork, Agents: 1, Slots: 2},
			severity: api.SeverityWarning, what: "9 tasks wait in lane agent/a", todo: "give agent a more slots"},
		"its agent is away": {lane: LaneFacts{Lane: "agent/a", Depth: 2}, severity: api.SeverityWarning,
			what: "2 tasks wait for agent a, which is not online", todo: "Start the agent again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.lane.Cluster = "c"
			got, there := OfLane(c.lane, now)
			require.Equal(t, c.severity != "", there)
			require.Equal(t, c.severity, got.Severity)
			require.Contains(t, got.What, c.what)
			require.Contains(t, got.Do, c.todo)
			if c.kind != "" {
				require.Equal(t, c.kind, got.Kind)
			}
			if there && c.lane.Agents > 0 {
				require.Equal(t, now.Add(-c.lane.Oldest), *got.Since)
			}
			require.Equal(t, there && c.lane.Agents == 0 && c.kind != api.ProblemUnhandled, got.Since == nil && got.Why != "")
		})
	}
}

func TestOfFailover(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ended := func(ago time.Duration) *time.Time { at := now.Add(-ago); return &at }
	for name, c := range map[string]struct {
		record   api.FailoverRecord
		severity api.Severity // empty: none
	}{
		"under way": {record: api.FailoverRecord{Status: api.FailoverRunning}, severity: api.SeverityNotice},
		"succeeded": {record: api.FailoverRecord{Status: api.FailoverSucceeded, CompletedAt: ended(time.Second)}},
		"no target": {record: api.FailoverRecord{Status: api.FailoverNoTarget, CompletedAt: ended(time.Minute)},
			severity: api.SeverityWarning},
		"failed": {record: api.FailoverRecord{Status: api.FailoverFailed, CompletedAt: ended(time.Minute)},
			severity: api.SeverityWarning},
		"failed old": {record: api.FailoverRecord{Status: api.FailoverFailed, CompletedAt: ended(2 * time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, there := OfFailover(&c.record, now)
			require.Equal(t, c.severity != "", there)
			require.Equal(t, c.severity, got.Severity)
		})
	}
}
