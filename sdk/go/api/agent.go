package api

import (
	"time"
)

// Agent is an agent as clients see it: what its cluster knows, and, when its hub publishes it, how it does right now.
type Agent struct {
	ID           string      `json:"id"`
	Cluster      string      `json:"cluster"`
	Status       AgentStatus `json:"status" enum:"online,suspect,warning,stopping,offline,draining,maintenance"`
	StatusSince  *time.Time  `json:"status_since,omitempty"`
	StatusReason string      `json:"status_reason,omitempty"`
	Connection   Connection  `json:"connection" enum:"connected,reconnecting,disconnected,offline" doc:"How it stands with its hub, whatever its status: connected; out of touch, and may come back within its grace (reconnecting); its grace is over, and its work is held for it (disconnected); or it was given up or has left (offline)."`
	State        WorkerState `json:"state" enum:"ready,busy,draining,maintenance,dead,unknown" doc:"What it is good for now: it has a free slot (ready), all are in use (busy), it finishes what it has and gets nothing new (draining), a person or a drain keeps work from it (maintenance), no hub has it (dead), or it is suspect or silent, or its hub has not told its load (unknown)."`
	Role         Role        `json:"role" enum:"leader,standby,member"`
	Shards       []int       `json:"shards,omitempty" doc:"The shards of a sharded cluster that it serves."`
	Epoch        int64       `json:"epoch"`
	InstanceID   string      `json:"instance_id"`
	Host         string      `json:"host,omitempty"`
	PID          int         `json:"pid,omitempty"`
	Hub          string      `json:"hub,omitempty"`
	Address      string      `json:"address,omitempty" doc:"What it says, else where it registered from."`
	StartedAt    *time.Time  `json:"started_at,omitempty" doc:"When its process began."`
	Zone         string      `json:"zone,omitempty"`
	Group        string      `json:"group,omitempty"`
	Version      string      `json:"version,omitempty"`
	Capabilities []string    `json:"capabilities,omitempty"`
	TaskTypes    []string    `json:"task_types,omitempty" doc:"Empty: any."`
	MaxTasks     int         `json:"max_tasks"`
	// EndsProcessTrees decides about exec tasks that are fenced, at_most_once or unmarked.
	EndsProcessTrees bool       `json:"ends_process_trees" doc:"No process of an exec task outlives its attempt or the agent; without it the agent gets no exec task that is fenced, at_most_once or unmarked."`
	Resources        *Inventory `json:"resources,omitempty" doc:"What it offers to tasks that ask for it with place. Absent: it gets no such task."`
	// EffectiveSlots is below MaxTasks while its load is reduced.
	EffectiveSlots int               `json:"effective_slots" doc:"How many tasks it may run at a time now; below max_tasks while its load is reduced."`
	LoadReduction  *LoadReduction    `json:"load_reduction,omitempty" doc:"Why it may run fewer tasks than it has slots."`
	Targets        []string          `json:"targets,omitempty" doc:"The deployment targets that it looks after."`
	Metadata       map[string]string `json:"metadata,omitempty"`
	JoinedAt       *time.Time        `json:"joined_at,omitempty"`
	JoinToken      string            `json:"join_token,omitempty" doc:"The id of the join token that it registered with."`

	Health HealthLevel `json:"health" enum:"healthy,degraded,warning,critical,failed" doc:"How well it does its work; GET /api/v1/agents/{id}/health says why. One that is not connected is failed."`

	Running       *int       `json:"running,omitempty" doc:"Tasks it runs now. This and what follows is absent when not known."`
	LastHeartbeat *time.Time `json:"last_heartbeat,omitempty"`
	CPUPercent    *float64   `json:"cpu_percent,omitempty"`
	MemoryPercent *float64   `json:"memory_percent,omitempty"`
	Completed     *int64     `json:"completed,omitempty" doc:"Tasks completed since its process started."`
	Failed        *int64     `json:"failed,omitempty"`
	HealthScore   *float64   `json:"health_score,omitempty" minimum:"0" maximum:"1"`

	CurrentTasks []HeldTask `json:"current_tasks,omitempty" doc:"What it runs, at most 100. Only in the full view, and if its hub answers."`
}

// WorkerState is what an agent is good for now.
type WorkerState string

// The states.
const (
	WorkerReady       WorkerState = "ready"
	WorkerBusy        WorkerState = "busy"
	WorkerDraining    WorkerState = "draining"
	WorkerMaintenance WorkerState = "maintenance"
	WorkerDead        WorkerState = "dead"
	WorkerUnknown     WorkerState = "unknown"
)

// DrainRequest asks to take an agent out of service.
type DrainRequest struct {
	Deadline string `json:"deadline,omitempty" maxLength:"32" example:"5m" doc:"How long the agent may finish what it has, 0s to 24h. What is left then is taken off it: it runs elsewhere, or goes to review if it is at_most_once. Default 5m."`
	Reason   string `json:"reason,omitempty" maxLength:"512" doc:"Kept in the drain's record and shown with the agent."`
	DryRun   bool   `json:"dry_run,omitempty" doc:"Only tell what would happen to the work that the agent has now."`
	// IncludeSystem also takes off what each agent has of system and sysbatch jobs.
	IncludeSystem bool `json:"include_system,omitempty" doc:"Also take off the agent what each agent has of system and sysbatch jobs. Otherwise that stays."`
}

