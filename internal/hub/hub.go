// Package hub is the part that agents talk to. It keeps their sessions, notices when one dies, polls the lanes they
// serve, hands out attempts and reports results to Temporal. Its state is soft: agents bring it back in one exchange.
package hub

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/control"
	"mainstay.dev/mainstay/internal/hub/event"
	"mainstay.dev/mainstay/internal/hub/health"
	"mainstay.dev/mainstay/internal/hub/lease"
	"mainstay.dev/mainstay/internal/hub/notice"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/hub/registry"
	"mainstay.dev/mainstay/internal/hub/statesync"
	"mainstay.dev/mainstay/internal/hub/tasklog"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// Config sizes and times a hub. Zero fields take their defaults.
type Config struct {
	// Timing holds the failure detector's thresholds.
	Timing cluster.Timing
	// AcceptTimeout is how long an agent has to list an assignment as running. Default 5 s; idempotent work that was
	// sent waits at least for the agent's lease.
	AcceptTimeout time.Duration
	// Park is how long a task without a free slot waits in the hub before it goes back to its lane. Default 2 s.
	Park time.Duration
	// HealthInterval is the time between two health ratings. Default 1 s.
	HealthInterval time.Duration
	// LanePollers bounds the open polls on one lane. More give more tasks per second, up to the free slots. Default 16.
	LanePollers int
	// StateSpacing is the least time between two signals to a cluster about its agents' states, so that a leader that
	// writes constantly does not fill the cluster's history. Default 5 s.
	StateSpacing time.Duration
}

func (c Config) withDefaults() Config {
	c.Timing = c.Timing.WithDefaults()
	c.AcceptTimeout = cmp.Or(c.AcceptTimeout, 5*time.Second)
	c.Park = cmp.Or(c.Park, 2*time.Second)
	c.HealthInterval = cmp.Or(c.HealthInterval, time.Second)
	c.LanePollers = cmp.Or(c.LanePollers, 16)
	c.StateSpacing = cmp.Or(c.StateSpacing, 5*time.Second)
	return c
}

// Options are what a hub needs.
type Options struct {
	// ID names the hub; a restarted hub keeps it, so that its lease and its agents go on.
	ID     string
	Store  store.Store
	Logger *zap.Logger
	// Registerer gets the hub's metrics.
	Registerer prometheus.Registerer
	// Tracer makes the spans of deliveries; nil: there are none.
	Tracer trace.Tracer
	// Key seals session and attempt tokens. All hubs of a namespace share it. At least 16 bytes.
	Key    []byte
	Config Config
}

// Hub is one running hub. Its exported methods may be called from any goroutine.
type Hub struct {
	id        string
	store     store.Hub
	log       *zap.Logger
	tracer    trace.Tracer
	config    Config
	seal      sealer
	metrics   *metrics
	joins     *joiner
	responder *responder
	lease     *lease.Lease
	notices   *notice.Notices
	registry  *registry.Publisher
	events    *event.Log
	logs      *tasklog.Logs
	health    *health.Monitor
	states    *statesync.States
	control   *control.Control
	reclaimer *reclaimer
	// unanswered looks where registrations ended half way. It is separate, because they come just before the hub
	// reaches Temporal again, and would delay the recovery after that.
	unanswered *reclaimer
	ownLanes   *ownLanes
	online     *registry.Online

	mu         sync.Mutex
	sessions   map[string]*session   // by agent id
	away       map[*session]struct{} // disconnected ones; perhaps more
	judgedAt   time.Time             // when the detector looked last
	lanes      map[string]*lane      // by name
	directives map[string]contract.Directive
	turns      map[string]int64 // that the strategy round_robin has taken here, by cluster
	// registering counts, by agent, registrations under way: the cluster may count the agent on this hub before it has
	// a session.
	registering map[string]int
	goodbyes    map[string]*session // of those who left a moment ago, by cluster and agent
	contests    map[string]*contest // agent ids that processes take from each other, by cluster and agent
	// registrations bounds how often each agent id registers.
	registrations *limit.Rate
	// offers spaces the tasks of each tenant that no agent takes.
	offers    *limit.Rate
	awaited   map[attemptKey]*awaited // without a session; their agents may bring them back
	brakes    map[string]*brake       // by cluster
	fresh     []*attempt              // without a heartbeat yet, oldest first; some may have ended
	hosts     map[string]*host        // of the sessions, and where ports rest
	instances healthTeller
	conns     map[net.Conn]*connection
	stopping  bool

	run    context.Context // ends when the hub stops; for work outside requests
	cancel context.CancelFunc
	wg     *part.Group
	worker interface{ Stop() }
}

