package scaling

import (
	"cmp"
	"fmt"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// MaySpawn returns why no agent can be started by hand, beside those that scaling keeps; empty: one can.
func MaySpawn(c *cluster.Cluster) string {
	d := counted(c, time.Time{})
	switch most := c.Config.MaxAgents; {
	case len(c.BrakeHolds) > 0:
		return "the mass-loss brake is engaged; end it first"
	case d.current >= most || d.room() <= 0:
		return fmt.Sprintf("the cluster has its max_agents of %d", most)
	}
	return ""
}

// SpawnOne decides to start one agent, for a person. Scaling keeps one more from then on.
func SpawnOne(c *cluster.Cluster, by, reason string, now time.Time) cluster.ScalingDecision {
	d := counted(c, now)
	return cluster.ScalingDecision{At: now, Change: api.ScaleUp, Count: 1, Current: d.current, Rule: api.RuleByHand,
		Target: max(cluster.ScalingTarget(c), d.current+1), Reason: askedFor("start one", by, reason)}
}

// MayTerminate returns why a member cannot be stopped by hand; empty: it can.
func MayTerminate(c *cluster.Cluster, agentID string) string {
	d, m := counted(c, time.Time{}), c.Member(agentID)
	switch {
	case m == nil:
		return "the agent is no member of the cluster"
	case !d.mayStop(m):
		return "no spawner started the agent: stop it where it runs; `mainstay agent drain` takes its work off it first"
	case d.leaving[agentID]:
		return "the agent is being stopped already"
	case len(c.BrakeHolds) > 0:
		return "the mass-loss brake is engaged; end it first"
	}
	return ""
}

// TerminateOne decides to stop a member, for a person. Scaling keeps one fewer from then on, but min_agents.
func TerminateOne(c *cluster.Cluster, agentID, by, reason string, now time.Time) cluster.ScalingDecision {
	d, target := counted(c, now), cluster.ScalingTarget(c)
	left := d.current
	if m := c.Member(agentID); m != nil && m.Serving() {
		left--
	}
	return cluster.ScalingDecision{At: now, Change: api.ScaleDown, Count: 1, Agents: []string{agentID},
		Current: d.current,
		Rule:    api.RuleByHand, Target: min(target, max(left, c.Config.MinAgents)),
		Reason: askedFor("stop "+agentID, by, reason)}
}

func counted(c *cluster.Cluster, now time.Time) *scaler {
	d := &scaler{Cluster: c, now: now, policy: &c.Config.Scaling}
	d.count()
	return d
}

func askedFor(what, by, reason string) string {
	text := cmp.Or(by, "somebody") + " asked to " + what
	if reason != "" {
		text += ": " + reason
	}
	return text
}
