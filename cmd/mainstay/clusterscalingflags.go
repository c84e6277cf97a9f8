package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

// scalingFlags are a cluster's scaling as flags.
type scalingFlags struct {
	mode, measure                 string
	upQueue, upIncrement          int
	upCPU                         float64
	upCooldown                    time.Duration
	downQueue, downDecrement      int
	idle, downCooldown            time.Duration
	spawner, cpu, memory, storage string
	slots                         int
	capabilities, environment     []string
	joinTimeout, drainTimeout     time.Duration
	retryStrategy                 string
	retryDelay, retryMaxDelay     time.Duration
}

func (f *scalingFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.mode, "scaling", "", "off, manual (as many agents as desired are kept) or auto (rules move the number between min and max) (default off)")
	flags.StringVar(&f.measure, "queue-measure", "", "what the queue thresholds count: total or per_agent (default total)")
	flags.IntVar(&f.upQueue, "scale-up-queue", 0, "start agents when more tasks than this wait (default 5)")
	flags.Float64Var(&f.upCPU, "scale-up-cpu", 0, "start agents when none is idle and their machines' cpu is busier than this, in percent; 100: never (default 80)")
	flags.DurationVar(&f.upCooldown, "scale-up-cooldown", 0, "least time from one start of agents to the next (default 1m)")
	flags.IntVar(&f.upIncrement, "scale-up-increment", 0, "agents started at a time (default 1)")
	flags.IntVar(&f.downQueue, "scale-down-queue", 0, "stop agents when fewer tasks than this wait (default 1)")
	flags.DurationVar(&f.idle, "scale-down-idle", 0, "stop only agents that had nothing to do for so long (default 5m)")
	flags.DurationVar(&f.downCooldown, "scale-down-cooldown", 0, "least time from the last start or stop of agents to a stop (default 5m)")
	flags.IntVar(&f.downDecrement, "scale-down-decrement", 0, "agents stopped at a time (default 1)")
	flags.StringVar(&f.spawner, "spawner", "", "name of the spawner that starts agents (default: any)")
	flags.IntVar(&f.slots, "spawn-slots", 0, "tasks that a started agent runs at a time (default: as the spawner has it)")
	flags.StringArrayVar(&f.capabilities, "spawn-capability", nil, "what started agents can do; may be repeated")
	flags.StringVar(&f.cpu, "spawn-cpu", "", "cores of a started agent, as 2 or 500m")
	flags.StringVar(&f.memory, "spawn-memory", "", "memory of a started agent, as 4Gi")
	flags.StringVar(&f.storage, "spawn-storage", "", "storage of a started agent, as 10Gi")
	flags.StringArrayVar(&f.environment, "spawn-env", nil, "variable of a started agent's environment, as NAME=value; no place for secrets; may be repeated")
	flags.DurationVar(&f.joinTimeout, "spawn-join-timeout", 0, "how long a started agent may take to come online (default 1m)")
	flags.DurationVar(&f.drainTimeout, "spawn-drain-timeout", 0, "how long an agent that is to stop may finish its work (default 5m)")
	flags.StringVar(&f.retryStrategy, "spawn-backoff", "", "how tries are spaced while agents cannot be started: constant or exponential (default exponential)")
	flags.DurationVar(&f.retryDelay, "spawn-backoff-delay", 0, "wait after agents could not be started for the first time (default 10s)")
	flags.DurationVar(&f.retryMaxDelay, "spawn-backoff-max", 0, "longest wait between tries to start agents (default 5m)")
}

// settings are the flags that were given; nil when none was.
func (f *scalingFlags) settings(c *cobra.Command) (*gateway.ScalingSettings, error) {
	given := c.Flags().Changed
	any := false
	for _, name := range []string{"scaling", "queue-measure", "spawner"} {
		any = any || given(name)
	}
	up := gateway.ScaleUpSettings{
		QueueThreshold: when(given("scale-up-queue"), f.upQueue), CPUThreshold: when(given("scale-up-cpu"), f.upCPU),
		Cooldown: when(given("scale-up-cooldown"), fleet.Duration(f.upCooldown)), Increment: when(given("scale-up-increment"), f.upIncrement),
	}
	down := gateway.ScaleDownSettings{
		QueueThreshold: when(given("scale-down-queue"), f.downQueue), IdleTimeout: when(given("scale-down-idle"), fleet.Duration(f.idle)),
		Cooldown: when(given("scale-down-cooldown"), fleet.Duration(f.downCooldown)), Decrement: when(given("scale-down-decrement"), f.downDecrement),
	}
	spawn, spawned, err := f.spawn(given)
	if err != nil {
		return nil, err
	}
	s := &gateway.ScalingSettings{Mode: when(given("scaling"), fleet.ScalingMode(f.mode)), QueueMeasure: when(given("queue-measure"), fleet.QueueMeasure(f.measure))}
	if up != (gateway.ScaleUpSettings{}) {
		s.ScaleUp, any = &up, true
	}
	if down != (gateway.ScaleDownSettings{}) {
		s.ScaleDown, any = &down, true
	}
	if spawned {
		s.Spawn, any = spawn, true
	}
	if !any {
		return nil, nil
	}
	return s, nil
}

func (f *scalingFlags) spawn(given func(string) bool) (s *gateway.SpawnSettings, any bool, err error) {
	s = &gateway.SpawnSettings{
		Spawner: when(given("spawner"), f.spawner), Slots: when(given("spawn-slots"), f.slots), Capabilities: f.capabilities,
		JoinTimeout: when(given("spawn-join-timeout"), fleet.Duration(f.joinTimeout)), DrainTimeout: when(given("spawn-drain-timeout"), fleet.Duration(f.drainTimeout)),
	}
	if resources := (fleet.Resources{CPU: f.cpu, Memory: f.memory, Storage: f.storage}); resources != (fleet.Resources{}) {
		s.Resources = &resources
	}
	backoff := gateway.SpawnBackoffSettings{Strategy: when(given("spawn-backoff"), fleet.BackoffStrategy(f.retryStrategy)),
		Delay: when(given("spawn-backoff-delay"), fleet.Duration(f.retryDelay)), MaxDelay: when(given("spawn-backoff-max"), fleet.Duration(f.retryMaxDelay))}
	if backoff != (gateway.SpawnBackoffSettings{}) {
		s.Backoff = &backoff
	}
	for _, entry := range f.environment {
		name, value, found := strings.Cut(entry, "=")
		if !found || name == "" {
			return nil, false, usageError("--spawn-env must be like NAME=value")
		}
		if s.Environment == nil {
			s.Environment = map[string]string{}
		}
		s.Environment[name] = value
	}
	any = s.Spawner != nil || s.Slots != nil || s.Capabilities != nil || s.JoinTimeout != nil || s.DrainTimeout != nil ||
		s.Resources != nil || s.Backoff != nil || s.Environment != nil
	return s, any, nil
}
