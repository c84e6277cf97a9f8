package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// Clusters are the clusters of a namespace. One that was deleted is not found.
type Clusters struct{ Store }

// Clusters are the namespace's.
func (s Store) Clusters() Clusters { return Clusters{s} }

// View asks a cluster's workflow how it stands. Whether there is the cluster is known without a worker.
func (s Clusters) View(ctx context.Context, name string) (view contract.ClusterView, err error) {
	id, err := clusterID(name)
	if err != nil {
		return view, err
	}
	answer, err := s.ask(ctx, id, contract.ViewQuery.Name, "the cluster was deleted")
	if err != nil {
		return view, err
	}
	err = answer.Get(&view)
	return view, err
}

// ViewEach asks clusters side by side, each for at most the given time. errs holds an error for each that did not
// answer.
func (s Clusters) ViewEach(
	ctx context.Context, names []string, limit time.Duration,
) (views []contract.ClusterView, errs []error) {
	views, errs = make([]contract.ClusterView, len(names)), make([]error, len(names))
	parallel.Each(len(names), atOnce, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		views[i], errs[i] = s.View(ctx, names[i])
	})
	return views, errs
}

// Config is a cluster's configuration, with the lanes of its types. It needs no worker unless the cluster was
// started by other means than Create.
func (s Clusters) Config(
	ctx context.Context, name string,
) (config api.ClusterConfig, types cluster.LaneTypes, err error) {
	id, err := clusterID(name)
	if err != nil {
		return config, types, err
	}
	info, err := s.Describe(ctx, id)
	contract.Decode(info.GetMemo().GetFields()[contract.MemoTypes], &types)
	switch {
	case err != nil:
		return config, types, err
	case info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return config, types, serviceerror.NewNotFound("the cluster was deleted")
	case contract.Decode(info.GetMemo().GetFields()[contract.MemoConfig], &config):
		return config, types, nil
	}
	view, err := s.View(ctx, name)
	return view.Config, types, err
}

// ListedCluster is a cluster as visibility knows it.
type ListedCluster struct {
	Name   string
	Config api.ClusterConfig // with its defaults
	// Known is false for a cluster that was started by other means than Create: its configuration is not known.
	Known bool
}

// List lists the clusters that there are. One that was made within the last second may be missing.
func (s Clusters) List(ctx context.Context) ([]ListedCluster, error) {
	var clusters []ListedCluster
	query := contract.Equals("WorkflowType", contract.ClusterWorkflow) + " AND " +
		contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	for info, err := range s.Workflows(ctx, query) {
		if err != nil {
			return nil, fmt.Errorf("list clusters: %w", err)
		}
		if name, ok := contract.ClusterOfWorkflowID(info.GetExecution().GetWorkflowId()); ok {
			var config api.ClusterConfig
			known := contract.Decode(info.GetMemo().GetFields()[contract.MemoConfig], &config)
			config.Name = name
			clusters = append(clusters, ListedCluster{name, config.WithDefaults(), known})
		}
	}
	return clusters, nil
}

// Names are the names of the clusters that List lists.
func (s Clusters) Names(ctx context.Context) ([]string, error) {
	clusters, err := s.List(ctx)
	names := make([]string, len(clusters))
	for i := range clusters {
		names[i] = clusters[i].Name
	}
	return names, err
}

// Scaled are the names of the clusters that have scaling on, or may have it on.
func (s Clusters) Scaled(ctx context.Context) ([]string, error) {
	clusters, err := s.List(ctx)
	var names []string
	for i := range clusters {
		if c := &clusters[i]; !c.Known || c.Config.Scaling.On() {
			names = append(names, c.Name)
		}
	}
	return names, err
}

// Create makes a cluster. One of the same name is an error of the kind Exists.
func (s Clusters) Create(ctx context.Context, config api.ClusterConfig) error {
	_, err := s.Start(ctx, &Start{
		Type:    contract.ClusterWorkflow,
		ID:      contract.ClusterWorkflowID(config.Name),
		Summary: "cluster " + config.Name,
		Cluster: config.Name,
		Memo:    map[string]any{contract.MemoConfig: config},
	}, contract.ClusterInput{Config: config})
	return err
}

