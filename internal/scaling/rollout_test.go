package scaling

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// rolled is a cluster of four agents whose image has just changed. Drains and starts take it a minute.
func rolled(revert bool) *cluster.Cluster {
	c := scaledCluster(4, 0, 10)
	c.Config.DesiredAgents, c.Config.Scaling.Mode = 4, api.ScalingManual
	c.Config.Scaling.Rollout = (&api.RolloutPolicy{AutoRevert: revert}).WithDefaults()
	before := c.Config.Scaling.Spawn
	c.Config.Scaling.Spawn.Slots = 7
	RollOut(c, before, scaleNow)
	return c
}

// play carries out what is decided, every second, until the rollout has ended; joins says whether a start succeeds.
func play(t *testing.T, c *cluster.Cluster, least int, joins func() bool) (now time.Time) {
	t.Helper()
	return playOn(t, c, scaleNow, least, func(bool) bool { return joins() }, func() bool { return !RollsOut(c) })
}

// playOn is play from a time until a condition holds; joins is told whether the agent is a canary. New agents have as
// many slots as they were started with.
func playOn(
	t *testing.T, c *cluster.Cluster, from time.Time, least int, joins func(canary bool) bool, done func() bool,
) (now time.Time) {
	t.Helper()
	slots := map[string]int{}
	for now = from; now.Before(from.Add(time.Hour)); now = now.Add(time.Second) {
		for _, a := range slices.Clone(c.Scaling.Active) {
			if now.Sub(a.Since) < time.Minute {
				continue
			}
			result := ScalingResult{Number: a.Number}
			for _, agent := range a.Agents {
				switch {
				case a.Change == api.ScaleDown:
					c.Members = slices.DeleteFunc(c.Members, func(m cluster.Member) bool { return m.AgentID == agent })
				case joins(slices.Contains(c.Scaling.Rollout.Canaries, agent)):
					m := addSpawned(c, agent)
					m.StatusSince, m.MaxTasks = now, max(1, slots[agent])
				default:
					result.Failed = "it did not come online"
				}
			}
			EndScaling(c, result, now)
		}
		AdvanceRollout(c, now)
		if done() {
			return now
		}
		if d := DecideScaling(c, idleFor(c, 0, time.Hour), now); d.Change != api.ScaleNone {
			for _, agent := range BeginScaling(c, d, scaleNow, now).Agents {
				slots[agent] = SpawnBy(c, d.Rule).Slots
			}
		}
		s := scaler{Cluster: c, now: now, policy: &c.Config.Scaling}
		s.count()
		require.GreaterOrEqual(t, len(s.serving), least)
	}
	t.Fatalf("it has not come to that: %+v", c.Scaling.Rollout)
	return now
}

func TestRolloutReplacesAllAndKeepsEnough(t *testing.T) {
	t.Parallel()
	c := rolled(false)
	play(t, c, 3, func() bool { return true })
	r := c.Scaling.Rollout
	require.Equal(t, api.RolloutSuccessful, r.Status)
	require.Equal(t, 4, r.Healthy)
	require.Len(t, c.Members, 4)
	for i := range c.Members {
		require.NotContains(t, r.Old, c.Members[i].AgentID)
	}
}

func TestRolloutThatDoesNotGetOnStopsWithAReason(t *testing.T) {
	t.Parallel()
	c := rolled(false)
	now := play(t, c, 3, func() bool { return false })
	require.Equal(t, api.RolloutFailed, c.Scaling.Rollout.Status)
	require.Contains(t, c.Scaling.Rollout.Reason, "did not get on for 10m")
	require.Contains(t, c.Scaling.Rollout.Reason, "it did not come online")
	require.Equal(t, 7, c.Config.Scaling.Spawn.Slots)
	require.Equal(t, scaleNow.Add(10*time.Minute), now.Truncate(time.Minute))
	require.Len(t, c.Members, 3)
	require.Zero(t, NextRollout(c, now))
}

func TestRolloutIsReverted(t *testing.T) {
	t.Parallel()
	c := rolled(true)
	play(t, c, 3, func() bool { return c.Config.Scaling.Spawn.Slots == 0 })
	r := c.Scaling.Rollout
	require.Equal(t, api.RolloutSuccessful, r.Status, r.Reason)
	require.True(t, r.Revert)
	require.Equal(t, 2, r.Number)
	require.Contains(t, r.Reason, "rollout 1 failed: it did not get on")
	for _, agent := range []string{"a-01", "a-02", "a-03"} { // the former ones that were left do their work on
		require.NotNil(t, c.Member(agent))
	}
}

