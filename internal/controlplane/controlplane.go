// Package controlplane runs the parts of a control plane in one process: gateway, hub, worker and spawner behind one
// HTTP server.
package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/connlimit"
	"mainstay.dev/mainstay/internal/guard"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/page"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/telemetry"
	"mainstay.dev/mainstay/internal/telemetry/tracing"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// tracerName is the name under which the control plane makes spans.
const tracerName = "mainstay.dev/mainstay"

const (
	// StartLimit bounds the start of a part.
	StartLimit = 30 * time.Second
	// stopLimit bounds the clean stop of hub and HTTP server.
	stopLimit = 10 * time.Second
	// answerLimit is how long requests under way may take once the process stops; held waits are then cut short.
	answerLimit = 2 * time.Second
)

// roles are the parts that a process plays.
type roles struct{ hub, gateway, worker, spawner bool }

// AllRoles are all roles but the spawner.
var AllRoles = roles{hub: true, gateway: true, worker: true}

// String is the value of --roles.
func (r roles) String() string {
	var names []string
	for _, role := range []struct {
		on   bool
		name string
	}{{r.hub, "hub"}, {r.gateway, "gateway"}, {r.worker, "worker"}, {r.spawner, "spawner"}} {
		if role.on {
			names = append(names, role.name)
		}
	}
	return strings.Join(names, ",")
}

func parseRoles(list []string) (roles, error) {
	var r roles
	for _, name := range list {
		switch strings.TrimSpace(name) {
		case "hub":
			r.hub = true
		case "gateway":
			r.gateway = true
		case "worker":
			r.worker = true
		case "spawner":
			r.spawner = true
		default:
			return r, app.UsageError("--roles must name some of hub, gateway, worker and spawner")
		}
	}
	if r == (roles{}) {
		return r, app.UsageError("--roles is empty: name some of hub, gateway, worker and spawner")
	}
	return r, nil
}

// Options are what a control plane process needs.
type Options struct {
	Version   string // of the program
	Temporal  client.Client
	Namespace string
	Logger    *zap.Logger
	Roles     roles
	HubID     string
	Key       []byte
	Hub       hub.Config
	Clusters  []api.ClusterConfig
	Mesh      config.Mesh
	Listener  net.Listener
	spawner   *SpawnerOptions // nil without the role
	Gate      *guard.Gate     // nil: security is off
	Audit     *guard.Audit
	tls       *tls.Config // nil: plain http
	Proxies   *httpapi.Proxies
	Metrics   access.Policy
	Hosts     []string // names under which browsers may reach it; nil: any
	Page      page.Options
	Tracing   *tracing.Tracing     // nil: off
	Registry  *prometheus.Registry // of the process's metrics; nil: one is made
}

// Plane is the running parts of one process behind one HTTP server.
type Plane struct {
	hub        *hub.Hub // nil without the role
	gateway    *gateway.Gateway
	spawner    *Spawner
	http       *http.Server
	audit      *guard.Audit
	stopWorker func()
	cutShort   context.CancelFunc
	served     chan error
	stopping   sync.Once
}

