package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// ScalingMode decides whether and how the number of a cluster's agents is kept.
type ScalingMode string

// The modes.
const (
	ScalingOff    ScalingMode = "off"    // Mainstay starts and stops no agents
	ScalingManual ScalingMode = "manual" // as many as desired are kept
	ScalingAuto   ScalingMode = "auto"   // rules move the number between min and max
)

// QueueMeasure is the number that queue thresholds apply to.
type QueueMeasure string

// The measures.
const (
	QueueTotal    QueueMeasure = "total"     // the tasks that wait in the cluster
	QueuePerAgent QueueMeasure = "per_agent" // those tasks divided by the agents
)

// ScalingPolicy decides when agents are started and stopped, between the cluster's min_agents and max_agents.
type ScalingPolicy struct {
	Mode         ScalingMode   `json:"mode,omitempty" enum:"off,manual,auto" doc:"off: others start and stop the agents. manual: as many as desired_agents are kept. auto: the rules move the number between min_agents and max_agents. Default off."`
	QueueMeasure QueueMeasure  `json:"queue_measure,omitempty" enum:"total,per_agent" doc:"What the queue thresholds count: the tasks that wait in the cluster, or those for each agent. Default total."`
	ScaleUp      ScaleUpRule   `json:"scale_up,omitzero" doc:"When agents are started."`
	ScaleDown    ScaleDownRule `json:"scale_down,omitzero" doc:"When agents are stopped."`
	Spawn        SpawnPolicy   `json:"spawn,omitzero" doc:"What agents are started, and by whom."`
	// Rollout is nil where agents keep what they were started with.
	Rollout *RolloutPolicy `json:"rollout,omitempty" doc:"How agents are replaced when spawn has changed. Left out: they are not."`
}

// ScaleUpRule starts agents.
type ScaleUpRule struct {
	// QueueThreshold: more tasks than this wait. nil: the default, 5.
	QueueThreshold *int `json:"queue_threshold,omitempty" minimum:"0" maximum:"1000000" doc:"When more tasks than this wait. Default 5."`
	// CPUThreshold: the agents' machines are busier than this on average, in percent, and no agent is idle. 100 never
	// holds. Default 80.
	CPUThreshold float64 `json:"cpu_threshold,omitempty" exclusiveMinimum:"0" maximum:"100" doc:"Or when no agent is idle and their machines are busier than this on average, in percent. 100: never. Default 80."`
	// Cooldown is the least time between two starts. Default 1 min.
	Cooldown Duration `json:"cooldown,omitempty" least:"1s" most:"24h" doc:"The least time between two of them. Default 1m."`
	// Increment is how many agents are started at a time. Default 1.
	Increment int `json:"increment,omitempty" minimum:"1" maximum:"5000" doc:"How many agents are started at a time. Default 1."`
}

// ScaleDownRule stops agents.
type ScaleDownRule struct {
	// QueueThreshold: fewer tasks than this wait. nil: the default, 1.
	QueueThreshold *int `json:"queue_threshold,omitempty" minimum:"0" maximum:"1000000" doc:"When fewer tasks than this wait. Default 1."`
	// IdleTimeout: the agent had no work for this long. Default 5 min.
	IdleTimeout Duration `json:"idle_timeout,omitempty" least:"1s" most:"168h" doc:"And an agent had nothing to do for so long. Default 5m."`
	// Cooldown is the least time after the last change in either direction. Default 5 min.
	Cooldown Duration `json:"cooldown,omitempty" least:"1s" most:"24h" doc:"The least time after the last change in either direction. Default 5m."`
	// Decrement is how many agents are stopped at a time. Default 1.
	Decrement int `json:"decrement,omitempty" minimum:"1" maximum:"5000" doc:"How many agents are stopped at a time. Default 1."`
}

