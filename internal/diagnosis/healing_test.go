package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// unwellCluster has agents of these levels, all so for a while; an empty level is a healthy agent.
func unwellCluster(
	now time.Time, mode api.HealingMode, lasts time.Duration, levels ...api.HealthLevel,
) healing.ClusterFacts {
	f := healing.ClusterFacts{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c",
		SelfHealing: api.HealingPolicy{Mode: mode}}.WithDefaults()}}
	for i, level := range levels {
		m := cluster.Member{AgentID: string(rune('a' + i)), Status: api.AgentOnline, StatusSince: now.Add(-time.Hour),
			Hub: "h", AgentProfile: api.AgentProfile{MaxTasks: 4}, Epoch: 1}
		if level != "" {
			m.Health = &cluster.MemberHealth{Level: level, Score: 0.4, Why: "disk errors", Since: now.Add(-lasts)}
		}
		f.Members = append(f.Members, m)
	}
	return f
}

// takeOut puts an agent into maintenance, by the given drain or by hand.
func takeOut(c *cluster.Cluster, agent string, at time.Time, drain string) {
	c.Member(agent).Status = api.AgentMaintenance
	c.Cordons = append(c.Cordons, cluster.Cordon{AgentID: agent, Status: api.AgentMaintenance, Since: at, Drain: drain})
}

