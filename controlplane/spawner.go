package controlplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/spawner"
	"mainstay.dev/mainstay/spawner/docker"
)

// SpawnerOptions are what a process needs to start agents.
type SpawnerOptions struct {
	Name string
	// Dir holds the records and logs of processes.
	Dir       string
	HubURLs   []string
	JoinToken spawner.JoinToken // nil: agents need none
	Slots     int
	MaxAgents int // 0: nothing bounds them
	StopGrace time.Duration
	Command   func(fleet.SpawnSpec) []string
	// Docker has the engine, for containers; what is above is taken over. nil: agents are processes.
	Docker *docker.Options
}

// platform is a spawner that this process runs.
type platform interface {
	spawner.Spawner
	Close()
}

// Spawner is a spawner and its host.
type Spawner struct {
	platform platform
	host     *spawner.Host
}

// StartSpawner takes over the agents of an earlier spawner of that name.
func StartSpawner(
	ctx context.Context, c client.Client, namespace string, o SpawnerOptions, log *zap.Logger,
) (*Spawner, error) {
	logger := log.Named("spawner")
	platform, err := o.platform(logger)
	if err != nil {
		return nil, err
	}
	host, err := spawner.Start(ctx, spawner.HostOptions{Name: o.Name, Client: c, Namespace: namespace,
		Spawner: platform, MaxAgents: o.MaxAgents, Logger: logger})
	if err != nil {
		platform.Close()
		return nil, err
	}
	return &Spawner{platform: platform, host: host}, nil
}

func (o *SpawnerOptions) platform(logger *zap.Logger) (platform, error) {
	if o.Docker == nil {
		return spawner.NewProcess(spawner.ProcessOptions{
			Name:      o.Name,
			Dir:       o.Dir,
			HubURLs:   o.HubURLs,
			JoinToken: o.JoinToken,
			Slots:     o.Slots,
			StopGrace: o.StopGrace,
			Command:   o.Command,
			Logger:    logger,
		})
	}
	d := *o.Docker
	d.Name, d.HubURLs, d.JoinToken, d.Slots, d.StopGrace = o.Name, o.HubURLs, o.JoinToken, o.Slots, o.StopGrace
	d.Command, d.Logger = o.Command, logger
	return docker.New(d)
}

// stop takes no more requests. The agents live on, and the next spawner of that name takes them over.
func (s *Spawner) stop() {
	s.host.Stop()
	s.platform.Close()
}

// EndAgents takes no more requests and ends the agents within limit, gently at first or at once.
func (s *Spawner) EndAgents(limit time.Duration, graceful bool) {
	s.host.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = spawner.TerminateAll(ctx, s.platform, graceful) // what lives on gives up by itself
	s.platform.Close()
}

// spawnTokenLife is how long a started agent may take to register.
const spawnTokenLife = 10 * time.Minute

// SpawnTokens makes a join token for each spawned agent under the installation's key. Without the key all get the same
// one; without that too, none.
func SpawnTokens(key []byte, join string) spawner.JoinToken {
	switch {
	case len(key) > 0:
		return func(spec fleet.SpawnSpec) (string, error) {
			var random [access.RandomBytes]byte
			_, _ = rand.Read(random[:]) // never fails
			return access.MintSpawn(key, random, spec.Cluster, spec.ID, time.Now().Add(spawnTokenLife)), nil
		}
	case join != "":
		return func(fleet.SpawnSpec) (string, error) { return join, nil }
	}
	return nil
}

// serveSpawner puts together what `serve` needs for the role spawner.
func serveSpawner(nameFlag string, c *config.Config, r roles, listener net.Listener) (*SpawnerOptions, error) {
	s := &c.Spawner
	o := &SpawnerOptions{Name: nameFlag, Dir: s.Dir, HubURLs: s.HubURLs, Slots: s.Slots, MaxAgents: s.MaxAgents,
		StopGrace: s.StopGrace.Std()}
	if o.Name == "" {
		o.Name = s.Name
	}
	if o.Name == "" {
		o.Name = app.Slug(app.HostName(), fleet.MaxIDLength)
	}
	if err := fleet.ValidateID("--spawner-name", o.Name); err != nil {
		return nil, app.WithExit(app.ExitUsage, err)
	}
	containers := s.Platform == fleet.PlatformDocker
	switch {
	case len(o.HubURLs) > 0:
	case r.hub && (!containers || s.Docker.Network == "host"):
		o.HubURLs = []string{LocalURL(listener)}
	default:
		return nil, app.UsageError(
			"the role spawner must know the hubs that its agents dial: set spawner.hub_urls in the configuration")
	}
	agent := []string{""} // what the image runs
	if containers {
		if err := o.useDocker(&s.Docker); err != nil {
			return nil, err
		}
	} else {
		program, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's file, to start agents: %w", err)
		}
		agent = []string{program, "agent", "run"}
	}
	switch {
	case len(s.Command) > 0:
		o.Command = func(fleet.SpawnSpec) []string { return s.Command }
	case s.AllowExec:
		o.Command = SpawnedAgent(agent, o.HubURLs, o.Slots)
	case !containers:
		return nil, app.UsageError(
			"the spawner's agents could do nothing: set spawner.command in the configuration to start agents of your own, or spawner.allow_exec to let them run commands (whoever may submit tasks may then run anything as this user)",
		)
	}
	return o, nil
}

// useDocker has the agents run as containers. They trust the authority of hubs that this process was given.
func (o *SpawnerOptions) useDocker(c *config.Docker) error {
	o.Docker = &docker.Options{Engine: c.Engine, CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey, Image: c.Image,
		Network: c.Network}
	file := os.Getenv("MAINSTAY_CA")
	if file == "" {
		return nil
	}
	var err error
	if o.Docker.HubCA, err = os.ReadFile(file); err != nil {
		return app.WithExit(app.ExitUsage, fmt.Errorf("read the certificate authority of the hubs: %w", err))
	}
	return nil
}

// SpawnedAgent is the command line of an agent that runs commands; run is how it begins.
func SpawnedAgent(run, hubURLs []string, slots int, more ...string) func(fleet.SpawnSpec) []string {
	return func(spec fleet.SpawnSpec) []string {
		command := append(slices.Clone(run), "--hub", strings.Join(hubURLs, ","), "--cluster", spec.Cluster,
			"--id", spec.ID, "--slots", fmt.Sprint(cmp.Or(spec.Slots, slots)), "--allow-exec", "--health", "")
		for _, capability := range spec.Capabilities {
			command = append(command, "--capability", capability)
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Environment)) {
			command = append(command, "--exec-env", name)
		}
		return append(command, more...)
	}
}