// UpdateCluster changes a cluster, as Update does.
func UpdateCluster[In, Out any](
	ctx context.Context, s Clusters, u contract.Update[In, Out], name string, in In,
) (out Out, err error) {
	id, err := clusterID(name)
	if err != nil {
		return out, err
	}
	return Update(ctx, s.Store, u, id, in)
}

// FailOver asks a cluster to move an agent's work and roles away.
func (s Clusters) FailOver(ctx context.Context, cluster string, request contract.ManualFailover) error {
	return contract.ManualFailoverSignal.Send(ctx, s.Client, contract.ClusterWorkflowID(cluster), request)
}

// Events asks a cluster for what happened in it.
func (s Clusters) Events(
	ctx context.Context, cluster string, since contract.EventsSince,
) (contract.ClusterEvents, error) {
	return contract.EventsQuery.Ask(ctx, s.Client, contract.ClusterWorkflowID(cluster), since)
}

// AgentLanes asks a cluster for the open lanes of its agents.
func (s Clusters) AgentLanes(ctx context.Context, cluster string) (contract.AgentLanes, error) {
	return contract.AgentLanesQuery.Ask(ctx, s.Client, contract.ClusterWorkflowID(cluster))
}

// OpenLane makes hubs poll the lane of tasks with these needs for a tenant's task, unless the cluster's view says that
// they do.
func (s Clusters) OpenLane(
	ctx context.Context, view *contract.ClusterView, needs api.LaneNeeds, tenant string,
) error {
	if view.LaneOpen(task.LaneFor(&needs)) {
		return nil
	}
	request := contract.OpenLaneRequest{LaneNeeds: needs, Tenant: tenant}
	_, err := contract.OpenLaneUpdate.Send(ctx, s.Client, contract.ClusterWorkflowID(view.Config.Name), request)
	return err
}

// UsedLanes are those of a cluster's lanes of capabilities that an open task uses, or one that ended since a time.
func (s Clusters) UsedLanes(
	ctx context.Context, cluster string, lanes []string, since time.Time,
) (used []string, err error) {
	counts, errs := make([]int64, len(lanes)), make([]error, len(lanes))
	parallel.Each(len(lanes), atOnce, func(i int) {
		query := contract.LaneUsersQuery(cluster, lanes[i], since)
		counts[i], errs[i] = s.Count(ctx, query)
	})
	for i, lane := range lanes {
		if counts[i] > 0 {
			used = append(used, lane)
		}
	}
	return used, errors.Join(errs...)
}

// clusterID is the id of a cluster's workflow; an impossible name has none.
func clusterID(name string) (string, error) {
	if err := api.ValidateID("cluster", name); err != nil {
		return "", serviceerror.NewNotFound(err.Error())
	}
	return contract.ClusterWorkflowID(name), nil
}

// factsAnswer bounds how long one cluster may take to answer.
const factsAnswer = 5 * time.Second

// Facts asks every open cluster, or only those named, and the live registry. A cluster that does not answer is listed
// as silent; one that was deleted meanwhile is left out. It writes nothing: clusters are queried, and the live registry
// is in memory.
func (s Clusters) Facts(ctx context.Context, names ...string) (healing.FleetFacts, error) {
	facts := healing.FleetFacts{At: time.Now().UTC()}
	if len(names) == 0 {
		var err error
		if names, err = s.Names(ctx); err != nil {
			return facts, err
		}
	}
	live, err := s.Live(ctx)
	if err != nil {
		return facts, fmt.Errorf("list the agents in the live registry: %w", err)
	}
	views, errs := s.ViewEach(ctx, names, factsAnswer)
	for i := range views {
		switch v := &views[i]; {
		case errs[i] == nil:
			facts.Clusters = append(facts.Clusters, healing.ClusterFacts{
				Cluster: v.Cluster, CreatedAt: v.CreatedAt, Live: live.Facts(&v.Cluster),
			})
		case KindOf(errs[i]) != NotFound:
			facts.Silent = append(facts.Silent, names[i])
		}
	}
	if ctx.Err() != nil {
		return facts, fmt.Errorf("read how the fleet stands: %w", ctx.Err())
	}
	slices.SortFunc(facts.Clusters, func(a, b healing.ClusterFacts) int {
		return strings.Compare(a.Config.Name, b.Config.Name)
	})
	slices.Sort(facts.Silent)
	return facts, nil
}
