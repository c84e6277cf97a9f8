package scaling

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

var scaleNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// scaledCluster has n agents that a spawner started.
func scaledCluster(n, least, most int) *cluster.Cluster {
	c := &cluster.Cluster{Config: api.ClusterConfig{Name: "c", MinAgents: least, MaxAgents: most,
		Scaling: api.ScalingPolicy{Mode: api.ScalingAuto}}.WithDefaults()}
	for i := range n {
		addSpawned(c, fmt.Sprintf("a-%02d", i))
	}
	return c
}

func addSpawned(c *cluster.Cluster, id string) *cluster.Member {
	c.Join(cluster.Join{AgentID: id, Instance: "i-" + id,
		AgentProfile: api.AgentProfile{MaxTasks: 1,
			Metadata: map[string]string{api.MetadataSpawner: "here", api.MetadataSpawnID: id}}}, "h", scaleNow.Add(-time.Hour))
	return c.Member(id)
}

// idleFor are facts in which every member is idle for so long, the first longest, and so much waits.
func idleFor(c *cluster.Cluster, queue int64, since time.Duration) *ScalingFacts {
	f := &ScalingFacts{Queue: queue}
	for i := range c.Members {
		f.Agents = append(f.Agents, AgentActivity{AgentID: c.Members[i].AgentID,
			IdleSince: scaleNow.Add(-since + time.Duration(i)*time.Second)})
	}
	return f
}

func busyWith(c *cluster.Cluster, queue int64, cpu float64) *ScalingFacts {
	f := idleFor(c, queue, time.Hour)
	for i := range f.Agents {
		f.Agents[i].Running, f.Agents[i].CPUPercent = 1, &cpu
	}
	return f
}

const retireReason = "a-01: lost, left behind by a stop that was not finished, or unhealthy for too long after " +
	"healing took them out of service"

// illCluster has two agents that serve, and one that healing took out of service.
func illCluster(level api.HealthLevel, ago time.Duration) *cluster.Cluster {
	c := scaledCluster(3, 0, 5)
	c.Config.Scaling.Mode, c.Config.DesiredAgents, scalingOf(c).Target = api.ScalingManual, 2, new(2)
	m, since := c.Member("a-01"), scaleNow.Add(-ago)
	m.SetStatus(api.AgentMaintenance, "healing", since)
	m.Health = &cluster.MemberHealth{Level: level, Since: since}
	c.Cordons = cluster.Cordons{{AgentID: "a-01", Status: api.AgentMaintenance, Since: since,
		Drain: c.Config.Name + ":" + cluster.HealingDrainPrefix + "x"}}
	return c
}

const illReason = "a-01: unhealthy for too long after healing took them out of service"

// illUnder is illCluster that wants three agents, the ill one among them; restarted: that was so long ago, 0: never.
func illUnder(by api.AgentRecovery, ago, restarted time.Duration) *cluster.Cluster {
	c := illCluster(api.HealthCritical, ago)
	c.Config.DesiredAgents, c.Scaling.Target, c.Config.SelfHealing.RecoverBy = 3, new(3), by
	if restarted > 0 {
		c.Scaling.Restarted = map[string]time.Time{"a-01": scaleNow.Add(-restarted)}
	}
	return c
}

// TestRecoveriesAreCarriedThrough begins what was decided: nobody is started in the agent's place while it is under
// way.
func TestRecoveriesAreCarriedThrough(t *testing.T) {
	t.Parallel()
	for by, then := range map[api.AgentRecovery]struct{ during, after string }{
		api.RecoverByRestart:  {"3 agents, as many as are wanted", "2 agents, and 3 are wanted"},
		api.RecoverByReassign: {"2 agents, as many as are wanted", "2 agents, as many as are wanted"},
	} {
		c := illUnder(by, 16*time.Minute, 0)
		facts := &ScalingFacts{}
		action := BeginScaling(c, DecideScaling(c, facts, scaleNow), scaleNow, scaleNow)
		require.Equal(t, then.during, DecideScaling(c, facts, scaleNow).Reason, by)
		c.Member("a-01").SetStatus(api.AgentOffline, "stopped", scaleNow)
		require.Equal(t, then.during, DecideScaling(c, facts, scaleNow).Reason, by)
		require.True(t, Retire(c, "a-01"))
		require.True(t, EndScaling(c, ScalingResult{Number: action.Number}, scaleNow))
		require.Equal(t, then.after, DecideScaling(c, facts, scaleNow).Reason, "%s: it did not come back", by)
		require.Empty(t, c.Scaling.Restarted)
	}
}

