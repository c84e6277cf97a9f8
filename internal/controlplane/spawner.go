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

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/internal/spawner/coolify"
	"mainstay.dev/mainstay/internal/spawner/docker"
	"mainstay.dev/mainstay/internal/spawner/ec2"
	"mainstay.dev/mainstay/internal/spawner/kubernetes"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
)

// SpawnerOptions are what a process needs to start agents.
type SpawnerOptions struct {
	spawner.Options
	MaxAgents int // 0: nothing bounds them
	// New makes the spawner of a platform.
	New func(spawner.Options) (Platform, error)
}

// Platform is a spawner that this process runs.
type Platform interface {
	spawner.Spawner
	Close()
}

// Spawner is a spawner and its host.
type Spawner struct {
	platform Platform
	host     *spawner.Host
}

// StartSpawner takes over the agents of an earlier spawner of that name.
func StartSpawner(
	ctx context.Context, c client.Client, namespace string, o SpawnerOptions, log *zap.Logger,
) (*Spawner, error) {
	o.Logger = log.Named("spawner")
	platform, err := o.New(o.Options)
	if err != nil {
		return nil, err
	}
	host, err := spawner.Start(ctx, spawner.HostOptions{Name: o.Name, Client: c, Namespace: namespace,
		Spawner: platform, MaxAgents: o.MaxAgents, Logger: o.Logger})
	if err != nil {
		platform.Close()
		return nil, err
	}
	return &Spawner{platform: platform, host: host}, nil
}

// Processes are spawners of processes that have their records and logs in a folder.
func Processes(dir string) func(spawner.Options) (Platform, error) {
	return func(o spawner.Options) (Platform, error) {
		return spawner.NewProcess(spawner.ProcessOptions{Options: o, Dir: dir})
	}
}

// Containers are spawners of containers of an engine.
func Containers(engine docker.Options) func(spawner.Options) (Platform, error) {
	return func(o spawner.Options) (Platform, error) {
		engine.Options = o
		return docker.New(engine)
	}
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
	_ = spawner.TerminateAll(ctx, s.platform, graceful) // agents that live on give up by themselves
	s.platform.Close()
}

// spawnTokenLife is how long a started agent may take to register.
const spawnTokenLife = 10 * time.Minute

// SpawnTokens makes a join token for each spawned agent under the installation's key. Without the key all get the same
// one; without that too, none.
func SpawnTokens(key []byte, join string) spawner.JoinToken {
	switch {
	case len(key) > 0:
		return func(spec cluster.SpawnSpec) (string, error) {
			var random [access.RandomBytes]byte
			_, _ = rand.Read(random[:]) // never fails
			return access.MintSpawn(key, random, spec.Cluster, spec.ID, time.Now().Add(spawnTokenLife)), nil
		}
	case join != "":
		return func(cluster.SpawnSpec) (string, error) { return join, nil }
	}
	return nil
}

// serveSpawner puts together what `serve` needs for the role spawner.
func serveSpawner(a *app.App, nameFlag string, c *config.Config, r roles, listener net.Listener) (
	*SpawnerOptions, error,
) {
	s := &c.Spawner
	o := &SpawnerOptions{MaxAgents: s.MaxAgents, Options: spawner.Options{Name: nameFlag, HubURLs: s.HubURLs,
		Slots: s.Slots, StopGrace: s.StopGrace.Std()}}
	o.Name = cmp.Or(o.Name, s.Name)
	if o.Name == "" {
		o.Name = app.Slug(app.HostName(), api.MaxIDLength)
	}
	if err := api.ValidateID("--spawner-name", o.Name); err != nil {
		return nil, app.WithExit(app.ExitUsage, err)
	}
	local := s.Platform == api.PlatformProcess
	switch {
	case len(o.HubURLs) > 0:
	case r.hub && (local || s.Platform == api.PlatformDocker && s.Docker.Network == "host"):
		o.HubURLs = []string{LocalURL(listener)}
	default:
		return nil, app.UsageError(
			"the role spawner must know the hubs that its agents dial: set spawner.hub_urls in the configuration")
	}
	o.usePlatform(s)
	agent := []string{""} // what the image runs
	if s.Platform == api.PlatformEC2 {
		agent = []string{"mainstay", "agent", "run"} // in the image's PATH
	}
	if local {
		program, err := a.Program("mainstay")
		if err != nil {
			return nil, err
		}
		agent = []string{program, "agent", "run"}
	} else if file := os.Getenv("MAINSTAY_CA"); file != "" { // agents elsewhere trust the authority that this process does
		var err error
		if o.HubCA, err = textfile.ReadPEM(file); err != nil {
			return nil, app.WithExit(app.ExitUsage, fmt.Errorf("read the certificate authority of the hubs: %w", err))
		}
	}
	switch {
	case len(s.Command) > 0:
		o.Command = func(cluster.SpawnSpec) []string { return s.Command }
	case s.AllowExec:
		o.Command = SpawnedAgent(agent, o.HubURLs, o.Slots)
	case local:
		return nil, app.UsageError(
			"the spawner's agents could do nothing: set spawner.command in the configuration to start agents of your own, or spawner.allow_exec to let them run commands (whoever may submit tasks may then run anything as this user)",
		)
	}
	return o, nil
}

// usePlatform makes the agents run where the configuration says.
func (o *SpawnerOptions) usePlatform(s *config.Spawner) {
	switch s.Platform {
	case api.PlatformDocker:
		c := &s.Docker
		o.Image = c.Image
		o.New = Containers(docker.Options{Engine: c.Engine, CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey,
			Network: c.Network})
	case api.PlatformKubernetes:
		c := &s.Kubernetes
		o.Image = c.Image
		o.New = func(o spawner.Options) (Platform, error) {
			return kubernetes.New(kubernetes.Options{Options: o, Kubeconfig: c.Kubeconfig, Context: c.Context,
				Namespace: c.Namespace, ServiceAccount: c.ServiceAccount, PodTemplate: c.PodTemplate})
		}
	case api.PlatformCoolify:
		c := &s.Coolify
		o.Image = c.Image
		o.New = func(o spawner.Options) (Platform, error) {
			return coolify.New(coolify.Options{Options: o, URL: c.URL, TokenFile: c.TokenFile, Server: c.Server,
				Project: c.Project, EnvironmentName: c.Environment, Destination: c.Destination})
		}
	case api.PlatformEC2:
		c := &s.EC2
		o.Image = c.Image
		o.New = func(o spawner.Options) (Platform, error) {
			return ec2.New(ec2.Options{Options: o, Region: c.Region, LaunchTemplate: c.LaunchTemplate,
				LaunchTemplateVersion: c.LaunchTemplateVersion, InstanceType: c.InstanceType, Subnet: c.Subnet,
				SecurityGroup: c.SecurityGroup, Profile: c.InstanceProfile, User: c.User})
		}
	default:
		o.New = Processes(s.Dir)
	}
}

// SpawnedAgent is the command line of an agent that runs commands; run is how it begins.
func SpawnedAgent(run, hubURLs []string, slots int, more ...string) func(cluster.SpawnSpec) []string {
	return func(spec cluster.SpawnSpec) []string {
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
