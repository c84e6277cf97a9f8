package fleet

import "time"

// FailoverTrigger says what began a failover.
type FailoverTrigger string

// The triggers.
const (
	TriggerLost    FailoverTrigger = "lost"     // the hub gave the agent up
	TriggerHubLost FailoverTrigger = "hub_lost" // its hub was lost and it did not re-attach
	TriggerManual  FailoverTrigger = "manual"   // a person asked
)

// FailoverStatus is how a failover ended, or that it runs.
type FailoverStatus string

// The statuses.
const (
	FailoverRunning      FailoverStatus = "running"
	FailoverSucceeded    FailoverStatus = "succeeded"
	FailoverNotInCluster FailoverStatus = "not_in_cluster"
	FailoverNoTarget     FailoverStatus = "no_target_available" // the work waits in its lanes for an agent
	FailoverFailed       FailoverStatus = "failed"
)

// HeldAttempt is an attempt that an agent had when it was lost.
type HeldAttempt struct {
	TaskID  string `json:"task_id"`
	Attempt int    `json:"attempt"`
}

// Transfer is the move of one task.
type Transfer struct {
	TaskID string `json:"task_id"`
	From   string `json:"from"`
	// To is the agent that has it now; empty while it waits, for a person or for an agent.
	To string `json:"to,omitempty"`
	// Epoch is the new agent's session's.
	Epoch      int64      `json:"epoch,omitempty"`
	RetryCount int        `json:"retry_count"`
	Status     TaskStatus `json:"status"`
	Why        string     `json:"why"`
	At         *time.Time `json:"at,omitempty"`
}

// FailoverRecord tells one failover from beginning to end.
type FailoverRecord struct {
	ID            string          `json:"id"`
	Cluster       string          `json:"cluster"`
	FailedAgentID string          `json:"failed_agent_id"`
	Epoch         int64           `json:"epoch"`
	TargetAgentID string          `json:"target_agent_id,omitempty"`
	Trigger       FailoverTrigger `json:"trigger"`
	Reason        string          `json:"reason,omitempty"`
	Status        FailoverStatus  `json:"status"`
	Error         string          `json:"error,omitempty"`
	// TasksTransferred counts the transfers that another agent has begun or finished.
	TasksTransferred int         `json:"tasks_transferred"`
	Transfers        []Transfer  `json:"transfers,omitempty"`
	Promoted         string      `json:"promoted,omitempty"`
	LeaderEpoch      int64       `json:"leader_epoch,omitempty"`
	Shards           []ShardMove `json:"shards,omitempty"`
	// Targets are the deployment targets that moved with its roles.
	Targets []string `json:"targets,omitempty"`
	// StateSync is how the members' states stood after a promotion; empty: none was made for this failover.
	StateSync   SyncStatus `json:"state_sync,omitempty"`
	NoticedAt   time.Time  `json:"noticed_at"`
	StartedAt   time.Time  `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
}

// MaxTransfers bounds how many attempts one failover records; more move all the same.
const MaxTransfers = 500
