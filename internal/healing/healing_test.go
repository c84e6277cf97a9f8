package healing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// illFor is an agent with a level since so long.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func illFor(id string, level api.HealthLevel, d time.Duration) HealingAgent {
	return HealingAgent{AgentID: id, Status: api.AgentOnline, Slots: 4, Epoch: 3,
		Health: cluster.MemberHealth{Level: level, Score: 0.5, Why: "disk errors", Since: noon.Add(-d)}}
}

// caseOf is a cluster of five agents with these ill ones.
func caseOf(agents ...HealingAgent) *HealingCase {
	c := &HealingCase{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults(), Agents: agents, Members: 5, Serving: 5,
		Healthy: 5}
	for _, a := range agents {
		if a.Status != api.AgentOnline {
			c.Serving--
		}
		c.Healthy--
	}
	return c
}

func past(t api.HealingType, target string, ago ...time.Duration) []HealingPast {
	var list []HealingPast
	for _, d := range ago {
		list = append(list, HealingPast{Type: t, TargetID: target, Verdict: api.HealAct, At: noon.Add(-d)})
	}
	return list
}

func TestDecideHealing(t *testing.T) {
	t.Parallel()
	long := time.Hour
	with := func(c *HealingCase, change func(*HealingCase)) *HealingCase { change(c); return c }
	out := func(level api.HealthLevel, d time.Duration) HealingAgent {
		a := illFor("a", level, d)
		a.Status, a.OutBy, a.Since = api.AgentMaintenance, "healing", noon.Add(-d)
		return a
	}
	for name, c := range map[string]struct {
		in   *HealingCase
		want string // "<type> <target> <verdict>", the first only
		why  string
	}{
		"nothing":  {caseOf(), "", ""},
		"degraded": {caseOf(illFor("a", api.HealthDegraded, long)), "drain_agent a act", ""},
		"warning":  {caseOf(illFor("a", api.HealthWarning, long)), "reduce_load a act", ""},
		"warning, reduced already": {with(caseOf(illFor("a", api.HealthWarning, long)),
			func(c *HealingCase) { c.Agents[0].Reduced = true }), "", ""},
		"warning with one slot": {with(caseOf(illFor("a", api.HealthWarning, long)),
			func(c *HealingCase) { c.Agents[0].Slots = 1 }), "drain_agent a act", ""},
		"critical": {caseOf(illFor("a", api.HealthCritical, long)), "failover_agent a act", ""},
		"failed":   {caseOf(illFor("a", api.HealthFailed, long)), "failover_agent a act", ""},
		"the worst first": {caseOf(illFor("a", api.HealthDegraded, long), illFor("b", api.HealthCritical, long)),
			"failover_agent b act", ""},

		"only just": {caseOf(illFor("a", api.HealthCritical, 10*time.Second)), "failover_agent a waiting",
			"it is given 30s"},
		"suspect": {with(caseOf(illFor("a", api.HealthCritical, long)),
			func(c *HealingCase) { c.Agents[0].Status = api.AgentSuspect }), "failover_agent a waiting", "failure detector"},
		"an operator's": {with(caseOf(illFor("a", api.HealthCritical, long)),
			func(c *HealingCase) { c.Agents[0].OutBy = "operator" }), "failover_agent a waiting", "operator"},
		"being drained": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) { c.Agents[0].Status = api.AgentDraining }), "drain_agent a waiting", "being drained"},
		"braked": {with(caseOf(illFor("a", api.HealthCritical, long)), func(c *HealingCase) { c.Braked = true }),
			"failover_agent a skipped", "brake"},
		"off": {with(caseOf(illFor("a", api.HealthCritical, long)),
			func(c *HealingCase) { c.Policy.Mode = api.HealingOff }), "", ""},
		"a dry run": {with(caseOf(illFor("a", api.HealthCritical, long)),
			func(c *HealingCase) { c.Policy.Mode = api.HealingDryRun }), "failover_agent a planned", ""},
		"already at work": {with(caseOf(illFor("a", api.HealthCritical, long)), func(c *HealingCase) {
			c.Past = []HealingPast{{Type: api.HealDrain, TargetID: "a", Verdict: api.HealAct, At: noon.Add(-time.Hour),
				Running: true}}
		}), "failover_agent a waiting", "under way"},

		"the last agent": {&HealingCase{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults(), Members: 1, Serving: 1,
			Agents: []HealingAgent{illFor("a", api.HealthDegraded, long)}},
			"drain_agent a skipped", "no healthy agent would be left"},
		"all are degraded": {with(caseOf(illFor("a", api.HealthDegraded, long)), func(c *HealingCase) { c.Healthy = 0 }),
			"drain_agent a skipped", "every agent of the cluster is unhealthy"},
		"nobody can take over": {&HealingCase{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults(), Members: 2,
			Serving: 2, Agents: []HealingAgent{illFor("a", api.HealthCritical, long), illFor("b", api.HealthFailed, long)}},
			"failover_agent b skipped", "no other agent is fit"},
		"a degraded one can take over": {&HealingCase{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults(), Members: 2,
			Serving: 2, Agents: []HealingAgent{illFor("a", api.HealthCritical, long), illFor("b", api.HealthDegraded, long)}},
			"failover_agent a act", ""},
		"below min_agents": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) { c.Minimum = 5 }), "drain_agent a skipped", "min_agents is 5"},
		"min_agents keep no critical one": {with(caseOf(illFor("a", api.HealthCritical, long)),
			func(c *HealingCase) { c.Minimum = 5 }), "failover_agent a act", ""},
		"half of the agents are out": {with(caseOf(illFor("a", api.HealthCritical, long)),
			func(c *HealingCase) {
				c.Serving, c.Healthy = 3,
					2
			}), "failover_agent a skipped", "the cause is likelier elsewhere"},
		"done just now": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) {
				c.Past = past(api.HealDrain, "a",
					9*time.Minute)
			}), "drain_agent a waiting", "done once"},
		"done a while ago": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) { c.Past = past(api.HealDrain, "a", 11*time.Minute) }), "drain_agent a act", ""},
		"the wait doubles": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) {
				c.Past = past(api.HealDrain, "a", 39*time.Minute, 70*time.Minute,
					100*time.Minute)
			}), "drain_agent a waiting", "done 3 times"},
		"and ends": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) {
				c.Past = past(api.HealDrain, "a", 41*time.Minute, 70*time.Minute,
					100*time.Minute)
			}), "drain_agent a act", ""},
		"a day is forgotten": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) {
				c.Past = past(api.HealDrain, "a", 25*time.Hour,
					26*time.Hour)
			}), "drain_agent a act", ""},
		"another agent's does not count": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) { c.Past = past(api.HealDrain, "b", time.Minute) }), "drain_agent a act", ""},
		"a dry run's does not count": {with(caseOf(illFor("a", api.HealthDegraded, long)),
			func(c *HealingCase) {
				c.Past = past(api.HealDrain, "a",
					time.Minute)
				c.Past[0].Verdict = api.HealPlan
			}), "drain_agent a act", ""},
		"what is skipped is recorded once": {with(caseOf(illFor("a", api.HealthCritical, long)), func(c *HealingCase) {
			c.Braked, c.Past = true, []HealingPast{{Type: api.HealFailover, TargetID: "a", Verdict: api.HealSkip,
				At: noon.Add(-time.Minute)}}
		}), "failover_agent a waiting", "network is the likelier culprit; recorded once"},

		"healthy again": {caseOf(out(api.HealthHealthy, 6*time.Minute)), "restore_agent a act", ""},
		"not for long": {caseOf(out(api.HealthHealthy, 4*time.Minute)), "restore_agent a waiting",
			"it is given 5m0s"},
		"still ill": {caseOf(out(api.HealthDegraded, long)), "", ""},
		"for the second time": {with(caseOf(out(api.HealthHealthy, 6*time.Minute)),
			func(c *HealingCase) {
				c.Past = past(api.HealDrain, "a", 20*time.Minute,
					2*time.Hour)
			}), "restore_agent a waiting", "it is given 10m0s"},
		"under-replicated": {with(caseOf(), func(c *HealingCase) {
			c.Wanted, c.ShortSince = 6,
				noon.Add(-long)
		}), "rebalance_cluster c act", ""},
		"under-replicated, and only people can help": {with(caseOf(), func(c *HealingCase) {
			c.Wanted, c.Alone, c.ShortSince = 6, true, noon.Add(-long)
		}), "report c act", ""},
		"only people can help, just now": {with(caseOf(), func(c *HealingCase) {
			c.Wanted, c.Alone, c.ShortSince = 6, true, noon
		}), "report c waiting", "30s"},
		"under-replicated just now": {with(caseOf(), func(c *HealingCase) { c.Wanted, c.ShortSince = 6, noon }),
			"rebalance_cluster c waiting", "30s"},
		"an orphan": {with(caseOf(), func(c *HealingCase) {
			c.Orphans = []api.Orphan{{TaskID: "t",
				Attempt: 2}}
		}), "reassign_task t act", ""},
		"an orphan while braked": {with(caseOf(), func(c *HealingCase) {
			c.Braked, c.Orphans = true,
				[]api.Orphan{{TaskID: "t"}}
		}), "reassign_task t act", ""},
		"something stuck": {with(caseOf(), func(c *HealingCase) {
			c.Stuck = []Stuck{{What: "reviews",
				Reason: "2 tasks wait"}}
		}), "report reviews act", ""},
		"stuck, reported": {with(caseOf(), func(c *HealingCase) {
			c.Stuck, c.Past = []Stuck{{What: "reviews"}}, past(api.HealReport, "reviews", 59*time.Minute)
		}), "report reviews waiting", "recorded once"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := DecideHealing(c.in, noon)
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.NotEmpty(t, got)
			require.Equal(t, c.want, fmt.Sprintf("%s %s %s", got[0].Type, got[0].TargetID, got[0].Verdict), got[0].Why)
			require.Contains(t, got[0].Why, c.why)
			require.NotEmpty(t, got[0].Reason+got[0].Why)
			require.Equal(t, "c", got[0].Cluster)
		})
	}
}

