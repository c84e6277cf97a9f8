// Package plane runs a whole control plane in a test: one embedded Temporal and one worker per test binary, and as many
// hubs and gateways as a test wants.
package plane

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/devserver"
	"mainstay.dev/mainstay/internal/guard"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/telemetry"
	"mainstay.dev/mainstay/internal/telemetry/tracing"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/sdk/api"
)

// Key seals the tokens of all hubs in tests.
var Key = []byte("a key for tests, not for people!")

var (
	once     sync.Once
	server   *devserver.Server
	dialed   client.Client
	stopWork func()
	startErr error

	// traces is the tracing of all processes of the binary; spans has what it recorded.
	traces *tracing.Tracing
	spans  = tracetest.NewInMemoryExporter()

	// shared takes the metrics of what all tests of the binary share: the worker, and the client's.
	shared = prometheus.NewRegistry()
)

// Temporal returns the client of the test binary's embedded Temporal; a worker for all workflows runs beside it.
func Temporal(t testing.TB) client.Client {
	t.Helper()
	once.Do(func() { startErr = start() })
	require.NoError(t, startErr)
	return dialed
}

func start() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	interceptors, err := telemetry.Interceptors(traces)
	if err != nil {
		return err
	}
	if server, err = devserver.Start(ctx, devserver.Options{}); err != nil {
		return err
	}
	dialed,
		err = client.DialContext(ctx, client.Options{HostPort: server.Address(), Namespace: server.Namespace(),
		Logger:        quiet{},
		DataConverter: contract.Payloads, FailureConverter: contract.Failures,
		MetricsHandler: telemetry.NewSDKMetrics(shared), Interceptors: interceptors})
	if err != nil {
		return fmt.Errorf("dial the embedded Temporal: %w", err)
	}
	stopWork, err = worker.Start(dialed, worker.Options{Namespace: server.Namespace(), Registerer: shared})
	return err
}

// WorkerRegistry has the metrics of the worker and of the Temporal SDK. All tests of the binary share it.
func WorkerRegistry(t testing.TB) *prometheus.Registry {
	t.Helper()
	Temporal(t)
	return shared
}

// RecordTraces has the test binary record the traces that a client asks for with a sampled traceparent, and no others.
// Call it before Main.
func RecordTraces() {
	sampler := sdktrace.ParentBased(sdktrace.NeverSample())
	var err error
	if traces, err = tracing.NewTo(context.Background(), "test", "", sdktrace.WithSyncer(spans),
		sdktrace.WithSampler(sampler)); err != nil {
		panic(err) //nolint:forbidigo // before any test
	}
}

// Tracer makes spans that Spans returns.
func Tracer() trace.TracerProvider { return traces.Provider() }

// Spans are the recorded spans of a trace that have ended.
func Spans(traceID string) tracetest.SpanStubs {
	var found tracetest.SpanStubs
	for _, s := range spans.GetSpans() {
		if s.SpanContext.TraceID().String() == traceID {
			found = append(found, s)
		}
	}
	return found
}

// Main runs a test binary's tests and stops what they shared.
func Main(m *testing.M) {
	code := m.Run()
	if stopWork != nil {
		stopWork()
	}
	if dialed != nil {
		dialed.Close()
	}
	if server != nil {
		server.Stop()
	}
	os.Exit(code)
}

// Node is one process of the control plane: a hub and a gateway behind one HTTP server.
type Node struct {
	URL      string
	Hub      *hub.Hub
	Registry *prometheus.Registry
	http     *http.Server
	gateway  *gateway.Gateway
	stop     sync.Once
}

// NodeOptions changes a node. Zero fields take the test's defaults: a hub of its own id and quick timing.
type NodeOptions struct {
	HubID  string
	Listen string
	Config hub.Config
	// Gate asks who one is; nil: security is off.
	Gate *guard.Gate
	// Proxies are those whose word about a client's address counts.
	Proxies *httpapi.Proxies
	// TLS serves https.
	TLS *tls.Config
	// DialTemporal opens the node's connections to Temporal, so that a test can cut them.
	DialTemporal func(ctx context.Context, network, address string) (net.Conn, error)
}

// temporalFor is the client of a node: the shared one, or one of its own when the test dials.
func (o *NodeOptions) temporalFor(t testing.TB) client.Client {
	t.Helper()
	c := Temporal(t)
	if o.DialTemporal == nil {
		return c
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return o.DialTemporal(ctx, "tcp", address)
	}
	own, err := client.DialContext(t.Context(), client.Options{
		HostPort: "passthrough:///" + server.Address(), Namespace: server.Namespace(), Logger: quiet{},
		DataConverter: contract.Payloads, FailureConverter: contract.Failures,
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}},
	})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	return own
}