func TestOfHealing(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const young, ripe, old = 10 * time.Second, time.Minute, 10 * time.Minute
	type told struct {
		severity        api.Severity
		kind            api.ProblemKind
		what, why, todo string
	}
	of := func(mode api.HealingMode, lasts time.Duration, levels ...api.HealthLevel) healing.ClusterFacts {
		return unwellCluster(now, mode, lasts, levels...)
	}
	with := func(f healing.ClusterFacts, change func(*healing.ClusterFacts)) healing.ClusterFacts {
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		cluster healing.ClusterFacts
		run     ScheduleRun
		want    []told
	}{
		"all are well":            {cluster: of(api.HealingOn, 0, "", "")},
		"healing is about to act": {cluster: of(api.HealingOn, ripe, "", "", "", api.HealthDegraded)},
		"just ill while healing is paused": {cluster: of(api.HealingOn, young, "", "", api.HealthDegraded),
			run:  ScheduleRun{Paused: true},
			want: []told{{api.SeverityNotice, api.ProblemHealingPaused, "healing is paused", "", "Resume it"}}},
		"paused, and all are well": {cluster: of(api.HealingOn, 0, ""),
			run:  ScheduleRun{Paused: true, Note: "kernels"},
			want: []told{{api.SeverityNotice, api.ProblemHealingPaused, "healing is paused", "kernels", "Resume it"}}},
		"paused, and nobody wants it": {cluster: of(api.HealingOff, 0, ""), run: ScheduleRun{Paused: true}},
		"missing": {cluster: of(api.HealingOn, 0, ""), run: ScheduleRun{Missing: true},
			want: []told{{api.SeverityWarning, api.ProblemHealing, "schedule is missing", "", "--roles worker"}}},
		"healing did not help": {cluster: of(api.HealingOn, old, "", "", "", api.HealthDegraded),
			want: []told{{api.SeverityWarning, api.ProblemHealth, "agent d of cluster c is degraded",
				"disk errors; healing has not cured it", "its host and log"}}},
		"paused while one is ill": {cluster: of(api.HealingOn, ripe, "", "", "", api.HealthDegraded),
			run: ScheduleRun{Paused: true, Note: "kernels"},
			want: []told{{api.SeverityWarning, api.ProblemHealingPaused, "agent d of cluster c is degraded, and healing is paused",
				"disk errors; kernels", "Resume healing, or drain it"}}},
		"missing while one is ill": {cluster: of(api.HealingOn, ripe, "", "", api.HealthDegraded),
			run:  ScheduleRun{Missing: true},
			want: []told{{api.SeverityWarning, api.ProblemHealing, "and healing does not run", "disk errors", "Start a worker"}}},
		"a dry run while two are ill": {cluster: of(api.HealingDryRun, ripe, "", "", "", "",
			api.HealthDegraded,
			api.HealthCritical), want: []told{{api.SeverityWarning, api.ProblemHealing,
			"2 agents of cluster c are unwell, the worst critical, and healing is in dry run", "disk errors",
			"--healing on"}}},
		"off, and ill for a short time": {cluster: of(api.HealingOff, ripe, "", "", api.HealthDegraded)},
		"off, and ill for long": {cluster: of(api.HealingOff, old, "", "", api.HealthDegraded),
			want: []told{{api.SeverityWarning, api.ProblemHealth, "agent c of cluster c is degraded", "healing is off",
				"Drain it"}}},
		"the last agent": {cluster: of(api.HealingOn, ripe, api.HealthDegraded),
			want: []told{{api.SeverityWarning, api.ProblemHealing, "agent a of cluster c is degraded, and healing must not act",
				"no healthy agent would be left", "start healthy agents"}}},
		"the last agent hardly works": {cluster: of(api.HealingOn, ripe, api.HealthCritical),
			want: []told{{api.SeverityCritical, api.ProblemHealing, "agent a of cluster c is critical, and healing must not act",
				"no other agent is fit", "Repair it"}}},
		"all are ill": {cluster: of(api.HealingOn, ripe, api.HealthDegraded,
			api.HealthDegraded), want: []told{{api.SeverityWarning, api.ProblemHealing,
			"2 agents of cluster c are unwell, the worst degraded", "every agent of the cluster is unhealthy",
			"Repair them"}}},
		"warnings that healing does not see": {cluster: of(api.HealingDryRun, ripe, "", api.HealthWarning),
			want: []told{{api.SeverityWarning, api.ProblemHealing,
				"agent b of cluster c shows warnings, and healing is in dry run", "disk errors", ""}}},
		"the brake holds": {cluster: with(of(api.HealingOn, old, "", api.HealthCritical),
			func(f *healing.ClusterFacts) { f.BrakeHolds = []cluster.BrakeHold{{Hub: "h"}} })},
		"an operator's agent is ill": {cluster: with(of(api.HealingOn, old, "", api.HealthCritical),
			func(f *healing.ClusterFacts) { takeOut(&f.Cluster, "b", now, "") })},
		"load is reduced already": {cluster: with(of(api.HealingOn, old, "", api.HealthWarning),
			func(f *healing.ClusterFacts) {
				f.Reductions = []cluster.LoadReduction{{AgentID: "b"}}
			})},
		"taken out": {cluster: with(of(api.HealingOn, ripe, "", api.HealthDegraded),
			func(f *healing.ClusterFacts) { takeOut(&f.Cluster, "b", now.Add(-time.Minute), "c:healing-b-1") }),
			want: []told{{api.SeverityNotice, api.ProblemHealth, "healing took agent b of cluster c out of service", "disk errors",
				""}}},
		"taken out long ago": {cluster: with(of(api.HealingOn, old, "", api.HealthDegraded),
			func(f *healing.ClusterFacts) { takeOut(&f.Cluster, "b", now.Add(-time.Hour), "c:healing-b-1") }),
			want: []told{{api.SeverityWarning, api.ProblemHealth, "healing took agent b", "disk errors", "look at its host"}}},
		"taken out, and well again": {cluster: with(of(api.HealingOn, ripe, "", ""),
			func(f *healing.ClusterFacts) { takeOut(&f.Cluster, "b", now.Add(-time.Hour), "c:healing-b-1") }),
			want: []told{{api.SeverityNotice, api.ProblemHealth, "healing took agent b", "healthy again", ""}}},
		"taken out, and paused": {cluster: with(of(api.HealingOn, ripe, "", ""),
			func(f *healing.ClusterFacts) {
				takeOut(&f.Cluster, "b", now.Add(-time.Minute),
					"c:healing-b-1")
			}), run: ScheduleRun{Paused: true},
			want: []told{{api.SeverityNotice, api.ProblemHealth, "healing took agent b", "nothing is given back",
				"End the maintenance"}, {api.SeverityNotice, api.ProblemHealingPaused, "healing is paused", "", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := OfHealing([]healing.ClusterFacts{c.cluster}, c.run, now)
			Sort(problems)
			require.Len(t, problems, len(c.want), "%+v", problems)
			for i, want := range c.want {
				got := problems[i]
				require.Equal(t, want.severity, got.Severity, got.What)
				require.Equal(t, want.kind, got.Kind, got.What)
				require.Contains(t, got.What, want.what)
				require.Contains(t, got.Why, want.why)
				require.Contains(t, got.Do, want.todo)
				if got.Cluster != "" {
					require.NotNil(t, got.Since)
					require.Len(t, got.Agents, int(got.Count))
				}
			}
		})
	}
}

// TestHealingsAgentsAreNotAPersons holds the two problems about agents out of service apart.
func TestHealingsAgentsAreNotAPersons(t *testing.T) {
	t.Parallel()
	f := unwellCluster(noon, api.HealingOn, time.Minute, "", api.HealthDegraded, "")
	takeOut(&f.Cluster, "b", noon, "c:healing-b-1")
	takeOut(&f.Cluster, "c", noon, "")
	for _, p := range OfCluster(&f.Cluster, noon) {
		if p.Kind == api.ProblemCordoned {
			require.Equal(t, []string{"c"}, p.Agents)
			return
		}
	}
	t.Fatal("the person's maintenance is not told")
}