// DrainAgentsRequest asks to take several agents out of service, some at a time.
type DrainAgentsRequest struct {
	DrainRequest
	Agents      []string `json:"agents" minItems:"1" maxItems:"1000" uniqueItems:"true"`
	MaxParallel int      `json:"max_parallel,omitempty" minimum:"1" maximum:"1000" doc:"How many are drained at the same time. Default 1."`
}

// MaintenanceRequest puts an agent into maintenance, or ends it.
type MaintenanceRequest struct {
	Enabled bool   `json:"enabled" doc:"true: it is given nothing new; what it runs goes on. false: it is given work again."`
	Reason  string `json:"reason,omitempty" maxLength:"512" doc:"Shown with the agent."`
}

// FailoverRequest asks to move an agent's work and roles away.
type FailoverRequest struct {
	TargetAgentID string `json:"target_agent_id,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The agent that takes over. Left out: the cluster's strategy selects."`
	// RequiredCapabilities and Affinity guide the choice.
	RequiredCapabilities []string `json:"required_capabilities,omitempty" maxItems:"64" doc:"Capabilities that the agent that takes over must have."`
	Affinity             []string `json:"affinity,omitempty" maxItems:"16" doc:"Agents, groups or zones that come first, before the cluster's strategy; the first most. Refused with target_agent_id."`
	Reason               string   `json:"reason,omitempty" maxLength:"512" doc:"Kept in the failover's record."`
}

// DeadRequest is a person's proof that an agent has ended.
type DeadRequest struct {
	Proof      string `json:"proof" minLength:"1" maxLength:"512" doc:"How it is known that the agent's process, and all that it started, has ended. Kept in the failover's record."`
	InstanceID string `json:"instance_id,omitempty" maxLength:"64" doc:"The process that it is about. Left out: the newest."`
}

// FailoverAccepted answers a request for a failover.
type FailoverAccepted struct {
	Cluster    string `json:"cluster"`
	AgentID    string `json:"agent_id"`
	FailoverID string `json:"failover_id" doc:"Its record will be at /api/v1/agents/failovers/{failover_id}."`
}

// AgentHealth is how well an agent does its work.
type AgentHealth struct {
	AgentID string      `json:"agent_id"`
	Cluster string      `json:"cluster"`
	Status  AgentStatus `json:"status" enum:"online,suspect,warning,stopping,offline,draining,maintenance"`
	// Level is empty when it is not known.
	Level   HealthLevel    `json:"level,omitempty" enum:"healthy,degraded,warning,critical,failed" doc:"Absent: not known, and why says so."`
	Score   *float64       `json:"score,omitempty" minimum:"0" maximum:"1" doc:"The weighted mean of the factors."`
	Why     string         `json:"why,omitempty" doc:"What is wrong, or why its health is not known."`
	Factors []HealthFactor `json:"factors,omitempty" doc:"Of the last five minutes."`
	Checks  []HealthCheck  `json:"checks,omitempty"`
	// LastHeartbeat and Metrics are absent where no hub publishes the agent.
	LastHeartbeat       *time.Time     `json:"last_heartbeat,omitempty" doc:"As its hub last published it: every heartbeat interval."`
	Metrics             *HealthMetrics `json:"metrics,omitempty"`
	ConsecutiveFailures *int           `json:"consecutive_failures,omitempty" doc:"Attempts that failed or were not finished since the last one that completed, in its present session. Absent: not known, as of a lost agent."`
	FailedAt            *time.Time     `json:"failed_at,omitempty" doc:"Since when it is critical, failed or not connected."`
}

// HealthMetrics are what an agent uses and does.
type HealthMetrics struct {
	CPUPercent    *float64 `json:"cpu_percent,omitempty" doc:"Of its machine; absent: not known."`
	MemoryPercent *float64 `json:"memory_percent,omitempty" doc:"Of its machine; absent: not known."`
	TaskCount     int      `json:"task_count" doc:"Tasks that it runs."`
	ErrorRate     *float64 `json:"error_rate,omitempty" minimum:"0" maximum:"1" doc:"The share of its tasks that failed, since its process started. Absent: it has ended none."`
}

// ReduceLoadRequest lets an agent use fewer of its slots.
type ReduceLoadRequest struct {
	Slots        int     `json:"slots,omitempty" minimum:"1" maximum:"10000" doc:"How many tasks it may run at a time. Not with factor; neither: half of its slots."`
	Factor       float64 `json:"factor,omitempty" exclusiveMinimum:"0" maximum:"1" doc:"This share of all its slots, at least one of them."`
	For          string  `json:"for,omitempty" maxLength:"32" example:"10m" doc:"After how long it gets them back, step by step: 1s to 168h. Default 10m."`
	UntilHealthy bool    `json:"until_healthy,omitempty" doc:"It gets them back earlier, once its health is good again."`
	Reason       string  `json:"reason,omitempty" maxLength:"512" doc:"Shown with the agent, and kept in the cluster's history."`
}

// LoadReduction is why an agent may run fewer tasks at a time than it has slots.
type LoadReduction struct {
	Since        time.Time `json:"since"`
	Until        time.Time `json:"until" doc:"From then on it gets its slots back, a quarter of them every 30 s."`
	UntilHealthy bool      `json:"until_healthy,omitempty" doc:"Or earlier, once its health is good again."`
	Reason       string    `json:"reason,omitempty"`
}
