package fleet

import (
	"errors"
	"fmt"
	"time"
)

// brakedWhy is why healing does nothing to agents while a hub's brake is engaged.
const brakedWhy = "the mass-loss brake is engaged: the network is the likelier culprit"

// HealingCheck is what healing decided about an agent. The facts of a decision are seconds old when it is carried out,
// or minutes after a restart of Temporal. So the cluster, which alone knows how the agent stands, checks it once more.
type HealingCheck struct {
	Type HealingType `json:"type"`
	// Epoch is of the session that was judged.
	Epoch int64 `json:"epoch"`
}

// CheckHealing refuses an action of healing whose reasons do not hold any more, with what changed. drain is the id of
// the drain that asks, if one does: a drain that has begun goes on whatever comes.
func (c *Cluster) CheckHealing(agentID, drain string, h HealingCheck) error {
	m, outBy := c.Member(agentID), outBy(c, agentID)
	if k := c.Cordons.Of(agentID); k != nil && drain != "" && k.Drain == drain {
		return nil
	}
	if m == nil || !m.Connected() {
		return errors.New("the agent is not connected any more")
	}
	if m.Epoch != h.Epoch {
		return errors.New("another process has the agent's id now")
	}
	if why := leftAlone(outBy, m.Status); why != "" {
		return fmt.Errorf("healing leaves the agent alone: %s", why)
	}
	if len(c.BrakeHolds) > 0 {
		return errors.New(brakedWhy)
	}
	switch ill, restore := !m.Health.Fit(), h.Type == HealRestore; {
	case restore && outBy != outByHealing:
		return errors.New("the agent is in service")
	case restore && ill:
		return fmt.Errorf("the agent is %s again", m.Health.Level)
	case !restore && outBy == outByHealing:
		return errors.New("healing has taken the agent out of service already")
	case !restore && !ill:
		return errors.New("the agent is healthy again")
	case h.Type == HealReduce && c.Reductions.Of(agentID) != nil:
		return errors.New("the agent's load is reduced already")
	}
	now, _ := ExamineForHealing(&ClusterFacts{Cluster: *c}, time.Time{})
	if why := (&healer{HealingCase: &now, serving: now.Serving}).needed(h.Type); why != "" {
		return errors.New(why)
	}
	return nil
}

// leftAlone says why an agent is none of healing's business; empty: it is.
func leftAlone(outBy string, status AgentStatus) string {
	switch {
	case outBy == outByOperator:
		return "an operator keeps it out of service (" + string(status) + ")"
	case status == AgentDraining:
		return "it is being drained"
	case status == AgentSuspect:
		return "the failure detector is at it"
	}
	return ""
}