func TestRolloutDecision(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(c *cluster.Cluster)
		facts  func(c *cluster.Cluster, f *ScalingFacts)
		want   []string
	}{
		"one at a time": {want: []string{"a-00"}},
		"more where more may be missing": {want: []string{"a-00", "a-01", "a-02"},
			change: func(c *cluster.Cluster) { c.Config.Scaling.Rollout.MaxUnavailable = 3 }},
		"none while a new one is not healthy for long enough": {change: func(c *cluster.Cluster) {
			c.Member("a-03").StatusSince = scaleNow.Add(-9 * time.Second)
			c.Scaling.Rollout.Old = []string{"a-00", "a-01", "a-02"}
		}},
		"the next once it is": {want: []string{"a-00"}, change: func(c *cluster.Cluster) {
			c.Member("a-03").StatusSince = scaleNow.Add(-10 * time.Second)
			c.Scaling.Rollout.Old = []string{"a-00", "a-01", "a-02"}
		}},
		"not those with pinned work": {want: []string{"a-01"},
			facts: func(_ *cluster.Cluster, f *ScalingFacts) { f.Pin("a-00") }},
		"none while the brake holds": {change: func(c *cluster.Cluster) { c.BrakeHolds = []cluster.BrakeHold{{}} }},
		"none after it has failed":   {change: func(c *cluster.Cluster) { c.Scaling.Rollout.Status = api.RolloutFailed }},
		"none without rollout in the settings": {
			change: func(c *cluster.Cluster) { c.Config.Scaling.Rollout = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rolled(false)
			if tt.change != nil {
				tt.change(c)
			}
			f := idleFor(c, 0, time.Hour)
			if tt.facts != nil {
				tt.facts(c, f)
			}
			require.Equal(t, tt.want, DecideScaling(c, f, scaleNow).Agents)
		})
	}
}

func TestRolloutBegins(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(p *api.ScalingPolicy)
		want   bool
	}{
		"another environment":       {func(p *api.ScalingPolicy) { p.Spawn.Environment = map[string]string{"A": "b"} }, true},
		"another image":             {func(p *api.ScalingPolicy) { p.Spawn.Image = "agent:2" }, true},
		"another join timeout":      {func(p *api.ScalingPolicy) { p.Spawn.JoinTimeout++ }, false},
		"another backoff":           {func(p *api.ScalingPolicy) { p.Spawn.Backoff.Delay++ }, false},
		"scaling is off":            {func(p *api.ScalingPolicy) { p.Spawn.Slots, p.Mode = 9, api.ScalingOff }, false},
		"no rollout in the setting": {func(p *api.ScalingPolicy) { p.Spawn.Slots, p.Rollout = 9, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := scaledCluster(2, 0, 5)
			c.Config.Scaling.Rollout = (&api.RolloutPolicy{}).WithDefaults()
			before := c.Config.Scaling.Spawn
			tt.change(&c.Config.Scaling)
			RollOut(c, before, scaleNow)
			require.Equal(t, tt.want, RollsOut(c), fmt.Sprint(c.Scaling))
		})
	}
}

