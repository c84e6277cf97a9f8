package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.uber.org/zap/zapcore"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/guard"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/page"
	"mainstay.dev/mainstay/internal/telemetry"
	"mainstay.dev/mainstay/internal/telemetry/tracing"
	"mainstay.dev/sdk/api"
)

// serving is the command line of `serve`.
type serving struct {
	roles      []string
	http       string
	configFile string
	hubID      string
	spawner    string
	logLevel   string
	logFormat  string
	temporalUI string
	security   SecurityFlags
}

// ServeCommand is `serve`.
func ServeCommand(a *app.App) *cobra.Command {
	var s serving
	command := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane, or parts of it, against a Temporal",
		Long: `Run the control plane against any Temporal until SIGTERM or SIGINT.

Roles: hub talks to agents, gateway is the REST API for clients, worker runs the workflows, and spawner, which is off
unless named, starts and stops agents where clusters ask for it: as processes of this machine, or as containers. Each
may run several times, all in one process or each in its own. Every hub needs an id of its own and the same secret
key.

Temporal is found as by the temporal CLI (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS…), else by
the section temporal of the configuration.

Environment:
  OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_…  where traces go, as OpenTelemetry has it; unset: nowhere
  ` + TokenKeyEnv + `    the secret key of hubs and gateways, unless hub.token_key_file names a file;
                        other roles know API tokens by it
  ` + adminTokenEnv + `  the first admin token, unless --admin-token-file names a file
  ` + app.JoinTokenEnv + `   a join token for all clusters, unless --join-token-file names a file`,
		Example: `  export ` + TokenKeyEnv + `=$(openssl rand -hex 32) ` + adminTokenEnv + `=$(openssl rand -hex 32)
  TEMPORAL_ADDRESS=temporal:7233 mainstay serve --http 0.0.0.0:8080
  mainstay serve --roles worker --config mainstay.yaml`,
		Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return serve(c.Context(), a, s) },
	}
	command.PersistentPreRunE = a.OutliveReader
	flags := command.Flags()
	flags.StringSliceVar(&s.roles, "roles", []string{"hub", "gateway", "worker"}, "what this process does")
	flags.StringVar(&s.http, "http", "",
		"host:port for the REST API and agents (default: http.listen of the configuration, else 127.0.0.1:8080)")
	flags.StringVar(&s.configFile, "config", "", "configuration file")
	flags.StringVar(&s.hubID, "hub-id", "",
		"id of the hub; keep it over restarts (default: hub.id of the configuration, else the host's name)")
	flags.StringVar(&s.spawner, "spawner-name", "",
		"name of the spawner; keep it over restarts (default: spawner.name of the configuration, else the host's name)")
	flags.StringVar(&s.temporalUI, "temporal-ui", "",
		"address of the Temporal Web UI, for links of the fleet page (default: no links)")
	flags.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	s.security.addServing(flags)
	flags.StringVar(&s.logFormat, "log-format", "text", "text or json")
	app.Complete(command, "roles", "hub", "gateway", "worker", "spawner")
	app.Complete(command, "log-level", "debug", "info", "warn", "error")
	app.Complete(command, "log-format", "text", "json")
	return command
}

