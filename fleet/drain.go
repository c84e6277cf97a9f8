package fleet

import "time"

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
