package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/protocol"
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
	_, err := g.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       contract.ClusterWorkflowID(config.Name),
		TaskQueue:                                contract.WorkerQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(config.Name)),
		Memo:                                     map[string]any{contract.MemoConfig: config},
		StaticSummary:                            "cluster " + config.Name,
	}, contract.ClusterWorkflow, contract.ClusterInput{Config: config})
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
		if err != nil && !isAny[*serviceerror.WorkflowExecutionAlreadyStarted](err) {
			return fmt.Errorf("create cluster %q: %w", config.Name, err)
		}
	}
	return nil
}

// listedCluster is a cluster as visibility has it.
type listedCluster struct {
	name   string
	config fleet.ClusterConfig
}

// listed lists the clusters that exist.
func (g *Gateway) listed(ctx context.Context) ([]listedCluster, error) {
	var clusters []listedCluster
	for info, err := range contract.Workflows(ctx, g.client, g.namespace, contract.OpenClusters()) {
		if err != nil {
			return nil, g.answer(err, "list clusters", protocol.CodeNotFound)
		}
		if name, ok := contract.ClusterOfWorkflowID(info.GetExecution().GetWorkflowId()); ok {
			config, _ := contract.ConfigOf(info)
			config.Name = name
			clusters = append(clusters, listedCluster{name, config.WithDefaults()})
		}
	}
	return clusters, nil
}

// viewEach asks the clusters side by side; errs holds an error for each that did not answer.
func (g *Gateway) viewEach(ctx context.Context, clusters []listedCluster) (views []contract.ClusterView, errs []error) {
	views, errs = make([]contract.ClusterView, len(clusters)), make([]error, len(clusters))
	parallel.Each(len(clusters), fanOut, func(i int) { views[i], errs[i] = g.view(ctx, clusters[i].name) })
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
	if _, err := g.describeCluster(ctx, name); err != nil {
		return api.Cluster{}, err
	}
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
		view, err := update(ctx, g, contract.ConfigureUpdate, contract.ClusterWorkflowID(name), request)
		if err == nil {
			g.clusters.forget(name)
			g.afterConfigure(ctx, config.Scaling.On())
			return fullCluster(&view), nil
		}
		answer := g.answer(err, "configure a cluster", protocol.CodeUnknownCluster)
		if code, _ := problemCode(answer); code != protocol.CodePrecondition || len(expected) > 0 || try == configureTries {
			return api.Cluster{}, answer
		}
	}
}

// deleteCluster ends a cluster; without force only one that has no online agents.
func (g *Gateway) deleteCluster(ctx context.Context, name string, force bool, expected []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := g.describeCluster(ctx, name); err != nil {
		return err
	}
	g.clusters.forget(name)
	request := contract.DeleteRequest{Force: force, IfRevisions: expected}
	_, err := update(ctx, g, contract.DeleteUpdate, contract.ClusterWorkflowID(name), request)
	if err == nil {
		return nil
	}
	answer := g.answer(err, "delete a cluster", protocol.CodeUnknownCluster)
	if code, _ := problemCode(answer); code == protocol.CodeConflict && !force {
		if view, viewErr := g.view(ctx, name); viewErr == nil && view.ServingCount() > 0 {
			return httpapi.Problem(protocol.CodeClusterNotEmpty, "the cluster still has online agents: stop them first, or force it (mainstay cluster delete --force, or ?force=true)")
		}
	}
	return answer
}
