package config

import (
	"time"

	"mainstay.dev/sdk/api"
)

// Cluster is one cluster that should exist.
type Cluster struct {
	// Name is the cluster's id: lower-case letters, digits, ".", "_" and "-". Required.
	Name string `json:"name,omitempty"`
	// TargetGroup names what the cluster's agents serve. Default: none.
	TargetGroup     string              `json:"target_group,omitempty"`
	Membership      Membership          `json:"membership,omitempty"`
	ReplicationMode api.ReplicationMode `json:"replication_mode,omitempty"` // Default active_active.
	// Shards is the number of shards in mode sharded, 1 to 1024; it cannot change afterwards. Default 16.
	Shards         int             `json:"shards,omitempty" minimum:"1" maximum:"1024"`
	Failover       Failover        `json:"failover,omitempty"`
	TaskQueue      TaskQueue       `json:"task_queue,omitempty"`
	LeaderElection LeaderElection  `json:"leader_election,omitempty"`
	Brake          api.BrakePolicy `json:"brake,omitempty"`
	// TenantWeights are the tenants' shares of the lanes while several wait, 0.1 to 100. One that is not named has 1.
	TenantWeights map[string]float64 `json:"tenant_weights,omitempty"`
	// Tenants are those whose tokens may use the cluster. Empty: all.
	Tenants     []string          `json:"tenants,omitempty"`
	SelfHealing api.HealingPolicy `json:"self_healing,omitempty"`
	Scaling     api.ScalingPolicy `json:"scaling,omitempty"`
}

// Membership bounds a cluster's agents.
type Membership struct {
	// MinimumAgents is the number of online agents below which the cluster is critical. Default 0.
	MinimumAgents int `json:"minimum_agents,omitempty" minimum:"0" maximum:"5000"`
	// DesiredAgents is the number of online agents below which the cluster is degraded. 0: not watched.
	DesiredAgents int `json:"desired_agents,omitempty" minimum:"0" maximum:"5000"`
	// MaxAgents is the number above which agents are refused. Default 1000.
	MaxAgents int `json:"max_agents,omitempty" minimum:"1" maximum:"5000"`
}

// Failover says what happens to the tasks of a lost agent.
type Failover struct {
	// SelectionStrategy picks the agent that takes over. Default least_loaded.
	SelectionStrategy api.SelectionStrategy `json:"selection_strategy,omitempty"`
	// TaskTransferTimeout bounds how long a failover watches the tasks it moves, 1s to 1h. Default 5m.
	TaskTransferTimeout api.Duration `json:"task_transfer_timeout,omitempty" least:"1s" most:"1h"`
	// MaxTransferRetries is how many agents a task may be lost with before it is a dead letter, up to 100, where the
	// task's own retry policy does not say. Default 3.
	MaxTransferRetries int `json:"max_transfer_retries,omitempty" minimum:"1" maximum:"100"`
}

func (f *Failover) fill() {
	orDefault(&f.SelectionStrategy, api.SelectLeastLoaded)
	orDefault(&f.TaskTransferTimeout, api.Duration(api.DefaultTransferTimeout))
	orDefault(&f.MaxTransferRetries, api.DefaultMaxTransfers)
}

// AgentCluster is one cluster with everything about its resilience in one section. Fields left out have their defaults.
type AgentCluster struct {
	// Name is the cluster's id, as in Cluster. Required.
	Name string `json:"name,omitempty"`
	// TargetGroupID names what the cluster's agents serve. Default: none.
	TargetGroupID    string              `json:"target_group_id,omitempty"`
	Membership       Membership          `json:"membership,omitempty"`
	ReplicationMode  api.ReplicationMode `json:"replication_mode,omitempty"`                  // Default active_active.
	Shards           int                 `json:"shards,omitempty" minimum:"1" maximum:"1024"` // As in Cluster.
	Failover         Failover            `json:"failover,omitempty"`
	HealthMonitoring HealthMonitoring    `json:"health_monitoring,omitempty"`
	TaskQueue        TaskQueue           `json:"task_queue,omitempty"`
	SelfHealing      SelfHealing         `json:"self_healing,omitempty"`
	LeaderElection   LeaderElection      `json:"leader_election,omitempty"`
	Brake            api.BrakePolicy     `json:"brake,omitempty"`
	TenantWeights    map[string]float64  `json:"tenant_weights,omitempty"` // As in Cluster.
	Tenants          []string            `json:"tenants,omitempty"`        // As in Cluster.
	Scaling          api.ScalingPolicy   `json:"scaling,omitempty"`
}

