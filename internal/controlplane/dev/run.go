package dev

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/controlplane"
	"mainstay.dev/mainstay/internal/devserver"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/page"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/internal/spawner/docker"
	"mainstay.dev/mainstay/internal/telemetry"
	"mainstay.dev/mainstay/internal/telemetry/tracing"
	"mainstay.dev/sdk/api"
	rest "mainstay.dev/sdk/client"
)

const (
	// orphanLife is how long agents look for a control plane that was killed.
	orphanLife = time.Minute
	// onlineLimit is how long agents may take to come online before the report is given without them.
	onlineLimit = 15 * time.Second
	// TemporalLimit bounds the stop of the embedded Temporal, because it waits long for the workers of a killed run.
	// Writes that it has acknowledged are on disk already.
	TemporalLimit = 4 * time.Second
)

// Options are what one machine runs.
type Options struct {
	HTTP         string // host:port
	UI           string // host:port; empty: no Web UI
	Temporal     devserver.Options
	dataDir      string // empty: memory, and a temporary folder for the rest
	Agents       int
	Slots        int
	hubID        string // empty: made, and kept in the data directory
	tokenKeyFile string // empty: as hubID
	Hub          hub.Config
	Clusters     []api.ClusterConfig
	Mesh         config.Mesh
	allowExec    bool     // although security is on
	execEnv      []string // variables that commands see
	AgentArgs    []string // more of the agents' command lines
	security     config.Security
	Open         bool   // without security whatever the environment says: the demo, on this machine alone
	DemoRoot     string // folder for the agents' demo handlers; empty: none
	HealthFiles  string // folder of the agents' health files, by id; empty: none
	QuietAgents  bool   // what happens to agents is only logged
	Image        string // of the agents, which are containers; empty: they are processes
}

// Aside is a `dev` beside any other on this machine: on free ports, with nothing on disk but logs.
func Aside(agents, slots int) Options {
	return Options{
		HTTP: "127.0.0.1:0", UI: "127.0.0.1:0", Temporal: devserver.Options{Host: "127.0.0.1"},
		Agents: agents, Slots: slots,
		Hub: controlplane.HubConfig(config.Default()), Clusters: []api.ClusterConfig{{Name: Cluster}},
	}
}

// Run is a running `dev`.
type Run struct {
	dir       string // absolute
	temporary bool
	openDir   bool // other users of the machine can look into dir, or change it
	URL       string
	hubID     string
	slots     int
	// containers is how many agents are containers, and image what they run; the others are processes.
	containers int
	image      string
	exec       bool
	tokens     controlplane.FirstTokens // of who may use it; empty: security is off
	exposed    []string                 // what others than this machine can reach, as part and address
	IDs        []string
	Temporal   *devserver.Server
	ui         *webUI // nil: none
	Client     client.Client
	registry   *prometheus.Registry
	tracing    *tracing.Tracing
	plane      *controlplane.Plane
	launcher   *agentLauncher
	agents     *supervisor
	spawner    *controlplane.Spawner // nil where agents could do nothing
	log        *controlplane.LogFile
	stopping   sync.Once
}

