package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"mainstay.dev/mainstay/cli/app"
	rest "mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/devserver"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub"
	"mainstay.dev/mainstay/telemetry"
)

const (
	// orphanLife is how long agents look for a control plane that was killed.
	orphanLife = time.Minute
	// onlineLimit is how long agents may take to come online before the report is given without them.
	onlineLimit = 15 * time.Second
	// temporalLimit bounds the stop of the embedded Temporal: it waits long for workers of a run that was killed. What it
	// has acknowledged is on disk already.
	temporalLimit = 4 * time.Second
)

// devOptions are what one machine runs.
type devOptions struct {
	http         string // host:port
	ui           string // host:port; empty: no Web UI
	temporal     devserver.Options
	dataDir      string // empty: memory, and a temporary folder for the rest
	agents       int
	slots        int
	hubID        string // empty: made, and kept in the data directory
	tokenKeyFile string // empty: as hubID
	hub          hub.Config
	clusters     []fleet.ClusterConfig
	allowExec    bool // although others can reach the API, Temporal or its Web UI
	security     config.Security
	open         bool   // without security whatever the environment says: the demo, on this machine alone
	demoRoot     string // folder for the agents' demo handlers; empty: none
	healthFiles  string // folder of the agents' health files, by id; empty: none
	quietAgents  bool   // what happens to agents is only logged
}

// devRun is a running `dev`.
type devRun struct {
	dir       string // absolute
	temporary bool
	url       string
	hubID     string
	slots     int
	exec      bool
	tokens    firstTokens // of who may use it; empty: security is off
	exposed   []string    // what others than this machine can reach, as part and address
	ids       []string
	temporal  *devserver.Server
	ui        *webUI // nil: none
	client    client.Client
	registry  *prometheus.Registry
	tracing   *telemetry.Tracing
	plane     *controlPlane
	launcher  *agentLauncher
	agents    *supervisor
	spawner   *localSpawner // nil where agents could do nothing
	log       *logFile
	stopping  sync.Once
}

// startDev starts everything, or nothing: what it has started when it fails, it stops.
func startDev(ctx context.Context, a *app.App, o devOptions) (_ *devRun, err error) {
	listener, err := listen("the REST API", o.http, "--http")
	if err != nil {
		return nil, err
	}
	d := &devRun{url: localURL(listener), slots: o.slots, ids: agentIDs(o.agents)}
	defer func() {
		if err != nil {
			_ = listener.Close()
			d.stop()
		}
	}()
	if o.ui != "" {
		if d.ui, err = listenUI(o.ui); err != nil {
			return nil, err
		}
	}
	d.exposed = o.exposed(listener, d.ui)
	d.exec = o.demoRoot == "" && (o.allowExec || len(d.exposed) == 0)
	if !d.exec && o.agents > 0 && o.demoRoot == "" {
		return nil, app.UsageError("others than this machine can reach %s, and could run any command through the agents: "+
			"add --allow-exec if you want that, else --agents 0, or listen on 127.0.0.1", strings.Join(d.exposed, " and "))
	}
	if err := d.prepareDir(o.dataDir); err != nil {
		return nil, err
	}
	log := newLogger(d.log, zapcore.InfoLevel, false)
	if err := d.takeTokens(o, a.Getenv); err != nil {
		return nil, err
	}
	if d.tracing, err = telemetry.NewTracing(ctx, a.Getenv, "mainstay", a.Version); err != nil {
		return nil, app.WithExit(app.ExitUsage, err)
	}
	if err := d.startTemporal(ctx, a.Version, o, log); err != nil {
		return nil, err
	}
	plane, err := d.planeOptions(a, o, listener, log)
	if err != nil {
		return nil, err
	}
	if err := d.secure(o, &plane); err != nil {
		return nil, err
	}
	if d.plane, err = startControlPlane(ctx, plane); err != nil {
		return nil, err
	}
	if err := d.startUI(plane); err != nil {
		return nil, err
	}
	if err := d.startAgents(ctx, a, o); err != nil {
		return nil, err
	}
	return d, d.startSpawner(ctx, log)
}

// startSpawner lets clusters have more agents than `dev` starts by itself. They end with it.
func (d *devRun) startSpawner(ctx context.Context, log *zap.Logger) error {
	if !d.exec {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file, to start agents: %w", err)
	}
	d.spawner, err = startSpawner(ctx, d.client, d.temporal.Namespace(), spawnerOptions{
		name: d.hubID, dir: filepath.Join(d.dir, "spawner"), hubURLs: []string{d.url}, joinToken: d.tokens.join, slots: d.slots, stopGrace: killAfter,
		command: spawnedAgent(program, []string{d.url}, d.slots, "--give-up-after", orphanLife.String()),
	}, log)
	return err
}

// prepareDir makes the data directory and opens the log. Its lock is the embedded Temporal's.
func (d *devRun) prepareDir(dir string) error {
	var err error
	if dir == "" {
		d.temporary = true
		d.dir, err = os.MkdirTemp("", "mainstay-")
	} else {
		d.dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(d.dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if d.log, err = openLog(filepath.Join(d.dir, "logs", "control-plane.log")); err != nil {
		return fmt.Errorf("open the control plane's log: %w", err)
	}
	return nil
}

func (d *devRun) startTemporal(ctx context.Context, version string, o devOptions, log *zap.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	o.temporal.Logger = log.Named("temporal")
	if !d.temporary {
		o.temporal.DataDir = d.dir
	}
	var err error
	if d.temporal, err = devserver.Start(ctx, o.temporal); err != nil {
		return err
	}
	d.registry = telemetry.NewRegistry(version)
	interceptors, err := d.tracing.Interceptors()
	if err != nil {
		return err
	}
	d.client, err = client.DialContext(ctx, client.Options{HostPort: d.temporal.Address(), Namespace: d.temporal.Namespace(), Identity: planeIdentity(),
		Logger: forSDK(log), MetricsHandler: telemetry.NewSDKMetrics(d.registry), Interceptors: interceptors,
		ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}}}) // it is in this process
	if err != nil {
		return fmt.Errorf("connect to the embedded Temporal: %w", err)
	}
	return ensureSearchAttributes(ctx, d.client, d.temporal.Namespace(), log) // a data directory may be older than some
}

