package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// ClusterSettings are a cluster's configuration without its name, which the path has.
type ClusterSettings api.ClusterConfig

// TransformSchema implements huma.SchemaTransformer.
func (ClusterSettings) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return without(s, "name")
}

// without drops properties from the schema of an object.
func without(s *huma.Schema, names ...string) *huma.Schema {
	for _, name := range names {
		delete(s.Properties, name)
		s.Required = slices.DeleteFunc(s.Required, func(required string) bool { return required == name })
	}
	return s
}

// createCluster starts a cluster's workflow.
func (h *Handlers) createCluster(ctx context.Context, config api.ClusterConfig) error {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	err := h.Store.Clusters().Create(ctx, config)
	if err == nil {
		h.sweep(ctx, config.Scaling.On())
	}
	return err
}

// Ensure creates the clusters that do not exist. It leaves existing ones as they are.
func (h *Handlers) Ensure(ctx context.Context, configs []api.ClusterConfig) error {
	for _, config := range configs {
		config = config.WithDefaults()
		if err := config.Validate(); err != nil {
			return fmt.Errorf("cluster %q: %w", config.Name, err)
		}
		err := h.createCluster(ctx, config)
		if err != nil && store.KindOf(err) != store.Exists {
			return fmt.Errorf("create cluster %q: %w", config.Name, err)
		}
	}
	return nil
}

// configureTries bounds how often a change is made anew because another came between.
const configureTries = 5

// Configure applies change to a cluster's configuration, if its revision is one of the expected ones. If none is
// expected and another change comes between, it reads the configuration again and repeats its own change.
func (h *Handlers) Configure(
	ctx context.Context, name string, expected []string, change func(api.ClusterConfig) (api.ClusterConfig, error),
) (api.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	for try := 1; ; try++ {
		current, err := h.View(ctx, name)
		if err != nil {
			return api.Cluster{}, err
		}
		if !current.Config.RevisionIs(expected) {
			return api.Cluster{}, rest.Outdated()
		}
		config, err := change(current.Config)
		if err == nil {
			config = config.WithDefaults()
			err = config.Validate()
		}
		if err != nil {
			return api.Cluster{}, rest.Invalid("body", err)
		}
		request := contract.ConfigureRequest{ClusterConfig: config, IfRevisions: []string{current.Config.Revision()}}
		_, err = rest.UpdateCluster(ctx, h.Core, "configure a cluster", contract.ConfigureUpdate, name, request)
		if err == nil {
			h.ForgetCluster(name)
			h.sweep(ctx, config.Scaling.On())
			view, err := h.ViewChanged(ctx, name)
			return Full(&view), err
		}
		if code, _ := rest.Code(err); code != protocol.CodePrecondition || len(expected) > 0 || try == configureTries {
			return api.Cluster{}, err
		}
	}
}

// delete ends a cluster; without force only one that has no online agents.
func (h *Handlers) delete(ctx context.Context, in *deleteInput) (done rest.None, err error) {
	expected, err := in.revisions()
	if err != nil {
		return done, err
	}
	h.ForgetCluster(in.ID)
	request := contract.DeleteRequest{Force: in.Force, IfRevisions: expected}
	_, err = rest.UpdateCluster(ctx, h.Core, "delete a cluster", contract.DeleteUpdate, in.ID, request)
	if code, _ := rest.Code(err); code == protocol.CodeConflict && !in.Force {
		if view, viewErr := h.View(ctx, in.ID); viewErr == nil && view.ServingCount() > 0 {
			return done, httpapi.Problem(protocol.CodeClusterNotEmpty,
				"the cluster still has online agents: stop them first, or force it (mainstay cluster delete "+
					"--force, or ?force=true)")
		}
	}
	return done, err
}

// sweep sees to it that a cluster that has scaling on is looked at. Where that fails, the next start of a gateway makes
// up for it.
func (h *Handlers) sweep(ctx context.Context, on bool) {
	if !on {
		return
	}
	if err := h.Store.Clusters().MakeSweep(ctx); err != nil {
		h.Logger.Warn("the schedule of scaling was not made", zap.Error(err))
	}
}

func clusterOf(view *contract.ClusterView) api.Cluster {
	c := OfSettings(view.Config)
	if view.Config.ReplicationMode == api.ActivePassive && view.Leader != "" {
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
func shardOwners(c *cluster.Cluster) []api.ShardOwner {
	if c.Config.ReplicationMode != api.Sharded {
		return nil
	}
	owners := make([]api.ShardOwner, len(c.Shards))
	for i, s := range c.Shards {
		owners[i] = api.ShardOwner{Shard: i, Owner: s.Owner, Epoch: s.Epoch}
	}
	return owners
}

// OfSettings is a cluster of which only the configuration is known.
func OfSettings(config api.ClusterConfig) api.Cluster {
	c := api.Cluster{
		Name:                config.Name,
		Revision:            config.Revision(),
		TargetGroup:         config.TargetGroup,
		MinAgents:           config.MinAgents,
		DesiredAgents:       config.DesiredAgents,
		MaxAgents:           config.MaxAgents,
		ReplicationMode:     config.ReplicationMode,
		Selection:           config.Selection,
		Status:              api.ClusterUnknown,
		RoleLease:           config.RoleLease,
		TransferTimeout:     config.TransferTimeout,
		DeadLetterRetention: config.DeadLetterRetention,
		SelfHealing:         config.SelfHealing,
		Brake:               config.Brake,
		TenantWeights:       config.TenantWeights,
		Tenants:             config.Tenants,
		ManualElection:      config.ManualElection,
		ElectionInterval:    config.ElectionInterval,
		TaskDefaults:        config.TaskDefaults, Scaling: config.Scaling.WithDefaults(),
	}
	c.Shards = config.ShardCount()
	return c
}