// HealthMonitoring is the hub's timing where the hub section leaves it out; it holds for all clusters of the hub.
type HealthMonitoring struct {
	HeartbeatInterval api.Duration `json:"heartbeat_interval,omitempty" least:"50ms" most:"10m"` // As in Hub.
	WarningThreshold  api.Duration `json:"warning_threshold,omitempty" least:"50ms" most:"10m"`  // As in Hub.
	FailureThreshold  api.Duration `json:"failure_threshold,omitempty" least:"50ms" most:"10m"`  // As in Hub.
	// HealthCheckInterval is the time between two ratings of an agent's health. As in Hub.
	HealthCheckInterval api.Duration `json:"health_check_interval,omitempty" least:"50ms" most:"10m"`
}

// TaskQueue has the defaults of the cluster's tasks.
type TaskQueue struct {
	// MaxDeliveryAttempts is how many attempts may fail before a task is a dead letter, 1 to 100. Default 3.
	MaxDeliveryAttempts int `json:"max_delivery_attempts,omitempty" minimum:"1" maximum:"100"`
	// DefaultExpiration is how long a task may wait for an agent, 1s to 720h. Default 1h.
	DefaultExpiration api.Duration `json:"default_expiration,omitempty" least:"1s" most:"720h"`
	// StopGrace is how long a task's work has to end once it was asked to, 0s to 10m. Default 30s for commands, 5s for
	// other work.
	StopGrace *api.Duration `json:"stop_grace,omitempty" least:"0s" most:"10m"`
	// DisconnectGrace is how long the agent of an at_most_once or unmarked task may be out of touch before the task
	// counts as lost, 0s to 24h. Default 30s.
	DisconnectGrace *api.Duration `json:"disconnect_grace,omitempty" least:"0s" most:"24h"`
	// RetrySafety is when a task may run again after its agent was lost: idempotent, fenced, at_most_once or unmarked.
	// Default idempotent.
	RetrySafety api.RetrySafety `json:"retry_safety,omitempty"`
	// DeadLetterRetention is how long a dead letter is kept for a retry, 1s to 8760h. Default 168h (7 days).
	DeadLetterRetention api.Duration `json:"dead_letter_retention,omitempty" least:"1s" most:"8760h"`
}

func (q *TaskQueue) fill() {
	orDefault(&q.MaxDeliveryAttempts, api.DefaultMaxAttempts)
	orDefault(&q.DefaultExpiration, api.Duration(api.DefaultExpiration))
	orDefault(&q.DeadLetterRetention, api.Duration(api.DefaultDeadLetterRetention))
}

// SelfHealing is the cycle that repairs a cluster.
type SelfHealing struct {
	// Enabled turns it on; false is mode off. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	api.HealingPolicy
}

// policy is the section in the words of Cluster's.
func (h SelfHealing) policy() api.HealingPolicy {
	if h.Enabled != nil && !*h.Enabled {
		h.Mode = api.HealingOff
	}
	return h.HealingPolicy
}

// LeaderElection is about the leader of a cluster in mode active_passive; its times also hold for the owners of shards.
type LeaderElection struct {
	// Enabled elects a new leader when one is lost. false: a lost leader keeps its seat until it is back, or until a
	// person acts. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// ElectionInterval is the longest between two looks at the leader, 100ms to 1h. Default: a third of
	// LeaseDuration; at most half of it.
	ElectionInterval api.Duration `json:"election_interval,omitempty" least:"100ms" most:"1h"`
	// LeaseDuration is how long a silent leader may go on, and so the longest time without one, 1s to 1h. At least
	// twice ElectionInterval, at most the hub's FailureThreshold. Default 3s.
	LeaseDuration api.Duration `json:"lease_duration,omitempty" least:"1s" most:"1h"`
}