func TestHealingActionsOfOneCycleAreBounded(t *testing.T) {
	t.Parallel()
	c := &HealingCase{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults(), Members: 20, Serving: 20, Healthy: 14}
	for i := range 6 {
		c.Agents = append(c.Agents, illFor(fmt.Sprintf("a%d", i), api.HealthWarning, time.Hour))
	}
	for i := range orphansPerCycle + 1 {
		c.Orphans = append(c.Orphans, api.Orphan{TaskID: fmt.Sprintf("t%02d", i)})
	}
	acted := map[api.HealingType]int{}
	for _, d := range DecideHealing(c, noon) {
		if d.Verdict == api.HealAct {
			acted[d.Type]++
		}
	}
	require.Equal(t, map[api.HealingType]int{api.HealReassign: orphansPerCycle, api.HealReduce: 3}, acted)
}

// However many agents are ill, few decisions get a record: what is done goes before what is skipped.
func TestRecordsOfOneCycleAreBounded(t *testing.T) {
	t.Parallel()
	c := &HealingCase{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults(), Members: 300, Serving: 300,
		Stuck: []Stuck{{What: StuckReviews, Reason: "2 tasks wait"}}}
	for i := range 290 {
		c.Agents = append(c.Agents, illFor(fmt.Sprintf("a%03d", i), api.HealthFailed, time.Hour))
	}
	c.Serving = 151 // one may still go
	all := DecideHealing(c, noon)
	require.Equal(t, 291, Recorded(all))
	for most, want := range map[int]int{1000: mostRecords, 100: 100, 60: 60, 0: 0, -5: 0} {
		fewer := BoundHealing(all, most)
		require.Equal(t, want, Recorded(fewer))
		require.Equal(t, 291, Recorded(all), "they stay as they are")
		if want > 0 {
			require.Equal(t, []api.HealingVerdict{api.HealAct, api.HealSkip, api.HealAct}, []api.HealingVerdict{fewer[0].Verdict,
				fewer[want-2].Verdict, fewer[290].Verdict})
			require.Equal(t, api.HealWait, fewer[want-1].Verdict)
			require.Contains(t, fewer[want-1].Why, fmt.Sprintf("%d decisions are enough for one cycle", want))
		}
	}
	require.Equal(t, all[:1], BoundHealing(all[:1], 1))

	var record api.HealingCycleRecord
	waiting := BoundHealing(all, 1)
	for range 4 {
		AddToCycle(&record, waiting)
	}
	require.Len(t, record.Decisions, mostListed)
	require.Equal(t, 4*291-mostListed, record.LeftOut)
	AddToCycle(&record, waiting)
	require.Len(t, record.Decisions, mostListed+1, "what does not wait is always there")
}

