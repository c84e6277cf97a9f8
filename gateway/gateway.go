// Package gateway is the REST API for clients: it starts, updates, queries and lists workflows, and holds no state but
// a short-lived cache of what clusters there are.
package gateway

import (
	"cmp"
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/events"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// Bounds of what one request may cost.
const (
	// callTimeout bounds the calls to Temporal of one request, so that a client hears of an outage within 5 s.
	callTimeout = 4500 * time.Millisecond
	// queryTimeout bounds a question to a workflow: it needs a worker, and there may be none.
	queryTimeout = 3 * time.Second
	// fanOut bounds the calls to Temporal that one request makes at the same time.
	fanOut = 32
)

// Options are what a gateway needs.
type Options struct {
	Client    client.Client
	Namespace string // for the calls the SDK's client has no method for; empty means "default"
	Logger    *zap.Logger
	// Registerer takes the gateway's metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// FleetEvery is how often the fleet is read for its metrics at most; it is read only when they are asked for. Default
	// 10 s.
	FleetEvery time.Duration
}

// Gateway answers the clients' part of the API.
type Gateway struct {
	store     store.Store
	client    client.Client
	namespace string
	logger    *zap.Logger
	registry  prometheus.Registerer // nil: none
	every     time.Duration         // between two readings of the fleet
	submitted *prometheus.CounterVec
	clusters  clusterCache
	loopRuns  runCache
	opening   chan struct{} // held while a lane is opened
	newID     func() string
	pause     func(ctx context.Context, d time.Duration) error
	events    *events.Feed
}

// New makes a gateway. It calls nothing until it is asked.
func New(o Options) *Gateway {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Namespace == "" {
		o.Namespace = client.DefaultNamespace
	}
	g := &Gateway{
		store: store.Store{Client: o.Client, Namespace: o.Namespace}, client: o.Client, namespace: o.Namespace, logger: o.Logger, registry: o.Registerer, every: cmp.Or(o.FleetEvery, fleetFresh), newID: newTaskID, pause: pause, opening: make(chan struct{}, 1),
		submitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mainstay_gateway_tasks_submitted_total",
			Help: "Tasks submitted, by outcome: accepted, duplicate or rejected.",
		}, []string{"outcome"}),
	}
	g.events = events.New(events.Options{Store: g.store, Logger: g.logger, AskHub: g.readEvents})
	if o.Registerer != nil {
		o.Registerer.MustRegister(g.submitted)
	}
	return g
}

// Stop ends the streams of events. Call it before the HTTP server waits for its requests; it may be called twice.
func (g *Gateway) Stop() { g.events.Close() }

// Register adds the gateway's operations to api.
func (g *Gateway) Register(routes huma.API) {
	g.registerSubmit(routes)
	g.registerTasks(routes)
	g.registerTaskLog(routes)
	g.registerTaskActions(routes)
	g.registerBulk(routes)
	g.registerSchedules(routes)
	g.registerClusters(routes)
	g.registerAgents(routes)
	g.registerFailovers(routes)
	g.registerHealth(routes)
	g.registerDrains(routes)
	g.registerHealing(routes)
	g.registerMaintenance(routes)
	g.registerPauses(routes)
	g.registerLoads(routes)
	g.registerBalance(routes)
	g.registerSyncs(routes)
	g.registerQueue(routes)
	g.events.Register(routes)
	g.registerOverview(routes)
	g.registerScaling(routes)
	g.registerTokens(routes)
	if g.registry != nil {
		g.registry.MustRegister(newFleetMetrics(g)) // only of a process that plays the gateway
	}
}

// Bounds of the pause after which a wait looks again: an eighth of the time waited so far.
const (
	maxWait    = 60 * time.Second
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// waitUntil looks again and again until it has found what it looks for, fails, or the time to wait is over; last says that
// it does not look again after that.
func (g *Gateway) waitUntil(
	ctx context.Context, wait time.Duration, doing string, look func(ctx context.Context, last bool) (found bool, err error),
) error {
	start := time.Now()
	for {
		elapsed := time.Since(start)
		found, err := look(ctx, elapsed >= wait)
		if found || err != nil || elapsed >= wait {
			return err
		}
		elapsed = time.Since(start)
		next := min(max(elapsed/8, firstPause), lastPause)
		if err := g.pause(ctx, max(0, min(next, wait-elapsed))); err != nil {
			return g.answer(err, doing, protocol.CodeInternal)
		}
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