func TestDecideScaling(t *testing.T) {
	t.Parallel()
	type want struct {
		change  api.ScaleChange
		count   int
		agents  []string
		target  int
		rule    api.ScalingRule
		reason  string
		blocked bool
		next    time.Time
		facts   bool
	}
	for name, test := range map[string]struct {
		cluster func() *cluster.Cluster
		facts   func(c *cluster.Cluster) *ScalingFacts
		want    want
	}{
		"off": {
			cluster: func() *cluster.Cluster { c := scaledCluster(0, 2, 5); c.Config.Scaling.Mode = api.ScalingOff; return c },
			want:    want{change: api.ScaleNone, reason: "scaling is off"},
		},
		"fewer than min, at once, without facts": {
			cluster: func() *cluster.Cluster { return scaledCluster(1, 3, 5) },
			want: want{change: api.ScaleUp, count: 2, target: 3, rule: api.RuleMinimum,
				reason: "1 agent, and min_agents is 3"},
		},
		"fewer than min although the cooldown runs": {
			cluster: func() *cluster.Cluster { c := scaledCluster(1, 3, 5); scalingOf(c).LastUp = scaleNow; return c },
			want: want{change: api.ScaleUp, count: 2, target: 3, rule: api.RuleMinimum,
				reason: "1 agent, and min_agents is 3"},
		},
		"what is being started counts": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(1, 3, 5)
				BeginScaling(c, DecideScaling(c, nil, scaleNow), scaleNow, scaleNow)
				return c
			},
			want: want{change: api.ScaleNone, target: 3, reason: "enough agents; queue and load were not looked at"},
		},
		"a start that nobody ended counts no more in the end": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(1, 3, 5)
				BeginScaling(c, DecideScaling(c, nil, scaleNow), scaleNow, scaleNow.Add(-time.Hour))
				return c
			},
			want: want{change: api.ScaleUp, count: 2, target: 3, rule: api.RuleMinimum, reason: "1 agent, and min_agents is 3"},
		},
		"blocked after a failure": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(1, 3, 5)
				action := BeginScaling(c, DecideScaling(c, nil, scaleNow), scaleNow, scaleNow)
				EndScaling(c, ScalingResult{Number: action.Number, Failed: "no spawner"}, scaleNow)
				return c
			},
			want: want{change: api.ScaleNone, target: 3, rule: api.RuleMinimum, blocked: true,
				next:   scaleNow.Add(10 * time.Second),
				reason: "1 agent, and min_agents is 3; blocked: no spawner"},
		},
		"no longer blocked once a spawner is back": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(1, 3, 5)
				action := BeginScaling(c, DecideScaling(c, nil, scaleNow), scaleNow, scaleNow)
				EndScaling(c, ScalingResult{Number: action.Number, Failed: "no spawner"}, scaleNow)
				SpawnerBack(c, "any")
				return c
			},
			want: want{change: api.ScaleUp, count: 2, target: 3, rule: api.RuleMinimum, reason: "1 agent, and min_agents is 3"},
		},
		"the brake holds": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(0, 3, 5)
				c.SetBrake("h", &cluster.BrakeHold{Lost: 3})
				return c
			},
			want: want{change: api.ScaleNone, blocked: true,
				reason: "the mass-loss brake is engaged: so many agents vanished at once that the network is the likelier culprit"},
		},
		"the target is kept": {
			cluster: func() *cluster.Cluster { c := scaledCluster(1, 0, 5); scalingOf(c).Target = new(2); return c },
			want:    want{change: api.ScaleUp, count: 1, target: 2, rule: api.RuleDesired, reason: "1 agent, and 2 are wanted"},
		},
		"the queue is long": {
			cluster: func() *cluster.Cluster { c := scaledCluster(2, 0, 5); c.Config.Scaling.ScaleUp.Increment = 2; return c },
			facts:   func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 6, 10) },
			want:    want{change: api.ScaleUp, count: 2, target: 4, rule: api.RuleQueue, reason: "6 tasks wait, more than 5"},
		},
		"never more than max": {
			cluster: func() *cluster.Cluster { c := scaledCluster(4, 0, 5); c.Config.Scaling.ScaleUp.Increment = 3; return c },
			facts:   func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 100, 10) },
			want:    want{change: api.ScaleUp, count: 1, target: 5, rule: api.RuleQueue, reason: "100 tasks wait, more than 5"},
		},
		"at max": {
			cluster: func() *cluster.Cluster { return scaledCluster(5, 0, 5) },
			facts:   func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 100, 10) },
			want: want{change: api.ScaleNone, rule: api.RuleQueue, blocked: true,
				reason: "100 tasks wait, more than 5; but the cluster has its max_agents of 5"},
		},
		"more would be standbys": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(1, 0, 5)
				c.Config.ReplicationMode = api.ActivePassive
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 100, 90) },
			want: want{change: api.ScaleNone, rule: api.RuleQueue, blocked: true,
				reason: "100 tasks wait, more than 5; but only the leader takes tasks, and more agents would be standbys"},
		},
		"the first leads": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(0, 0, 5)
				c.Config.ReplicationMode = api.ActivePassive
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return idleFor(c, 1, 0) },
			want: want{change: api.ScaleUp, count: 1, target: 1, rule: api.RuleQueue,
				reason: "1 task waits, and there is no agent"},
		},
		"full of agents in maintenance": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 0, 3)
				require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "a-00", Status: api.AgentMaintenance, Since: scaleNow}))
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 100, 10) },
			want: want{change: api.ScaleNone, rule: api.RuleQueue, blocked: true,
				reason: "100 tasks wait, more than 5; but the cluster is full: of its max_agents of 3, some are in " +
					"maintenance or being drained"},
		},
		"the queue is long, in the cooldown": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(2, 0, 5)
				scalingOf(c).LastUp = scaleNow.Add(-20 * time.Second)
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 6, 10) },
			want: want{change: api.ScaleNone, rule: api.RuleQueue, next: scaleNow.Add(40 * time.Second),
				reason: "6 tasks wait, more than 5; the cooldown of scale_up is not over"},
		},
		"the queue for each agent": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 0, 5)
				c.Config.Scaling.QueueMeasure = api.QueuePerAgent
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 15, 10) },
			want:  want{change: api.ScaleNone, reason: "5 tasks wait for each agent, neither too many nor few enough"},
		},
		"a paused cluster's queue says nothing": {
			cluster: func() *cluster.Cluster { c := scaledCluster(2, 0, 5); _, _ = c.Pause("", "", scaleNow); return c },
			facts:   func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 600, 10) },
			want:    want{change: api.ScaleNone, reason: "the cluster is paused: what waits says nothing about its agents"},
		},
		"cpu": {
			cluster: func() *cluster.Cluster { return scaledCluster(2, 0, 5) },
			facts:   func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 0, 81) },
			want: want{change: api.ScaleUp, count: 1, target: 3, rule: api.RuleCPU,
				reason: "every agent is busy and the machines' cpu is at 81 %, more than 80 %"},
		},
		"cpu, of one unknown": {
			cluster: func() *cluster.Cluster { return scaledCluster(2, 0, 5) },
			facts: func(c *cluster.Cluster) *ScalingFacts {
				f := busyWith(c, 0, 81)
				f.Agents[1].CPUPercent = nil
				return f
			},
			want: want{change: api.ScaleUp, count: 1, target: 3, rule: api.RuleCPU,
				reason: "every agent is busy and the machines' cpu is at 81 %, more than 80 %"},
		},
		"cpu, but one is idle": {
			cluster: func() *cluster.Cluster { return scaledCluster(2, 0, 5) },
			facts:   func(c *cluster.Cluster) *ScalingFacts { f := busyWith(c, 1, 99); f.Agents[1].Running = 0; return f },
			want:    want{change: api.ScaleNone, reason: "1 task waits, neither too many nor few enough"},
		},
		"idle for long: the longest goes": {
			cluster: func() *cluster.Cluster { return scaledCluster(3, 1, 5) },
			facts:   func(c *cluster.Cluster) *ScalingFacts { return idleFor(c, 0, 10*time.Minute) },
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-00"}, target: 2, rule: api.RuleIdle,
				reason: "nothing waits, and a-00 had nothing to do for 5m0s"},
		},
		"idle, not for long enough": {
			cluster: func() *cluster.Cluster { return scaledCluster(3, 1, 5) },
			facts:   func(c *cluster.Cluster) *ScalingFacts { return idleFor(c, 0, 4*time.Minute) },
			want: want{change: api.ScaleNone, next: scaleNow.Add(time.Minute),
				reason: "nothing waits; no agent that a spawner started was idle for 5m0s"},
		},
		"idle, in the cooldown of the last start": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 1, 5)
				scalingOf(c).LastUp = scaleNow.Add(-time.Minute)
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return idleFor(c, 0, 10*time.Minute) },
			want: want{change: api.ScaleNone, rule: api.RuleIdle, next: scaleNow.Add(4 * time.Minute),
				reason: "nothing waits, and a-00 had nothing to do for 5m0s; the cooldown of scale_down is not over"},
		},
		"not fewer than min": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 2,
					5)
				c.Config.Scaling.ScaleDown.Decrement = 5
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return idleFor(c, 0, time.Hour) },
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-00"}, target: 2, rule: api.RuleIdle,
				reason: "nothing waits, and a-00 had nothing to do for 5m0s"},
		},
		"who has work stays, and who has work pinned to it, and the leader": {
			cluster: func() *cluster.Cluster { c := scaledCluster(5, 1, 5); c.Leader = "a-03"; return c },
			facts: func(c *cluster.Cluster) *ScalingFacts {
				f := idleFor(c, 0, time.Hour)
				f.Agents[0].Running, f.Agents[1].Pinned = 1, true
				return f
			},
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-02"}, target: 4, rule: api.RuleIdle,
				reason: "nothing waits, and a-02 had nothing to do for 5m0s"},
		},
		"agents of others stay": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(0, 0, 5)
				for _, id := range []string{"x", "y"} {
					c.Join(cluster.Join{AgentID: id, Instance: id, AgentProfile: api.AgentProfile{MaxTasks: 1}}, "h", scaleNow)
				}
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return idleFor(c, 0, time.Hour) },
			want:  want{change: api.ScaleNone, reason: "nothing waits; no agent that a spawner started was idle for 5m0s"},
		},
		"by hand: fewer, whether idle or not": {
			cluster: func() *cluster.Cluster { c := scaledCluster(4, 0, 5); ScaleTo(c, 2); return c },
			facts:   func(c *cluster.Cluster) *ScalingFacts { f := busyWith(c, 50, 10); f.Agents[3].Running = 0; return f },
			want: want{change: api.ScaleDown, count: 2, agents: []string{"a-03", "a-00"}, target: 2, rule: api.RuleDesired,
				reason: "4 agents, and 2 are wanted"},
		},
		"by hand: which ones depends on facts": {
			cluster: func() *cluster.Cluster { c := scaledCluster(4, 0, 5); ScaleTo(c, 2); return c },
			want: want{change: api.ScaleNone, target: 2, rule: api.RuleDesired, facts: true,
				reason: "4 agents, and 2 are wanted; which ones to stop depends on what they do"},
		},
		"manual keeps as many as desired": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 0, 5)
				c.Config.Scaling.Mode, c.Config.DesiredAgents = api.ScalingManual, 3
				return c
			},
			facts: func(c *cluster.Cluster) *ScalingFacts { return busyWith(c, 1000, 99) },
			want:  want{change: api.ScaleNone, target: 3, reason: "3 agents, as many as are wanted"},
		},
		"a lost agent is replaced and then retired": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 0, 5)
				scalingOf(c).Target = new(2)
				c.Member("a-01").SetStatus(api.AgentOffline, "lost", scaleNow.Add(-2*time.Minute))
				return c
			},
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-01"}, target: 2, rule: api.RuleRetire,
				reason: retireReason},
		},
		"an agent that stays ill in maintenance is replaced": {
			cluster: func() *cluster.Cluster { return illCluster(api.HealthCritical, 16*time.Minute) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-01"}, target: 2, rule: api.RuleRetire,
				reason: retireReason},
		},
		"an agent that is healthy again is not replaced": {
			cluster: func() *cluster.Cluster { return illCluster(api.HealthHealthy, 16*time.Minute) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want:    want{change: api.ScaleNone, target: 2, reason: "2 agents, as many as are wanted"},
		},
		"an agent that is ill for a short time may recover": {
			cluster: func() *cluster.Cluster { return illCluster(api.HealthCritical, 14*time.Minute) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want:    want{change: api.ScaleNone, target: 2, reason: "2 agents, as many as are wanted"},
		},
		"nobody takes the place of an ill agent that is to be started anew": {
			cluster: func() *cluster.Cluster { return illUnder(api.RecoverByRestart, 14*time.Minute, 0) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want:    want{change: api.ScaleNone, target: 3, reason: "3 agents, as many as are wanted"},
		},
		"an agent that stays ill is started anew": {
			cluster: func() *cluster.Cluster { return illUnder(api.RecoverByRestart, 16*time.Minute, 0) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-01"}, target: 3, rule: api.RuleRestart,
				reason: illReason},
		},
		"an agent that was started anew may recover": {
			cluster: func() *cluster.Cluster { return illUnder(api.RecoverByRestart, 30*time.Minute, 14*time.Minute) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want:    want{change: api.ScaleNone, target: 3, reason: "3 agents, as many as are wanted"},
		},
		"an agent that stays ill after that is replaced": {
			cluster: func() *cluster.Cluster { return illUnder(api.RecoverByRestart, 40*time.Minute, 16*time.Minute) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-01"}, target: 3, rule: api.RuleRetire,
				reason: retireReason},
		},
		"others do the work of an agent that stays ill": {
			cluster: func() *cluster.Cluster { return illUnder(api.RecoverByReassign, 16*time.Minute, 0) },
			facts:   func(*cluster.Cluster) *ScalingFacts { return &ScalingFacts{} },
			want: want{change: api.ScaleDown, count: 1, agents: []string{"a-01"}, target: 2, rule: api.RuleReassign,
				reason: illReason},
		},
		"an agent that was only just lost may come back": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 0, 5)
				c.Member("a-01").SetStatus(api.AgentOffline, "lost", scaleNow.Add(-30*time.Second))
				return c
			},
			want: want{change: api.ScaleNone, reason: "enough agents; queue and load were not looked at"},
		},
		"who is being stopped does not count": {
			cluster: func() *cluster.Cluster {
				c := scaledCluster(3, 0, 5)
				BeginScaling(c, cluster.ScalingDecision{Change: api.ScaleDown, Agents: []string{"a-00"}, Target: 2, Rule: api.RuleIdle},
					scaleNow, scaleNow)
				scalingOf(c).Target = new(3)
				return c
			},
			want: want{change: api.ScaleUp, count: 1, target: 3, rule: api.RuleDesired, reason: "2 agents, and 3 are wanted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := test.cluster()
			var facts *ScalingFacts
			if test.facts != nil {
				facts = test.facts(c)
			}
			d := DecideScaling(c, facts, scaleNow)
			got := want{d.Change, d.Count, d.Agents, d.Target, d.Rule, d.Reason, d.Blocked, d.NextAt, d.NeedFacts}
			require.Equal(t, test.want, got)
			require.Equal(t, scaleNow, d.At)
		})
	}
}