// When not all earlier actions and skips are known, a skip may be one of them.
func TestNothingIsSkippedAnewWhenNotAllOfThePastIsKnown(t *testing.T) {
	t.Parallel()
	c := caseOf(illFor("a", api.HealthCritical, time.Hour), illFor("b", api.HealthCritical, time.Hour))
	c.PastFull, c.Past = true, []HealingPast{{Type: api.HealFailover, TargetID: "x", Verdict: api.HealSkip, At: noon}}
	for mode, want := range map[api.HealingMode]api.HealingVerdict{api.HealingOn: api.HealAct, api.HealingDryRun: api.HealWait} {
		c.Policy.Mode = mode
		require.Equal(t, want, DecideHealing(c, noon)[0].Verdict)
	}
	c.Braked = true
	d := DecideHealing(c, noon)
	require.Equal(t, []api.HealingVerdict{api.HealWait, api.HealWait}, []api.HealingVerdict{d[0].Verdict, d[1].Verdict})
	require.Contains(t, d[0].Why, brakedWhy+"; the cluster has enough records of the last day")
}

func TestKeepTheWorst(t *testing.T) {
	t.Parallel()
	c := caseOf(illFor("a", api.HealthDegraded, time.Hour), illFor("b", api.HealthFailed, time.Hour),
		illFor("c", api.HealthCritical, time.Hour))
	c.Past, c.Suspects = past(api.HealDrain, "a", time.Minute, time.Hour), []api.Orphan{{TaskID: "t1"}, {TaskID: "t2"}}
	c.Members, c.Serving = 3, 3
	c.Keep(5, 4)
	require.False(t, c.PastFull)
	require.Equal(t, 0, c.Unable)
	require.Equal(t, "disk…", c.Agents[0].Health.Why)
	c.Keep(1, 0)
	require.True(t, c.PastFull)
	require.Equal(t, []int{1, 1, 1}, []int{len(c.Agents), len(c.Past), len(c.Suspects)})
	require.Equal(t, "b", c.Agents[0].AgentID)
	require.Equal(t, 1, c.Unable, "c is not fit to take over")
	require.Equal(t, api.HealAct, DecideHealing(c, noon)[0].Verdict, "a is")
	c.Keep(0, 0)
	require.Equal(t, 2, c.Unable)
	c.Keep(0, 0)
	require.Equal(t, 2, c.Unable)
}

