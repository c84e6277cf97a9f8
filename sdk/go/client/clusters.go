package client

import (
	"context"
	"net/http"

	"mainstay.dev/sdk/api"
)

// Settings are settings of a cluster in JSON: fields of api.ClusterConfig. Fields left out do not change.
type Settings map[string]any

// List lists clusters.
func (k Clusters) List() *List[api.Cluster] {
	return list[api.Cluster](k.c, path("clusters"), "clusters", values())
}

// Get returns a cluster.
func (k Clusters) Get(ctx context.Context, name string) (*api.Cluster, error) {
	return get[api.Cluster](ctx, k.c, path("clusters", name), nil)
}

// Create creates a cluster; settings have its name.
func (k Clusters) Create(ctx context.Context, settings Settings) (*api.Cluster, error) {
	return post[api.Cluster](ctx, k.c, path("clusters"), settings)
}

// Replace gives a cluster these settings and no others, if its settings are of a revision; empty: of any.
func (k Clusters) Replace(ctx context.Context, name string, settings Settings, revision string) (*api.Cluster, error) {
	return k.change(ctx, http.MethodPut, name, settings, revision)
}

// Update changes some settings of a cluster, if its settings are of a revision; empty: of any.
func (k Clusters) Update(ctx context.Context, name string, changes Settings, revision string) (*api.Cluster, error) {
	return k.change(ctx, http.MethodPatch, name, changes, revision)
}

func (k Clusters) change(
	ctx context.Context, method, name string, settings Settings, revision string,
) (*api.Cluster, error) {
	return do[api.Cluster](ctx, k.c, request{method: method, path: path("clusters", name), header: ifMatch(revision),
		body: settings})
}

// Delete deletes a cluster, if its settings are of a revision; empty: of any. force: also one with online
// agents.
func (k Clusters) Delete(ctx context.Context, name string, force bool, revision string) error {
	_, err := do[none](ctx, k.c, request{
		method:  http.MethodDelete,
		path:    path("clusters", name),
		query:   values("force", force),
		header:  ifMatch(revision),
		removes: true,
	})
	return err
}

// Members lists a cluster's agents.
func (k Clusters) Members(cluster string) *List[api.Agent] {
	return list[api.Agent](k.c, path("clusters", cluster, "members"), "members", values())
}

// Load says how a cluster's work is spread over its agents.
func (k Clusters) Load(ctx context.Context, name string) (*api.ClusterLoad, error) {
	return get[api.ClusterLoad](ctx, k.c, path("clusters", name, "load"), nil)
}

// Health says how well a cluster's agents do their work.
func (k Clusters) Health(ctx context.Context, name string) (*api.ClusterHealth, error) {
	return get[api.ClusterHealth](ctx, k.c, path("clusters", name, "health"), nil)
}

// ReleaseBrake says that agents that vanished at once are really gone. released is false where the brake held nothing.
func (k Clusters) ReleaseBrake(ctx context.Context, name, reason string) (released bool, err error) {
	got, err := post[api.BrakeRelease](ctx, k.c, path("clusters", name, "brake", "release"),
		api.ReasonRequest{Reason: reason})
	return err == nil && got.Released, err
}

// Drain takes several agents of a cluster out of service, some at a time.
func (k Clusters) Drain(ctx context.Context, cluster string, r *api.DrainAgentsRequest) (*api.DrainRecord, error) {
	return post[api.DrainRecord](ctx, k.c, path("clusters", cluster, "drain"), r)
}

// Pause holds a cluster, or one of its lanes, back.
func (k Clusters) Pause(ctx context.Context, name string, r api.PauseRequest) (*api.Cluster, error) {
	return post[api.Cluster](ctx, k.c, path("clusters", name, "pause"), r)
}

// Resume takes a pause back.
func (k Clusters) Resume(ctx context.Context, name string, r api.PauseRequest) (*api.Cluster, error) {
	return post[api.Cluster](ctx, k.c, path("clusters", name, "resume"), r)
}

