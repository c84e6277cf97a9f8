package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DrainStatus says how far a drain is, as a whole or for one agent.
type DrainStatus string

// The statuses of a drain.
const (
	DrainWaiting DrainStatus = "waiting" // its turn has not come; only of one agent
	DrainRunning DrainStatus = "running" // nothing new arrives; what the agent has is being finished
	// the deadline has passed: what is left is taken off the agent; only of one agent
	DrainMoving    DrainStatus = "moving"
	DrainCompleted DrainStatus = "completed" // in maintenance with nothing in flight
	DrainCancelled DrainStatus = "cancelled" // given up on request; the agent is given work again
	DrainFailed    DrainStatus = "failed"
	DrainPlanned   DrainStatus = "planned" // a dry run: this is what would happen
)

// Defaults and bounds of a drain.
const (
	DefaultDrainTimeout = 5 * time.Minute
	MaxDrainTimeout     = 24 * time.Hour
	// MaxDrainWork bounds the attempts that a record lists for one agent.
	MaxDrainWork = 200
)

// DrainRecord tells one drain of one agent or of several, one after the other.
type DrainRecord struct {
	ID      string      `json:"id"`
	Cluster string      `json:"cluster"`
	Status  DrainStatus `json:"status"`
	Reason  string      `json:"reason,omitempty"`
	Error   string      `json:"error,omitempty"`
	// Timeout is how long each agent may finish its work, from when nothing new arrives.
	Timeout     Duration     `json:"timeout"`
	MaxParallel int          `json:"max_parallel"`
	Agents      []AgentDrain `json:"agents"`
	RequestedAt time.Time    `json:"requested_at"`
	CompletedAt *time.Time   `json:"completed_at,omitempty"`
}

// AgentDrain is the part of a drain that is about one agent.
type AgentDrain struct {
	AgentID string      `json:"agent_id"`
	Status  DrainStatus `json:"status"`
	Error   string      `json:"error,omitempty"`
	// Refused says that the drain failed since the cluster refused it: the agent is as it was.
	Refused bool `json:"refused,omitempty"`
	// AcknowledgedAt is when the hub had stopped all new work; nothing arrives at the agent after it.
	AcknowledgedAt *time.Time `json:"acknowledged_at,omitempty"`
	Deadline       *time.Time `json:"deadline,omitempty"`
	CompletedAt    *time.Time `json:"completed_at,omitempty"`
	// Work is what the agent had when new work stopped.
	Work []DrainWork `json:"work,omitempty"`
	// Finished and Moved count how that work ended: on the agent, or taken off it at the deadline.
	Finished int `json:"finished"`
	Moved    int `json:"moved"`
}

// DrainWork is one attempt that an agent had when its drain began.
type DrainWork struct {
	TaskID    string      `json:"task_id"`
	Attempt   int         `json:"attempt"`
	Type      string      `json:"type,omitempty"` // empty: the hub was restarted since and does not know
	Safety    RetrySafety `json:"retry_safety,omitempty"`
	StartedAt *time.Time  `json:"started_at,omitempty"`
	// AtDeadline is what becomes of it when it is not finished by then.
	AtDeadline string `json:"at_deadline,omitempty"`
	// Moved says that it was taken off the agent.
	Moved bool `json:"moved,omitempty"`
}

// AtDeadline says what becomes of work that a drain takes off its agent. Its agent has certainly stopped by then.
func AtDeadline(safety RetrySafety) string {
	switch safety {
	case AtMostOnce:
		return "goes to review: it may have begun and is not repeated by itself"
	case Idempotent, Fenced:
		return "runs again on another agent"
	}
	return "runs again on another agent, or goes to review if it is at_most_once"
}

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