// New checks the options and makes a hub that is not started yet.
func New(o Options) (*Hub, error) {
	if err := api.ValidateID("hub id", o.ID); err != nil {
		return nil, err
	}
	if len(o.Key) < 16 {
		return nil, fmt.Errorf("the hub's token key has %d bytes, at least 16 are needed", len(o.Key))
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider().Tracer("")
	}
	h := &Hub{
		tracer:      o.Tracer,
		id:          o.ID,
		store:       o.Store.Hub(o.ID, uuid.NewString()),
		log:         o.Logger.With(zap.String("hub", o.ID)),
		config:      o.Config.withDefaults(),
		seal:        sealer{key: o.Key},
		sessions:    map[string]*session{},
		away:        map[*session]struct{}{},
		registering: map[string]int{},
		goodbyes:    map[string]*session{},
		contests:    map[string]*contest{},

		registrations: limit.NewRate(registerRate, registerBurst),
		offers:        limit.NewRate(float64(offersPerSecond()), offersAtOnce),
		lanes:         map[string]*lane{},
		directives:    map[string]contract.Directive{},
		turns:         map[string]int64{},
		awaited:       map[attemptKey]*awaited{},
		brakes:        map[string]*brake{},
		hosts:         map[string]*host{},
		instances:     healthTeller{known: map[string]*knownHealth{}, rate: limit.NewRate(tellRate, tellBurst)},
		conns:         map[net.Conn]*connection{},
		wg:            part.NewGroup(),
	}
	h.run, h.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // the hub's own lifetime, ended by Stop
	h.joins = newJoiner(h)
	h.responder = newResponder(h)
	h.reclaimer, h.unanswered = newRestartReclaimer(h), newJoinReclaimer(h)
	h.ownLanes = newOwnLanes(h)
	h.makeParts()
	h.metrics = newMetrics(o.Registerer, h)
	return h, nil
}

// makeParts makes the parts that have locks of their own.
func (h *Hub) makeParts() {
	self, facts := part.Hub{Hub: h.store, Logger: h.log}, facts{h}
	h.lease = lease.New(self, facts.rejoin)
	h.notices = notice.New(h.run, self, facts.brake, func(cluster string) { h.events.Hint(cluster) })
	h.registry = registry.New(self, h.config.Timing.CrowdInterval, facts.entries)
	h.online = registry.NewOnline(self)
	h.states = statesync.New(self, facts, h.config.StateSpacing)
	h.events = event.NewLog(self, h.notices.Busy)
	h.logs = tasklog.New(facts)
	h.health = health.New(facts, h.log, h.config.HealthInterval)
	h.control = control.New(self, facts.cancel)
}

// Start takes the hub's lease and starts its parts. Register must have been called for agents to reach it.
func (h *Hub) Start(ctx context.Context) error {
	if err := h.startWorker(); err != nil {
		return err
	}
	if err := h.lease.Take(ctx); err != nil {
		h.worker.Stop()
		return err
	}
	h.reclaimer.ask(everyCluster) // not before: agents have from now on to come back
	h.start(detector{h}, beater{h}, h.lease, h.health, h.registry, h.states, h.logs, h.control, h.reclaimer,
		h.unanswered, h.ownLanes)
	return nil
}

func (h *Hub) start(parts ...part.Runner) {
	for _, p := range parts {
		h.wg.Go(func() { p.Run(h.run) })
	}
}

// Stop answers the held polls, gives back open lane polls and parked tasks, and returns when all is done or ctx ends.
// Attempts go on in their agents, which re-attach to this hub's next process or to another hub. It may be called twice.
func (h *Hub) Stop(ctx context.Context) {
	h.mu.Lock()
	if h.stopping {
		h.mu.Unlock()
		return
	}
	h.stopping = true
	for _, s := range h.sessions {
		h.returnUndeliveredLocked(s, "the hub is stopping")
		s.wake.Send()
	}
	var released []laneRelease
	for _, l := range h.lanes {
		l.returnParked("the hub is stopping")
		released = append(released, l.release())
	}
	h.mu.Unlock()
	var releasing sync.WaitGroup
	for _, r := range released {
		releasing.Go(func() { h.releasePolls(ctx, r) })
	}
	releasing.Wait()
	h.responder.pending.Wait(ctx)
	h.notices.Wait(ctx)
	h.cancel()
	h.wg.Wait(ctx)
	h.notices.Wait(ctx)  // what the other parts had noticed until then
	if h.worker != nil { // it goes last, so that activities still report that they ended
		h.wg.Go(h.worker.Stop)
	}
	if !h.wg.Wait(ctx) {
		h.log.Warn("The hub did not stop in time")
	}
}

// ID is the hub's id.
func (h *Hub) ID() string { return h.id }