// SpawnPolicy describes the agents to start, and their spawner.
type SpawnPolicy struct {
	// Spawner is the name of a spawner; empty: any.
	Spawner string `json:"spawner,omitempty" maxLength:"63" doc:"The name of a spawner. Left out or empty: any of the platform takes it."`
	// Platform is where the agents run; empty: that of the named spawner, else process.
	Platform          Platform   `json:"platform,omitempty" maxLength:"63" doc:"Where the agents run: process, docker, kubernetes, coolify or ec2. Default: that of the named spawner, else process."`
	FallbackPlatforms []Platform `json:"fallback_platforms,omitempty" maxItems:"4" doc:"Platforms that are tried in this order where no spawner of platform takes the agents."`
	// Image is the image of a container or an instance; empty: the spawner's.
	Image        string            `json:"image,omitempty" maxLength:"255" doc:"The image of the agents, on platforms that have images; on ec2 an AMI. Left out: the one of the spawner's configuration."`
	Docker       DockerSpawn       `json:"docker,omitzero" doc:"What only the platform docker has."`
	Kubernetes   KubernetesSpawn   `json:"kubernetes,omitzero" doc:"What only the platform kubernetes has."`
	EC2          EC2Spawn          `json:"ec2,omitzero" doc:"What only the platform ec2 has."`
	Slots        int               `json:"slots,omitempty" minimum:"1" maximum:"10000" doc:"Tasks that an agent runs at a time. 0: as the spawner has it."` // 0: as the spawner has it
	Capabilities []string          `json:"capabilities,omitempty" maxItems:"64" doc:"What the agents can do. Work that asks for something else starts none."`
	Resources    Resources         `json:"resources,omitzero" doc:"What each agent is given: cpu in cores (\"2\", \"500m\"), memory and storage in bytes (\"4Gi\")."`
	Environment  map[string]string `json:"environment,omitempty" doc:"Variables of the agents' environment. It is no place for secrets: whoever sees the cluster sees them."`
	// JoinTimeout is how long a started agent may take to come online; then it is stopped again. Default 1 min.
	JoinTimeout Duration `json:"join_timeout,omitempty" least:"1s" most:"1h" doc:"How long a started agent may take to come online; then it is stopped again. Default 1m."`
	// DrainTimeout is how long an agent that is being stopped may finish its work. Default 5 min.
	DrainTimeout Duration     `json:"drain_timeout,omitempty" least:"1s" most:"24h" doc:"How long an agent that is to stop may finish its work. Default 5m."`
	Backoff      SpawnBackoff `json:"backoff,omitzero" doc:"How tries are spaced while agents cannot be started."`
}

// BackoffStrategy is how waits grow.
type BackoffStrategy string

// The strategies.
const (
	BackoffConstant    BackoffStrategy = "constant"
	BackoffExponential BackoffStrategy = "exponential" // doubles each time
)

// SpawnBackoff is the wait between two tries while agents cannot be started.
type SpawnBackoff struct {
	Strategy BackoffStrategy `json:"strategy,omitempty" enum:"constant,exponential" doc:"Default exponential."`        // default exponential
	Delay    Duration        `json:"delay,omitempty" least:"1s" most:"1h" doc:"After the first failure. Default 10s."` // after the first failure; default 10 s
	MaxDelay Duration        `json:"max_delay,omitempty" least:"1s" most:"24h" doc:"The longest. Default 5m."`         // default 5 min
}

// On reports whether Mainstay starts and stops agents at all.
func (p *ScalingPolicy) On() bool { return p.Mode == ScalingManual || p.Mode == ScalingAuto }