// Start starts everything, or nothing: if it fails, it stops what it has started.
func Start(ctx context.Context, a *app.App, o Options) (_ *Run, err error) {
	listener, err := controlplane.Listen("the REST API", o.HTTP, "--http")
	if err != nil {
		return nil, err
	}
	d := &Run{URL: controlplane.LocalURL(listener), slots: o.Slots, image: o.Image}
	if o.Image == "" {
		d.IDs = agentIDs(o.Agents)
	}
	defer func() {
		if err != nil {
			_ = listener.Close()
			d.Stop()
		}
	}()
	if o.UI != "" {
		if d.ui, err = listenUI(o.UI); err != nil {
			return nil, err
		}
	}
	d.exposed = o.exposed(listener, d.ui)
	if err := d.decideExec(o, a.Getenv); err != nil {
		return nil, err
	}
	if d.image != "" && d.exec {
		d.containers = o.Agents
		if err := d.fetchImage(ctx, a); err != nil {
			return nil, err
		}
	}
	if err := d.prepareDir(o.dataDir); err != nil {
		return nil, err
	}
	if d.openDir {
		fmt.Fprintf(
			a.Stderr,
			"Warning: the data directory is open to other users of this machine: chmod 700 %s\n",
			d.dir,
		)
	}
	log := controlplane.NewLogger(d.log, zapcore.InfoLevel, false)
	if err := d.takeTokens(o, a.Getenv, log); err != nil {
		return nil, err
	}
	if d.tracing, err = tracing.New(ctx, a.Getenv, "mainstay", a.Version); err != nil {
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
	if d.plane, err = controlplane.Start(ctx, plane); err != nil {
		return nil, err
	}
	if err := d.startUI(plane); err != nil {
		return nil, err
	}
	if err := d.startAgents(ctx, a, o); err != nil {
		return nil, err
	}
	if err := d.startSpawner(ctx, a, plane.Key, log); err != nil {
		return nil, err
	}
	return d, d.wantContainers(ctx)
}

// fetchImage has the engine get the image of the agents. It shows that there is an engine.
func (d *Run) fetchImage(ctx context.Context, a *app.App) error {
	engine, err := docker.New(docker.Options{Options: spawner.Options{Name: Cluster}})
	if err == nil {
		defer engine.Close()
		fmt.Fprintf(a.Stderr, "Getting the image %s ready.\n", d.image)
		err = engine.Fetch(ctx, d.image)
	}
	if err != nil {
		return fmt.Errorf("--platform docker: %w", err)
	}
	return nil
}

// wantContainers makes the cluster of `dev` keep its agents as containers.
func (d *Run) wantContainers(ctx context.Context) error {
	if d.image == "" || d.spawner == nil {
		return nil
	}
	c, err := d.Connect(d.tokens.Admin)
	if err != nil {
		return err
	}
	spawn := map[string]any{"spawner": d.hubID, "platform": api.PlatformDocker}
	_, err = c.Clusters.Update(ctx, Cluster, rest.Settings{"desired_agents": d.containers,
		"scaling": map[string]any{"mode": api.ScalingManual, "spawn": spawn}}, "")
	return err
}

// startSpawner lets clusters have more agents than `dev` starts by itself. They end with it.
func (d *Run) startSpawner(ctx context.Context, a *app.App, key []byte, log *zap.Logger) error {
	if !d.exec {
		return nil
	}
	program, err := a.Program("mainstay")
	if err != nil {
		return err
	}
	run, platform := []string{program, "agent", "run"}, controlplane.Processes(filepath.Join(d.dir, "spawner"))
	if d.image != "" {
		run[0] = docker.ProgramPath
		platform = controlplane.Containers(docker.Options{Program: program, Network: "host"})
	}
	if d.tokens.Join == "" {
		key = nil
	}
	d.spawner, err = controlplane.StartSpawner(ctx, d.Client, d.Temporal.Namespace(), controlplane.SpawnerOptions{
		New: platform,
		Options: spawner.Options{
			Name:      d.hubID,
			HubURLs:   []string{d.URL},
			Image:     d.image,
			JoinToken: controlplane.SpawnTokens(key, d.tokens.Join),
			Slots:     d.slots,
			StopGrace: killAfter,
			Command: controlplane.SpawnedAgent(run, []string{d.URL}, d.slots, "--give-up-after",
				orphanLife.String()),
		},
	}, log)
	return err
}

// prepareDir makes the data directory and opens the log. Its lock is the embedded Temporal's.
func (d *Run) prepareDir(dir string) error {
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
	info, err := os.Stat(d.dir)
	if err != nil {
		return fmt.Errorf("look at the data directory: %w", err)
	}
	if controlplane.Foreign(info) || info.Mode().Perm()&0o002 != 0 {
		return app.UsageError("the data directory %s belongs to another user, or all may write to it: they could put tokens "+
			"and keys of theirs there. Choose another with --data-dir, or chown it and chmod 700 it", d.dir)
	}
	d.openDir = info.Mode().Perm()&0o077 != 0
	if d.log, err = controlplane.OpenLog(filepath.Join(d.dir, "logs", "control-plane.log")); err != nil {
		return fmt.Errorf("open the control plane's log: %w", err)
	}
	return nil
}

func (d *Run) startTemporal(ctx context.Context, version string, o Options, log *zap.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, controlplane.StartLimit)
	defer cancel()
	o.Temporal.Logger = log.Named("temporal")
	if !d.temporary {
		o.Temporal.DataDir = d.dir
	}
	var err error
	if d.tokens.Admin != "" {
		if o.Temporal.Key, err = kept(d.dir, temporalKeyName, func() (string, error) {
			return randomHex(32)
		}); err != nil {
			return fmt.Errorf("the key of Temporal: %w", err)
		}
	}
	if d.Temporal, err = devserver.Start(ctx, o.Temporal); err != nil {
		return err
	}
	d.registry = telemetry.NewRegistry(version)
	interceptors, err := telemetry.Interceptors(d.tracing)
	if err != nil {
		return err
	}
	options := d.Temporal.ClientOptions()
	options.Identity = controlplane.Identity()
	options.DataConverter, options.FailureConverter = contract.Payloads, contract.Failures
	options.Logger = controlplane.ForSDK(log)
	options.MetricsHandler = telemetry.NewSDKMetrics(d.registry)
	options.Interceptors = interceptors
	options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{} // it is in this process
	d.Client, err = client.DialContext(ctx, options)
	if err != nil {
		return fmt.Errorf("connect to the embedded Temporal: %w", err)
	}
	// a data directory may be older than some
	return controlplane.EnsureSearchAttributes(ctx, d.Client, d.Temporal.Namespace(), log)
}