// In any fleet, a cycle leaves enough agents, never touches an operator's, and is repeatable.
func TestHealingLeavesEnough(t *testing.T) {
	t.Parallel()
	levels := []api.HealthLevel{api.HealthHealthy, api.HealthDegraded, api.HealthWarning, api.HealthCritical, api.HealthFailed}
	rapid.Check(t, func(t *rapid.T) {
		c := &HealingCase{Cluster: "c", Policy: api.HealingPolicy{MaxActions: 100}.WithDefaults(),
			Braked:  rapid.IntRange(0, 9).Draw(t, "braked") == 0,
			Minimum: rapid.IntRange(0, 3).Draw(t, "minimum")}
		operators := map[string]bool{}
		for i := range rapid.IntRange(1, 12).Draw(t, "agents") {
			a := illFor(fmt.Sprintf("a%d", i), rapid.SampledFrom(levels).Draw(t, "level"), time.Hour)
			if rapid.IntRange(0, 4).Draw(t, "operator") == 0 {
				a.Status, a.OutBy = api.AgentMaintenance, "operator"
				operators[a.AgentID] = true
			} else {
				c.Members++
				c.Serving++
				if a.Health.Fit() {
					c.Healthy++
				}
			}
			if !a.Health.Fit() {
				c.Agents = append(c.Agents, a)
			}
		}
		decisions := DecideHealing(c, noon)
		require.Equal(t, decisions, DecideHealing(c, noon))
		left := c.Serving
		for _, d := range decisions {
			if d.Verdict != api.HealAct {
				require.NotEmpty(t, d.Why)
				continue
			}
			require.False(t, operators[d.TargetID], "%+v", d)
			require.False(t, c.Braked, "%+v", d)
			if takesAway(d.Type) {
				left--
				require.GreaterOrEqual(t, left, max(1, (c.Members+1)/2))
			}
		}
	})
}

