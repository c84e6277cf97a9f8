package fleet

import (
	"strings"
	"time"
)

// HealingDrainPrefix begins the names of the drains that healing makes, so that what it took out of service is told
// from what a person did.
const HealingDrainPrefix = "healing-"

const (
	outByHealing  = "healing"
	outByOperator = "operator"
)

// ExamineForHealing reduces a cluster's facts to what a healing decision needs, and reports whether anything is wrong
// or out of service because of healing. Nothing else needs to be looked at then.
func ExamineForHealing(f *ClusterFacts, now time.Time) (HealingCase, bool) {
	policy := f.Config.SelfHealing.WithDefaults()
	c := HealingCase{
		Cluster: f.Config.Name,
		Policy:  policy,
		Minimum: f.Config.MinAgents,
		Wanted:  f.Wanted(),
		Scaled:  f.Config.Scaling.On(),
		Braked:  len(f.BrakeHolds) > 0, Hubs: f.Hubs(),
	}
	if upset := f.LastUpset(); now.Sub(upset) < AttemptBackstop+policy.CycleInterval.Std() {
		c.LastUpset = upset // what was left behind before that, the backstop has ended
	}
	for i := range f.Members {
		m := &f.Members[i]
		agent := HealingAgent{AgentID: m.AgentID, Status: m.Status, Since: m.StatusSince, Epoch: m.Epoch,
			Slots:  m.MaxTasks,
			Health: MemberHealth{Level: HealthHealthy}, Running: f.Live[m.AgentID].Running, Reduced: f.Reductions.Of(
				m.AgentID) != nil, OutBy: outBy(&f.Cluster, m.AgentID)}
		if m.Health != nil {
			agent.Health = *m.Health
		}
		if m.Connected() && agent.OutBy != outByOperator {
			c.Members++
		}
		if m.Status == AgentOnline {
			c.Serving++
			if agent.Health.Fit() {
				c.Healthy++
			}
		} else if !m.Connected() {
			c.ShortSince = later(c.ShortSince, m.StatusSince)
		}
		if m.Connected() && (!agent.Health.Fit() || agent.OutBy == outByHealing) {
			c.Agents = append(c.Agents, agent)
		}
	}
	for i := range f.Departures {
		c.ShortSince = later(c.ShortSince, f.Departures[i].At)
	}
	c.ShortSince = later(c.ShortSince, f.CreatedAt)
	return c, len(c.Agents) > 0 || c.Serving < c.Wanted || !c.LastUpset.IsZero()
}

// outBy says who keeps an agent out of service.
func outBy(c *Cluster, agentID string) string {
	k := c.Cordons.Of(agentID)
	switch {
	case k == nil:
		return ""
	case k.ByHealing(c.Config.Name):
		return outByHealing
	}
	return outByOperator
}

// ByHealing reports whether healing took the agent out of service, in the cluster with this name.
func (k *Cordon) ByHealing(cluster string) bool {
	return strings.HasPrefix(k.Drain, cluster+":"+HealingDrainPrefix)
}

// DueForHealing reports whether a cycle that begins at a time is to look at a cluster with this interval, when cycles
// begin every so often. It needs no memory: time is divided into the cluster's intervals, and the first cycle in each
// looks.
func DueForHealing(interval, every time.Duration, at time.Time) bool {
	if interval <= every || every <= 0 {
		return true
	}
	return at.UnixNano()/int64(interval) != at.Add(-every).UnixNano()/int64(interval)
}
