package api

import (
	"time"
)

// Cluster is a cluster as clients see it.
type Cluster struct {
	Name                string             `json:"name"`
	Revision            string             `json:"revision" doc:"Names its settings: it changes with them, and with nothing else. In quotes it is the ETag; send it as If-Match to change only what you have seen."`
	TargetGroup         string             `json:"target_group,omitempty"`
	MinAgents           int                `json:"min_agents"`
	DesiredAgents       int                `json:"desired_agents"`
	MaxAgents           int                `json:"max_agents"`
	ReplicationMode     ReplicationMode    `json:"replication_mode" enum:"active_active,active_passive,sharded"`
	Shards              int                `json:"shards,omitempty" doc:"Only of a sharded cluster."`
	Selection           SelectionStrategy  `json:"selection_strategy" enum:"standby,least_loaded,round_robin,affinity"`
	RoleLease           Duration           `json:"role_lease"`
	ManualElection      bool               `json:"manual_election"`
	ElectionInterval    Duration           `json:"election_interval,omitempty" doc:"Absent: a third of role_lease."`
	TaskDefaults        TaskDefaults       `json:"task_defaults"`
	TransferTimeout     Duration           `json:"task_transfer_timeout"`
	DeadLetterRetention Duration           `json:"dead_letter_retention"`
	Brake               BrakePolicy        `json:"brake"`
	SelfHealing         HealingPolicy      `json:"self_healing"`
	TenantWeights       map[string]float64 `json:"tenant_weights,omitempty"`
	Tenants             []string           `json:"tenants,omitempty" doc:"The tenants whose tokens may use it. Absent: all."`
	Scaling             ScalingPolicy      `json:"scaling,omitzero" doc:"When its agents are started and stopped."`
	Paused              *Pause             `json:"paused,omitempty" doc:"Nothing is taken from any of its lanes."`
	PausedLanes         []PausedLane       `json:"paused_lanes,omitempty" doc:"Lanes that were paused by themselves."`
	BrakeHolds          []BrakeHold        `json:"brake_holds,omitempty" doc:"Mass-loss brakes that are engaged: failovers of the agents that vanished wait until they are back or the brake is released."`
	Leader              string             `json:"leader,omitempty" doc:"Serves alone in an active_passive cluster."`
	LeaderEpoch         int64              `json:"leader_epoch,omitempty"`
	Standbys            []string           `json:"standbys,omitempty"`
	ShardOwners         []ShardOwner       `json:"shard_owners,omitempty" doc:"Who serves each shard of a sharded cluster, by its number. Not in lists."`
	TargetCount         int                `json:"target_count,omitempty" doc:"How many deployment targets its agents look after."`
	Status              ClusterStatus      `json:"status" enum:"healthy,degraded,critical,unknown" doc:"unknown: no worker answered for it."`
	HealthyAgentCount   int                `json:"healthy_agent_count"`
	AgentCount          int                `json:"agent_count"`
	CreatedAt           *time.Time         `json:"created_at,omitempty"`
}

// BrakeHold is a mass-loss brake while it is engaged.
type BrakeHold struct {
	Hub   string    `json:"hub" doc:"Whose agents vanished; empty: the brake judges over all hubs."`
	Since time.Time `json:"since"`
	Lost  int       `json:"lost" doc:"How many agents had vanished by the last report."`
}

// BrakeRelease says what releasing a brake did.
type BrakeRelease struct {
	Released bool `json:"released" doc:"false: the brake held nothing back."`
}

// ShardOwner says who serves a shard.
type ShardOwner struct {
	Shard int    `json:"shard"`
	Owner string `json:"owner,omitempty" doc:"Absent while nobody may serve it."`
	Epoch int64  `json:"epoch,omitempty" doc:"Of the newest ownership."`
}

// Pause is what holds a cluster or a lane back.
type Pause struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// PausedLane is a lane that was paused by itself.
type PausedLane struct {
	Lane string `json:"lane"`
	Pause
}

// PauseRequest holds a cluster or one of its lanes back, or lets it go on.
type PauseRequest struct {
	Lane   string `json:"lane,omitempty" maxLength:"2100" doc:"default, cap/<capability>+<capability>, type/<type>, type/<type>/cap/<capability>, fit/<class>, shard/<number> or agent/<id>, as in the queue view. Left out: the whole cluster, with the work pinned to its agents."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Shown with the pause, and kept in the history."`
}

// RebalanceRequest spreads a cluster's shards and targets, and its tasks, evenly over its agents.
type RebalanceRequest struct {
	Tasks  bool   `json:"tasks,omitempty" doc:"Also move running tasks from busy agents to idle ones. They run again there, from their last checkpoint. Tasks that must not run twice, pinned ones, those with resources, instances of services and elements of arrays stay."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Only tell what would move."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Kept in the cluster's history."`
}

