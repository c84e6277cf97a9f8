package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// ClusterSettings are a cluster's configuration without its name, which the path has.
type ClusterSettings fleet.ClusterConfig

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
func (g *Gateway) createCluster(ctx context.Context, config fleet.ClusterConfig) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := g.store.Clusters().Create(ctx, config)
	if err == nil {
		g.afterConfigure(ctx, config.Scaling.On())
	}
	return err
}

// EnsureClusters creates those of the clusters that do not exist. It changes none that do.
func (g *Gateway) EnsureClusters(ctx context.Context, configs []fleet.ClusterConfig) error {
	for _, config := range configs {
		config = config.WithDefaults()
		if err := config.Validate(); err != nil {
			return fmt.Errorf("cluster %q: %w", config.Name, err)
		}
		err := g.createCluster(ctx, config)
		if err != nil && store.KindOf(err) != store.Exists {
			return fmt.Errorf("create cluster %q: %w", config.Name, err)
		}
	}
	return nil
}

// listed lists the clusters that exist.
func (g *Gateway) listed(ctx context.Context) ([]store.ListedCluster, error) {
	clusters, err := g.store.Clusters().List(ctx)
	return clusters, g.answer(err, "list clusters", protocol.CodeNotFound)
}

// viewEach asks the clusters side by side; errs holds an error for each that did not answer.
func (g *Gateway) viewEach(ctx context.Context, clusters []store.ListedCluster) (views []contract.ClusterView, errs []error) {
	names := make([]string, len(clusters))
	for i := range clusters {
		names[i] = clusters[i].Name
	}
	views, errs = g.store.Clusters().ViewEach(ctx, names, queryTimeout)
	for i := range errs {
		errs[i] = g.answer(errs[i], "query a cluster", protocol.CodeUnknownCluster)
	}
	return views, errs
}

func problemCode(err error) (string, bool) {
	if err == nil {
		return "", false
	}
	return httpapi.Code(err)
}

// replaceCluster changes a cluster's settings. What is fixed at creation keeps its value when left out.
func (g *Gateway) replaceCluster(ctx context.Context, name string, settings *ClusterSettings, expected []string) (api.Cluster, error) {
	return g.configure(ctx, name, expected, func(current fleet.ClusterConfig) (fleet.ClusterConfig, error) {
		config := fleet.ClusterConfig(*settings)
		config.Name = name
		if config.ReplicationMode == "" {
			config.ReplicationMode = current.ReplicationMode
		}
		if config.Shards == 0 {
			config.Shards = current.Shards
		}
		return config, nil
	})
}

// configureTries bounds how often a change is made anew because another came between.
const configureTries = 5

// configure changes a cluster's configuration to what change makes of the present one, if that is of one of the expected
// revisions. With none expected, a change that comes between is not lost: it is read, and changed in turn.
func (g *Gateway) configure(ctx context.Context, name string, expected []string, change func(fleet.ClusterConfig) (fleet.ClusterConfig, error)) (api.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for try := 1; ; try++ {
		current, err := g.view(ctx, name)
		if err != nil {
			return api.Cluster{}, err
		}
		if !current.Config.RevisionIs(expected) {
			return api.Cluster{}, outdated()
		}
		config, err := change(current.Config)
		if err == nil {
			config = config.WithDefaults()
			err = config.Validate()
		}
		if err != nil {
			return api.Cluster{}, invalid("body", err)
		}
		request := contract.ConfigureRequest{ClusterConfig: config, IfRevisions: []string{current.Config.Revision()}}
		view, err := updateCluster(ctx, g, "configure a cluster", contract.ConfigureUpdate, name, request)
		if err == nil {
			g.clusters.forget(name)
			g.afterConfigure(ctx, config.Scaling.On())
			return fullCluster(&view), nil
		}
		if code, _ := problemCode(err); code != protocol.CodePrecondition || len(expected) > 0 || try == configureTries {
			return api.Cluster{}, err
		}
	}
}

// deleteCluster ends a cluster; without force only one that has no online agents.
func (g *Gateway) deleteCluster(ctx context.Context, name string, force bool, expected []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	g.clusters.forget(name)
	request := contract.DeleteRequest{Force: force, IfRevisions: expected}
	_, err := updateCluster(ctx, g, "delete a cluster", contract.DeleteUpdate, name, request)
	if code, _ := problemCode(err); code == protocol.CodeConflict && !force {
		if view, viewErr := g.view(ctx, name); viewErr == nil && view.ServingCount() > 0 {
			return httpapi.Problem(protocol.CodeClusterNotEmpty, "the cluster still has online agents: stop them first, or force it (mainstay cluster delete --force, or ?force=true)")
		}
	}
	return err
}
