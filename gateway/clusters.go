package gateway

import (
	"context"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/protocol"
)

// ClusterRequest creates a cluster.
type ClusterRequest struct {
	Name string `json:"name" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	ClusterSettings
}

// ClusterSettings are what an operator decides about a cluster.
type ClusterSettings struct {
	TargetGroup         string                  `json:"target_group,omitempty" maxLength:"255" doc:"The group of deployment targets it serves."`
	MinAgents           int                     `json:"min_agents,omitempty" minimum:"0" maximum:"1000" doc:"With fewer online agents it is critical."`
	DesiredAgents       int                     `json:"desired_agents,omitempty" minimum:"0" maximum:"1000" doc:"With fewer online agents it is degraded."`
	MaxAgents           int                     `json:"max_agents,omitempty" minimum:"0" maximum:"1000" doc:"More agents are refused. Default 1000."`
	ReplicationMode     fleet.ReplicationMode   `json:"replication_mode,omitempty" enum:"active_active,active_passive,sharded" doc:"Who serves: every member (the default), only the leader, or each shard's owner. Whether it is sharded is fixed at creation."`
	Shards              int                     `json:"shards,omitempty" minimum:"0" maximum:"1024" doc:"Number of shards of a sharded cluster, fixed at creation. Default 16."`
	Selection           fleet.SelectionStrategy `json:"selection_strategy,omitempty" enum:"standby,least_loaded,round_robin,affinity" doc:"How a failover's target is picked. Default least_loaded."`
	RoleLease           fleet.Duration          `json:"role_lease,omitempty" doc:"How long a leader or the owner of a shard may go on without hearing from its hub, and so the longest time without one. Default 5s."`
	ManualElection      bool                    `json:"manual_election,omitempty" doc:"In mode active_passive, a leader that was lost keeps its seat: the cluster waits until it is back, or until a person turns this off."`
	ElectionInterval    fleet.Duration          `json:"election_interval,omitempty" doc:"The longest between two looks at a leader or shard owner; shorter than role_lease. Default a third of it."`
	TaskDefaults        TaskDefaults            `json:"task_defaults,omitzero" doc:"What its tasks have that leave it out. Holds for tasks submitted from then on."`
	TransferTimeout     fleet.Duration          `json:"task_transfer_timeout,omitempty" doc:"How long a failover watches the tasks that it moves. Default 5m."`
	DeadLetterRetention fleet.Duration          `json:"dead_letter_retention,omitempty" doc:"How long a dead letter of its tasks is kept for a retry, at most 8760h. Holds for tasks submitted from then on. Default 168h (7 days)."`
	Brake               BrakeSettings           `json:"brake,omitzero" doc:"When so many agents vanish at once that their failovers wait."`
	SelfHealing         HealingSettings         `json:"self_healing,omitzero" doc:"What the healing cycle may do in the cluster."`
	TenantWeights       map[string]float64      `json:"tenant_weights,omitempty" doc:"The tenants' shares of the lanes while work of several waits, 0.1 to 100; at most 100 tenants. One that is not named has 1. Counts for tasks submitted from then on."`
	Scaling             *ScalingSettings        `json:"scaling,omitempty" doc:"When its agents are started and stopped."`
}

// BrakeSettings are fleet.BrakePolicy as a client submits and sees it.
type BrakeSettings struct {
	Share   float64        `json:"share,omitempty" minimum:"0" maximum:"1" doc:"Of the cluster's agents, more than this share must vanish. 1 turns the brake off. Default 0.5."`
	MinLost int            `json:"min_lost,omitempty" minimum:"0" maximum:"1000" doc:"And at least so many. Default 3."`
	Window  fleet.Duration `json:"window,omitempty" doc:"Within this time. Default 10s."`
}

// TaskDefaults are fleet.TaskDefaults as a client submits and sees them.
type TaskDefaults struct {
	MaxAttempts  int            `json:"max_attempts,omitempty" minimum:"0" maximum:"100" doc:"Attempts that may fail before a task is a dead letter. Default 3."`
	MaxTransfers int            `json:"max_transfers,omitempty" minimum:"0" maximum:"100" doc:"Agents a task may be lost with before it is a dead letter. Default 3."`
	ExpiresIn    fleet.Duration `json:"expires_in,omitempty" doc:"How long a task may wait for an agent. Default 1h."`
}

func (s *ClusterSettings) config(name string) fleet.ClusterConfig {
	config := fleet.ClusterConfig{
		Name: name, TargetGroup: s.TargetGroup, MinAgents: s.MinAgents, DesiredAgents: s.DesiredAgents, MaxAgents: s.MaxAgents,
		ReplicationMode: s.ReplicationMode, Shards: s.Shards, Selection: s.Selection,
		RoleLease: s.RoleLease, TransferTimeout: s.TransferTimeout, DeadLetterRetention: s.DeadLetterRetention,
		Brake:         fleet.BrakePolicy{Share: s.Brake.Share, MinLost: s.Brake.MinLost, Window: s.Brake.Window},
		TenantWeights: s.TenantWeights, SelfHealing: fleet.HealingPolicy(s.SelfHealing),
		ManualElection: s.ManualElection, ElectionInterval: s.ElectionInterval, TaskDefaults: fleet.TaskDefaults(s.TaskDefaults),
	}
	s.Scaling.apply(&config.Scaling)
	return config
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
func (g *Gateway) replaceCluster(ctx context.Context, name string, settings *ClusterSettings, expected []string) (Cluster, error) {
	return g.configure(ctx, name, expected, func(current fleet.ClusterConfig) fleet.ClusterConfig {
		config := settings.config(name)
		if config.ReplicationMode == "" {
			config.ReplicationMode = current.ReplicationMode
		}
		if config.Shards == 0 {
			config.Shards = current.Shards
		}
		return config
	})
}

// configureTries bounds how often a change is made anew because another came between.
const configureTries = 5

// configure changes a cluster's configuration to what change makes of the present one, if that is of one of the expected
// revisions. With none expected, a change that comes between is not lost: it is read, and changed in turn.
func (g *Gateway) configure(ctx context.Context, name string, expected []string, change func(current fleet.ClusterConfig) fleet.ClusterConfig) (Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := g.describeCluster(ctx, name); err != nil {
		return Cluster{}, err
	}
	for try := 1; ; try++ {
		current, err := g.view(ctx, name)
		if err != nil {
			return Cluster{}, err
		}
		if !current.Config.RevisionIs(expected) {
			return Cluster{}, outdated()
		}
		config := change(current.Config).WithDefaults()
		if err := config.Validate(); err != nil {
			return Cluster{}, invalid("body", err)
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
			return Cluster{}, answer
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