// Lanes lists what waits in the lanes of a cluster; of all clusters when cluster is empty.
func (k Clusters) Lanes(cluster string) *List[api.Lane] {
	if cluster == "" {
		return list[api.Lane](k.c, path("queue"), "lanes", values())
	}
	return list[api.Lane](k.c, path("clusters", cluster, "queue"), "lanes", values())
}

// Rebalance spreads a cluster's shards and targets, and its tasks, evenly over its agents.
func (k Clusters) Rebalance(ctx context.Context, cluster string, r api.RebalanceRequest) (*api.Rebalance, error) {
	return post[api.Rebalance](ctx, k.c, path("clusters", cluster, "rebalance"), r)
}

// Targets lists a cluster's deployment targets.
func (k Clusters) Targets(cluster string) *List[api.Target] {
	return list[api.Target](k.c, path("clusters", cluster, "targets"), "targets", values())
}

// ChangeTargets changes which deployment targets a cluster has.
func (k Clusters) ChangeTargets(ctx context.Context, cluster string, r api.TargetsRequest) error {
	_, err := post[none](ctx, k.c, path("clusters", cluster, "targets"), r)
	return err
}

// CompareStates compares the states of a cluster's members.
func (k Clusters) CompareStates(ctx context.Context, cluster string) (*api.ClusterSync, error) {
	return get[api.ClusterSync](ctx, k.c, path("clusters", cluster, "sync"), nil)
}

// Sync makes the states of a cluster's members the same.
func (k Clusters) Sync(ctx context.Context, cluster, reason string) (*api.SyncReport, error) {
	return post[api.SyncReport](ctx, k.c, path("clusters", cluster, "sync"), api.ReasonRequest{Reason: reason})
}

// Scaling says how a cluster's number of agents is kept.
func (k Clusters) Scaling(ctx context.Context, cluster string) (*api.ScalingStatus, error) {
	return get[api.ScalingStatus](ctx, k.c, path("clusters", cluster, "scaling"), nil)
}

// Scale says how many agents a cluster is to have.
func (k Clusters) Scale(ctx context.Context, cluster string, r api.ScaleRequest) (*api.ScalingStatus, error) {
	return post[api.ScalingStatus](ctx, k.c, path("clusters", cluster, "scaling"), r)
}

// Spawn has one more agent started.
func (k Clusters) Spawn(ctx context.Context, cluster, reason string) (*api.ScalingAccepted, error) {
	return post[api.ScalingAccepted](ctx, k.c, path("clusters", cluster, "spawn"), api.ReasonRequest{Reason: reason})
}

// PromoteRollout lets all agents of a cluster follow its healthy canaries.
func (k Clusters) PromoteRollout(ctx context.Context, cluster, reason string) (*api.ScalingStatus, error) {
	return post[api.ScalingStatus](ctx, k.c, path("clusters", cluster, "scaling", "rollout", "promote"),
		api.ReasonRequest{Reason: reason})
}

// RevertRollout puts the settings of agents before a cluster's newest rollout in force again.
func (k Clusters) RevertRollout(ctx context.Context, cluster, reason string) (*api.ScalingStatus, error) {
	return post[api.ScalingStatus](ctx, k.c, path("clusters", cluster, "scaling", "rollout", "revert"),
		api.ReasonRequest{Reason: reason})
}

// List lists what was done to keep the number of agents, newest first; of all clusters when cluster is empty.
func (s Scalings) List(cluster string) *List[api.ScalingRecord] {
	return list[api.ScalingRecord](s.c, path("scalings"), "scalings", values("cluster", cluster))
}

// Spawners lists the spawners that were there within the last minutes, and how they are.
func (s Scalings) Spawners() *List[api.Spawner] {
	return list[api.Spawner](s.c, path("spawners"), "spawners", values())
}

// Get returns the record of one.
func (s Scalings) Get(ctx context.Context, id string) (*api.ScalingRecord, error) {
	return get[api.ScalingRecord](ctx, s.c, path("scalings", id), nil)
}
