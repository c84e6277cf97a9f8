package rest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// knownFor is how long the gateway believes that a cluster exists. Names that are unknown are never remembered.
const knownFor = 10 * time.Second

// knownCluster is what the gateway remembers of a cluster.
type knownCluster struct {
	config api.ClusterConfig // with its defaults
	open   *sync.Map         // the lanes that are known to be open
}

// KnownCluster is a cluster's configuration with its defaults, or unknown_cluster, also to a tenant that it is not for.
// After a change the old one may be answered for some seconds. It asks no worker unless the cluster was started by
// other means than the gateway.
func (c *Core) KnownCluster(ctx context.Context, name string) (api.ClusterConfig, error) {
	config, err := c.knownCluster(ctx, name)
	if err == nil && !config.IsFor(access.From(ctx).Tenant) {
		return api.ClusterConfig{}, Unknown(protocol.CodeUnknownCluster)
	}
	return config, err
}

func (c *Core) knownCluster(ctx context.Context, name string) (api.ClusterConfig, error) {
	if known, ok := c.clusters.get(name); ok {
		return known.config, nil
	}
	config, err := c.ClusterConfig(ctx, name)
	if err == nil {
		config = config.WithDefaults()
		c.clusters.put(name, knownCluster{config, &sync.Map{}})
	}
	return config, err
}

// ForgetCluster makes the next request read the cluster's configuration again.
func (c *Core) ForgetCluster(name string) { c.clusters.forget(name) }

// ClusterConfig is a cluster's configuration, or unknown_cluster.
func (c *Core) ClusterConfig(ctx context.Context, name string) (api.ClusterConfig, error) {
	config, types, err := c.Store.Clusters().Config(ctx, name)
	if err == nil {
		c.types.forget(name)
		c.types.put(name, types)
	}
	return config, c.Answer(err, "describe a cluster", protocol.CodeUnknownCluster)
}

// View asks a cluster's workflow how it stands.
func (c *Core) View(ctx context.Context, name string) (contract.ClusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	view, err := c.Store.Clusters().View(ctx, name)
	return view, c.Answer(err, "query a cluster", protocol.CodeUnknownCluster)
}

// typesKnown is how long a change of the types that have lanes of their own may be unknown.
const typesKnown = time.Second

// Place is where a task, or the elements of an array, go in their cluster. Hubs poll their lanes then.
func (c *Core) Place(ctx context.Context, spec api.TaskSpec, id string) (place contract.TaskPlace, err error) {
	cluster, err := c.KnownCluster(ctx, spec.Cluster)
	if err != nil {
		return place, err
	}
	types, known := c.types.get(cluster.Name)
	if !known {
		if _, err := c.ClusterConfig(ctx, cluster.Name); err != nil {
			return place, err
		}
		types, _ = c.types.get(cluster.Name)
	}
	place = contract.PlaceOf(&cluster, types, spec, id)
	return place, c.openLanes(ctx, &place, &spec)
}

