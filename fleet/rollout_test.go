package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rolled is a cluster of four agents whose image has just changed. Drains and starts take it a minute.
func rolled(revert bool) *Cluster {
	c := scaledCluster(4, 0, 10)
	c.Config.DesiredAgents, c.Config.Scaling.Mode = 4, ScalingManual
	c.Config.Scaling.Rollout = (&RolloutPolicy{AutoRevert: revert}).withDefaults()
	before := c.Config.Scaling.Spawn
	c.Config.Scaling.Spawn.Slots = 7
	c.RollOut(before, scaleNow)
	return c
}

// play carries out what is decided, every second, until the rollout has ended; joins says whether a start succeeds.
func play(t *testing.T, c *Cluster, least int, joins func() bool) (now time.Time) {
	t.Helper()
	for now = scaleNow; now.Before(scaleNow.Add(time.Hour)); now = now.Add(time.Second) {
		for _, a := range slices.Clone(c.Scaling.Active) {
			if now.Sub(a.Since) < time.Minute {
				continue
			}
			result := ScalingResult{Number: a.Number}
			for _, agent := range a.Agents {
				switch {
				case a.Change == ScaleDown:
					c.Members = slices.DeleteFunc(c.Members, func(m Member) bool { return m.AgentID == agent })
				case joins():
					c.addSpawned(agent).StatusSince = now
				default:
					result.Failed = "it did not come online"
				}
			}
			c.EndScaling(result, now)
		}
		c.AdvanceRollout(now)
		if !c.RollsOut() {
			return now
		}
		if d := c.DecideScaling(c.idle(0, time.Hour), now); d.Change != ScaleNone {
			c.BeginScaling(d, scaleNow, now)
		}
		s := scaler{Cluster: c, now: now, policy: &c.Config.Scaling}
		s.count()
		require.GreaterOrEqual(t, len(s.serving), least)
	}
	t.Fatalf("the rollout has not ended: %+v", c.Scaling.Rollout)
	return now
}

func TestRolloutReplacesAllAndKeepsEnough(t *testing.T) {
	t.Parallel()
	c := rolled(false)
	play(t, c, 3, func() bool { return true })
	r := c.Scaling.Rollout
	require.Equal(t, RolloutSuccessful, r.Status)
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
	require.Equal(t, RolloutFailed, c.Scaling.Rollout.Status)
	require.Contains(t, c.Scaling.Rollout.Reason, "did not get on for 10m")
	require.Contains(t, c.Scaling.Rollout.Reason, "it did not come online")
	require.Equal(t, 7, c.Config.Scaling.Spawn.Slots)
	require.Equal(t, scaleNow.Add(10*time.Minute), now.Truncate(time.Minute))
	require.Len(t, c.Members, 3)
	require.Zero(t, c.NextRollout(now))
}

func TestRolloutIsReverted(t *testing.T) {
	t.Parallel()
	c := rolled(true)
	play(t, c, 3, func() bool { return c.Config.Scaling.Spawn.Slots == 0 })
	r := c.Scaling.Rollout
	require.Equal(t, RolloutSuccessful, r.Status, r.Reason)
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
		change func(c *Cluster)
		facts  func(c *Cluster, f *ScalingFacts)
		want   []string
	}{
		"one at a time": {want: []string{"a-00"}},
		"more where more may be missing": {want: []string{"a-00", "a-01", "a-02"},
			change: func(c *Cluster) { c.Config.Scaling.Rollout.MaxUnavailable = 3 }},
		"none while a new one is not healthy for long enough": {change: func(c *Cluster) {
			c.Member("a-03").StatusSince = scaleNow.Add(-9 * time.Second)
			c.Scaling.Rollout.Old = []string{"a-00", "a-01", "a-02"}
		}},
		"the next once it is": {want: []string{"a-00"}, change: func(c *Cluster) {
			c.Member("a-03").StatusSince = scaleNow.Add(-10 * time.Second)
			c.Scaling.Rollout.Old = []string{"a-00", "a-01", "a-02"}
		}},
		"not those with pinned work": {want: []string{"a-01"},
			facts: func(_ *Cluster, f *ScalingFacts) { f.Pin("a-00") }},
		"none while the brake holds": {change: func(c *Cluster) { c.BrakeHolds = []BrakeHold{{}} }},
		"none after it has failed":   {change: func(c *Cluster) { c.Scaling.Rollout.Status = RolloutFailed }},
		"none without rollout in the settings": {
			change: func(c *Cluster) { c.Config.Scaling.Rollout = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rolled(false)
			if tt.change != nil {
				tt.change(c)
			}
			f := c.idle(0, time.Hour)
			if tt.facts != nil {
				tt.facts(c, f)
			}
			require.Equal(t, tt.want, c.DecideScaling(f, scaleNow).Agents)
		})
	}
}

func TestRolloutBegins(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(p *ScalingPolicy)
		want   bool
	}{
		"another environment":       {func(p *ScalingPolicy) { p.Spawn.Environment = map[string]string{"A": "b"} }, true},
		"another image":             {func(p *ScalingPolicy) { p.Spawn.Image = "agent:2" }, true},
		"another join timeout":      {func(p *ScalingPolicy) { p.Spawn.JoinTimeout++ }, false},
		"another backoff":           {func(p *ScalingPolicy) { p.Spawn.Backoff.Delay++ }, false},
		"scaling is off":            {func(p *ScalingPolicy) { p.Spawn.Slots, p.Mode = 9, ScalingOff }, false},
		"no rollout in the setting": {func(p *ScalingPolicy) { p.Spawn.Slots, p.Rollout = 9, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := scaledCluster(2, 0, 5)
			c.Config.Scaling.Rollout = (&RolloutPolicy{}).withDefaults()
			before := c.Config.Scaling.Spawn
			tt.change(&c.Config.Scaling)
			c.RollOut(before, scaleNow)
			require.Equal(t, tt.want, c.RollsOut(), fmt.Sprint(c.Scaling))
		})
	}
}
