// Package gateway is the REST API for clients: it starts, updates, queries and lists workflows, and holds no state but
// short-lived caches of what clusters there are and which schedules were just let in. Each resource is a package of its
// own; here they are put together.
package gateway

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/agent"
	"mainstay.dev/mainstay/gateway/array"
	"mainstay.dev/mainstay/gateway/bulk"
	"mainstay.dev/mainstay/gateway/cluster"
	"mainstay.dev/mainstay/gateway/drain"
	"mainstay.dev/mainstay/gateway/events"
	"mainstay.dev/mainstay/gateway/failover"
	"mainstay.dev/mainstay/gateway/healing"
	"mainstay.dev/mainstay/gateway/inbound"
	"mainstay.dev/mainstay/gateway/job"
	"mainstay.dev/mainstay/gateway/overview"
	"mainstay.dev/mainstay/gateway/queue"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/gateway/run"
	"mainstay.dev/mainstay/gateway/scaling"
	"mainstay.dev/mainstay/gateway/schedule"
	"mainstay.dev/mainstay/gateway/schema"
	"mainstay.dev/mainstay/gateway/search"
	"mainstay.dev/mainstay/gateway/service"
	"mainstay.dev/mainstay/gateway/statesync"
	"mainstay.dev/mainstay/gateway/task"
	"mainstay.dev/mainstay/gateway/token"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// eventsLate is how much later than it was to come an answer counts: a hub that was killed is asked again after that.
const eventsLate = 3 * time.Second

// Options are what a gateway needs.
type Options struct {
	// Store is the namespace of Temporal; without a name it is the default one.
	Store  store.Store
	Logger *zap.Logger
	// Key is the installation's, with which tokens are sealed; empty: none can be made.
	Key []byte
	// Registerer takes the gateway's metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// FleetEvery is how often the fleet is read for its metrics at most; it is read only when they are asked for.
	// Default
	// 10 s.
	FleetEvery time.Duration
}

// Gateway answers the clients' part of the API.
type Gateway struct {
	core     *rest.Core
	key      []byte
	registry prometheus.Registerer // nil: none
	tasks    *task.Handlers
	clusters *cluster.Handlers
	overview *overview.Handlers
	events   *events.Feed
}

// New makes a gateway. It calls nothing until it is asked.
func New(o Options) *Gateway {
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	o.Store.Namespace = cmp.Or(o.Store.Namespace, store.DefaultNamespace)
	core := rest.New(o.Store, o.Logger, o.Key)
	return &Gateway{
		core:     core,
		key:      o.Key,
		registry: o.Registerer,
		tasks:    task.New(core, o.Registerer),
		clusters: &cluster.Handlers{Core: core},
		overview: &overview.Handlers{
			Core:      core,
			Shown:     overview.Shown{Cluster: cluster.Full, Settings: cluster.OfSettings},
			Lanes:     (&queue.Handlers{Core: core}).Lanes,
			Failovers: (&failover.Handlers{Core: core}).Newest,
			Every:     o.FleetEvery,
		},
		events: events.New(events.Options{Store: core.Store, Logger: o.Logger, Key: o.Key, AskHub: readEvents(core)}),
	}
}

// Stop ends the streams of events. Call it before the HTTP server waits for its requests; it may be called twice.
func (g *Gateway) Stop() { g.events.Close() }

// Register adds the gateway's operations to routes.
func (g *Gateway) Register(routes rest.API) {
	schedules := schedule.New(g.core)
	for _, resource := range []interface{ Register(routes rest.API) }{
		g.tasks,
		bulk.New(g.core),
		schedules,
		&job.Handlers{Core: g.core, Explain: g.tasks.Explain, RoomForSchedules: schedules.RoomForJob},
		&run.Handlers{Core: g.core},
		&array.Handlers{Core: g.core},
		&service.Handlers{Core: g.core},
		&inbound.Handlers{Core: g.core},
		g.clusters,
		&agent.Handlers{Core: g.core},
		&failover.Handlers{Core: g.core},
		&drain.Handlers{Core: g.core},
		&healing.Handlers{Core: g.core},
		&statesync.Handlers{Core: g.core},
		&queue.Handlers{Core: g.core},
		g.events,
		g.overview,
		&scaling.Handlers{Core: g.core, Configure: g.clusters.Configure},
		&token.Handlers{Core: g.core, Key: g.key},
		&search.Handlers{Core: g.core},
		schema.Handlers{},
	} {
		resource.Register(routes)
	}
	if g.registry != nil {
		g.registry.MustRegister(overview.NewMetrics(g.overview)) // only of a process that plays the gateway
	}
}

// EnsureClusters creates the clusters that do not exist. It leaves existing ones as they are.
func (g *Gateway) EnsureClusters(ctx context.Context, configs []api.ClusterConfig) error {
	return g.clusters.Ensure(ctx, configs)
}

// EnsureScaling makes the schedule that checks the clusters' sizes, if one of them has scaling on.
func (g *Gateway) EnsureScaling(ctx context.Context) error {
	return g.core.Store.Clusters().EnsureSweep(ctx)
}

// readEvents asks a hub for what it saw. answered is false when it does not answer in time.
func readEvents(
	core *rest.Core,
) func(context.Context, string, contract.ReadEventsInput) (contract.ReadEventsResult, bool, error) {
	return func(ctx context.Context, hub string, in contract.ReadEventsInput) (contract.ReadEventsResult, bool, error) {
		return rest.Ask(ctx, core, contract.ReadEventsActivity, rest.HubQuestion{
			Hub: hub, ID: contract.ReadEventsID(hub, uuid.NewString()), Summary: "events at hub " + hub,
			Wait: in.Wait.Std(), Margin: eventsLate,
		}, in)
	}
}
