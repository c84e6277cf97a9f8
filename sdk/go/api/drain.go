package api

import (
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
	// Kind is service, system or sysbatch for an instance of such a job; otherwise it is empty.
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