func (d *Run) planeOptions(
	a *app.App,
	o Options,
	listener net.Listener,
	log *zap.Logger,
) (controlplane.Options, error) {
	p := controlplane.Options{
		Version:   a.Version,
		Temporal:  d.Client,
		Namespace: d.Temporal.Namespace(),
		Logger:    log,
		Roles:     controlplane.AllRoles,
		HubID:     o.hubID,
		Hub:       o.Hub,
		Clusters:  o.Clusters,
		Mesh:      o.Mesh,
		Listener:  listener,
		Page:      page.Options{TemporalUI: d.ui.address(), Namespace: d.Temporal.Namespace()},
		Registry:  d.registry,
		Tracing:   d.tracing,
	}
	if controlplane.Loopback(listener) {
		p.Hosts = controlplane.LocalHosts
	}
	var err error
	if p.HubID == "" {
		// Random: two data directories on one host may be moved to one Temporal later.
		p.HubID, err = kept(d.dir, "hub-id", func() (string, error) {
			suffix, err := randomHex(3)
			return "dev-" + suffix, err
		})
		if err != nil {
			return p, fmt.Errorf("the hub's id: %w", err)
		}
	}
	d.hubID = p.HubID
	if o.tokenKeyFile != "" || a.Getenv(controlplane.TokenKeyEnv) != "" {
		p.Key, err = controlplane.LoadTokenKey(o.tokenKeyFile, a.Getenv, log)
		return p, err
	}
	key, err := kept(d.dir, "token-key", func() (string, error) { return randomHex(32) })
	if err != nil {
		return p, fmt.Errorf("the hub's key: %w", err)
	}
	p.Key = []byte(key)
	return p, nil
}

func agentIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%d", i+1)
	}
	return ids
}