func TestScalingBackoff(t *testing.T) {
	t.Parallel()
	exponential := api.ScalingPolicy{}.WithDefaults().Spawn.Backoff
	constant := api.SpawnBackoff{Strategy: api.BackoffConstant, Delay: api.Duration(5 * time.Second),
		MaxDelay: api.Duration(time.Minute)}
	for failures, want := range map[int][2]time.Duration{
		1: {10 * time.Second, 5 * time.Second},
		2: {20 * time.Second, 5 * time.Second},
		3: {40 * time.Second, 5 * time.Second},
		6: {5 * time.Minute, 5 * time.Second}, 1000: {5 * time.Minute, 5 * time.Second},
	} {
		require.Equal(t, want, [2]time.Duration{SpawnWait(exponential, failures), SpawnWait(constant, failures)}, failures)
	}
}

func TestFailuresOneAfterTheOtherWaitLonger(t *testing.T) {
	t.Parallel()
	c := scaledCluster(0, 1, 3)
	now := scaleNow
	var waits []time.Duration
	for range 3 {
		d := DecideScaling(c, nil, now)
		require.Equal(t, api.ScaleUp, d.Change)
		action := BeginScaling(c, d, scaleNow, now)
		require.True(t, EndScaling(c, ScalingResult{Number: action.Number, Failed: "no spawner"}, now))
		require.False(t, EndScaling(c, ScalingResult{Number: action.Number}, now), "it has ended already")
		waits = append(waits, c.Scaling.Blocked.NextAt.Sub(now))
		now = c.Scaling.Blocked.NextAt
	}
	require.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}, waits)
	require.Equal(t, scaleNow, c.Scaling.Blocked.Since)
	action := BeginScaling(c, DecideScaling(c, nil, now), scaleNow, now)
	EndScaling(c, ScalingResult{Number: action.Number}, now)
	require.Nil(t, c.Scaling.Blocked)
}