// TestRolloutWithCanaries tries new settings with two canaries. The agents of the former settings are a-00 to a-03.
func TestRolloutWithCanaries(t *testing.T) {
	t.Parallel()
	always, others := func(bool) bool { return true }, func(canary bool) bool { return !canary }
	for name, tt := range map[string]struct {
		policy api.RolloutPolicy
		joins  func(canary bool) bool
		// then is done once the rollout waits for a person, or has ended.
		then   func(c *cluster.Cluster, now time.Time)
		status []api.RolloutStatus // at that time, and in the end
		reason string
		// former and fresh are how many agents with either settings there are in the end; kept: none was replaced.
		former, fresh int
		kept          bool
		events        []api.EventType
	}{
		"promoted by hand": {joins: always, fresh: 4,
			then:   func(c *cluster.Cluster, now time.Time) { PromoteRollout(c, "ann", "looks good", now) },
			status: []api.RolloutStatus{api.RolloutWaiting, api.RolloutSuccessful}, reason: "promoted by ann: looks good",
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutWaiting, api.EventRolloutPromoted, api.EventRolloutSucceeded}},
		"promoted at once": {joins: always, fresh: 4, policy: api.RolloutPolicy{AutoPromote: true},
			status: []api.RolloutStatus{api.RolloutSuccessful, api.RolloutSuccessful}, reason: "promoted by auto_promote",
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutPromoted, api.EventRolloutSucceeded}},
		"nobody promotes": {joins: always, former: 4, fresh: 2, kept: true,
			status: []api.RolloutStatus{api.RolloutWaiting, api.RolloutWaiting},
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutWaiting}},
		"the canaries do not start": {joins: others, former: 4, kept: true,
			status: []api.RolloutStatus{api.RolloutFailed, api.RolloutFailed},
			reason: "it did not get on for 10m0s: 0 of 2 canaries healthy; it did not come online",
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutFailed}},
		"a canary does not stay": {joins: always, former: 4, kept: true,
			then: func(c *cluster.Cluster, now time.Time) {
				c.Config.MaxAgents = 5 // no other can be started
				c.Members = slices.DeleteFunc(c.Members, func(m cluster.Member) bool { return m.AgentID == c.Scaling.Rollout.Canaries[0] })
			},
			status: []api.RolloutStatus{api.RolloutWaiting, api.RolloutFailed},
			reason: "1 of 2 canaries healthy; max_agents of 5 leaves no room for them",
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutWaiting, api.EventRolloutFailed}},
		"the canaries do not start, and are reverted": {joins: others, former: 4, kept: true,
			policy: api.RolloutPolicy{AutoRevert: true},
			status: []api.RolloutStatus{api.RolloutSuccessful, api.RolloutSuccessful}, reason: "rollout 1 failed: it did not get on",
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutFailed, api.EventRolloutReverted, api.EventRolloutSucceeded}},
		"reverted by hand": {joins: always, former: 4, kept: true,
			then:   func(c *cluster.Cluster, now time.Time) { RevertRollout(c, "", "no", now) },
			status: []api.RolloutStatus{api.RolloutWaiting, api.RolloutSuccessful}, reason: "reverted by a person: no",
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutWaiting, api.EventRolloutCancelled, api.EventRolloutReverted,
				api.EventRolloutSucceeded}},
		"reverted by hand after it succeeded": {joins: always, former: 4, policy: api.RolloutPolicy{AutoPromote: true},
			then:   func(c *cluster.Cluster, now time.Time) { RevertRollout(c, "ann", "", now) },
			status: []api.RolloutStatus{api.RolloutSuccessful, api.RolloutSuccessful}, reason: "reverted by ann",
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutPromoted, api.EventRolloutSucceeded, api.EventRolloutReverted,
				api.EventRolloutSucceeded}},
		"an old agent is lost meanwhile": {joins: always, former: 4, fresh: 2,
			then: func(c *cluster.Cluster, _ time.Time) {
				c.Members = slices.DeleteFunc(c.Members, func(m cluster.Member) bool { return m.AgentID == "a-00" })
			},
			status: []api.RolloutStatus{api.RolloutWaiting, api.RolloutWaiting},
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutWaiting}},
		"an old agent is lost after the failure": {joins: others, former: 4,
			then: func(c *cluster.Cluster, _ time.Time) {
				c.Members = slices.DeleteFunc(c.Members, func(m cluster.Member) bool { return m.AgentID == "a-00" })
			},
			status: []api.RolloutStatus{api.RolloutFailed, api.RolloutFailed},
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutFailed}},
		"other settings take its place": {joins: always, former: 4, fresh: 2, kept: true,
			then: func(c *cluster.Cluster, now time.Time) {
				before := c.Config.Scaling.Spawn
				c.Config.Scaling.Spawn.Slots = 8
				RollOut(c, before, now)
			},
			status: []api.RolloutStatus{api.RolloutWaiting, api.RolloutWaiting},
			events: []api.EventType{api.EventRolloutStarted, api.EventRolloutWaiting, api.EventRolloutCancelled, api.EventRolloutStarted,
				api.EventRolloutWaiting}},
	} {
		for _, mode := range []api.ScalingMode{api.ScalingManual, api.ScalingAuto} {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				c := scaledCluster(4, 4, 10)
				was := c.Snapshot()
				c.Config.DesiredAgents, c.Config.Scaling.Mode = 4, mode
				policy := tt.policy // tt is of both modes
				policy.Canary = 2
				c.Config.Scaling.Rollout = policy.WithDefaults()
				before := c.Config.Scaling.Spawn
				c.Config.Scaling.Spawn.Slots = 7
				RollOut(c, before, scaleNow)
				now := playOn(t, c, scaleNow, 3, tt.joins,
					func() bool { return !RollsOut(c) || c.Scaling.Rollout.Status == api.RolloutWaiting })
				require.Equal(t, tt.status[0], c.Scaling.Rollout.Status, c.Scaling.Rollout.Reason)
				if tt.then != nil {
					tt.then(c, now)
				}
				seconds := 0
				playOn(t, c, now, 3, tt.joins, func() bool { seconds++; return seconds > 1800 })
				require.Equal(t, tt.status[1], c.Scaling.Rollout.Status, c.Scaling.Rollout.Reason)
				require.Contains(t, c.Scaling.Rollout.Reason, tt.reason)
				former, fresh, kept := 0, 0, 0
				for _, m := range c.Members {
					switch m.MaxTasks {
					case 1:
						former++
					case c.Config.Scaling.Spawn.Slots:
						fresh++
					}
					if slices.Contains([]string{"a-00", "a-01", "a-02", "a-03"}, m.AgentID) {
						kept++
					}
				}
				require.Equal(t, []int{tt.former, tt.fresh, len(c.Members)}, []int{former, fresh, former + fresh})
				require.Equal(t, tt.kept, kept == 4)
				events := c.Changes(was, now)
				var types []api.EventType
				for _, e := range events {
					if e.Cluster == "c" && len(e.ID) > 2 && e.ID[:2] == "c:" {
						types = append(types, e.Type)
					}
				}
				require.Equal(t, tt.events, types)
				again := c.Changes(c.Snapshot(), now)
				require.Empty(t, again)
			})
		}
	}
}

