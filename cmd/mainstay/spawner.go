package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/spawner"
)

// spawnerOptions are what a process needs to start agents on its machine.
type spawnerOptions struct {
	name, dir string
	hubURLs   []string
	joinToken string
	slots     int
	stopGrace time.Duration
	command   func(fleet.SpawnSpec) []string
}

// localSpawner is a spawner of processes and its host.
type localSpawner struct {
	process *spawner.Process
	host    *spawner.Host
}

func startSpawner(ctx context.Context, c client.Client, namespace string, o spawnerOptions, log *zap.Logger) (*localSpawner, error) {
	logger := log.Named("spawner")
	process, err := spawner.NewProcess(spawner.ProcessOptions{
		Name: o.name, Dir: o.dir, HubURLs: o.hubURLs, JoinToken: o.joinToken, Slots: o.slots, StopGrace: o.stopGrace, Command: o.command, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	host, err := spawner.Start(ctx, spawner.HostOptions{Name: o.name, Client: c, Namespace: namespace, Spawner: process, Logger: logger})
	if err != nil {
		process.Close()
		return nil, err
	}
	return &localSpawner{process: process, host: host}, nil
}

// stop takes no more requests. The agents live on, and the next spawner on the same folder takes them over.
func (s *localSpawner) stop() {
	s.host.Stop()
	s.process.Close()
}

// endAgents takes no more requests and ends the agents, gently at first.
func (s *localSpawner) endAgents() {
	s.host.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 2*killAfter)
	defer cancel()
	_ = s.process.TerminateAll(ctx) // what lives on gives up by itself
	s.process.Close()
}

// serveSpawner puts together what `serve` needs for the role spawner.
func serveSpawner(nameFlag string, c *config.Config, r roles, listener net.Listener) (*spawnerOptions, error) {
	s := &c.Spawner
	o := &spawnerOptions{name: nameFlag, dir: s.Dir, hubURLs: s.HubURLs, slots: s.Slots, stopGrace: s.StopGrace.Std()}
	if o.name == "" {
		o.name = s.Name
	}
	if o.name == "" {
		o.name = app.Slug(app.HostName(), fleet.MaxIDLength)
	}
	if err := fleet.ValidateID("--spawner-name", o.name); err != nil {
		return nil, app.WithExit(app.ExitUsage, err)
	}
	switch {
	case len(o.hubURLs) > 0:
	case r.hub:
		o.hubURLs = []string{localURL(listener)}
	default:
		return nil, app.UsageError("the role spawner must know the hubs that its agents dial: set spawner.hub_urls in the configuration")
	}
	if len(s.Command) > 0 {
		o.command = func(fleet.SpawnSpec) []string { return s.Command }
		return o, nil
	}
	if !s.AllowExec {
		return nil, app.UsageError("the spawner's agents could do nothing: set spawner.command in the configuration to start agents of your own, or spawner.allow_exec to let them run commands (whoever may submit tasks may then run anything as this user)")
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file, to start agents: %w", err)
	}
	o.command = spawnedAgent(program, o.hubURLs, o.slots)
	return o, nil
}

// spawnedAgent is the command line of an agent that runs commands.
func spawnedAgent(program string, hubURLs []string, slots int, more ...string) func(fleet.SpawnSpec) []string {
	return func(spec fleet.SpawnSpec) []string {
		slots := slots
		if spec.Slots != 0 {
			slots = spec.Slots
		}
		command := []string{program, "agent", "run", "--hub", strings.Join(hubURLs, ","), "--cluster", spec.Cluster, "--id", spec.ID,
			"--slots", fmt.Sprint(slots), "--allow-exec"}
		for _, capability := range spec.Capabilities {
			command = append(command, "--capability", capability)
		}
		return append(command, more...)
	}
}
