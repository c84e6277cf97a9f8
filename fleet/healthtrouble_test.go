package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unwellCluster has agents of these levels, all so for a while; an empty level is a healthy agent.
func unwellCluster(now time.Time, mode HealingMode, lasts time.Duration, levels ...HealthLevel) ClusterFacts {
	f := ClusterFacts{Cluster: Cluster{Config: ClusterConfig{Name: "c", SelfHealing: HealingPolicy{Mode: mode}}.WithDefaults()}}
	for i, level := range levels {
		m := Member{AgentID: string(rune('a' + i)), Status: AgentOnline, StatusSince: now.Add(-time.Hour), Hub: "h", MaxTasks: 4, Epoch: 1}
		if level != "" {
			m.Health = &MemberHealth{Level: level, Score: 0.4, Why: "disk errors", Since: now.Add(-lasts)}
		}
		f.Members = append(f.Members, m)
	}
	return f
}

// takeOut has healing take an agent out of service.
func (c *Cluster) takeOut(agent string, at time.Time, drain string) {
	c.Member(agent).Status = AgentMaintenance
	c.Cordons = append(c.Cordons, Cordon{AgentID: agent, Status: AgentMaintenance, Since: at, Drain: drain})
}

func TestHealingTroubles(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const young, ripe, old = 10 * time.Second, time.Minute, 10 * time.Minute
	type told struct {
		severity        Severity
		kind            TroubleKind
		what, why, todo string
	}
	of := func(mode HealingMode, lasts time.Duration, levels ...HealthLevel) ClusterFacts {
		return unwellCluster(now, mode, lasts, levels...)
	}
	with := func(f ClusterFacts, change func(*ClusterFacts)) ClusterFacts { change(&f); return f }
	for name, c := range map[string]struct {
		cluster ClusterFacts
		run     ScheduleRun
		want    []told
	}{
		"all are well":                       {cluster: of(HealingOn, 0, "", "")},
		"healing is about to act":            {cluster: of(HealingOn, ripe, "", "", "", HealthDegraded)},
		"just ill while healing is paused":   {cluster: of(HealingOn, young, "", "", HealthDegraded), run: ScheduleRun{Paused: true}, want: []told{{SeverityNotice, TroublePausedHeal, "healing is paused", "", "Resume it"}}},
		"paused, and all are well":           {cluster: of(HealingOn, 0, ""), run: ScheduleRun{Paused: true, Note: "kernels"}, want: []told{{SeverityNotice, TroublePausedHeal, "healing is paused", "kernels", "Resume it"}}},
		"paused, and nobody wants it":        {cluster: of(HealingOff, 0, ""), run: ScheduleRun{Paused: true}},
		"missing":                            {cluster: of(HealingOn, 0, ""), run: ScheduleRun{Missing: true}, want: []told{{SeverityWarning, TroubleHealing, "schedule is missing", "", "--roles worker"}}},
		"healing did not help":               {cluster: of(HealingOn, old, "", "", "", HealthDegraded), want: []told{{SeverityWarning, TroubleHealth, "agent d of cluster c is degraded", "disk errors; healing has not mended it", "its host and log"}}},
		"paused while one is ill":            {cluster: of(HealingOn, ripe, "", "", "", HealthDegraded), run: ScheduleRun{Paused: true, Note: "kernels"}, want: []told{{SeverityWarning, TroublePausedHeal, "agent d of cluster c is degraded, and healing is paused", "disk errors; kernels", "Resume healing, or drain it"}}},
		"missing while one is ill":           {cluster: of(HealingOn, ripe, "", "", HealthDegraded), run: ScheduleRun{Missing: true}, want: []told{{SeverityWarning, TroubleHealing, "and healing does not run", "disk errors", "Start a worker"}}},
		"a dry run while two are ill":        {cluster: of(HealingDryRun, ripe, "", "", "", "", HealthDegraded, HealthCritical), want: []told{{SeverityWarning, TroubleHealing, "2 agents of cluster c are unwell, the worst critical, and healing is in dry run", "disk errors", "--healing on"}}},
		"off, and ill for a short time":      {cluster: of(HealingOff, ripe, "", "", HealthDegraded)},
		"off, and ill for long":              {cluster: of(HealingOff, old, "", "", HealthDegraded), want: []told{{SeverityWarning, TroubleHealth, "agent c of cluster c is degraded", "healing is off", "Drain it"}}},
		"the last agent":                     {cluster: of(HealingOn, ripe, HealthDegraded), want: []told{{SeverityWarning, TroubleHealing, "agent a of cluster c is degraded, and healing must not act", "no healthy agent would be left", "start healthy agents"}}},
		"the last agent hardly works":        {cluster: of(HealingOn, ripe, HealthCritical), want: []told{{SeverityCritical, TroubleHealing, "agent a of cluster c is critical, and healing must not act", "no other agent is fit", "Mend it"}}},
		"all are ill":                        {cluster: of(HealingOn, ripe, HealthDegraded, HealthDegraded), want: []told{{SeverityWarning, TroubleHealing, "2 agents of cluster c are unwell, the worst degraded", "every agent of the cluster is unhealthy", "Mend them"}}},
		"warnings that healing does not see": {cluster: of(HealingDryRun, ripe, "", HealthWarning), want: []told{{SeverityWarning, TroubleHealing, "agent b of cluster c shows warnings, and healing is in dry run", "disk errors", ""}}},
		"the brake holds":                    {cluster: with(of(HealingOn, old, "", HealthCritical), func(f *ClusterFacts) { f.BrakeHolds = []BrakeHold{{Hub: "h"}} })},
		"an operator's agent is ill":         {cluster: with(of(HealingOn, old, "", HealthCritical), func(f *ClusterFacts) { f.takeOut("b", now, "") })},
		"load is reduced already": {cluster: with(of(HealingOn, old, "", HealthWarning), func(f *ClusterFacts) {
			f.Reductions = []LoadReduction{{AgentID: "b"}}
		})},
		"taken out": {cluster: with(of(HealingOn, ripe, "", HealthDegraded), func(f *ClusterFacts) { f.takeOut("b", now.Add(-time.Minute), "c:healing-b-1") }),
			want: []told{{SeverityNotice, TroubleHealth, "healing took agent b of cluster c out of service", "disk errors", ""}}},
		"taken out long ago": {cluster: with(of(HealingOn, old, "", HealthDegraded), func(f *ClusterFacts) { f.takeOut("b", now.Add(-time.Hour), "c:healing-b-1") }),
			want: []told{{SeverityWarning, TroubleHealth, "healing took agent b", "disk errors", "look at its host"}}},
		"taken out, and well again": {cluster: with(of(HealingOn, ripe, "", ""), func(f *ClusterFacts) { f.takeOut("b", now.Add(-time.Hour), "c:healing-b-1") }),
			want: []told{{SeverityNotice, TroubleHealth, "healing took agent b", "healthy again", ""}}},
		"taken out, and paused": {cluster: with(of(HealingOn, ripe, "", ""), func(f *ClusterFacts) { f.takeOut("b", now.Add(-time.Minute), "c:healing-b-1") }), run: ScheduleRun{Paused: true},
			want: []told{{SeverityNotice, TroubleHealth, "healing took agent b", "nothing is given back", "End the maintenance"}, {SeverityNotice, TroublePausedHeal, "healing is paused", "", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			troubles := HealingTroubles([]ClusterFacts{c.cluster}, c.run, now)
			SortTroubles(troubles)
			require.Len(t, troubles, len(c.want), "%+v", troubles)
			for i, want := range c.want {
				got := troubles[i]
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
	f := unwellCluster(scaleNow, HealingOn, time.Minute, "", HealthDegraded, "")
	f.takeOut("b", scaleNow, "c:healing-b-1")
	f.takeOut("c", scaleNow, "")
	for _, p := range f.Troubles(scaleNow) {
		if p.Kind == TroubleCordoned {
			require.Equal(t, []string{"c"}, p.Agents)
			return
		}
	}
	t.Fatal("the person's maintenance is not told")
}

func TestScalingTroubles(t *testing.T) {
	t.Parallel()
	blocked := &Blocked{Reason: "no spawner is there", Since: scaleNow.Add(-time.Hour), Failures: 3, NextAt: scaleNow.Add(time.Minute)}
	for name, c := range map[string]struct {
		change func(c *Cluster)
		queue  int64
		oldest time.Duration
		what   string // empty: no problem
		why    string
		todo   string
		since  time.Time
	}{
		"as it should be":    {change: func(*Cluster) {}},
		"off":                {change: func(c *Cluster) { c.Config.Scaling.Mode = ScalingOff; c.Scaling = &ScalingState{Blocked: blocked} }},
		"the brake holds":    {change: func(c *Cluster) { c.BrakeHolds = []BrakeHold{{Hub: "h"}}; c.Scaling = &ScalingState{Blocked: blocked} }},
		"being started":      {change: func(c *Cluster) { c.Config.DesiredAgents = 3 }},
		"cooling down":       {change: func(c *Cluster) { c.Config.MaxAgents = 9; c.Scaling = &ScalingState{LastUp: scaleNow} }, queue: 50, oldest: time.Hour},
		"full, little waits": {change: func(*Cluster) {}, queue: 5, oldest: time.Hour},
		"full, for a moment": {change: func(*Cluster) {}, queue: 50, oldest: time.Second},
		"blocked": {change: func(c *Cluster) { c.Config.DesiredAgents = 3; c.Scaling = &ScalingState{Blocked: blocked} },
			what: "scaling cannot start agents of cluster c: 1 of 3 are missing", why: "no spawner is there; tried 3 times, the next try is at 2026-11-21T12:01:00Z", todo: "spawner comes up", since: blocked.Since},
		"blocked, and tried now": {change: func(c *Cluster) {
			c.Config.DesiredAgents = 3
			c.Scaling = &ScalingState{Blocked: &Blocked{Reason: "no room", Failures: 1, NextAt: scaleNow}}
		}, what: "1 of 3 are missing", why: "no room; tried once, the next try is under way", todo: "tried again"},
		"stuck": {change: func(c *Cluster) { c.Scaling = &ScalingState{Stuck: blocked} },
			what: "scaling cannot stop agents of cluster c", why: "no spawner is there", todo: "Start their spawner again", since: blocked.Since},
		"as many as may be": {change: func(*Cluster) {}, queue: 50, oldest: 5 * time.Minute,
			what: "cluster c has as many agents as it may, and work waits", why: "max_agents of 3", todo: "mainstay cluster scale c --max 6", since: scaleNow.Add(-5 * time.Minute)},
		"no place left": {change: func(c *Cluster) {
			c.Config.MaxAgents, c.Config.DesiredAgents = 2, 2
			c.takeOut("a-00", scaleNow, "")
		}, what: "scaling cannot start agents of cluster c", why: "the cluster is full", todo: "End the drains"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := scaledCluster(2, 1, 3)
			if c.what == "" || c.queue > 0 {
				cluster = scaledCluster(3, 1, 3)
			}
			c.change(cluster)
			got := cluster.ScalingTroubles(busyWith(cluster, c.queue, 10), c.oldest, scaleNow)
			if c.what == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1, "%+v", got)
			require.Equal(t, SeverityWarning, got[0].Severity)
			require.Equal(t, TroubleScaling, got[0].Kind)
			require.Contains(t, got[0].What, c.what)
			require.Contains(t, got[0].Why, c.why)
			require.Contains(t, got[0].Do, c.todo)
			require.Equal(t, since(c.since), got[0].Since)
		})
	}
}

func TestScalingRunTrouble(t *testing.T) {
	t.Parallel()
	p, there := ScalingRunTrouble(ScheduleRun{Paused: true, Note: "budget"}, 2)
	require.True(t, there)
	require.Equal(t, SeverityNotice, p.Severity)
	require.Equal(t, "budget", p.Why)
	_, there = ScalingRunTrouble(ScheduleRun{Paused: true}, 0)
	require.False(t, there, "no cluster goes by the rules")
	_, there = ScalingRunTrouble(ScheduleRun{}, 2)
	require.False(t, there)
}