func (d *devRun) planeOptions(a *app.App, o devOptions, listener net.Listener, log *zap.Logger) (planeOptions, error) {
	p := planeOptions{
		version: a.Version, temporal: d.client, namespace: d.temporal.Namespace(), logger: log, roles: allRoles, hubID: o.hubID, hub: o.hub,
		clusters: o.clusters, listener: listener, page: devPage(d.ui.address(), d.temporal.Namespace()),
		registry: d.registry, tracing: d.tracing,
	}
	if loopback(listener) {
		p.hosts = localHosts
	}
	var err error
	if p.hubID == "" {
		// Random: two data directories on one host may be moved to one Temporal later.
		p.hubID, err = kept(d.dir, "hub-id", func() (string, error) {
			suffix, err := randomHex(3)
			return "dev-" + suffix, err
		})
		if err != nil {
			return p, fmt.Errorf("the hub's id: %w", err)
		}
	}
	d.hubID = p.hubID
	if o.tokenKeyFile != "" || a.Getenv(tokenKeyEnv) != "" {
		p.key, err = loadTokenKey(o.tokenKeyFile, a.Getenv)
		return p, err
	}
	key, err := kept(d.dir, "token-key", func() (string, error) { return randomHex(32) })
	if err != nil {
		return p, fmt.Errorf("the hub's key: %w", err)
	}
	p.key = []byte(key)
	return p, nil
}

func agentIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%d", i+1)
	}
	return ids
}

func (d *devRun) startAgents(ctx context.Context, a *app.App, o devOptions) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file, to start agents: %w", err)
	}
	d.launcher, err = newAgentLauncher(program, d.dir, func(id string) []string {
		args := []string{"agent", "run", "--hub", d.url, "--cluster", devCluster, "--id", id, "--slots", fmt.Sprint(o.slots), "--give-up-after", orphanLife.String()}
		if d.exec {
			args = append(args, "--allow-exec")
		}
		if o.demoRoot != "" {
			args = append(args, "--demo-handlers", o.demoRoot)
		}
		if o.healthFiles != "" {
			args = append(args, "--health-file", filepath.Join(o.healthFiles, id))
		}
		return args
	})
	if err != nil {
		return err
	}
	if d.tokens.join != "" {
		d.launcher.env = []string{app.JoinTokenEnv + "=" + d.tokens.join}
	}
	d.launcher.endLeftovers(d.ids)
	say := func(format string, args ...any) {
		fmt.Fprintf(a.Stderr, "%s  %s\n", a.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
	}
	if o.demoRoot != "" || o.quietAgents { // the demo tells what happens to its agents itself
		say = func(format string, args ...any) { fmt.Fprintf(d.log, format+"\n", args...) }
	}
	d.agents, err = startSupervisor(ctx, d.launcher, d.ids, time.After, say)
	return err
}

// connect makes a client of the run's API. It repeats nothing: what it asks comes again anyway.
func (d *devRun) connect(token string) (*rest.Client, error) {
	return rest.New(rest.Options{URL: d.url, Token: token, Retries: -1})
}

// awaitAgents returns when every agent that runs is online with its present process; false when that takes too long.
func (d *devRun) awaitAgents(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, onlineLimit)
	defer cancel()
	c, err := d.connect(d.tokens.admin)
	if err != nil {
		return false
	}
	for {
		agents, err := c.Agents(rest.AgentQuery{Cluster: devCluster, Status: fleet.AgentOnline}).Take(ctx, 0)
		if waiting := d.agents.pids(); err == nil {
			for i := range agents {
				if waiting[agents[i].ID] == agents[i].PID {
					delete(waiting, agents[i].ID)
				}
			}
			if len(waiting) == 0 {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop stops all in order: agents, which say goodbye, then HTTP, hub and worker, then Temporal. It may be called twice.
func (d *devRun) stop() {
	d.stopping.Do(func() {
		d.stopAgents()
		d.ui.stop()
		if d.plane != nil {
			d.plane.stop()
		}
		if d.client != nil {
			d.client.Close()
		}
		d.tracing.Close()
		if d.temporal != nil {
			within(temporalLimit, d.temporal.Stop)
		}
		if d.log != nil {
			d.log.close()
		}
		d.removeTemporary()
	})
}

// stopAgents ends those that `dev` keeps and those that clusters asked for, side by side. Nobody starts others meanwhile.
func (d *devRun) stopAgents() {
	var wg sync.WaitGroup
	if d.spawner != nil {
		wg.Go(d.spawner.endAgents)
	}
	if d.agents != nil {
		d.agents.stop()
		d.launcher.forget()
	}
	wg.Wait()
}

// within runs do and returns when it has returned or the time is over.
func within(limit time.Duration, do func()) {
	done := make(chan struct{})
	go func() { do(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// kill ends the agents at once, for a process that is about to end without a clean stop.
func (d *devRun) kill() {
	if d.agents != nil {
		d.agents.kill()
	}
	if d.spawner != nil {
		d.spawner.process.KillAll()
	}
	d.removeTemporary()
}

func (d *devRun) removeTemporary() {
	if d.temporary && d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}