func TestExamineForHealing(t *testing.T) {
	t.Parallel()
	long := noon.Add(-time.Hour)
	base := func(change func(*ClusterFacts)) *ClusterFacts {
		f := &ClusterFacts{CreatedAt: long, Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c"}.WithDefaults()}}
		for _, id := range []string{"a", "b"} {
			f.Join(cluster.Join{AgentID: id, Instance: id, AgentProfile: api.AgentProfile{MaxTasks: 2}}, "h", long)
		}
		change(f)
		return f
	}
	ill := func(f *ClusterFacts, level api.HealthLevel) {
		f.Member("a").Health = &cluster.MemberHealth{Level: level, Since: long}
	}
	for name, c := range map[string]struct {
		change   func(*ClusterFacts)
		wrong    bool
		agents   int
		serving  int
		healthy  int
		suspects bool
	}{
		"all is well":       {func(*ClusterFacts) {}, false, 0, 2, 2, false},
		"one is degraded":   {func(f *ClusterFacts) { ill(f, api.HealthDegraded) }, true, 1, 2, 1, false},
		"one has recovered": {func(f *ClusterFacts) { ill(f, api.HealthHealthy) }, false, 0, 2, 2, false},
		"one is offline":    {func(f *ClusterFacts) { f.Member("a").Status = api.AgentOffline }, false, 0, 1, 1, false},
		"and it is missed": {func(f *ClusterFacts) {
			f.Member(
				"a").Status = api.AgentOffline
			f.Config.DesiredAgents = 2
		}, true, 0, 1, 1, false},
		"one has just come": {func(f *ClusterFacts) { f.Join(cluster.Join{AgentID: "d", Instance: "d"}, "h", noon) }, true, 0,
			3, 3, true},
		"a hub's new process": {func(f *ClusterFacts) { f.HubProcess("h", "p2", noon) }, true, 0, 2, 2, true},
		"out of service by healing": {func(f *ClusterFacts) {
			require.NoError(t, f.SetCordon(cluster.Cordon{AgentID: "a", Status: api.AgentMaintenance, Drain: "c:healing-1",
				Since: long}))
		}, true, 1, 1, 1, false},
		"out of service by a person": {func(f *ClusterFacts) {
			require.NoError(t, f.SetCordon(cluster.Cordon{AgentID: "a", Status: api.AgentMaintenance, Drain: "c:d-1", Since: long}))
		}, false, 0, 1, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, wrong := ExamineForHealing(base(c.change), noon)
			require.Equal(t, c.wrong, wrong)
			require.Equal(t, []int{c.agents, c.serving, c.healthy}, []int{len(got.Agents), got.Serving, got.Healthy})
			require.Equal(t, c.suspects, !got.LastUpset.IsZero())
		})
	}
}

