package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cordon keeps an agent from being given work. It belongs to the agent's id, not to a session: it stays
// when the agent restarts, leaves and comes back, until it is lifted.
type Cordon struct {
	AgentID string `json:"agent_id"`
	// Status is AgentDraining while work that the agent has is being finished, else AgentMaintenance.
	Status AgentStatus `json:"status"`
	Since  time.Time   `json:"since"`
	Reason string      `json:"reason,omitempty"`
	// Drain names the drain that put it there; empty for one put by hand.
	Drain string `json:"drain,omitempty"`
}

// Cordons are the agents that are given no work, sorted by id.
type Cordons []Cordon

// Of returns the agent's cordon, or nil.
func (l Cordons) Of(agentID string) *Cordon {
	if i, found := l.search(agentID); found {
		return &l[i]
	}
	return nil
}

func (l Cordons) search(agentID string) (int, bool) {
	return slices.BinarySearchFunc(l, agentID, func(k Cordon, id string) int { return strings.Compare(k.AgentID, id) })
}

// SetCordon puts a cordon on a member, or changes the one it has. Since stays that of the first. It is refused for an
// agent that is no member, and for one that another drain is at.
func (c *Cluster) SetCordon(k Cordon) error {
	m := c.Member(k.AgentID)
	if m == nil {
		return fmt.Errorf("the agent is not a member of the cluster")
	}
	i, found := c.Cordons.search(k.AgentID)
	if !found {
		c.Cordons = slices.Insert(c.Cordons, i, k)
	} else {
		old := &c.Cordons[i]
		if old.Status == AgentDraining && old.Drain != k.Drain {
			return fmt.Errorf("the agent is being drained by %s: cancel that first, or wait for its end", old.Drain)
		}
		if k.Reason == "" {
			k.Reason = old.Reason
		}
		if old.Status == k.Status {
			k.Since = old.Since
		}
		*old = k
	}
	m.settleCordon(c, k.Since)
	return nil
}

// LiftCordon lets the agent be given work again. A cordon that a drain is at can be lifted by that drain only, and a
// drain lifts only its own. It reports whether there was one.
func (c *Cluster) LiftCordon(agentID, drain string, now time.Time) (bool, error) {
	i, found := c.Cordons.search(agentID)
	if !found {
		return false, nil
	}
	switch k := &c.Cordons[i]; {
	case k.Status == AgentDraining && k.Drain != drain:
		return false, fmt.Errorf("the agent is being drained by %s: cancel that drain", k.Drain)
	case drain != "" && k.Drain != drain:
		return false, nil // what a drain gives back is not what somebody put there since
	}
	c.Cordons = slices.Delete(c.Cordons, i, i+1)
	if m := c.Member(agentID); m != nil {
		switch {
		case m.Status != AgentDraining && m.Status != AgentMaintenance:
		case m.Hub == "":
			m.setStatus(AgentOffline, "not connected since before its maintenance ended", now)
		default:
			m.setStatus(AgentOnline, "", now)
		}
	}
	return true, nil
}

// settleCordon shows a cordon in the status of its member. A connected one is draining or in maintenance instead of
// online; one that is not connected is in maintenance instead of offline, since nobody needs to be woken for it.
func (m *Member) settleCordon(c *Cluster, now time.Time) {
	k := c.Cordons.Of(m.AgentID)
	switch {
	case k == nil:
	case m.Connected():
		m.setStatus(k.Status, k.Reason, now)
	case k.Status == AgentMaintenance:
		m.setStatus(AgentMaintenance, k.Reason, now)
	}
}

// Connected reports whether a hub has a session of the agent, whether it is given work or not.
func (m *Member) Connected() bool { return m.Status != AgentOffline && m.Hub != "" }
