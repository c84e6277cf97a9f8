package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTroubles(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	now := since.Add(time.Minute)
	member := func(id string, s AgentStatus, reason string) Member {
		return Member{AgentID: id, Status: s, StatusSince: since, StatusReason: reason, MaxTasks: 2, Epoch: 1}
	}
	online := func(id string) Member { return member(id, AgentOnline, "") }
	lost := member("lost", AgentOffline, "its host is gone")
	type told struct {
		severity        Severity
		kind            TroubleKind
		what, why, todo string
	}
	for name, c := range map[string]struct {
		cluster Cluster
		want    []told
	}{
		"empty and wanted so": {},
		"never had a leader": {
			cluster: Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive}},
			want:    []told{{SeverityWarning, TroubleNoLeader, "cluster c has no agent, and so no leader", "", "mainstay cluster delete c"}},
		},
		"never had an owner": {
			cluster: Cluster{Config: ClusterConfig{ReplicationMode: Sharded, Shards: 1}, Shards: []ShardOwner{{}}},
			want:    []told{{SeverityWarning, TroubleNoOwner, "cluster c has no agent, and so no owner", "", "mainstay agent run --cluster c"}},
		},
		"a leader wanted, and agents too": {
			cluster: Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive, MinAgents: 1}},
			want:    []told{{SeverityCritical, TroubleAgents, "cluster c has no online agent", "", "mainstay agent run --cluster c"}},
		},
		"as it should be": {cluster: Cluster{Config: ClusterConfig{MinAgents: 1, DesiredAgents: 2}, Members: []Member{online("a"), online("b")}}},
		"one lost": {
			cluster: Cluster{Members: []Member{online("a"), lost}},
			want:    []told{{SeverityWarning, TroubleAgents, "1 agent of cluster c is lost", "lost lost: its host is gone", "Their work has moved"}},
		},
		"fewer than desired": {
			cluster: Cluster{Config: ClusterConfig{DesiredAgents: 3}, Members: []Member{online("a"), member("s", AgentSuspect, "")}},
			want:    []told{{SeverityWarning, TroubleAgents, "cluster c has 1 of 3 desired agents online", "s not answering", ""}},
		},
		"fewer than needed": {
			cluster: Cluster{Config: ClusterConfig{MinAgents: 2}, Members: []Member{online("a"), lost}},
			want:    []told{{SeverityCritical, TroubleAgents, "cluster c has 1 agent online; at least 2 are needed", "lost", "Their work has moved"}},
		},
		"none": {
			cluster: Cluster{Config: ClusterConfig{MinAgents: 1}},
			want:    []told{{SeverityCritical, TroubleAgents, "cluster c has no online agent", "", "mainstay agent run --cluster c"}},
		},
		"none, and scaling is at it": {
			cluster: Cluster{Config: ClusterConfig{MinAgents: 1, Scaling: ScalingPolicy{Mode: ScalingManual}}},
			want:    []told{{SeverityCritical, TroubleAgents, "cluster c has no online agent", "", "Scaling starts"}},
		},
		"none, and scaling cannot help": {
			cluster: Cluster{Config: ClusterConfig{MinAgents: 1, Scaling: ScalingPolicy{Mode: ScalingManual}}, Scaling: &ScalingState{Blocked: &Blocked{Reason: "no spawner"}}},
			want:    []told{{SeverityCritical, TroubleAgents, "cluster c has no online agent", "scaling cannot start agents: no spawner", "mainstay agent run --cluster c"}},
		},
		"all lost": {
			cluster: Cluster{Members: []Member{lost}},
			want:    []told{{SeverityCritical, TroubleAgents, "cluster c has no online agent", "lost", "waits in its lanes"}},
		},
		"no leader": {
			cluster: Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive}, Members: []Member{online("a")}},
			want:    []told{{SeverityCritical, TroubleNoLeader, "cluster c has no leader", "", ""}},
		},
		"no leader yet": {
			cluster: Cluster{Config: ClusterConfig{ReplicationMode: ActivePassive}, Members: []Member{online("a")}, LeaderFreeAt: now.Add(time.Second)},
			want:    []told{{SeverityWarning, TroubleNoLeader, "cluster c has no leader", "2026-11-21T12:01:01Z", ""}},
		},
		"a shard without owner": {
			cluster: Cluster{Config: ClusterConfig{ReplicationMode: Sharded, Shards: 2}, Members: []Member{online("a")}, Shards: []ShardOwner{{Owner: "a", Epoch: 2}, {}}},
			want:    []told{{SeverityCritical, TroubleNoOwner, "1 shard of cluster c has no owner", "shard 1", ""}},
		},
		"braked, paused, drained": {
			cluster: Cluster{Members: []Member{online("a"), member("d", AgentDraining, "")}, BrakeHolds: []BrakeHold{{Hub: "h", Since: since, Lost: 4}},
				Pauses: []Pause{{Since: since, Reason: "disks"}, {Lane: "cap/gpu", Since: since}}, Cordons: []Cordon{{AgentID: "d", Status: AgentDraining, Since: since, Reason: "new disk"}}},
			want: []told{
				{SeverityCritical, TroubleBrake, "4 agents of cluster c vanished at once", "hub h", "release the brake"},
				{SeverityWarning, TroubleAgents, "cluster c is degraded", "", ""},
				{SeverityNotice, TroubleCordoned, "1 agent of cluster c is being drained", "new disk", ""},
				{SeverityNotice, TroublePaused, "cluster c is paused", "disks", "Resume it"},
				{SeverityNotice, TroublePaused, "lane cap/gpu of cluster c is paused", "", "Resume it"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cluster.Config.Name = "c"
			troubles := c.cluster.Troubles(now)
			SortTroubles(troubles)
			require.Len(t, troubles, len(c.want), "%+v", troubles)
			for i, want := range c.want {
				got := troubles[i]
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

func TestLaneTrouble(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		lane     LaneFacts
		severity Severity // empty: none
		what     string
		todo     string
	}{
		"empty":             {lane: LaneFacts{Lane: "default"}},
		"young":             {lane: LaneFacts{Lane: "default", Depth: 9, Oldest: OldWork - time.Second, Agents: 1}},
		"paused":            {lane: LaneFacts{Lane: "default", Depth: 9, Oldest: time.Hour, Paused: true}},
		"old":               {lane: LaneFacts{Lane: "default", Depth: 9, Oldest: OldWork, Agents: 1, Slots: 2}, severity: SeverityWarning, what: "9 tasks wait in lane default", todo: "more agents"},
		"nobody":            {lane: LaneFacts{Lane: "cap/arm+gpu", Depth: 1}, severity: SeverityCritical, what: "1 task waits in lane cap/arm+gpu of cluster c, which no online agent serves", todo: "arm, gpu"},
		"its agent is away": {lane: LaneFacts{Lane: "agent/a", Depth: 2}, severity: SeverityWarning, what: "2 tasks wait for agent a, which is not online", todo: "Start the agent again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.lane.Cluster = "c"
			got, there := c.lane.Trouble(now)
			require.Equal(t, c.severity != "", there)
			require.Equal(t, c.severity, got.Severity)
			require.Contains(t, got.What, c.what)
			require.Contains(t, got.Do, c.todo)
			if there {
				require.Equal(t, now.Add(-c.lane.Oldest), *got.Since)
			}
		})
	}
}

func TestFailoverTrouble(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ended := func(ago time.Duration) *time.Time { at := now.Add(-ago); return &at }
	for name, c := range map[string]struct {
		record   FailoverRecord
		severity Severity // empty: none
	}{
		"under way":  {record: FailoverRecord{Status: FailoverRunning}, severity: SeverityNotice},
		"succeeded":  {record: FailoverRecord{Status: FailoverSucceeded, CompletedAt: ended(time.Second)}},
		"no target":  {record: FailoverRecord{Status: FailoverNoTarget, CompletedAt: ended(time.Minute)}, severity: SeverityWarning},
		"failed":     {record: FailoverRecord{Status: FailoverFailed, CompletedAt: ended(time.Minute)}, severity: SeverityWarning},
		"failed old": {record: FailoverRecord{Status: FailoverFailed, CompletedAt: ended(2 * time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, there := c.record.Trouble(now)
			require.Equal(t, c.severity != "", there)
			require.Equal(t, c.severity, got.Severity)
		})
	}
}
