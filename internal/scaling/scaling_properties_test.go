package scaling

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// TestScalingKeepsItsWord drives a cluster through random loads, losses and failures, and checks every decision.
func TestScalingKeepsItsWord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(0, 4).Draw(t, "min")
		most := rapid.IntRange(max(1, least), 8).Draw(t, "max")
		c := scaledCluster(rapid.IntRange(0, most).Draw(t, "agents"), least, most)
		p := &c.Config.Scaling
		p.ScaleUp.Increment = rapid.IntRange(1, 4).Draw(t, "increment")
		p.ScaleDown.Decrement = rapid.IntRange(1, 4).Draw(t, "decrement")
		p.QueueMeasure = rapid.SampledFrom([]api.QueueMeasure{api.QueueTotal, api.QueuePerAgent}).Draw(t, "measure")
		now := scaleNow
		var ups, downs []time.Time
		for range rapid.IntRange(5, 40).Draw(t, "rounds") {
			now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			if len(c.Members) > 0 && rapid.Bool().Draw(t, "lose one") {
				m := &c.Members[rapid.IntRange(0, len(c.Members)-1).Draw(t, "who")]
				m.SetStatus(api.AgentOffline, "lost", now)
			}
			facts := randomFacts(t, c, now)
			before := c.ServingCount()
			d := DecideScaling(c, facts, now)
			switch d.Change {
			case api.ScaleUp:
				require.Positive(t, d.Count)
				require.LessOrEqual(t, before+d.Count, most, "never more than max")
				if d.Rule == api.RuleQueue || d.Rule == api.RuleCPU {
					requireApart(t, ups, now, p.ScaleUp.Cooldown.Std())
				}
				ups = append(ups, now)
			case api.ScaleDown:
				require.Equal(t, d.Count, len(d.Agents))
				if d.Rule == api.RuleRetire {
					for _, agent := range d.Agents {
						require.False(t, c.Member(agent).Serving())
					}
					break
				}
				require.GreaterOrEqual(t, before-d.Count, least, "never fewer than min")
				requireIdleFirst(t, c, facts, d)
				if d.Rule == api.RuleIdle {
					requireApart(t, slices.Concat(ups, downs), now, p.ScaleDown.Cooldown.Std())
				}
				downs = append(downs, now)
			default:
				require.NotEmpty(t, d.Reason)
				continue
			}
			carryOut(t, c, d, now)
			calm := DecideScaling(c, facts, now)
			if calm.Change != api.ScaleNone && calm.Rule != api.RuleRetire && calm.Rule != api.RuleMinimum &&
				calm.Rule != api.RuleDesired {
				t.Fatalf("the same facts lead on: %+v after %+v", calm, d)
			}
		}
	})
}

func randomFacts(t *rapid.T, c *cluster.Cluster, now time.Time) *ScalingFacts {
	f := &ScalingFacts{Queue: rapid.Int64Range(0, 12).Draw(t, "queue")}
	for i := range c.Members {
		if rapid.IntRange(0, 9).Draw(t, "known") > 0 {
			f.Agents = append(f.Agents, AgentActivity{AgentID: c.Members[i].AgentID,
				Running: max(0, rapid.IntRange(-1, 1).Draw(t, "running")),
				IdleSince: now.Add(-time.Duration(rapid.IntRange(0, 900).Draw(t,
					"idle")) * time.Second), CPUPercent: new(90.), Pinned: rapid.IntRange(0, 9).Draw(t, "pinned") == 0})
		}
	}
	return f
}

func requireApart(t *rapid.T, earlier []time.Time, now time.Time, cooldown time.Duration) {
	for _, at := range earlier {
		require.GreaterOrEqual(t, now.Sub(at), cooldown, "a rule keeps the cooldown")
	}
}

// requireIdleFirst: no agent with work goes while an idle one stays that may go, and none with pinned work.
func requireIdleFirst(t *rapid.T, c *cluster.Cluster, f *ScalingFacts, d cluster.ScalingDecision) {
	worked := false
	for _, a := range f.Agents {
		if slices.Contains(d.Agents, a.AgentID) {
			require.False(t, a.Pinned)
			worked = worked || a.Running > 0
		}
	}
	for _, a := range f.Agents {
		if m := c.Member(a.AgentID); worked && !slices.Contains(d.Agents, a.AgentID) && m.Serving() {
			require.True(t, a.Running > 0 || a.Pinned, "%s is idle and stays", a.AgentID)
		}
	}
}

// carryOut carries out a decision at once, or fails to.
func carryOut(t *rapid.T, c *cluster.Cluster, d cluster.ScalingDecision, now time.Time) {
	action := BeginScaling(c, d, scaleNow, now)
	failed := ""
	for _, agent := range action.Agents {
		switch {
		case d.Change == api.ScaleDown:
			c.Member(agent).SetStatus(api.AgentOffline, "stopped", now)
			require.True(t, Retire(c, agent))
		case rapid.IntRange(0, 4).Draw(t, "fails") == 0:
			failed = "it did not start"
		default:
			addSpawned(c, agent)
		}
	}
	require.True(t, EndScaling(c, ScalingResult{Number: action.Number, Failed: failed}, now))
}