func serve(ctx context.Context, a *app.App, s serving) error {
	roles, err := parseRoles(s.roles)
	if err != nil {
		return err
	}
	level, err := zapcore.ParseLevel(s.logLevel)
	if err != nil || s.logFormat != "text" && s.logFormat != "json" {
		return app.UsageError("--log-level must be debug, info, warn or error, and --log-format text or json")
	}
	log := NewLogger(a.Stderr, level, s.logFormat == "json")
	settings, err := config.Load(s.configFile)
	if err != nil {
		return app.WithExit(app.ExitUsage, err)
	}
	o := Options{Version: a.Version, Roles: roles, Logger: log, Hub: HubConfig(settings),
		Clusters: settings.ClusterConfigs(), Mesh: settings.Mesh}
	if o.HubID, err = serveHubID(s.hubID, settings); err != nil {
		return err
	}
	if roles.hub || roles.gateway && !s.security.insecure || settings.Hub.TokenKeyFile != "" ||
		a.Getenv(TokenKeyEnv) != "" {
		if o.Key, err = LoadTokenKey(settings.Hub.TokenKeyFile, a.Getenv, log); err != nil {
			return err
		}
	}
	security := s.security.Over(settings.Security)
	settings.Security = security
	if err := settings.Validate(); err != nil {
		return app.WithExit(app.ExitUsage, err)
	}
	tokens, err := ReadFirstTokens(security, a.Getenv, log)
	if err != nil {
		return err
	}
	s.http = cmp.Or(s.http, settings.HTTP.Listen)
	if o.Listener, err = Listen("the REST API", s.http, "--http"); err != nil {
		return err
	}
	defer func() { _ = o.Listener.Close() }()
	if err := s.security.checkServing(security, roles, tokens, o.Listener); err != nil {
		return err
	}
	if roles.spawner {
		if o.spawner, err = serveSpawner(a, s.spawner, settings, roles, o.Listener); err != nil {
			return err
		}
		if !s.security.insecure {
			o.spawner.JoinToken = SpawnTokens(o.Key, tokens.Join)
		}
		if security.TLSCert != "" && len(settings.Spawner.HubURLs) == 0 {
			return app.UsageError(
				"set spawner.hub_urls in the configuration to the https URL that the certificate is for: the spawner's agents dial it",
			)
		}
	}
	options, err := clientOptions(settings.Temporal, envconfig.EnvLookupOS)
	if err != nil {
		return app.WithExit(app.ExitUsage, err)
	}
	options.Logger = ForSDK(log)
	o.Registry = telemetry.NewRegistry(a.Version)
	options.MetricsHandler = telemetry.NewSDKMetrics(o.Registry)
	if o.Tracing, err = tracing.New(ctx, a.Getenv, "mainstay", a.Version); err != nil {
		return app.WithExit(app.ExitUsage, err)
	}
	defer o.Tracing.Close()
	if options.Interceptors, err = telemetry.Interceptors(o.Tracing); err != nil {
		return err
	}
	if o.Temporal, err = Connect(ctx, options); err != nil {
		return err
	}
	defer o.Temporal.Close()
	o.Namespace = options.Namespace
	o.Page = page.Options{TemporalUI: s.temporalUI, Namespace: options.Namespace}
	if err := EnsureSearchAttributes(ctx, o.Temporal, o.Namespace, log); err != nil {
		return err
	}
	if s.security.insecure {
		if err := checkInsecure(ctx, o.Temporal, o.Namespace); err != nil {
			return err
		}
	}
	if o.Proxies, err = TrustedProxies(security); err != nil {
		return err
	}
	if err := o.secure(&s.security, security, tokens); err != nil {
		return err
	}
	return serveUntilDone(ctx, a, o, options.HostPort)
}

// secure puts security in, unless it was switched off.
func (o *Options) secure(f *SecurityFlags, s config.Security, tokens FirstTokens) (err error) {
	if f.insecure {
		o.Hosts = LocalHosts
		return nil
	}
	o.Metrics = MetricsPolicy(s.OpenMetrics)
	if o.Gate, o.Audit, err = NewGate(s, tokens, o.Key, o.Temporal, o.Logger); err != nil || s.TLSCert == "" {
		if err == nil && !Loopback(o.Listener) {
			o.Logger.Warn(
				"Serving plain http: tokens can be read on the way. Set security.tls_cert and tls_key, or put a proxy that speaks https before this address",
			)
		}
		return err
	}
	o.tls, err = guard.ServerTLS(guard.TLSFiles{
		Certificate: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA, RequireClient: s.RequireClientCert,
	}, o.Logger)
	return app.WithExit(app.ExitUsage, err)
}

func serveUntilDone(ctx context.Context, a *app.App, o Options, temporal string) error {
	plane, err := Start(ctx, o)
	if err != nil {
		return err
	}
	defer plane.Stop()
	log := o.Logger.Sugar()
	log.Infow("Serving", "address", o.Listener.Addr().String(), "roles", o.Roles.String(), "hub", o.HubID,
		"security", o.Gate != nil, "https", o.tls != nil, "temporal", temporal,
		"namespace", o.Namespace, "version", a.Version)
	select {
	case <-ctx.Done():
		log.Info("Stopping")
		return nil
	case err := <-plane.Failed():
		return Served(err)
	}
}

// Served explains that the HTTP server ended by itself.
func Served(err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return errors.New("the HTTP server ended")
	}
	return fmt.Errorf("the HTTP server ended: %w", err)
}

// HubConfig are the settings of a hub.
func HubConfig(c *config.Config) hub.Config {
	return hub.Config{Timing: c.Timing(), AcceptTimeout: c.Hub.AcceptTimeout.Std(), Park: c.Hub.Park.Std(),
		LanePollers: c.Hub.LanePollers, HealthInterval: c.Hub.HealthCheckInterval.Std()}
}

func serveHubID(flag string, c *config.Config) (string, error) {
	switch {
	case flag != "":
		return flag, app.WithExit(app.ExitUsage, api.ValidateID("--hub-id", flag))
	case c.Hub.ID != "":
		return c.Hub.ID, nil
	}
	return app.Slug(app.HostName(), api.MaxIDLength), nil
}