func TestSettingsThatNoAgentHadAreNotPutInForce(t *testing.T) {
	t.Parallel()
	c := scaledCluster(0, 2, 10)
	c.Config.Scaling.Rollout = (&api.RolloutPolicy{Canary: 1}).WithDefaults()
	for _, slots := range []int{3, 4} {
		before := c.Config.Scaling.Spawn
		c.Config.Scaling.Spawn.Slots = slots
		RollOut(c, before, scaleNow)
		if slots == 3 {
			require.Zero(t, c.Scaling.Rollout.Canary, "there is nothing to be beside")
			addSpawned(c, "a-00")
		}
	}
	require.Equal(t, 3, SpawnBy(c, api.RuleMinimum).Slots)
}

func TestAgentsAreReplacedWhileCanariesAreBlocked(t *testing.T) {
	t.Parallel()
	c := rolled(false)
	c.Scaling.Rollout.Canary = 1
	c.Scaling.Rollout.Former.Spawner = "here"
	start := DecideScaling(c, nil, scaleNow)
	require.Equal(t, api.RuleRollout, start.Rule)
	require.Equal(t, 1, start.Count)
	require.Equal(t, 4, start.Target)
	require.Equal(t, 7, SpawnBy(c, start.Rule).Slots)
	EndScaling(c, ScalingResult{Number: BeginScaling(c, start, scaleNow, scaleNow).Number, Failed: "no image"}, scaleNow)
	require.Equal(t, "no image", c.Scaling.Rollout.Blocked.Reason)
	require.Equal(t, c.Scaling.Rollout.Blocked.NextAt, NextRollout(c, scaleNow))
	require.Equal(t, api.ScaleNone, DecideScaling(c, nil, scaleNow).Change)

	c.Members = c.Members[1:]
	up := DecideScaling(c, nil, scaleNow)
	require.Equal(t, api.RuleDesired, up.Rule)
	require.Equal(t, "here", SpawnBy(c, up.Rule).Spawner)
	action := BeginScaling(c, up, scaleNow, scaleNow)
	require.Subset(t, c.Scaling.Rollout.Stable, action.Agents)

	SpawnerBack(c, "there")
	require.Nil(t, c.Scaling.Rollout.Blocked)
}

func TestWhatPeopleMayDoAboutARollout(t *testing.T) {
	t.Parallel()
	waiting := func(c *cluster.Cluster) { c.Scaling.Rollout.Canary, c.Scaling.Rollout.Status = 1, api.RolloutWaiting }
	for name, tt := range map[string]struct {
		change          func(c *cluster.Cluster)
		promote, revert string
	}{
		"it waits": {change: waiting},
		"it runs": {promote: "not healthy yet",
			change: func(c *cluster.Cluster) { c.Scaling.Rollout.Canary = 1 }},
		"it has no canaries": {promote: "no canaries", change: func(*cluster.Cluster) {}},
		"it has failed": {promote: "under way",
			change: func(c *cluster.Cluster) { waiting(c); c.Scaling.Rollout.Status = api.RolloutFailed }},
		"there was none": {promote: "under way", revert: "had no rollout",
			change: func(c *cluster.Cluster) { c.Scaling = nil }},
		"it is a revert": {promote: "no canaries", revert: "is a revert itself",
			change: func(c *cluster.Cluster) { c.Scaling.Rollout.Revert = true }},
		"the settings have none": {promote: "no canaries", revert: "ask for no rollouts",
			change: func(c *cluster.Cluster) { waiting(c); c.Config.Scaling.Rollout = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rolled(false)
			tt.change(c)
			promote, revert := MayPromoteRollout(c), MayRevertRollout(c)
			require.Contains(t, promote, tt.promote)
			require.Contains(t, revert, tt.revert)
			require.Equal(t, []bool{tt.promote == "", tt.revert == ""}, []bool{promote == "", revert == ""})
		})
	}
}
