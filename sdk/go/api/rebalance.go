package api

// ShardMove is one step of a shard. Without To it was taken from From (Epoch is the ended ownership), else it was given
// to To under a new Epoch.
type ShardMove struct {
	Shard int    `json:"shard"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Epoch int64  `json:"epoch"`
}

// MaxTargets bounds the deployment targets of a cluster, because hubs get all of them.
const MaxTargets = 1000

// Rebalance is the result of spreading a cluster's work evenly.
type Rebalance struct {
	Cluster string          `json:"cluster"`
	DryRun  bool            `json:"dry_run,omitempty"`
	Mode    ReplicationMode `json:"replication_mode"`
	// Why is the outcome in words.
	Why   string          `json:"why"`
	Moves []RebalanceMove `json:"moves"`
	// Agents has each agent's counts, before and after.
	Agents []AgentShare `json:"agents"`
}

// RebalanceMove moves one shard with its targets, one target of an active_active cluster, or one attempt of a task.
type RebalanceMove struct {
	Task    string   `json:"task_id,omitempty"`
	Attempt int      `json:"attempt,omitempty"`
	Shard   *int     `json:"shard,omitempty"`
	Target  string   `json:"target,omitempty"`
	Targets []string `json:"targets,omitempty"` // of the shard
	From    string   `json:"from,omitempty"`    // empty: no agent had it
	To      string   `json:"to"`
}

// AgentShare has one agent's counts before and after a rebalance.
type AgentShare struct {
	AgentID       string `json:"agent_id"`
	Shards        int    `json:"shards"`
	ShardsBefore  int    `json:"shards_before"`
	Targets       int    `json:"targets"`
	TargetsBefore int    `json:"targets_before"`
	Tasks         int    `json:"tasks,omitempty"` // where tasks were spread too
	TasksBefore   int    `json:"tasks_before,omitempty"`
}