// Start starts the parts and serves. If it fails, it stops what it has started. It owns the listener.
func Start(ctx context.Context, o Options) (_ *Plane, err error) {
	// In a control group with a memory limit, garbage goes before the kernel ends the process.
	_, _ = memlimit.Set()
	requests, cutShort := context.WithCancel(context.WithoutCancel(ctx))
	p := &Plane{cutShort: cutShort, served: make(chan error, 1)}
	defer func() {
		if err != nil {
			p.Stop()
			_ = o.Listener.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	registry := o.Registry
	if registry == nil {
		registry = telemetry.NewRegistry(o.Version)
	}
	answers := func(ctx context.Context) error {
		_, err := o.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	}
	telemetry.WatchTemporal(registry, answers)
	var tracer trace.Tracer
	if o.Tracing.On() {
		tracer = o.Tracing.Provider().Tracer(tracerName)
	}
	api := httpapi.New(httpapi.Options{
		Logger:   o.Logger,
		Tracer:   tracer,
		Registry: registry,
		Version:  o.Version,
		Gate:     APIGate(o.Gate, o.Key),
		Proxies:  o.Proxies,
		Metrics:  o.Metrics,
		Health:   p.health(o.Roles), Ready: answers,
	})
	if o.Roles.worker {
		if p.stopWorker, err = worker.Start(o.Temporal, worker.Options{Namespace: o.Namespace,
			Registerer: registry, AssignmentTypes: o.Mesh.AssignmentTypes}); err != nil {
			return nil, err
		}
		if err := (store.Store{Client: o.Temporal, Namespace: o.Namespace}).MakeHealing(ctx); err != nil {
			return nil, err
		}
		go renewSchedules(requests, o)
	}
	clusters := gateway.New(gateway.Options{Store: store.Store{Client: o.Temporal, Namespace: o.Namespace},
		Logger: o.Logger, Key: o.Key, Registerer: registry})
	p.gateway = clusters
	if o.Roles.gateway {
		clusters.Register(api.API())
		if err := mountPage(api, o.Version, o.Page); err != nil {
			return nil, err
		}
		guard.RegisterSession(api.API(), o.Gate)
	}
	if err := clusters.EnsureClusters(ctx, o.Clusters); err != nil {
		return nil, err
	}
	p.http = api.HTTPServer()
	p.http.Handler = GuardBrowsers(p.http.Handler, o.Hosts)
	p.http.BaseContext = func(net.Listener) context.Context { return requests }
	if o.Roles.hub {
		if err := p.startHub(ctx, o, api, registry); err != nil {
			return nil, err
		}
	}
	if err := clusters.EnsureScaling(ctx); err != nil {
		o.Logger.Warn(
			"Whether clusters have scaling on is not known; the schedule of scaling is made when one is changed",
			zap.Error(err),
		)
	}
	LimitConnections(p.http, o)
	p.http.TLSConfig = o.tls
	p.audit = o.Audit
	listener := o.Listener
	if p.hub != nil {
		listener = hub.Watch(listener)
	}
	go func() { p.served <- p.serve(listener) }()
	if o.spawner != nil { // last: its agents dial in
		if p.spawner, err = StartSpawner(ctx, o.Temporal, o.Namespace, *o.spawner, o.Logger); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// renewEvery is how often the times of schedules are looked at.
const renewEvery = 24 * time.Hour

// renewSchedules keeps the times that Temporal knows of schedules until ctx ends.
func renewSchedules(ctx context.Context, o Options) {
	for {
		err := store.Store{Client: o.Temporal, Namespace: o.Namespace}.RenewSchedules(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			o.Logger.Warn("Temporal may not know all times of some schedules; tried again in a day", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewEvery):
		}
	}
}

// maxStrangers is how many connections one address may have on which nobody has proven yet who they are. An agent
// proves it with its first request, so that thousands may have one address.
const maxStrangers = 2048

// LimitConnections bounds a server's connections. While security is off, only this machine can reach it, and an address
// has no bound of its own.
func LimitConnections(s *http.Server, o Options) {
	strangers := maxStrangers
	if o.Gate == nil {
		strangers = 0
	}
	connlimit.New(strangers, o.Logger).Apply(s)
}

func (p *Plane) serve(listener net.Listener) error {
	if p.http.TLSConfig != nil {
		return p.http.ServeTLS(guard.LimitHandshakes(listener), "", "")
	}
	return p.http.Serve(listener)
}

func (p *Plane) startHub(ctx context.Context, o Options, api *httpapi.Server, registry *prometheus.Registry) error {
	h, err := hub.New(hub.Options{
		ID:         o.HubID,
		Store:      store.Store{Client: o.Temporal, Namespace: o.Namespace},
		Logger:     o.Logger,
		Registerer: registry,
		Key:        o.Key,
		Config:     o.Hub,
		Tracer:     o.Tracing.Provider().Tracer(tracerName),
	})
	if err != nil {
		return err
	}
	h.Register(api.API())
	p.http.ConnContext, p.http.ConnState = h.ConnContext, h.ConnState
	if err := h.Start(ctx); err != nil {
		return err
	}
	p.hub = h
	return nil
}

// Failed gives the reason when the HTTP server ends by itself.
func (p *Plane) Failed() <-chan error { return p.served }

// Stop stops serving: first agents get answers and the hub gives its tasks back, then requests end, then the worker. It
// may be called twice.
func (p *Plane) Stop() {
	p.stopping.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if p.spawner != nil {
			p.spawner.stop()
		}
		if p.gateway != nil {
			p.gateway.Stop()
		}
		if p.hub != nil {
			p.hub.Stop(ctx)
		}
		if p.http != nil {
			cut := time.AfterFunc(answerLimit, p.cutShort)
			if p.http.Shutdown(ctx) != nil {
				_ = p.http.Close()
			}
			cut.Stop()
		}
		p.cutShort()
		if p.stopWorker != nil {
			p.stopWorker()
		}
		_ = p.audit.Close()
	})
}

// Listen opens the address that a flag has set for a part of the program; its error says what to do.
func Listen(part, address, flag string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		return listener, nil
	}
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		err = operation.Err
	}
	remedy := "Stop the process that uses it, or choose another address with " + flag
	if errors.Is(err, fs.ErrPermission) {
		remedy = "Only root may use a port below 1024: choose a higher one with " + flag +
			", or give the program this right (CAP_NET_BIND_SERVICE)"
	}
	return nil, fmt.Errorf("%s cannot listen on %s: %w\n%s", part, address, err, remedy)
}