func TestReconfigure(t *testing.T) {
	t.Parallel()
	c := scaledCluster(1, 0, 5)
	scalingOf(c).Target = new(4)
	next := c.Config
	next.MaxAgents = 6
	Reconfigure(c, next)
	require.Equal(t, 4, c.Wanted(), "what rules have made of it stays")
	next.DesiredAgents = 2
	Reconfigure(c, next)
	require.Equal(t, 2, c.Wanted())
	require.True(t, c.Scaling.ByHand)
	next.Scaling.Mode = api.ScalingOff
	Reconfigure(c, next)
	require.Zero(t, c.Scaling.Target)
}

func TestRetire(t *testing.T) {
	t.Parallel()
	c := scaledCluster(2, 0, 5)
	require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: "a-00", Status: api.AgentMaintenance, Since: scaleNow,
		Drain: "c:scaling-1"}))
	require.False(t, Retire(c, "a-00"), "it is connected")
	m := c.Member("a-00")
	c.Apply(cluster.Transition{AgentID: "a-00", Instance: m.Instance, Epoch: m.Epoch, Left: true, Status: api.AgentOffline,
		At: scaleNow}, "h")
	require.True(t, Retire(c, "a-00"))
	require.Nil(t, c.Member("a-00"))
	require.Nil(t, c.Cordons.Of("a-00"))
	require.False(t, Retire(c, "a-00"))
}