// TargetsRequest changes which deployment targets a cluster has.
type TargetsRequest struct {
	Add    []string `json:"add,omitempty" maxItems:"1000" doc:"Lower-case slugs. What is there already stays."`
	Remove []string `json:"remove,omitempty" maxItems:"1000"`
}

// Target is a deployment target and who looks after it.
type Target struct {
	ID    string `json:"id"`
	Agent string `json:"agent_id,omitempty" doc:"Absent while nobody may."`
	Shard *int   `json:"shard,omitempty" doc:"Of a sharded cluster. A task with the target's id as its shard_key goes to the same agent."`
}

// ClusterHealth is how well the agents of a cluster do their work.
type ClusterHealth struct {
	Cluster string        `json:"cluster"`
	Status  ClusterStatus `json:"status" enum:"healthy,degraded,critical,unknown" doc:"Whether it has the agents that it should have."`
	Score   *float64      `json:"score,omitempty" doc:"The mean of its agents' scores, those in maintenance left out. Absent: none is known."`
	Agents  []AgentHealth `json:"agents"`
}

// ClusterSync is how the states of a cluster's members compare now.
type ClusterSync struct {
	Cluster    string       `json:"cluster"`
	Consistent bool         `json:"consistent" doc:"Every connected member that keeps state has the same."`
	Why        string       `json:"why"`
	Members    []MemberSync `json:"members"`
	LastSync   *SyncReport  `json:"last_sync,omitempty" doc:"Without its members. Absent: none is known."`
}

// Lane is a lane of a cluster as clients see it: what waits in it, and who takes it.
type Lane struct {
	Cluster   string `json:"cluster"`
	Lane      string `json:"lane" doc:"default, cap/<capability>+<capability>, type/<type>, type/<type>/cap/<capability>, fit/<class>, shard/<number> or agent/<id>."`
	TaskQueue string `json:"task_queue" doc:"Its activity task queue in Temporal."`
	Backlog
	Priorities []PriorityBacklog `json:"priorities" doc:"The same by priority, first ones first. Priorities that were not used of late are left out."`
	Agents     int               `json:"agents" doc:"Online agents that serve it, or would if it were not paused."`
	Slots      int               `json:"slots" doc:"Tasks that they run at a time, of all lanes that they serve."`
	BusySlots  *int              `json:"busy_slots,omitempty" doc:"Of those, in use now. Absent when not known of every agent."`
	Paused     *Pause            `json:"paused,omitempty" doc:"What holds it back: its own pause or its cluster's."`
	Needs      *LaneNeeds        `json:"needs,omitempty" doc:"Of a lane fit/<class> or type/<type>: what its tasks ask for."`
}

// ClusterLoad is how a cluster's work is spread over its agents.
type ClusterLoad struct {
	Cluster string      `json:"cluster"`
	Agents  []AgentLoad `json:"agents"`
	Running int         `json:"running" doc:"Tasks that the agents run."`
	Waiting int64       `json:"waiting" doc:"About how many tasks wait in all lanes, pinned ones too."`
	Total   int64       `json:"total_tasks" doc:"Both."`
	Average float64     `json:"average_load" doc:"The mean load of the agents that get work, in percent."`
}

// AgentLoad is the load of one agent.
type AgentLoad struct {
	AgentID      string      `json:"agent_id"`
	Status       AgentStatus `json:"status" enum:"online,suspect,warning,stopping,offline,draining,maintenance"`
	Load         *float64    `json:"load,omitempty" doc:"The percentage of its slots in use. Absent: not known."`
	Running      int         `json:"running"`
	Slots        int         `json:"slots" doc:"Tasks that it may run at a time now."`
	QueueLength  int64       `json:"queue_length" doc:"About how many tasks wait for this agent alone."`
	Capabilities []string    `json:"capabilities"`
}

// Backlog is what waits in a lane. It is approximate.
type Backlog struct {
	Depth        int64    `json:"depth" doc:"About how many tasks wait."`
	OldestAge    Duration `json:"oldest_age,omitempty" doc:"About how long the first of them waits."`
	AddRate      float64  `json:"add_rate" doc:"Tasks that came, a second, over the last 30 s."`
	DispatchRate float64  `json:"dispatch_rate" doc:"Tasks that were taken, a second, over the last 30 s."`
}

// PriorityBacklog is the part of a lane's backlog with one priority.
type PriorityBacklog struct {
	Priority int    `json:"priority"`
	Name     string `json:"name"`
	Backlog
}
