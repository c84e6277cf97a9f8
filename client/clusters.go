package client

import (
	"context"
	"net/http"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

// Settings are settings of a cluster as JSON has them: fields of fleet.ClusterConfig. What is left out is not said.
type Settings map[string]any

// Clusters lists clusters.
func (c *Client) Clusters() *List[api.Cluster] {
	return list[api.Cluster](c, path("clusters"), "clusters", values())
}

// Cluster returns a cluster.
func (c *Client) Cluster(ctx context.Context, name string) (*api.Cluster, error) {
	return get[api.Cluster](ctx, c, path("clusters", name), nil)
}

// CreateCluster creates a cluster; settings have its name.
func (c *Client) CreateCluster(ctx context.Context, settings Settings) (*api.Cluster, error) {
	return post[api.Cluster](ctx, c, path("clusters"), settings)
}

// ReplaceCluster gives a cluster these settings and no others, if its settings are of a revision; empty: of any.
func (c *Client) ReplaceCluster(
	ctx context.Context, name string, settings Settings, revision string,
) (*api.Cluster, error) {
	return c.changeCluster(ctx, http.MethodPut, name, settings, revision)
}

// UpdateCluster changes some settings of a cluster, if its settings are of a revision; empty: of any.
func (c *Client) UpdateCluster(
	ctx context.Context, name string, changes Settings, revision string,
) (*api.Cluster, error) {
	return c.changeCluster(ctx, http.MethodPatch, name, changes, revision)
}

func (c *Client) changeCluster(
	ctx context.Context, method, name string, settings Settings, revision string,
) (*api.Cluster, error) {
	return do[api.Cluster](ctx, c, request{method: method, path: path("clusters", name), header: ifMatch(revision),
		body: settings})
}

// DeleteCluster deletes a cluster, if its settings are of a revision; empty: of any. force: also one with online
// agents.
func (c *Client) DeleteCluster(ctx context.Context, name string, force bool, revision string) error {
	_, err := do[none](ctx, c, request{
		method: http.MethodDelete,
		path:   path("clusters", name),
		query:  values("force", force),
		header: ifMatch(revision),
	})
	return err
}

// Members lists a cluster's agents.
func (c *Client) Members(cluster string) *List[api.Agent] {
	return list[api.Agent](c, path("clusters", cluster, "members"), "members", values())
}

// ClusterHealth says how well a cluster's agents do their work.
func (c *Client) ClusterHealth(ctx context.Context, name string) (*api.ClusterHealth, error) {
	return get[api.ClusterHealth](ctx, c, path("clusters", name, "health"), nil)
}

// ReleaseBrake says that agents that vanished at once are really gone.
func (c *Client) ReleaseBrake(ctx context.Context, name, reason string) error {
	_, err := post[none](ctx, c, path("clusters", name, "brake", "release"), api.ReasonRequest{Reason: reason})
	return err
}

// DrainAgents takes several agents of a cluster out of service, some at a time.
func (c *Client) DrainAgents(
	ctx context.Context, cluster string, r *api.DrainAgentsRequest,
) (*fleet.DrainRecord, error) {
	return post[fleet.DrainRecord](ctx, c, path("clusters", cluster, "drain"), r)
}

// PauseCluster holds a cluster, or one of its lanes, back.
func (c *Client) PauseCluster(ctx context.Context, name string, r api.PauseRequest) (*api.Cluster, error) {
	return post[api.Cluster](ctx, c, path("clusters", name, "pause"), r)
}

// ResumeCluster takes a pause back.
func (c *Client) ResumeCluster(ctx context.Context, name string, r api.PauseRequest) (*api.Cluster, error) {
	return post[api.Cluster](ctx, c, path("clusters", name, "resume"), r)
}

// Lanes lists what waits in the lanes of a cluster; of all clusters when cluster is empty.
func (c *Client) Lanes(cluster string) *List[api.Lane] {
	if cluster == "" {
		return list[api.Lane](c, path("queue"), "lanes", values())
	}
	return list[api.Lane](c, path("clusters", cluster, "queue"), "lanes", values())
}

// Rebalance spreads a cluster's shards and targets evenly over its agents.
func (c *Client) Rebalance(ctx context.Context, cluster string, r api.RebalanceRequest) (*fleet.Rebalance, error) {
	return post[fleet.Rebalance](ctx, c, path("clusters", cluster, "rebalance"), r)
}

// Targets lists a cluster's deployment targets.
func (c *Client) Targets(cluster string) *List[api.Target] {
	return list[api.Target](c, path("clusters", cluster, "targets"), "targets", values())
}

// ChangeTargets changes which deployment targets a cluster has.
func (c *Client) ChangeTargets(ctx context.Context, cluster string, r api.TargetsRequest) error {
	_, err := post[none](ctx, c, path("clusters", cluster, "targets"), r)
	return err
}

// ClusterSync compares the states of a cluster's members.
func (c *Client) ClusterSync(ctx context.Context, cluster string) (*api.ClusterSync, error) {
	return get[api.ClusterSync](ctx, c, path("clusters", cluster, "sync"), nil)
}

// SyncCluster makes the states of a cluster's members the same.
func (c *Client) SyncCluster(ctx context.Context, cluster, reason string) (*fleet.SyncReport, error) {
	return post[fleet.SyncReport](ctx, c, path("clusters", cluster, "sync"), api.ReasonRequest{Reason: reason})
}

// Scaling says how a cluster's number of agents is kept.
func (c *Client) Scaling(ctx context.Context, cluster string) (*api.ScalingStatus, error) {
	return get[api.ScalingStatus](ctx, c, path("clusters", cluster, "scaling"), nil)
}

// Scale says how many agents a cluster is to have.
func (c *Client) Scale(ctx context.Context, cluster string, r api.ScaleRequest) (*api.ScalingStatus, error) {
	return post[api.ScalingStatus](ctx, c, path("clusters", cluster, "scaling"), r)
}

// ScalingActions lists what was done to keep the number of agents, newest first; of all clusters when cluster is empty.
func (c *Client) ScalingActions(cluster string) *List[fleet.ScalingRecord] {
	return list[fleet.ScalingRecord](c, path("scalings"), "scalings", values("cluster", cluster))
}

// ScalingAction returns the record of one.
func (c *Client) ScalingAction(ctx context.Context, id string) (*fleet.ScalingRecord, error) {
	return get[fleet.ScalingRecord](ctx, c, path("scalings", id), nil)
}
