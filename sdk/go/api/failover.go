package api

import (
	"time"
)

// FailoverTrigger is the cause of a failover.
type FailoverTrigger string

// The triggers.
const (
	TriggerLost    FailoverTrigger = "lost"     // the hub gave the agent up
	TriggerHubLost FailoverTrigger = "hub_lost" // its hub was lost and it did not re-attach
	TriggerManual  FailoverTrigger = "manual"   // a person asked
)

// FailoverStatus is the outcome of a failover, or that it runs.
type FailoverStatus string

// The statuses.
const (
	FailoverRunning      FailoverStatus = "running"
	FailoverSucceeded    FailoverStatus = "succeeded"
	FailoverNotInCluster FailoverStatus = "not_in_cluster"
	FailoverNoTarget     FailoverStatus = "no_target_available" // the work waits in its lanes for an agent
	FailoverFailed       FailoverStatus = "failed"
)

// Transfer is the move of one task.
type Transfer struct {
	TaskID string `json:"task_id"`
	From   string `json:"from"`
	// To is the agent that has it now; empty while it waits, for a person or for an agent.
	To string `json:"to,omitempty"`
	// Epoch is the new agent's session's.
	Epoch int64 `json:"epoch,omitempty"`
	// RetryCount is how many attempts up to the one that moved began, or may have. Deliveries that were returned do not
	// count, as far as the task still lists them.
	RetryCount int        `json:"retry_count" doc:"How many attempts up to the one that moved began. Returned deliveries do not count."`
	Status     TaskStatus `json:"status"`
	Why        string     `json:"why"`
	At         *time.Time `json:"at,omitempty"`
}

// FailoverRecord is the record of one failover.
type FailoverRecord struct {
	ID            string `json:"id"`
	Cluster       string `json:"cluster"`
	FailedAgentID string `json:"failed_agent_id"`
	Epoch         int64  `json:"epoch"`
	// TargetAgentID is the one agent that takes over: the next leader, or whom a person or the cluster's strategy named
	// in a failover by hand. Empty where each task and shard goes to an agent of its own.
	TargetAgentID string `json:"target_agent_id,omitempty"`
	// Trigger is absent where the failover's workflow ended without a record.
	Trigger FailoverTrigger `json:"trigger,omitempty" enum:"lost,hub_lost,manual"`
	Reason  string          `json:"reason,omitempty"`
	Status  FailoverStatus  `json:"status" enum:"running,succeeded,not_in_cluster,no_target_available,failed"`
	Error   string          `json:"error,omitempty"`
	// Tasks counts those under way; Transfers lists at most MaxTransfers of them.
	Tasks int `json:"tasks,omitempty" doc:"How many tasks were under way. The transfers list at most 500 of them."`
	// TasksTransferred counts the tasks that another agent has begun or finished.
	TasksTransferred int         `json:"tasks_transferred" doc:"How many of them another agent has begun or finished. Those that are not listed count as the listed ones do, in proportion."`
	Transfers        []Transfer  `json:"transfers,omitempty"`
	Promoted         string      `json:"promoted,omitempty"`
	LeaderEpoch      int64       `json:"leader_epoch,omitempty"`
	Shards           []ShardMove `json:"shards,omitempty"`
	// Targets are the deployment targets that moved with its roles.
	Targets []string `json:"targets,omitempty"`
	// StateSync is the outcome of the state sync after a promotion; empty: this failover made none.
	StateSync SyncStatus `json:"state_sync,omitempty" enum:"running,consistent,inconsistent,skipped,failed"`
	// Evidence is the sign by which the agent was given up, and NoticedAfter how long after its last sign of life: its
	// last poll, or the close of its connection.
	Evidence     Evidence  `json:"evidence,omitempty" enum:"connection_closed,unreachable,silence,proof,hub_lost"`
	NoticedAfter Duration  `json:"noticed_after,omitempty" doc:"How long after the agent's last sign of life that was."`
	NoticedAt    time.Time `json:"noticed_at"`
	StartedAt    time.Time `json:"started_at"`
	// ResumedAt is when all that moved was running elsewhere and the new leader led. The record is completed later,
	// when that was seen.
	ResumedAt   *time.Time `json:"resumed_at,omitempty"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
}

// MaxTransfers bounds the attempts that one failover lists and watches; others are counted.
const MaxTransfers = 500
