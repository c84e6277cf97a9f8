package config

import (
	"strings"

	"mainstay.dev/mainstay/fleet"
)

// Scaling says when agents of a cluster are started and stopped, between membership.minimum_agents and
// membership.max_agents. In its numbers but the queue thresholds, 0 or left out means the default.
type Scaling struct {
	// Mode is off, manual (as many as membership.desired_agents are kept) or auto (the rules move the number). Default
	// off.
	Mode fleet.ScalingMode `yaml:"mode"`
	// QueueMeasure says what the thresholds count: total, or per_agent. Default total.
	QueueMeasure fleet.QueueMeasure `yaml:"queue_measure"`
	ScaleUp      ScaleUp            `yaml:"scale_up"`
	ScaleDown    ScaleDown          `yaml:"scale_down"`
	Spawn        Spawn              `yaml:"spawn"`
}

// ScaleUp starts agents.
type ScaleUp struct {
	// QueueThreshold: more tasks than this wait. Default 5.
	QueueThreshold *int `yaml:"queue_threshold"`
	// CPUThreshold: or no agent is idle and their machines are busier than this on average, in percent. Default 80.
	CPUThreshold float64 `yaml:"cpu_threshold"`
	// Cooldown is the least time between two of them. Default 1m.
	Cooldown fleet.Duration `yaml:"cooldown"`
	// Increment is how many agents are started at a time. Default 1.
	Increment int `yaml:"increment"`
}

// ScaleDown stops agents.
type ScaleDown struct {
	// QueueThreshold: fewer tasks than this wait. Default 1.
	QueueThreshold *int `yaml:"queue_threshold"`
	// IdleTimeout: and an agent had nothing to do for so long. Default 5m.
	IdleTimeout fleet.Duration `yaml:"idle_timeout"`
	// Cooldown is the least time after the last change in either direction. Default 5m.
	Cooldown fleet.Duration `yaml:"cooldown"`
	// Decrement is how many agents are stopped at a time. Default 1.
	Decrement int `yaml:"decrement"`
}

// Spawn says what agents are started, and by whom.
type Spawn struct {
	// Spawner is the name of one. Default: any takes it.
	Spawner string `yaml:"spawner"`
	// Slots is how many tasks an agent runs at a time. Default: as the spawner has it.
	Slots int `yaml:"slots"`
	// Capabilities are what the agents can do.
	Capabilities []string `yaml:"capabilities"`
	// Resources are what each agent is given. Default: as the spawner's platform has it.
	Resources fleet.Resources `yaml:"resources"`
	// Environment holds variables of the agents. It is no place for secrets.
	Environment map[string]string `yaml:"environment"`
	// JoinTimeout is how long a started agent may take to come online; then it is stopped again. Default 1m.
	JoinTimeout fleet.Duration `yaml:"join_timeout"`
	// DrainTimeout is how long an agent that is to stop may finish its work. Default 5m.
	DrainTimeout fleet.Duration `yaml:"drain_timeout"`
	Backoff      SpawnBackoff   `yaml:"backoff"`
}

// SpawnBackoff spaces tries while agents cannot be started.
type SpawnBackoff struct {
	Strategy fleet.BackoffStrategy `yaml:"strategy"`  // constant or exponential. Default exponential.
	Delay    fleet.Duration        `yaml:"delay"`     // After the first failure. Default 10s.
	MaxDelay fleet.Duration        `yaml:"max_delay"` // Default 5m.
}

// policy is the section as fleet has it, with defaults.
func (s *Scaling) policy() fleet.ScalingPolicy {
	policy := fleet.ScalingPolicy{
		Mode: s.Mode, QueueMeasure: s.QueueMeasure,
		ScaleUp: fleet.ScaleUpRule{QueueThreshold: s.ScaleUp.QueueThreshold, CPUThreshold: s.ScaleUp.CPUThreshold,
			Cooldown: s.ScaleUp.Cooldown, Increment: s.ScaleUp.Increment},
		ScaleDown: fleet.ScaleDownRule{QueueThreshold: s.ScaleDown.QueueThreshold, IdleTimeout: s.ScaleDown.IdleTimeout,
			Cooldown: s.ScaleDown.Cooldown, Decrement: s.ScaleDown.Decrement},
		Spawn: fleet.SpawnPolicy{
			Spawner:      s.Spawn.Spawner,
			Slots:        s.Spawn.Slots,
			Capabilities: s.Spawn.Capabilities,
			Resources:    s.Spawn.Resources,
			Environment:  s.Spawn.Environment,
			JoinTimeout:  s.Spawn.JoinTimeout, DrainTimeout: s.Spawn.DrainTimeout,
			Backoff: fleet.SpawnBackoff{Strategy: s.Spawn.Backoff.Strategy, Delay: s.Spawn.Backoff.Delay,
				MaxDelay: s.Spawn.Backoff.MaxDelay},
		},
	}
	if len(s.Spawn.Capabilities) == 0 { // an empty list says as much as none
		policy.Spawn.Capabilities = nil
	}
	if len(s.Spawn.Environment) == 0 {
		policy.Spawn.Environment = nil
	}
	return policy.WithDefaults()
}

// scaling places what fleet finds wrong: its messages begin with the field.
func (k *checker) scaling(at string, s *Scaling) {
	policy := s.policy()
	if err := policy.Validate(); err != nil {
		field, what, _ := strings.Cut(err.Error(), " ")
		k.check(false, at+"."+strings.TrimSuffix(field, ":"), "%s", what)
	}
}