// openLanes makes sure that hubs poll the lanes of a task at its place, if they must be opened. It refuses work for too
// many agents that do not exist. If no lane is free for the task's type, the task goes to the lane of all types.
func (c *Core) openLanes(ctx context.Context, place *contract.TaskPlace, spec *api.TaskSpec) error {
	if err := c.pins.Admit(ctx, spec, c.View); err != nil {
		return c.Answer(err, "admit work for an agent", protocol.CodeUnknownCluster)
	}
	if !place.Opens() {
		return nil
	}
	for _, needs := range task.LaneNeedsOf(spec, place.OwnType()) {
		err := c.openLane(ctx, spec.Cluster, needs, spec.Tenant)
		if code, _ := Code(err); err != nil && code == protocol.CodeConflict && place.OwnType() {
			place.ShareTypes(spec)
			return c.openLanes(ctx, place, spec)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// opener opens the lanes of a tenant's tasks in a cluster, one at a time: a cluster takes ten updates at a time, and a
// batch may bring many tasks for a new lane.
type opener struct {
	turn      chan struct{}
	refused   error // by the cluster, which has no more lanes for the tenant
	refusedAt time.Time
}

// refusedFor is how long a tenant's further lanes are refused without asking the cluster again.
const refusedFor = 5 * time.Second

// openLane opens a lane for a tenant's task.
func (c *Core) openLane(ctx context.Context, cluster string, needs api.LaneNeeds, tenant string) error {
	lane := task.LaneFor(&needs)
	if c.laneOpen(cluster, lane) {
		return nil
	}
	kept, _ := c.opening.LoadOrStore([2]string{cluster, tenant}, &opener{turn: make(chan struct{}, 1)})
	o := kept.(*opener)
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return c.Answer(ctx.Err(), "open a lane", protocol.CodeUnknownCluster)
	}
	if c.laneOpen(cluster, lane) {
		return nil
	}
	view, err := c.View(ctx, cluster)
	if err != nil {
		return err
	}
	err = o.refused
	if view.LaneOpen(lane) || time.Since(o.refusedAt) >= refusedFor {
		err = c.Store.Clusters().OpenLane(ctx, &view, needs, tenant)
	}
	if err != nil {
		if err != o.refused && store.KindOf(err) == store.Refused { //nolint:errorlint // the very error that is kept
			o.refused, o.refusedAt = err, time.Now()
		}
		return c.Answer(err, "open a lane", protocol.CodeUnknownCluster)
	}
	if known, ok := c.clusters.get(cluster); ok {
		known.open.Store(lane, true)
	}
	return nil
}

func (c *Core) laneOpen(cluster, lane string) bool {
	known, ok := c.clusters.get(cluster)
	if ok {
		_, ok = known.open.Load(lane)
	}
	return ok
}

// UpdateCluster changes a cluster.
func UpdateCluster[In, Out any](
	ctx context.Context, c *Core, doing string, u contract.Update[In, Out], name string, request In,
) (Out, error) {
	answer, err := store.UpdateCluster(ctx, c.Store.Clusters(), u, name, request)
	return answer, c.Answer(err, doing, protocol.CodeUnknownCluster)
}

// ChangeCluster changes a cluster, and answers how it stands afterwards.
func ChangeCluster[In any](
	ctx context.Context, c *Core, doing string, u contract.Update[In, contract.Done], name string, request In,
) (contract.ClusterView, error) {
	if _, err := UpdateCluster(ctx, c, doing, u, name, request); err != nil {
		return contract.ClusterView{}, err
	}
	return c.ViewChanged(ctx, name)
}

// ViewChanged is View after a change was made. If the view fails, the error says that the change was made.
func (c *Core) ViewChanged(ctx context.Context, name string) (contract.ClusterView, error) {
	view, err := c.View(ctx, name)
	if code, _ := Code(err); code == protocol.CodeUnavailable {
		err = httpapi.Problem(code, madeDetail)
	}
	return view, err
}

// ListClusters lists the clusters that exist.
func (c *Core) ListClusters(ctx context.Context) ([]store.ListedCluster, error) {
	clusters, err := c.Store.Clusters().List(ctx)
	return clusters, c.Answer(err, "list clusters", protocol.CodeNotFound)
}

// ViewEach asks the clusters side by side; errs holds an error for each that did not answer.
func (c *Core) ViewEach(
	ctx context.Context, clusters []store.ListedCluster,
) (views []contract.ClusterView, errs []error) {
	names := make([]string, len(clusters))
	for i := range clusters {
		names[i] = clusters[i].Name
	}
	views, errs = c.Store.Clusters().ViewEach(ctx, names, QueryTimeout)
	for i := range errs {
		errs[i] = c.Answer(errs[i], "query a cluster", protocol.CodeUnknownCluster)
	}
	return views, errs
}

// Views asks all clusters how they stand, or only the one named; sorted by name. missing are those that do not answer.
// If none of them does, or not the one named, that is an error: agents must not seem gone because no worker runs.
func (c *Core) Views(ctx context.Context, only string) (views []contract.ClusterView, missing []string, err error) {
	clusters := []store.ListedCluster{{Name: only}}
	if only == "" {
		if clusters, err = c.ListClusters(ctx); err != nil {
			return nil, nil, err
		}
	}
	asked, errs := c.ViewEach(ctx, clusters)
	for i := range asked {
		code, _ := Code(errs[i])
		switch {
		case errs[i] == nil:
			views = append(views, asked[i])
		case code != protocol.CodeUnknownCluster || only != "": // deleted since it was listed
			missing = append(missing, clusters[i].Name)
			err = errs[i]
		}
	}
	if len(views) == 0 && err != nil {
		return nil, nil, err
	}
	slices.Sort(missing)
	slices.SortFunc(views, func(a, b contract.ClusterView) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return views, missing, nil
}

// cache remembers things by name for a short time.
type cache[T any] struct {
	fresh   time.Duration // for how long
	mu      sync.Mutex
	entries map[string]cached[T]
}

type cached[T any] struct {
	value   T
	expires time.Time
}

func (c *cache[T]) get(name string) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	return e.value, time.Now().Before(e.expires)
}

// put remembers a thing, unless another request has just done so, and forgets those whose time is over.
func (c *cache[T]) put(name string, value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for other, e := range c.entries {
		if now.After(e.expires) {
			delete(c.entries, other)
		}
	}
	if c.entries == nil {
		c.entries = map[string]cached[T]{}
	}
	if _, known := c.entries[name]; !known {
		c.entries[name] = cached[T]{value, now.Add(c.fresh)}
	}
}

func (c *cache[T]) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, name)
}