func (d *Run) startAgents(ctx context.Context, a *app.App, o Options) error {
	program, err := a.Program("mainstay")
	if err != nil {
		return err
	}
	d.launcher, err = newAgentLauncher(program, d.dir, func(id string) []string {
		args := []string{"agent", "run", "--hub", d.URL, "--cluster", Cluster, "--id", id, "--slots",
			fmt.Sprint(o.Slots), "--give-up-after", orphanLife.String(), "--health", ""}
		if d.exec {
			args = append(args, "--allow-exec")
		}
		for _, name := range o.execEnv {
			args = append(args, "--exec-env", name)
		}
		if o.DemoRoot != "" {
			args = append(args, "--demo-handlers", o.DemoRoot)
		}
		args = append(args, o.AgentArgs...)
		if o.HealthFiles != "" {
			args = append(args, "--health-file", filepath.Join(o.HealthFiles, id))
		}
		return args
	})
	if err != nil {
		return err
	}
	if d.tokens.Join != "" {
		d.launcher.env = []string{app.JoinTokenEnv + "=" + d.tokens.Join}
	}
	d.launcher.endLeftovers(d.IDs)
	say := func(format string, args ...any) {
		fmt.Fprintf(a.Stderr, "%s  %s\n", app.Clock(a.Now()), fmt.Sprintf(format, args...))
	}
	if o.DemoRoot != "" || o.QuietAgents { // the demo itself reports what happens to its agents
		say = func(format string, args ...any) { fmt.Fprintf(d.log, format+"\n", args...) }
	}
	d.agents, err = startSupervisor(ctx, d.launcher, d.IDs, time.After, say)
	return err
}

// Connect makes a client of the run's API.
func (d *Run) Connect(token string) (*rest.Client, error) {
	return rest.New(rest.Options{URL: d.URL, Token: token})
}

// AwaitAgents returns when every agent that runs is online with its present process; false when that takes too long.
func (d *Run) AwaitAgents(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, onlineLimit)
	defer cancel()
	c, err := d.Connect(d.tokens.Admin)
	if err != nil {
		return false
	}
	for {
		agents, err := c.Agents.List(rest.AgentQuery{Cluster: Cluster, Status: api.AgentOnline}).Take(ctx, 0)
		if waiting := d.agents.pids(); err == nil {
			for i := range agents {
				if waiting[agents[i].ID] == agents[i].PID {
					delete(waiting, agents[i].ID)
				}
			}
			if len(waiting) == 0 && len(agents) >= d.containers {
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

// Stop stops all in order: agents, which say goodbye, then HTTP, hub and worker, then Temporal. It may be called twice.
func (d *Run) Stop() {
	d.stopping.Do(func() {
		d.stopAgents()
		d.ui.stop()
		if d.plane != nil {
			d.plane.Stop()
		}
		if d.Client != nil {
			d.Client.Close()
		}
		d.tracing.Close()
		if d.Temporal != nil {
			Within(TemporalLimit, d.Temporal.Stop)
		}
		if d.log != nil {
			d.log.Close()
		}
		d.removeTemporary()
	})
}

// stopAgents ends the agents of `dev` and those that clusters asked for, side by side. No others start meanwhile.
func (d *Run) stopAgents() {
	var wg sync.WaitGroup
	if d.spawner != nil {
		wg.Go(func() { d.spawner.EndAgents(2*killAfter, true) })
	}
	if d.agents != nil {
		d.agents.stop()
		d.launcher.forget()
	}
	wg.Wait()
}

// Within runs do and returns when it has returned or the time is over.
func Within(limit time.Duration, do func()) {
	done := make(chan struct{})
	go func() { do(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// Kill ends the agents at once, for a process that is about to end without a clean stop.
func (d *Run) Kill() {
	if d.agents != nil {
		d.agents.kill()
	}
	if d.spawner != nil {
		d.spawner.EndAgents(time.Second, false)
	}
	d.removeTemporary()
}

func (d *Run) removeTemporary() {
	if d.temporary && d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}

// cpuProfile writes a CPU profile of this process to a file until stop is called. No path: nothing.
func cpuProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("open the file of the CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("start the CPU profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
