package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// DrainStatus is the state of a drain, as a whole or for one agent.
type DrainStatus string

// The statuses of a drain.
const (
	DrainWaiting DrainStatus = "waiting" // its turn has not come; only of one agent
	DrainRunning DrainStatus = "running" // nothing new arrives; the agent finishes its work
	// the deadline has passed: the hub takes the rest off the agent; only of one agent
	DrainMoving    DrainStatus = "moving"
	DrainCompleted DrainStatus = "completed" // in maintenance with nothing in flight
	DrainCancelled DrainStatus = "cancelled" // cancelled on request; the agent gets work again
	DrainFailed    DrainStatus = "failed"
	DrainPlanned   DrainStatus = "planned" // a dry run: the record has what would happen
)

// Defaults and bounds of a drain.
const (
	DefaultDrainTimeout = 5 * time.Minute
	MaxDrainTimeout     = 24 * time.Hour
	// MaxDrainWork bounds the attempts that a record lists for one agent.
	MaxDrainWork = 200
)

// DrainRecord is the record of a drain of one or several agents.
type DrainRecord struct {
	ID      string      `json:"id"`
	Cluster string      `json:"cluster"`
	Status  DrainStatus `json:"status"`
	Reason  string      `json:"reason,omitempty"`
	Error   string      `json:"error,omitempty"`
	// Timeout is how long each agent may finish its work after new work has stopped.
	Timeout     Duration     `json:"timeout" least:"0s"`
	MaxParallel int          `json:"max_parallel"`
	Agents      []AgentDrain `json:"agents"`
	RequestedAt time.Time    `json:"requested_at"`
	CompletedAt *time.Time   `json:"completed_at,omitempty"`
}

// AgentDrain is the part of a drain for one agent.
type AgentDrain struct {
	AgentID string      `json:"agent_id"`
	Status  DrainStatus `json:"status"`
	Error   string      `json:"error,omitempty"`
	// Refused: the drain failed because the cluster refused it, and the agent is unchanged.
	Refused bool `json:"refused,omitempty"`
	// AcknowledgedAt is when the hub had stopped all new work; nothing arrives at the agent afterwards.
	AcknowledgedAt *time.Time `json:"acknowledged_at,omitempty"`
	Deadline       *time.Time `json:"deadline,omitempty"`
	CompletedAt    *time.Time `json:"completed_at,omitempty"`
	// Work is what the agent had when new work stopped.
	Work []DrainWork `json:"work,omitempty"`
	// MoreWork is how much of it is left out, because the agents of the drain had more than a record lists.
	MoreWork int `json:"more_work,omitempty"`
	// Finished and Moved count how that work ended: on the agent, or taken off it at the deadline.
	Finished int `json:"finished"`
	Moved    int `json:"moved"`
	// Replaced counts instances of services that ended there because their job had started others elsewhere.
	Replaced int `json:"replaced,omitempty"`
	// Lost counts what the agent had when it vanished, or when another process took its place.
	Lost int `json:"lost,omitempty"`
	// Ignored counts what stays on the agent.
	Ignored int `json:"ignored,omitempty"`
}

// DrainWork is one attempt that an agent had when its drain began.
type DrainWork struct {
	TaskID    string      `json:"task_id"`
	Attempt   int         `json:"attempt"`
	Type      string      `json:"type,omitempty"` // empty: unknown, since the hub was restarted
	Safety    RetrySafety `json:"retry_safety,omitempty"`
	StartedAt *time.Time  `json:"started_at,omitempty"`
	// Kind is service, system or sysbatch, of an instance of such a job; otherwise it is empty.
	Kind string `json:"kind,omitempty"`
	// Ignored: it stays on the agent.
	Ignored bool `json:"ignored,omitempty"`
	// AtDeadline is what happens to it if it is not finished by then.
	AtDeadline string `json:"at_deadline,omitempty"`
	// Moved: it was taken off the agent.
	Moved bool `json:"moved,omitempty"`
	// Lost: it went with the agent, and is not known to have finished.
	Lost bool `json:"lost,omitempty"`
}

// AtDeadline explains what happens to work that a drain takes off its agent, which has certainly stopped by then.
func AtDeadline(safety RetrySafety) string {
	switch safety {
	case AtMostOnce, Unmarked:
		return "goes to review: it may have begun and is not repeated by itself"
	case Idempotent, Fenced:
		return "runs again on another agent"
	}
	return "runs again on another agent, or goes to review if it is at_most_once"
}

// What a drain does with instances of jobs.
const (
	DrainsService = "its job starts another elsewhere first, and then stops it; at the deadline it is taken off the agent"
	DrainsNot     = "stays: its job has one on each agent"
)

// Cordon keeps work from an agent. It belongs to the agent's id, not to a session: it stays when the agent restarts,
// leaves and comes back, until it is lifted.
type Cordon struct {
	AgentID string `json:"agent_id"`
	// Status is AgentDraining while the agent finishes its work, else AgentMaintenance.
	Status AgentStatus `json:"status"`
	Since  time.Time   `json:"since"`
	Reason string      `json:"reason,omitempty"`
	// Drain is the id of the drain that set it; empty for a cordon by hand.
	Drain string `json:"drain,omitempty"`
}

// Cordons are the agents that get no work, sorted by id.
type Cordons []Cordon

// Of returns the agent's cordon, or nil.
func (l Cordons) Of(agentID string) *Cordon {
	if i, found := l.search(agentID); found {
		return &l[i]
	}
	return nil
}

func (l Cordons) search(agentID string) (int, bool) {
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
	i, found := c.Cordons.search(k.AgentID)
	if !found {
		c.Cordons = slices.Insert(c.Cordons, i, k)
	} else {
		old := &c.Cordons[i]
		if old.Status == AgentDraining && old.Drain != k.Drain {
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
	i, found := c.Cordons.search(agentID)
	if !found {
		return false, nil
	}
	switch k := &c.Cordons[i]; {
	case k.Status == AgentDraining && k.Drain != drain:
		return false, fmt.Errorf("the agent is being drained by %s: cancel that drain", k.Drain)
	case drain != "" && k.Drain != drain:
		return false, nil // somebody else has cordoned it since
	}
	c.Cordons = slices.Delete(c.Cordons, i, i+1)
	if m := c.Member(agentID); m != nil {
		switch {
		case m.Status != AgentDraining && m.Status != AgentMaintenance:
		case m.Hub == "":
			m.setStatus(AgentOffline, "not connected since before its maintenance ended", now)
		default:
			m.setStatus(AgentOnline, "", now)
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
		m.setStatus(k.Status, k.Reason, now)
	case k.Status == AgentMaintenance:
		m.setStatus(AgentMaintenance, k.Reason, now)
	}
}

// Connected reports whether a hub has a session of the agent, cordoned or not.
func (m *Member) Connected() bool { return m.Status != AgentOffline && m.Hub != "" }