// QuickTiming has the proportions of three held polls and a margin.
func QuickTiming() cluster.Timing {
	return cluster.Timing{HeartbeatInterval: 1250 * time.Millisecond, CrowdInterval: 1250 * time.Millisecond,
		WarningThreshold: 2500 * time.Millisecond,
		FailureThreshold: 3750 * time.Millisecond, DisconnectGrace: 250 * time.Millisecond}
}

// NewNode starts a node that is stopped with the test.
func NewNode(t testing.TB, o NodeOptions) *Node {
	t.Helper()
	c := o.temporalFor(t)
	if o.HubID == "" {
		o.HubID = UniqueID("hub")
	}
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	if o.Config.Timing == (cluster.Timing{}) {
		o.Config.Timing = QuickTiming()
	}
	o.Config.StateSpacing = cmp.Or(o.Config.StateSpacing, 250*time.Millisecond)
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	n := &Node{Registry: prometheus.NewRegistry()}
	tracer := Tracer().Tracer("test")
	serving := httpapi.Options{Logger: log, Tracer: tracer, Registry: n.Registry, Version: "test", Proxies: o.Proxies,
		Health: n.health, Ready: func(ctx context.Context) error {
			_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
			return err
		}}
	if o.Gate != nil {
		serving.Gate = o.Gate
	}
	api := httpapi.New(serving)
	guard.RegisterSession(api.API(), o.Gate)
	var err error
	n.Hub, err = hub.New(hub.Options{Tracer: tracer, ID: o.HubID, Logger: log,
		Store:      store.Store{Client: c, Namespace: server.Namespace()},
		Registerer: n.Registry, Key: Key, Config: o.Config})
	require.NoError(t, err)
	n.Hub.Register(api.API())
	n.gateway = gateway.New(gateway.Options{Store: store.Store{Client: c, Namespace: server.Namespace()},
		Logger: log, Key: Key,
		Registerer: n.Registry, FleetEvery: 200 * time.Millisecond})
	n.gateway.Register(api.API())
	n.http = api.HTTPServer()
	n.http.ConnContext, n.http.ConnState = n.Hub.ConnContext, n.Hub.ConnState
	listener, err := net.Listen("tcp", o.Listen)
	require.NoError(t, err)
	n.URL = "http://" + listener.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, n.Hub.Start(ctx))
	serve := n.http.Serve
	if o.TLS != nil {
		n.URL, n.http.TLSConfig = "https://"+listener.Addr().String(), o.TLS
		serve = func(l net.Listener) error { return n.http.ServeTLS(l, "", "") }
	}
	go func() { _ = serve(hub.Watch(listener)) }()
	t.Cleanup(n.Stop)
	return n
}

func (n *Node) health(h *api.Health) {
	status := n.Hub.Status()
	h.Roles, h.LastHeartbeatSuccess = []string{"hub", "gateway"}, &status.Fresh
}

// Stop stops the node as SIGTERM does. It may be called twice.
func (n *Node) Stop() {
	n.stop.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		n.gateway.Stop()
		n.Hub.Stop(ctx)
		_ = n.http.Close()
	})
}

// EnsureCluster makes a cluster, whose id is the test's own unless config names it. It is terminated with the test:
// every node looks at all clusters, so those of hundreds of tests would keep the machine busy. Its work is held for
// agents that are away for a moment only, unless config says how long.
func (n *Node) EnsureCluster(t testing.TB, config api.ClusterConfig) string {
	t.Helper()
	if config.Name == "" {
		config.Name = UniqueID("c")
	}
	if config.TaskDefaults.DisconnectGrace == nil {
		config.TaskDefaults.DisconnectGrace = new(api.Duration(300 * time.Millisecond))
	}
	require.NoError(t, n.gateway.EnsureClusters(t.Context(), []api.ClusterConfig{config}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = Temporal(t).TerminateWorkflow(ctx, contract.ClusterWorkflowID(config.Name), "", "the test is over")
	})
	return config.Name
}

// quiet drops the SDK's own log.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

var ids atomic.Int64

// UniqueID returns an id that no other test of this machine uses.
func UniqueID(prefix string) string { return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), ids.Add(1)) }
