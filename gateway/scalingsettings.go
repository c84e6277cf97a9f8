package gateway

import (
	"mainstay.dev/mainstay/fleet"
)

// ScalingSettings say when agents of a cluster are started and stopped. What is left out takes its default, or stays as it
// is in a PATCH.
type ScalingSettings struct {
	Mode         *fleet.ScalingMode  `json:"mode,omitempty" enum:"off,manual,auto" doc:"off: others start and stop the agents. manual: as many as desired_agents are kept. auto: the rules move the number between min_agents and max_agents. Default off."`
	QueueMeasure *fleet.QueueMeasure `json:"queue_measure,omitempty" enum:"total,per_agent" doc:"What the queue thresholds count: the tasks that wait in the cluster, or those for each agent. Default total."`
	ScaleUp      *ScaleUpSettings    `json:"scale_up,omitempty" doc:"When agents are started."`
	ScaleDown    *ScaleDownSettings  `json:"scale_down,omitempty" doc:"When agents are stopped."`
	Spawn        *SpawnSettings      `json:"spawn,omitempty" doc:"What agents are started, and by whom."`
}

// ScaleUpSettings are fleet.ScaleUpRule.
type ScaleUpSettings struct {
	QueueThreshold *int            `json:"queue_threshold,omitempty" minimum:"0" maximum:"1000000" doc:"When more tasks than this wait. Default 5."`
	CPUThreshold   *float64        `json:"cpu_threshold,omitempty" minimum:"0" maximum:"100" doc:"Or when no agent is idle and their machines are busier than this on average, in percent. 100: never. Default 80."`
	Cooldown       *fleet.Duration `json:"cooldown,omitempty" doc:"The least time between two of them. Default 1m."`
	Increment      *int            `json:"increment,omitempty" minimum:"0" maximum:"1000" doc:"How many agents are started at a time. Default 1."`
}

// ScaleDownSettings are fleet.ScaleDownRule.
type ScaleDownSettings struct {
	QueueThreshold *int            `json:"queue_threshold,omitempty" minimum:"0" maximum:"1000000" doc:"When fewer tasks than this wait. Default 1."`
	IdleTimeout    *fleet.Duration `json:"idle_timeout,omitempty" doc:"And an agent had nothing to do for so long. Default 5m."`
	Cooldown       *fleet.Duration `json:"cooldown,omitempty" doc:"The least time after the last change in either direction. Default 5m."`
	Decrement      *int            `json:"decrement,omitempty" minimum:"0" maximum:"1000" doc:"How many agents are stopped at a time. Default 1."`
}

// SpawnSettings are fleet.SpawnPolicy.
type SpawnSettings struct {
	Spawner      *string               `json:"spawner,omitempty" maxLength:"63" doc:"The name of a spawner. Left out or empty: any takes it."`
	Slots        *int                  `json:"slots,omitempty" minimum:"0" maximum:"10000" doc:"Tasks that an agent runs at a time. 0: as the spawner has it."`
	Capabilities []string              `json:"capabilities,omitempty" maxItems:"64" doc:"What the agents can do. Work that asks for something else starts none."`
	Resources    *fleet.Resources      `json:"resources,omitempty" doc:"What each agent is given: cpu in cores (\"2\", \"500m\"), memory and storage in bytes (\"4Gi\")."`
	Environment  map[string]string     `json:"environment,omitempty" doc:"Variables of the agents' environment. It is no place for secrets: whoever sees the cluster sees them."`
	JoinTimeout  *fleet.Duration       `json:"join_timeout,omitempty" doc:"How long a started agent may take to come online; then it is stopped again. Default 1m."`
	DrainTimeout *fleet.Duration       `json:"drain_timeout,omitempty" doc:"How long an agent that is to stop may finish its work. Default 5m."`
	Backoff      *SpawnBackoffSettings `json:"backoff,omitempty" doc:"How tries are spaced while agents cannot be started."`
}

