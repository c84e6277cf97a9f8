package cluster

import (
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
)

func clusterOf(view *contract.ClusterView) api.Cluster {
	c := OfSettings(view.Config)
	if view.Config.ReplicationMode == fleet.ActivePassive && view.Leader != "" {
		c.Leader, c.LeaderEpoch = view.Leader, view.LeaderEpoch
	}
	c.Standbys, c.TargetCount = view.Standbys, len(view.Targets)
	c.Paused, c.PausedLanes = pausesOf(&view.Cluster)
	for _, b := range view.BrakeHolds {
		c.BrakeHolds = append(c.BrakeHolds, api.BrakeHold{Hub: b.Hub, Since: b.Since.UTC(), Lost: b.Lost})
	}
	c.Status, c.HealthyAgentCount, c.AgentCount, c.CreatedAt = view.Status(), view.HealthyCount(), len(
		view.Members), rest.Known(view.CreatedAt)
	return c
}

// Full is a cluster as it is shown by itself.
func Full(view *contract.ClusterView) api.Cluster {
	c := clusterOf(view)
	c.ShardOwners = shardOwners(&view.Cluster)
	return c
}

// shardOwners lists the owners of a sharded cluster's shards.
func shardOwners(c *fleet.Cluster) []api.ShardOwner {
	if c.Config.ReplicationMode != fleet.Sharded {
		return nil
	}
	owners := make([]api.ShardOwner, len(c.Shards))
	for i, s := range c.Shards {
		owners[i] = api.ShardOwner{Shard: i, Owner: s.Owner, Epoch: s.Epoch}
	}
	return owners
}

// OfSettings is a cluster of which only the configuration is known.
func OfSettings(config fleet.ClusterConfig) api.Cluster {
	c := api.Cluster{
		Name:                config.Name,
		Revision:            config.Revision(),
		TargetGroup:         config.TargetGroup,
		MinAgents:           config.MinAgents,
		DesiredAgents:       config.DesiredAgents,
		MaxAgents:           config.MaxAgents,
		ReplicationMode:     config.ReplicationMode,
		Selection:           config.Selection,
		Status:              fleet.ClusterUnknown,
		RoleLease:           config.RoleLease,
		TransferTimeout:     config.TransferTimeout,
		DeadLetterRetention: config.DeadLetterRetention,
		SelfHealing:         config.SelfHealing,
		Brake:               config.Brake,
		TenantWeights:       config.TenantWeights,
		ManualElection:      config.ManualElection,
		ElectionInterval:    config.ElectionInterval,
		TaskDefaults:        config.TaskDefaults, Scaling: config.Scaling.WithDefaults(),
	}
	c.Shards = config.ShardCount()
	return c
}
