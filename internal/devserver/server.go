// Package devserver runs a Temporal server and its Web UI inside the process, on a SQLite file or in memory. It is the
// only package that imports the server; everything else only sees a Temporal address.
package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	uiapi "github.com/temporalio/ui-server/v2/server/api"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
)

// Options say what to start and where.
type Options struct {
	// Host is where Temporal listens. Default 127.0.0.1.
	Host string
	// Port is the frontend's gRPC port; 0 takes a free one.
	Port int
	// DataDir holds the database; empty: all is in memory and gone at the end.
	DataDir string
	// AcceptOldData starts although open workflows in DataDir may be of a version that this program cannot replay.
	AcceptOldData bool
	// Durability says what the database survives. Default: ProcessCrash.
	Durability Durability
	// StockDatabase leaves the SQLite database as Temporal makes and uses it. It is slower; benchmarks compare with it.
	StockDatabase bool
	// Store is where all is kept instead of DataDir; nil: SQLite. Its schemas are there already.
	Store *Store
	// Namespace is made if it is not there. Default "default".
	Namespace string
	// Key, unless empty, is what clients must show, in each request's header authorization as "Bearer <key>".
	// Temporal's other ports then refuse everybody but Temporal itself.
	Key string
	// Retention is how long closed workflows are kept. Default 7 days. It is fixed when the namespace is made.
	Retention time.Duration
	// Logger takes Temporal's warnings and errors; nil drops them.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	o.Host = cmp.Or(o.Host, "127.0.0.1")
	o.Durability = cmp.Or(o.Durability, ProcessCrash)
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.Retention = cmp.Or(o.Retention, 7*24*time.Hour)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	return o
}

// Server is a running Temporal.
type Server struct {
	address   string
	namespace string
	key       string
	frontend  string       // where Temporal's own frontend is
	internal  *internalTLS // with a key
	front     *http.Server // with a key
	temporal  temporal.Server
	lock      *dirLock
	stop      sync.Once
}

// Address is the frontend's host:port.
func (s *Server) Address() string { return s.address }

// Namespace is the namespace that was asked for.
func (s *Server) Namespace() string { return s.namespace }

// ClientOptions are what a client of the SDK needs to use the server.
func (s *Server) ClientOptions() client.Options {
	o := client.Options{HostPort: s.frontend, Namespace: s.namespace}
	if s.key != "" {
		o.Credentials = client.NewAPIKeyStaticCredentials(s.key)
		o.ConnectionOptions.TLS = s.internal.client
	}
	return o
}

// Start checks ports and data directory, starts Temporal, and returns when the frontend answers.
func Start(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	if err := o.Durability.Validate(); err != nil {
		return nil, err
	}
	ports, err := choosePorts(&o)
	if err != nil {
		return nil, err
	}
	s := &Server{address: net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), namespace: o.Namespace,
		key: o.Key}
	s.frontend = s.address
	if o.Key != "" {
		s.frontend = net.JoinHostPort(internalHost, strconv.Itoa(ports.frontend))
		if s.internal, err = newInternalTLS(); err != nil {
			return nil, err
		}
	}
	if o.DataDir != "" {
		if s.lock, err = openDataDir(o.DataDir, o.AcceptOldData); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx, o, ports); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options, ports servicePorts) error {
	store, err := openStore(o)
	if err != nil {
		return err
	}
	s.temporal, err = newTemporal(serverConfig(o, ports, store), o, s.internal)
	if err != nil {
		return err
	}
	if err := s.temporal.Start(); err != nil {
		return fmt.Errorf("start Temporal: %w", err)
	}
	if err := s.answers(ctx); err != nil || o.Key == "" {
		return err
	}
	l, err := listen(o.Host, o.Port)
	if err != nil {
		return &PortInUseError{Address: s.address, Err: err}
	}
	s.front = front(l, s.frontend, o.Key, s.internal.client)
	return nil
}

func newTemporal(conf *config.Config, o Options, internal *internalTLS) (temporal.Server, error) {
	keepInside()
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, service := range conf.Services {
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(
			net.JoinHostPort(service.RPC.BindOnIP, strconv.Itoa(service.RPC.GRPCPort)))
	}
	server, err := temporal.NewServer(append(withKey(o.Key, internal),
		temporal.WithConfig(conf),
		temporal.ForServices(services(o.Key)),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(log.NewZapLogger(o.Logger.WithOptions(zap.IncreaseLevel(zap.WarnLevel)))),
		temporal.WithDynamicConfigClient(tuning()),
	)...)
	if err != nil {
		return nil, fmt.Errorf("make the Temporal server: %w", err)
	}
	return server, nil
}

// answers waits until the frontend serves the namespace.
func (s *Server) answers(ctx context.Context) error {
	for {
		options := s.ClientOptions()
		options.Logger = silent{}
		c, err := client.DialContext(ctx, options)
		if err == nil {
			_, err = c.WorkflowService().DescribeNamespace(ctx,
				&workflowservice.DescribeNamespaceRequest{Namespace: s.namespace})
			c.Close()
			if err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the embedded Temporal on %s did not answer in time: %w", s.address,
				errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop stops all and gives the data directory free. It may be called twice.
func (s *Server) Stop() {
	s.stop.Do(func() {
		if s.front != nil {
			_ = s.front.Close()
		}
		if s.temporal != nil {
			_ = s.temporal.Stop()
		}
		if s.lock != nil {
			s.lock.release()
		}
	})
}

// silent drops the SDK's log while the server comes up.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

// UI makes the Web UI. It asks nobody who they are and serves any Host, so the caller must put a guard before it. This
// is what the UI's own server does but for its listener, which would let everybody in.
func (s *Server) UI() (http.Handler, error) {
	settings, err := uiconfig.NewConfigProviderWithRefresh(&uiconfig.Config{
		TemporalGRPCAddress: s.address,
		EnableUI:            true,
		DefaultNamespace:    s.namespace,
		CORS:                uiconfig.CORS{CookieInsecure: true},
		DisableNewsFetch:    true,
	})
	if err != nil {
		return nil, fmt.Errorf("configure the Web UI: %w", err)
	}
	files, err := ui.Assets()
	if err != nil {
		return nil, fmt.Errorf("read the Web UI's files: %w", err)
	}
	if files, err = fs.Sub(files, "local"); err != nil {
		return nil, fmt.Errorf("read the Web UI's files: %w", err)
	}
	e := echo.New()
	e.Use(middleware.Recover(), middleware.Gzip(), middleware.Secure())
	e.Use(csrf.EnsureTokenCookie(false), middleware.CSRFWithConfig(csrf.MiddlewareConfig(settings, false)))
	forwarded := []uiapi.Middleware{headers.WithForwardHeaders([]string{"Caller-Type"})}
	if err := route.SetAPIRoutes(e, settings, forwarded); err != nil {
		return nil, fmt.Errorf("make the Web UI's API: %w", err)
	}
	if err := route.SetUIRoutes(e, "", files, settings); err != nil {
		return nil, fmt.Errorf("make the Web UI's pages: %w", err)
	}
	route.SetRenderRoute(e, "/")
	if s.key == "" {
		return e, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := metadata.AppendToOutgoingContext(r.Context(), "authorization", "Bearer "+s.key)
		r = r.Clone(ctx) // a few of the UI's requests to Temporal take their headers from the context
		r.Header.Set("Authorization", "Bearer "+s.key)
		e.ServeHTTP(w, r)
	}), nil
}