func (e *LeaderElection) fill() {
	orDefault(&e.Enabled, new(true))
	orDefault(&e.LeaseDuration, api.Duration(api.DefaultRoleLease))
}

// fill gives a cluster's sections their defaults.
func (c *Cluster) fill() {
	orDefault(&c.ReplicationMode, api.ActiveActive)
	c.Failover.fill()
	c.TaskQueue.fill()
	c.LeaderElection.fill()
	c.Brake = c.Brake.WithDefaults()
}

// fill leaves the hub's timing out: Config.Timing decides it.
func (a *AgentCluster) fill() {
	orDefault(&a.ReplicationMode, api.ActiveActive)
	a.Failover.fill()
	a.TaskQueue.fill()
	a.LeaderElection.fill()
	a.Brake = a.Brake.WithDefaults()
	orDefault(&a.SelfHealing.Enabled, new(true))
	orDefault(&a.SelfHealing.CycleInterval, api.Duration(time.Minute))
	orDefault(&a.SelfHealing.DrainTimeout, api.Duration(5*time.Minute))
}

// cluster is the part that AgentCluster shares with Cluster.
func (a *AgentCluster) cluster() Cluster {
	return Cluster{Name: a.Name, TargetGroup: a.TargetGroupID, Membership: a.Membership,
		ReplicationMode: a.ReplicationMode, Shards: a.Shards, Failover: a.Failover, SelfHealing: a.SelfHealing.policy(),
		TaskQueue: a.TaskQueue, LeaderElection: a.LeaderElection, Brake: a.Brake,
		TenantWeights: a.TenantWeights, Tenants: a.Tenants, Scaling: a.Scaling}
}

func (c Cluster) fleetConfig() api.ClusterConfig {
	// An empty section says as much as none.
	if len(c.TenantWeights) == 0 {
		c.TenantWeights = nil
	}
	if len(c.Tenants) == 0 {
		c.Tenants = nil
	}
	if len(c.Scaling.Spawn.Capabilities) == 0 {
		c.Scaling.Spawn.Capabilities = nil
	}
	if len(c.Scaling.Spawn.FallbackPlatforms) == 0 {
		c.Scaling.Spawn.FallbackPlatforms = nil
	}
	if len(c.Scaling.Spawn.Environment) == 0 {
		c.Scaling.Spawn.Environment = nil
	}
	return api.ClusterConfig{
		Name:            c.Name,
		TargetGroup:     c.TargetGroup,
		MinAgents:       c.Membership.MinimumAgents,
		DesiredAgents:   c.Membership.DesiredAgents,
		MaxAgents:       c.Membership.MaxAgents,
		ReplicationMode: c.ReplicationMode,
		Shards:          c.Shards,
		Selection:       c.Failover.SelectionStrategy,
		TransferTimeout: c.Failover.TaskTransferTimeout,

		RoleLease:        c.LeaderElection.LeaseDuration,
		ElectionInterval: c.LeaderElection.ElectionInterval,
		ManualElection:   c.LeaderElection.Enabled != nil && !*c.LeaderElection.Enabled,
		TaskDefaults: api.TaskDefaults{MaxAttempts: c.TaskQueue.MaxDeliveryAttempts,
			MaxTransfers: c.Failover.MaxTransferRetries,
			ExpiresIn:    c.TaskQueue.DefaultExpiration,
			StopGrace:    c.TaskQueue.StopGrace, DisconnectGrace: c.TaskQueue.DisconnectGrace,
			RetrySafety: c.TaskQueue.RetrySafety},
		Brake: c.Brake,

		DeadLetterRetention: c.TaskQueue.DeadLetterRetention,
		TenantWeights:       c.TenantWeights,
		Tenants:             c.Tenants,
		SelfHealing:         c.SelfHealing,
		Scaling:             c.Scaling,
	}.WithDefaults()
}

// ClusterConfigs are the clusters that should exist, with defaults: those of the list, then agent_cluster.
func (c *Config) ClusterConfigs() []api.ClusterConfig {
	var configs []api.ClusterConfig
	for _, cluster := range c.Clusters {
		configs = append(configs, cluster.fleetConfig())
	}
	if c.AgentCluster != nil {
		configs = append(configs, c.AgentCluster.cluster().fleetConfig())
	}
	return configs
}