func TestSpawnID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	long := "c"
	for len(long) < api.MaxIDLength {
		long += "x"
	}
	for _, clusterName := range []string{"c", long} {
		for action := range int64(20) {
			for n := range 20 {
				id := cluster.SpawnID(clusterName, scaleNow, action, n)
				require.NoError(t, api.ValidateID("id", id))
				require.False(t, seen[id], id)
				seen[id] = true
			}
		}
	}
	require.Equal(t, cluster.SpawnID("c", scaleNow, 1, 1), cluster.SpawnID("c", scaleNow, 1, 1))
	require.NotEqual(t, cluster.SpawnID("c", scaleNow, 1, 1), cluster.SpawnID("c", scaleNow.Add(time.Hour), 1, 1),
		"a later cluster of the same name")
}

func TestResources(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"2": 2000, "0.5": 500, "250m": 250, "": 0} {
		got, err := api.Resources{CPU: text}.MilliCPU()
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]int64{"4Gi": 4 << 30, "512Mi": 512 << 20, "1G": 1e9, "1024": 1024, "": 0,
		"1.5Ki": 1536} {
		got, err := api.Resources{Memory: text}.MemoryBytes()
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, bad := range []api.Resources{{CPU: "two"}, {CPU: "-1"}, {CPU: "0"}, {CPU: "NaN"}, {Memory: "4GiB"},
		{Memory: "Gi"}, {Storage: "-1Gi"}, {Memory: "1e99"}} {
		require.Error(t, bad.Validate(), "%+v", bad)
	}
}

func TestScalingPolicyIsChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*api.ScalingPolicy){
		"scaling.mode must be":                  func(p *api.ScalingPolicy) { p.Mode = "on" },
		"scaling.queue_measure must be":         func(p *api.ScalingPolicy) { p.QueueMeasure = "each" },
		"scaling.scale_up.queue_threshold must": func(p *api.ScalingPolicy) { p.ScaleUp.QueueThreshold = new(-1) },
		"started and stopped by turns":          func(p *api.ScalingPolicy) { p.ScaleDown.QueueThreshold = new(6) },
		"scaling.scale_up.cpu_threshold must":   func(p *api.ScalingPolicy) { p.ScaleUp.CPUThreshold = 101 },
		"scaling.scale_up.increment must":       func(p *api.ScalingPolicy) { p.ScaleUp.Increment = -1 },
		"scaling.scale_down.idle_timeout must":  func(p *api.ScalingPolicy) { p.ScaleDown.IdleTimeout = 1 },
		"scaling.spawn.environment must have no names that": func(p *api.ScalingPolicy) {
			p.Spawn.Environment = map[string]string{"MAINSTAY_X": ""}
		},
		"scaling.spawn.environment must have names of": func(p *api.ScalingPolicy) {
			p.Spawn.Environment = map[string]string{"A=B": ""}
		},
		"environment must have names of variables": func(p *api.ScalingPolicy) {
			p.Spawn.Environment = map[string]string{"A\nB": ""}
		},
		"scaling.spawn.resources.cpu must":    func(p *api.ScalingPolicy) { p.Spawn.Resources.CPU = "x" },
		"scaling.spawn.backoff.strategy must": func(p *api.ScalingPolicy) { p.Spawn.Backoff.Strategy = "random" },
		"scaling.spawn.spawner":               func(p *api.ScalingPolicy) { p.Spawn.Spawner = "No" },
		"scaling.spawn.capabilities[0]":       func(p *api.ScalingPolicy) { p.Spawn.Capabilities = []string{"a b"} },
	} {
		p := api.ScalingPolicy{}
		change(&p)
		p = p.WithDefaults()
		require.ErrorContains(t, p.Validate(), want)
	}
	eager := api.ScalingPolicy{ScaleUp: api.ScaleUpRule{QueueThreshold: new(0)}}.WithDefaults()
	require.NoError(t, eager.Validate(), "a start when anything waits, a stop when nothing does")
}