// WithDefaults fills what was left out.
func (p ScalingPolicy) WithDefaults() ScalingPolicy {
	p.Rollout = p.Rollout.WithDefaults()
	defaultTo(&p.Mode, ScalingOff)
	defaultTo(&p.QueueMeasure, QueueTotal)
	up, down, spawn := &p.ScaleUp, &p.ScaleDown, &p.Spawn
	if up.QueueThreshold == nil {
		up.QueueThreshold = new(5)
	}
	if down.QueueThreshold == nil {
		down.QueueThreshold = new(1)
	}
	defaultTo(&up.CPUThreshold, 80)
	defaultTo(&up.Cooldown, Duration(time.Minute))
	defaultTo(&up.Increment, 1)
	defaultTo(&down.IdleTimeout, Duration(5*time.Minute))
	defaultTo(&down.Cooldown, Duration(5*time.Minute))
	defaultTo(&down.Decrement, 1)
	defaultTo(&spawn.JoinTimeout, Duration(time.Minute))
	defaultTo(&spawn.DrainTimeout, Duration(DefaultDrainTimeout))
	defaultTo(&spawn.Backoff.Strategy, BackoffExponential)
	defaultTo(&spawn.Backoff.Delay, Duration(10*time.Second))
	defaultTo(&spawn.Backoff.MaxDelay, max(spawn.Backoff.Delay, Duration(5*time.Minute)))
	return p
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate checks p after WithDefaults. Its errors are FieldErrors.
func (p *ScalingPolicy) Validate() error {
	switch p.Mode {
	case ScalingOff, ScalingManual, ScalingAuto:
	default:
		return WrongField("scaling.mode", "must be off, manual or auto")
	}
	if p.QueueMeasure != QueueTotal && p.QueueMeasure != QueuePerAgent {
		return WrongField("scaling.queue_measure", "must be total or per_agent")
	}
	up, down := &p.ScaleUp, &p.ScaleDown
	if err := Within("scaling.", p); err != nil {
		return err
	}
	if *down.QueueThreshold > max(1, *up.QueueThreshold) {
		return WrongField("scaling.scale_down.queue_threshold",
			"must lie between 0 and scale_up.queue_threshold, else agents are started and stopped by turns")
	}
	spawn := &p.Spawn
	if spawn.Backoff.MaxDelay < spawn.Backoff.Delay {
		return WrongField("scaling.spawn.backoff.max_delay", "must not be shorter than delay, which is %s",
			spawn.Backoff.Delay)
	}
	return cmp.Or(
		p.Rollout.validate(spawn),
		spawn.validate())
}

// idForm says how an id is written.
const idForm = `must be 1 to %d characters of a-z, 0-9, ".", "_" and "-", and begin with a letter or digit`

// reservedEnvironment begins the variables that a spawner itself sets for its agents.
const reservedEnvironment = "MAINSTAY_"

func (s *SpawnPolicy) validate() error {
	if s.Spawner != "" && ValidateID("", s.Spawner) != nil {
		return WrongField("scaling.spawn.spawner", idForm, MaxIDLength)
	}
	if s.Slots < 0 || s.Slots > 10_000 {
		return WrongField("scaling.spawn.slots", "must lie between 0 and 10000")
	}
	if len(s.Capabilities) > 64 || len(s.Environment) > 64 {
		return WrongField("scaling.spawn", "may name at most 64 capabilities and 64 variables of the environment")
	}
	if err := s.validatePlatforms(); err != nil {
		return err
	}
	for i, c := range s.Capabilities {
		if ValidateID("", c) != nil {
			return WrongField(fmt.Sprintf("scaling.spawn.capabilities[%d]", i), idForm, MaxIDLength)
		}
	}
	for name, value := range s.Environment {
		switch {
		case name == "" || strings.ContainsRune(name, '=') || strings.ContainsFunc(name, unicode.IsControl) ||
			strings.Contains(value, "\x00") ||
			len(name)+len(value) > 4096:
			return WrongField("scaling.spawn.environment",
				"must have names of variables, of at most 4096 bytes with their values")
		case strings.HasPrefix(name, reservedEnvironment):
			return WrongField("scaling.spawn.environment",
				"must have no names that begin with %s: they are the spawner's own",
				reservedEnvironment)
		}
	}
	switch s.Backoff.Strategy {
	case BackoffConstant, BackoffExponential:
	default:
		return WrongField("scaling.spawn.backoff.strategy", "must be constant or exponential")
	}
	return s.Resources.validate("scaling.spawn.")
}

// Platforms are those that may run the agents, the preferred one first; none: whatever the named spawner serves.
func (s *SpawnPolicy) Platforms() []Platform {
	if s.Platform == "" && s.Spawner != "" {
		return nil
	}
	return append([]Platform{cmp.Or(s.Platform, PlatformProcess)}, s.FallbackPlatforms...)
}

func (s *SpawnPolicy) validatePlatforms() error {
	if len(s.FallbackPlatforms) > 4 || len(s.FallbackPlatforms) > 0 && s.Platform == "" {
		return WrongField("scaling.spawn.fallback_platforms", "must be at most 4, and need scaling.spawn.platform")
	}
	platforms := s.Platforms()
	for i, p := range platforms {
		if ValidateID("", string(p)) != nil {
			return WrongField("scaling.spawn.platform", "must name platforms such as process or docker")
		}
		if slices.Contains(platforms[:i], p) {
			return WrongField("scaling.spawn.fallback_platforms", "must not name a platform twice")
		}
	}
	if s.Image != strings.Join(strings.Fields(s.Image), "") || len(s.Image) > 255 {
		return WrongField("scaling.spawn.image", "must be a name like mainstay-agent:1.2, of at most 255 characters")
	}
	if s.Resources.Storage != "" && len(platforms) > 0 && !slices.Contains(platforms, PlatformDocker) &&
		!slices.Contains(platforms, PlatformKubernetes) {
		return WrongField("scaling.spawn.resources.storage",
			"has no effect on %s: leave it out, or set scaling.spawn.platform to docker or kubernetes", platforms[0])
	}
	if s.Image != "" && slices.Equal(platforms, []Platform{PlatformProcess}) {
		return WrongField("scaling.spawn.image",
			"has no effect on processes: set scaling.spawn.platform to docker or kubernetes too")
	}
	for _, own := range []struct {
		platform Platform
		set      bool
		pull     PullPolicy
	}{
		{PlatformDocker, s.Docker != DockerSpawn{}, s.Docker.Pull},
		{PlatformKubernetes, s.Kubernetes != KubernetesSpawn{}, s.Kubernetes.Pull},
		{PlatformEC2, s.EC2 != EC2Spawn{}, ""},
	} {
		if own.set && len(platforms) > 0 && !slices.Contains(platforms, own.platform) {
			return WrongField("scaling.spawn."+string(own.platform), "has no effect without %s in scaling.spawn.platform",
				own.platform)
		}
		switch own.pull {
		case "", PullMissing, PullAlways, PullNever:
		default:
			return WrongField("scaling.spawn."+string(own.platform)+".pull", "must be missing, always or never")
		}
	}
	return nil
}