// TestHealingKeepsWhoAloneCan has ill agents with capabilities that tasks need. Healing takes none away whose tasks no
// better agent can run.
func TestHealingKeepsWhoAloneCan(t *testing.T) {
	t.Parallel()
	long := noon.Add(-time.Hour)
	type levels map[string]api.HealthLevel
	for name, c := range map[string]struct {
		gpu    []string // agents that have it
		ill    levels
		needed bool
		acts   []string
	}{
		"nobody else has it":        {[]string{"a"}, levels{"a": api.HealthDegraded}, true, nil},
		"and it is critical":        {[]string{"a"}, levels{"a": api.HealthCritical}, true, nil},
		"no task needs it":          {[]string{"a"}, levels{"a": api.HealthDegraded}, false, []string{"drain_agent a"}},
		"a healthy one has it":      {[]string{"a", "b"}, levels{"a": api.HealthDegraded}, true, []string{"drain_agent a"}},
		"both that have it are ill": {[]string{"a", "b"}, levels{"a": api.HealthDegraded, "b": api.HealthDegraded}, true, nil},
		"another ill one has not": {[]string{"a"}, levels{"a": api.HealthDegraded, "b": api.HealthDegraded}, true,
			[]string{"drain_agent b"}},
		"the other is a little ill": {[]string{"a", "b"}, levels{"a": api.HealthCritical, "b": api.HealthDegraded}, true,
			[]string{"failover_agent a"}},
		"the other is as ill":         {[]string{"a", "b"}, levels{"a": api.HealthCritical, "b": api.HealthFailed}, true, nil},
		"its load can be reduced yet": {[]string{"a"}, levels{"a": api.HealthWarning}, true, []string{"reduce_load a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &ClusterFacts{CreatedAt: long, Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c"}.WithDefaults()}}
			for _, id := range []string{"a", "b", "d", "e"} {
				profile := api.AgentProfile{MaxTasks: 4}
				if slices.Contains(c.gpu, id) {
					profile.Capabilities = []string{"gpu"}
				}
				f.Join(cluster.Join{AgentID: id, Instance: id, AgentProfile: profile}, "h", long)
				if level := c.ill[id]; level != "" {
					f.Member(id).Health = &cluster.MemberHealth{Level: level, Since: long}
				}
			}
			if c.needed {
				require.True(t, f.OpenLane(api.LaneNeeds{Capabilities: []string{"gpu"}}, "", noon))
			}
			examined, _ := ExamineForHealing(f, noon)
			var acts []string
			for _, d := range DecideHealing(&examined, noon) {
				if d.Verdict == api.HealAct {
					acts = append(acts, string(d.Type)+" "+d.TargetID)
				} else {
					require.Contains(t, d.Why, "no better agent in service can run the tasks that need gpu")
				}
				if takesAway(d.Type) {
					require.Equal(t, d.Verdict == api.HealAct,
						CheckHealing(&f.Cluster, d.TargetID, "", HealingCheck{Type: d.Type, Epoch: d.Facts.Epoch}) == nil)
				}
			}
			require.Equal(t, c.acts, acts)
		})
	}
}

func TestDueForHealing(t *testing.T) {
	t.Parallel()
	looked := 0
	for i := range 60 {
		if DueForHealing(5*time.Minute, time.Minute, noon.Add(time.Duration(i)*time.Minute)) {
			looked++
		}
	}
	require.Equal(t, 12, looked)
	require.True(t, DueForHealing(time.Minute, time.Minute, noon.Add(time.Second)))
	require.True(t, DueForHealing(5*time.Second, time.Minute, noon))
}

func TestHealingPolicy(t *testing.T) {
	t.Parallel()
	require.NoError(t, api.HealingPolicy{}.WithDefaults().Validate())
	for name, p := range map[string]api.HealingPolicy{
		"mode": {Mode: "maybe"}, "cycle_interval": {CycleInterval: api.Duration(time.Second)},
		"max_actions": {MaxActions: -1},
		"patience":    {Patience: api.Duration(2 * time.Hour)}, "stuck_after": {StuckAfter: api.Duration(time.Second)},
	} {
		require.ErrorContains(t, p.WithDefaults().Validate(), name)
	}
}
