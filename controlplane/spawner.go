package controlplane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/spawner"
)

// SpawnerOptions are what a process needs to start agents on its machine.
type SpawnerOptions struct {
	Name, Dir string
	HubURLs   []string
	JoinToken string
	Slots     int
	StopGrace time.Duration
	Command   func(fleet.SpawnSpec) []string
}

// Spawner is a spawner of processes and its host.
type Spawner struct {
	Process *spawner.Process
	host    *spawner.Host
}

// StartSpawner takes over the agents of an earlier spawner on the same folder.
func StartSpawner(
	ctx context.Context, c client.Client, namespace string, o SpawnerOptions, log *zap.Logger,
) (*Spawner, error) {
	logger := log.Named("spawner")
	process, err := spawner.NewProcess(spawner.ProcessOptions{
		Name:      o.Name,
		Dir:       o.Dir,
		HubURLs:   o.HubURLs,
		JoinToken: o.JoinToken,
		Slots:     o.Slots,
		StopGrace: o.StopGrace,
		Command:   o.Command,
		Logger:    logger,
	})
	if err != nil {
		return nil, err
	}
	host, err := spawner.Start(ctx, spawner.HostOptions{Name: o.Name, Client: c, Namespace: namespace, Spawner: process,
		Logger: logger})
	if err != nil {
		process.Close()
		return nil, err
	}
	return &Spawner{Process: process, host: host}, nil
}

// stop takes no more requests. The agents live on, and the next spawner on the same folder takes them over.
func (s *Spawner) stop() {
	s.host.Stop()
	s.Process.Close()
}

// EndAgents takes no more requests and ends the agents, gently at first, within limit.
func (s *Spawner) EndAgents(limit time.Duration) {
	s.host.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = s.Process.TerminateAll(ctx) // what lives on gives up by itself
	s.Process.Close()
}

// serveSpawner puts together what `serve` needs for the role spawner.
func serveSpawner(nameFlag string, c *config.Config, r roles, listener net.Listener) (*SpawnerOptions, error) {
	s := &c.Spawner
	o := &SpawnerOptions{Name: nameFlag, Dir: s.Dir, HubURLs: s.HubURLs, Slots: s.Slots, StopGrace: s.StopGrace.Std()}
	if o.Name == "" {
		o.Name = s.Name
	}
	if o.Name == "" {
		o.Name = app.Slug(app.HostName(), fleet.MaxIDLength)
	}
	if err := fleet.ValidateID("--spawner-name", o.Name); err != nil {
		return nil, app.WithExit(app.ExitUsage, err)
	}
	switch {
	case len(o.HubURLs) > 0:
	case r.hub:
		o.HubURLs = []string{LocalURL(listener)}
	default:
		return nil, app.UsageError(
			"the role spawner must know the hubs that its agents dial: set spawner.hub_urls in the configuration")
	}
	if len(s.Command) > 0 {
		o.Command = func(fleet.SpawnSpec) []string { return s.Command }
		return o, nil
	}
	if !s.AllowExec {
		return nil, app.UsageError(
			"the spawner's agents could do nothing: set spawner.command in the configuration to start agents of your own, or spawner.allow_exec to let them run commands (whoever may submit tasks may then run anything as this user)",
		)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file, to start agents: %w", err)
	}
	o.Command = SpawnedAgent(program, o.HubURLs, o.Slots)
	return o, nil
}

// SpawnedAgent is the command line of an agent that runs commands.
func SpawnedAgent(program string, hubURLs []string, slots int, more ...string) func(fleet.SpawnSpec) []string {
	return func(spec fleet.SpawnSpec) []string {
		slots := slots
		if spec.Slots != 0 {
			slots = spec.Slots
		}
		command := []string{program, "agent", "run", "--hub", strings.Join(hubURLs, ","), "--cluster", spec.Cluster,
			"--id", spec.ID,
			"--slots", fmt.Sprint(slots), "--allow-exec", "--health", ""}
		for _, capability := range spec.Capabilities {
			command = append(command, "--capability", capability)
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Environment)) {
			command = append(command, "--exec-env", name)
		}
		return append(command, more...)
	}
}