// Loopback reports whether only this machine can reach the listener.
func Loopback(l net.Listener) bool {
	address, ok := l.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// LocalURL is how a process on this machine reaches the listener.
func LocalURL(l net.Listener) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "http://" + l.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// LocalHosts are the names of this machine to itself.
var LocalHosts = []string{"localhost", "127.0.0.1", "::1"}

// mountPage serves the fleet page beside the API.
func mountPage(api *httpapi.Server, version string, o page.Options) error {
	o.Version = version
	p, err := page.New(o)
	if err != nil {
		return err
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		api.Handle(access.Open, method, page.Path, p)
		api.Handle(access.Open, method, page.Assets+"{version}/{file}", p)
	}
	return nil
}

// GuardBrowsers keeps web pages that a person happens to visit from using the API or the Web UI: agents of `dev` run
// commands.
// Programs, which send no Origin, are not affected. hosts, unless nil, are the only host names that are served, so
// that a page cannot get in by renaming its own host (DNS rebinding); and nothing that a proxy brings is, because
// security is off then, and others may be behind it.
func GuardBrowsers(next http.Handler, hosts []string) http.Handler {
	deny := func(detail string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"type":"about:blank","title":"Forbidden","status":403,"code":%q,"detail":%q}`,
				protocol.CodeCrossOrigin, detail)
		})
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(deny("requests of web pages from elsewhere are refused"))
	guarded := protection.Handler(next)
	if hosts == nil {
		return guarded
	}
	wrongHost := deny("this control plane serves only its own machine, under the names localhost and 127.0.0.1")
	proxied := deny(
		"security is off because only this machine can reach the control plane, but this came by a proxy, " +
			"behind which others may be: set " + adminTokenEnv,
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if protocol.Forwarded(r) {
			proxied.ServeHTTP(w, r)
			return
		}
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if slices.Contains(hosts, strings.ToLower(strings.Trim(host, "[]"))) {
			guarded.ServeHTTP(w, r)
			return
		}
		wrongHost.ServeHTTP(w, r)
	})
}

// health adds to /health the roles of the process and the state of its hub.
func (p *Plane) health(r roles) func(*api.Health) {
	names := strings.Split(r.String(), ",")
	return func(h *api.Health) {
		h.Roles = names
		if p.hub == nil {
			return
		}
		status := p.hub.Status()
		h.HubID, h.Agents = p.hub.ID(), &status.Agents
		h.ActiveLeases, h.LastHeartbeatSuccess = &status.Leases, &status.Fresh
		if !status.RenewedAt.IsZero() {
			renewed := status.RenewedAt.UTC()
			h.LastHeartbeat = &renewed
		}
	}
}
