package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ReplicationMode decides which members of a cluster serve its lanes.
type ReplicationMode string

// The replication modes.
const (
	ActiveActive  ReplicationMode = "active_active"  // every member serves
	ActivePassive ReplicationMode = "active_passive" // only the leader serves
	Sharded       ReplicationMode = "sharded"        // each shard is served by its owner
)

// SelectionStrategy picks the target of a failover.
type SelectionStrategy string

// The selection strategies.
const (
	SelectStandby     SelectionStrategy = "standby"
	SelectLeastLoaded SelectionStrategy = "least_loaded"
	SelectRoundRobin  SelectionStrategy = "round_robin"
	SelectAffinity    SelectionStrategy = "affinity"
)

// MaxMembers bounds a cluster. One that does not say how many agents it may have has DefaultMaxAgents.
const (
	MaxMembers       = 5000
	DefaultMaxAgents = 1000
)

// DefaultShards is the number of shards of a sharded cluster. The number of a cluster cannot change later: keys are
// hashed to shards.
const DefaultShards = 16

// ClusterConfig has an operator's settings of a cluster.
type ClusterConfig struct {
	Name            string            `json:"name" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	TargetGroup     string            `json:"target_group,omitempty" maxLength:"255" doc:"The group of deployment targets it serves."`
	MinAgents       int               `json:"min_agents,omitempty" minimum:"0" maximum:"5000" doc:"With fewer online agents it is critical."`
	DesiredAgents   int               `json:"desired_agents,omitempty" minimum:"0" maximum:"5000" doc:"With fewer online agents it is degraded."`
	MaxAgents       int               `json:"max_agents,omitempty" minimum:"1" maximum:"5000" doc:"More agents are refused. Default 1000."`
	ReplicationMode ReplicationMode   `json:"replication_mode,omitempty" enum:"active_active,active_passive,sharded" doc:"Who serves: every member (the default), only the leader, or each shard's owner. Whether it is sharded is fixed at creation."`
	Shards          int               `json:"shards,omitempty" minimum:"1" maximum:"1024" doc:"Number of shards of a sharded cluster, fixed at creation. Default 16."`
	Selection       SelectionStrategy `json:"selection_strategy,omitempty" enum:"standby,least_loaded,round_robin,affinity" doc:"Who takes over the leadership, and the work in a failover by hand: the standby of longest, the least loaded (the default), each in turn, or one of the same group or zone. In active_active, the last two pick who rather gets what a lost agent ran."`
	// RoleLease is how long a leader or shard owner may go on without an answer of its hub, and so the longest time
	// without one. Default 3 s.
	RoleLease Duration `json:"role_lease,omitempty" least:"1s" most:"1h" doc:"How long a leader or the owner of a shard may go on without hearing from its hub, and so the longest time without one. Hubs grant failure_threshold (7s) at most, but when a hub is lost, others wait for all of role_lease. Default 3s."`
	// ManualElection: a lost leader keeps its seat, and the cluster waits until it is back or a person acts. Only in
	// mode active_passive; the first leader is elected as usual.
	ManualElection bool `json:"manual_election,omitempty" doc:"In mode active_passive, a leader that was lost keeps its seat: the cluster waits until it is back, or until a person turns this off."`
	// ElectionInterval bounds the time between two polls of a leader or shard owner. 0: a third of RoleLease. At
	// most half of it, so that a lost answer does not end the lease.
	ElectionInterval Duration `json:"election_interval,omitempty" least:"100ms" most:"1h" doc:"The longest between two looks at a leader or shard owner; at most half of role_lease. Default a third of it."`
	// TaskDefaults are values for settings that its tasks leave out.
	TaskDefaults TaskDefaults `json:"task_defaults,omitzero" doc:"What its tasks have that leave it out. Holds for tasks submitted from then on."`
	// TransferTimeout bounds how long a failover watches its tasks. Default 5 min.
	TransferTimeout Duration `json:"task_transfer_timeout,omitempty" least:"1s" most:"1h" doc:"How long a failover watches the tasks that it moves. Default 5m."`
	// DeadLetterRetention is how long a dead letter of its tasks is kept for a retry. Default 7 days.
	DeadLetterRetention Duration `json:"dead_letter_retention,omitempty" least:"1s" most:"8760h" doc:"How long a dead letter of its tasks is kept for a retry, at most 8760h. Holds for tasks submitted from then on. Default 168h (7 days)."`
	// Brake holds failovers back when many agents vanish at once.
	Brake BrakePolicy `json:"brake,omitzero" doc:"When so many agents vanish at once that their failovers wait."`
	// SelfHealing limits what the healing cycle may do in the cluster.
	SelfHealing HealingPolicy `json:"self_healing,omitzero" doc:"What the healing cycle may do in the cluster."`
	// TenantWeights are the tenants' shares of the lanes while several wait, 0.1 to 100. Other tenants have 1.
	TenantWeights map[string]float64 `json:"tenant_weights,omitempty" doc:"The tenants' shares of the lanes while work of several waits, 0.1 to 100; at most 100 tenants. One that is not named has 1. Counts for tasks submitted from then on."`
	// Tenants are the tenants that the cluster is for. Empty: all.
	Tenants []string `json:"tenants,omitempty" maxItems:"100" doc:"The tenants whose tokens may submit tasks, jobs and schedules for it; to those of others it does not exist. Empty: all. Other tenants' work that is there already does not begin any more: it fails; what runs goes on until it ends."`
	// Scaling decides when agents are started and stopped. Off by default.
	Scaling ScalingPolicy `json:"scaling,omitzero" doc:"When its agents are started and stopped."`
}

// DefaultRoleLease and DefaultTransferTimeout are the defaults of a cluster's configuration.
const (
	DefaultRoleLease       = 3 * time.Second
	DefaultTransferTimeout = 5 * time.Minute
)

// WithDefaults fills what was left out.
func (c ClusterConfig) WithDefaults() ClusterConfig {
	defaultTo(&c.ReplicationMode, ActiveActive)
	defaultTo(&c.Shards, DefaultShards)
	defaultTo(&c.Selection, SelectLeastLoaded)
	defaultTo(&c.MaxAgents, DefaultMaxAgents)
	defaultTo(&c.RoleLease, Duration(DefaultRoleLease))
	defaultTo(&c.TransferTimeout, Duration(DefaultTransferTimeout))
	defaultTo(&c.DeadLetterRetention, Duration(DefaultDeadLetterRetention))
	c.TaskDefaults = c.TaskDefaults.WithDefaults()
	c.Brake = c.Brake.WithDefaults()
	c.SelfHealing = c.SelfHealing.WithDefaults()
	c.Scaling = c.Scaling.WithDefaults()
	return c
}

// Validate checks c after WithDefaults.
func (c ClusterConfig) Validate() error {
	if err := ValidateID("name", c.Name); err != nil {
		return err
	}
	switch c.ReplicationMode {
	case ActiveActive, ActivePassive, Sharded:
	default:
		return fmt.Errorf("replication_mode must be active_active, active_passive or sharded")
	}
	switch c.Selection {
	case SelectStandby, SelectLeastLoaded, SelectRoundRobin, SelectAffinity:
	default:
		return fmt.Errorf("selection_strategy must be standby, least_loaded, round_robin or affinity")
	}
	if err := cmp.Or(ValidateLine("target_group", c.TargetGroup, 255), Within("", c)); err != nil {
		return err
	}
	if c.MinAgents > c.MaxAgents {
		return fmt.Errorf("min_agents must not be more than max_agents")
	}
	if c.DesiredAgents != 0 && (c.DesiredAgents < c.MinAgents || c.DesiredAgents > c.MaxAgents) {
		return fmt.Errorf("desired_agents must lie between min_agents and max_agents")
	}
	if 2*c.ElectionInterval > c.RoleLease {
		return fmt.Errorf("election_interval must be at most half of role_lease (%s)", c.RoleLease)
	}
	if err := c.TaskDefaults.Validate(); err != nil {
		return fmt.Errorf("task_defaults: %w", err)
	}
	if err := cmp.Or(validateWeights(c.TenantWeights), c.validateTenants()); err != nil {
		return err
	}
	if err := c.SelfHealing.Validate(); err != nil {
		return fmt.Errorf("self_healing: %w", err)
	}
	return cmp.Or(c.Scaling.Validate(), c.Brake.Validate())
}

// ShardCount is the number of shards of the cluster; 0: it has none.
func (c ClusterConfig) ShardCount() int {
	if c.ReplicationMode == Sharded {
		return c.Shards
	}
	return 0
}

// Revision is a hash of the configuration with its defaults: equal configurations have equal revisions.
func (c ClusterConfig) Revision() string {
	//workflowcheck:ignore
	text, err := json.Marshal(c.WithDefaults()) // maps are written in the order of their keys
	if err != nil {
		return "" // only numbers that JSON has no form for, which Validate refuses
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// RevisionIs reports whether the configuration has one of the revisions, or none are given.
func (c ClusterConfig) RevisionIs(revisions []string) bool {
	return len(revisions) == 0 || slices.Contains(revisions, c.Revision())
}

// Bounds of tenant weights.
const (
	MaxTenantWeights = 100
	MinTenantWeight  = 0.1
	MaxTenantWeight  = 100
)

// maxTenants bounds the tenants that a cluster is for.
const maxTenants = 100

func (c ClusterConfig) validateTenants() error {
	if len(c.Tenants) > maxTenants {
		return fmt.Errorf("tenants may name at most %d tenants", maxTenants)
	}
	for _, tenant := range c.Tenants {
		if err := ValidateID("tenants: a tenant", tenant); err != nil {
			return err
		}
	}
	return nil
}

// IsFor reports whether the cluster is for a tenant's tokens and work; see TakesTenant.
func (c ClusterConfig) IsFor(tenant string) bool { return TakesTenant(c.Tenants, tenant) }

// TakesTenant reports whether a cluster that is for some tenants takes one; none: it is for all. Tokens and work of no
// tenant may use every cluster.
func TakesTenant(tenants []string, tenant string) bool {
	return tenant == "" || len(tenants) == 0 || slices.Contains(tenants, tenant)
}

// validateWeights checks the weights with which tenants share a cluster's lanes.
func validateWeights(weights map[string]float64) error {
	if len(weights) > MaxTenantWeights {
		return fmt.Errorf("tenant_weights may name at most %d tenants", MaxTenantWeights)
	}
	for tenant, weight := range weights {
		if err := ValidateID("tenant_weights: a tenant", tenant); err != nil {
			return err
		}
		if !(weight >= MinTenantWeight && weight <= MaxTenantWeight) { // also refuses NaN
			return fmt.Errorf("tenant_weights must lie between %g and %d; a tenant that is not named has 1",
				MinTenantWeight, MaxTenantWeight)
		}
	}
	return nil
}

// Changed returns the configuration with changes, which are JSON in the form of the configuration. Fields that they
// leave out or set to null stay. A tenant weight of 0 removes the tenant's weight. Resources and the environment of
// started agents are replaced as a whole. When scaling ends, the number of agents that it kept ends too, unless the
// changes give one. Neither the configuration nor the changes are modified.
func (c ClusterConfig) Changed(changes map[string]any) (ClusterConfig, error) {
	settings := map[string]any{}
	if err := transcode(c, &settings); err != nil {
		return c, err
	}
	merge(settings, changes)
	var changed ClusterConfig
	if err := transcode(settings, &changed); err != nil {
		return c, err
	}
	if c.Scaling.On() && !changed.Scaling.On() && changes["desired_agents"] == nil {
		changed.DesiredAgents = 0
	}
	maps.DeleteFunc(changed.TenantWeights, func(_ string, weight float64) bool { return weight == 0 })
	return changed, nil
}

func transcode(from, to any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("read a cluster's settings: %w", err)
	}
	return nil
}

// merge applies changes to the settings of an object, and of objects in it.
func merge(settings, changes map[string]any) {
	for name, value := range changes {
		present, isObject := settings[name].(map[string]any)
		inner, changesObject := value.(map[string]any)
		switch {
		case value == nil:
		case isObject && changesObject && name != "environment" && name != "resources":
			merge(present, inner)
		default:
			settings[name] = value
		}
	}
}
