package gateway

import (
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// Cluster is a cluster as clients see it.
type Cluster struct {
	Name                string                  `json:"name"`
	Revision            string                  `json:"revision" doc:"Names its settings: it changes with them, and with nothing else. In quotes it is the ETag; send it as If-Match to change only what you have seen."`
	TargetGroup         string                  `json:"target_group,omitempty"`
	MinAgents           int                     `json:"min_agents"`
	DesiredAgents       int                     `json:"desired_agents"`
	MaxAgents           int                     `json:"max_agents"`
	ReplicationMode     fleet.ReplicationMode   `json:"replication_mode" enum:"active_active,active_passive,sharded"`
	Shards              int                     `json:"shards,omitempty" doc:"Only of a sharded cluster."`
	Selection           fleet.SelectionStrategy `json:"selection_strategy" enum:"standby,least_loaded,round_robin,affinity"`
	RoleLease           fleet.Duration          `json:"role_lease"`
	ManualElection      bool                    `json:"manual_election"`
	ElectionInterval    fleet.Duration          `json:"election_interval,omitempty" doc:"Absent: a third of role_lease."`
	TaskDefaults        fleet.TaskDefaults      `json:"task_defaults"`
	TransferTimeout     fleet.Duration          `json:"task_transfer_timeout"`
	DeadLetterRetention fleet.Duration          `json:"dead_letter_retention"`
	Brake               fleet.BrakePolicy       `json:"brake"`
	SelfHealing         fleet.HealingPolicy     `json:"self_healing"`
	TenantWeights       map[string]float64      `json:"tenant_weights,omitempty"`
	Scaling             fleet.ScalingPolicy     `json:"scaling,omitzero" doc:"When its agents are started and stopped."`
	Paused              *Pause                  `json:"paused,omitempty" doc:"Nothing is taken from any of its lanes."`
	PausedLanes         []PausedLane            `json:"paused_lanes,omitempty" doc:"Lanes that were paused by themselves."`
	BrakeHolds          []BrakeHold             `json:"brake_holds,omitempty" doc:"Hubs whose mass-loss brake is engaged: failovers of the agents that they lost wait until the agents are back or the brake is released."`
	Leader              string                  `json:"leader,omitempty" doc:"Serves alone in an active_passive cluster."`
	LeaderEpoch         int64                   `json:"leader_epoch,omitempty"`
	Standbys            []string                `json:"standbys,omitempty"`
	ShardOwners         []ShardOwner            `json:"shard_owners,omitempty" doc:"Who serves each shard of a sharded cluster, by its number. Not in lists."`
	TargetCount         int                     `json:"target_count,omitempty" doc:"How many deployment targets its agents look after."`
	Status              fleet.ClusterStatus     `json:"status" enum:"healthy,degraded,critical,unknown" doc:"unknown: no worker answered for it."`
	HealthyAgentCount   int                     `json:"healthy_agent_count"`
	AgentCount          int                     `json:"agent_count"`
	CreatedAt           *time.Time              `json:"created_at,omitempty"`
}

// BrakeHold is one hub's mass-loss brake while it is engaged.
type BrakeHold struct {
	Hub   string    `json:"hub"`
	Since time.Time `json:"since"`
	Lost  int       `json:"lost" doc:"How many agents had vanished when the hub last told."`
}

// ShardOwner says who serves a shard.
type ShardOwner struct {
	Shard int    `json:"shard"`
	Owner string `json:"owner,omitempty" doc:"Absent while nobody may serve it."`
	Epoch int64  `json:"epoch,omitempty" doc:"Of the newest ownership."`
}

func clusterOf(view *contract.ClusterView) Cluster {
	c := settingsOf(view.Config)
	if view.Config.ReplicationMode == fleet.ActivePassive && view.Leader != "" {
		c.Leader, c.LeaderEpoch = view.Leader, view.LeaderEpoch
	}
	c.Standbys, c.TargetCount = view.Standbys, len(view.Targets)
	c.Paused, c.PausedLanes = pausesOf(&view.Cluster)
	for _, b := range view.BrakeHolds {
		c.BrakeHolds = append(c.BrakeHolds, BrakeHold{Hub: b.Hub, Since: b.Since.UTC(), Lost: b.Lost})
	}
	c.Status, c.HealthyAgentCount, c.AgentCount, c.CreatedAt = view.Status(), view.HealthyCount(), len(view.Members), known(view.CreatedAt)
	return c
}

// fullCluster is a cluster as it is shown by itself.
func fullCluster(view *contract.ClusterView) Cluster {
	c := clusterOf(view)
	c.ShardOwners = shardOwners(&view.Cluster)
	return c
}

// shardOwners lists the owners of a sharded cluster's shards.
func shardOwners(c *fleet.Cluster) []ShardOwner {
	if c.Config.ReplicationMode != fleet.Sharded {
		return nil
	}
	owners := make([]ShardOwner, len(c.Shards))
	for i, s := range c.Shards {
		owners[i] = ShardOwner{Shard: i, Owner: s.Owner, Epoch: s.Epoch}
	}
	return owners
}

// settingsOf is a cluster of which only the configuration is known.
func settingsOf(config fleet.ClusterConfig) Cluster {
	c := Cluster{
		Name: config.Name, Revision: config.Revision(), TargetGroup: config.TargetGroup, MinAgents: config.MinAgents, DesiredAgents: config.DesiredAgents,
		MaxAgents: config.MaxAgents, ReplicationMode: config.ReplicationMode, Selection: config.Selection, Status: fleet.ClusterUnknown,
		RoleLease: config.RoleLease, TransferTimeout: config.TransferTimeout, DeadLetterRetention: config.DeadLetterRetention,
		SelfHealing:   config.SelfHealing,
		Brake:         config.Brake,
		TenantWeights: config.TenantWeights, ManualElection: config.ManualElection, ElectionInterval: config.ElectionInterval,
		TaskDefaults: config.TaskDefaults, Scaling: config.Scaling.WithDefaults(),
	}
	if config.ReplicationMode == fleet.Sharded {
		c.Shards = config.Shards
	}
	return c
}
