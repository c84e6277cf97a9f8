package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// AtDeadline explains what happens to work that a drain takes off its agent, which has certainly stopped by then.
func AtDeadline(safety api.RetrySafety) string {
	switch safety {
	case api.AtMostOnce, api.Unmarked:
		return "goes to review: it may have begun and is not repeated by itself"
	case api.Idempotent, api.Fenced:
		return "runs again on another agent"
	}
	return "runs again on another agent, or goes to review if it is at_most_once"
}

// How a drain treats instances of jobs.
const (
	DrainsService = "its job starts another elsewhere first, and then stops it; at the deadline it is taken off the agent"
	DrainsNot     = "stays: its job has one on each agent"
)

// Cordon keeps work from an agent. It belongs to the agent's id, not to a session: it stays when the agent restarts,
// leaves and comes back, until it is lifted.
type Cordon struct {
	AgentID string `json:"agent_id"`
	// Status is AgentDraining while the agent finishes its work, else AgentMaintenance.
	Status api.AgentStatus `json:"status"`
	Since  time.Time       `json:"since"`
	Reason string          `json:"reason,omitempty"`
	// Drain is the id of the drain that set it; empty for a cordon by hand.
	Drain string `json:"drain,omitempty"`
}

// Cordons are the agents that get no work, sorted by id.
type Cordons []Cordon

// Of returns the agent's cordon, or nil.
func (l Cordons) Of(agentID string) *Cordon {
	if i, found := l.Search(agentID); found {
		return &l[i]
	}
	return nil
}

// Search is where an agent's cordon is, or would be, and whether there is one.
func (l Cordons) Search(agentID string) (int, bool) {
	return search(l, agentID, func(k Cordon) string { return k.AgentID })
}

// SetCordon sets a member's cordon, or changes it; Since stays the first one's. It is refused for an agent that is no
// member, and for one that another drain has cordoned.
func (c *Cluster) SetCordon(k Cordon) error {
	m := c.Member(k.AgentID)
	if m == nil {
		return fmt.Errorf("the agent is not a member of the cluster")
	}
	k.Reason = noteOf(k.Reason)
	i, found := c.Cordons.Search(k.AgentID)
	if !found {
		c.Cordons = slices.Insert(c.Cordons, i, k)
	} else {
		old := &c.Cordons[i]
		if old.Status == api.AgentDraining && old.Drain != k.Drain {
			return fmt.Errorf("the agent is being drained by %s: cancel that first, or wait for its end", old.Drain)
		}
		k.Reason = cmp.Or(k.Reason, old.Reason)
		if old.Status == k.Status {
			k.Since = old.Since
		}
		*old = k
	}
	m.settleCordon(c, k.Since)
	return nil
}

// LiftCordon gives the agent work again. Only its own drain may lift the cordon of a running drain, and a drain lifts
// only its own. It reports whether there was one.
func (c *Cluster) LiftCordon(agentID, drain string, now time.Time) (bool, error) {
	i, found := c.Cordons.Search(agentID)
	if !found {
		return false, nil
	}
	switch k := &c.Cordons[i]; {
	case k.Status == api.AgentDraining && k.Drain != drain:
		return false, fmt.Errorf("the agent is being drained by %s: cancel that drain", k.Drain)
	case drain != "" && k.Drain != drain:
		return false, nil // somebody else has cordoned it since
	}
	c.Cordons = slices.Delete(c.Cordons, i, i+1)
	if m := c.Member(agentID); m != nil {
		switch {
		case m.Status != api.AgentDraining && m.Status != api.AgentMaintenance:
		case m.Hub == "":
			m.SetStatus(api.AgentOffline, "not connected since before its maintenance ended", now)
		default:
			m.SetStatus(api.AgentOnline, "", now)
			m.Relieved = false
		}
	}
	return true, nil
}

// settleCordon sets the member's status by its cordon. A connected member is draining or in maintenance instead of
// online; a disconnected one is in maintenance instead of offline, so that it raises no alert.
func (m *Member) settleCordon(c *Cluster, now time.Time) {
	k := c.Cordons.Of(m.AgentID)
	switch {
	case k == nil:
	case m.Connected():
		m.SetStatus(k.Status, k.Reason, now)
	case k.Status == api.AgentMaintenance:
		m.SetStatus(api.AgentMaintenance, k.Reason, now)
	}
}

// Connected reports whether a hub has a session of the agent, cordoned or not.
func (m *Member) Connected() bool { return m.Status != api.AgentOffline && m.Hub != "" }

// HealingDrainPrefix begins the names of healing's drains, which distinguishes them from those of people.
const HealingDrainPrefix = "healing-"

// ByHealing reports whether healing took the agent out of service, in the cluster of this name.
func (k *Cordon) ByHealing(cluster string) bool {
	return strings.HasPrefix(k.Drain, cluster+":"+HealingDrainPrefix)
}