// SpawnBackoffSettings are fleet.SpawnBackoff.
type SpawnBackoffSettings struct {
	Strategy *fleet.BackoffStrategy `json:"strategy,omitempty" enum:"constant,exponential" doc:"Default exponential."`
	Delay    *fleet.Duration        `json:"delay,omitempty" doc:"After the first failure. Default 10s."`
	MaxDelay *fleet.Duration        `json:"max_delay,omitempty" doc:"The longest. Default 5m."`
}

// apply changes what is set; a nil changes nothing.
func (s *ScalingSettings) apply(p *fleet.ScalingPolicy) {
	if s == nil {
		return
	}
	set(&p.Mode, s.Mode)
	set(&p.QueueMeasure, s.QueueMeasure)
	if up := s.ScaleUp; up != nil {
		if up.QueueThreshold != nil {
			p.ScaleUp.QueueThreshold = up.QueueThreshold
		}
		set(&p.ScaleUp.CPUThreshold, up.CPUThreshold)
		set(&p.ScaleUp.Cooldown, up.Cooldown)
		set(&p.ScaleUp.Increment, up.Increment)
	}
	if down := s.ScaleDown; down != nil {
		if down.QueueThreshold != nil {
			p.ScaleDown.QueueThreshold = down.QueueThreshold
		}
		set(&p.ScaleDown.IdleTimeout, down.IdleTimeout)
		set(&p.ScaleDown.Cooldown, down.Cooldown)
		set(&p.ScaleDown.Decrement, down.Decrement)
	}
	s.Spawn.apply(&p.Spawn)
}

func (s *SpawnSettings) apply(p *fleet.SpawnPolicy) {
	if s == nil {
		return
	}
	set(&p.Spawner, s.Spawner)
	set(&p.Slots, s.Slots)
	if s.Capabilities != nil {
		p.Capabilities = s.Capabilities
	}
	set(&p.Resources, s.Resources)
	if s.Environment != nil {
		p.Environment = s.Environment
	}
	set(&p.JoinTimeout, s.JoinTimeout)
	set(&p.DrainTimeout, s.DrainTimeout)
	if b := s.Backoff; b != nil {
		set(&p.Backoff.Strategy, b.Strategy)
		set(&p.Backoff.Delay, b.Delay)
		set(&p.Backoff.MaxDelay, b.MaxDelay)
	}
}

// scalingSettings shows a policy with its defaults, in the same form as the policy itself has as JSON.
func scalingSettings(p fleet.ScalingPolicy) *ScalingSettings {
	p = p.WithDefaults()
	settings := &ScalingSettings{
		Mode: &p.Mode, QueueMeasure: &p.QueueMeasure,
		ScaleUp:   &ScaleUpSettings{p.ScaleUp.QueueThreshold, &p.ScaleUp.CPUThreshold, &p.ScaleUp.Cooldown, &p.ScaleUp.Increment},
		ScaleDown: &ScaleDownSettings{p.ScaleDown.QueueThreshold, &p.ScaleDown.IdleTimeout, &p.ScaleDown.Cooldown, &p.ScaleDown.Decrement},
		Spawn: &SpawnSettings{Capabilities: p.Spawn.Capabilities, Environment: p.Spawn.Environment, JoinTimeout: &p.Spawn.JoinTimeout, DrainTimeout: &p.Spawn.DrainTimeout,
			Backoff: &SpawnBackoffSettings{&p.Spawn.Backoff.Strategy, &p.Spawn.Backoff.Delay, &p.Spawn.Backoff.MaxDelay}},
	}
	if p.Spawn.Spawner != "" {
		settings.Spawn.Spawner = &p.Spawn.Spawner
	}
	if p.Spawn.Slots != 0 {
		settings.Spawn.Slots = &p.Spawn.Slots
	}
	if p.Spawn.Resources != (fleet.Resources{}) {
		settings.Spawn.Resources = &p.Spawn.Resources
	}
	return settings
}
