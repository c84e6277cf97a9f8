package fleet

import (
	"errors"
	"time"
)

// HealingMode says what the healing cycle may do in a cluster.
type HealingMode string

// The modes of healing.
const (
	HealingOn     HealingMode = "on"
	HealingDryRun HealingMode = "dry_run" // decides and records what it would do, and does nothing
	HealingOff    HealingMode = "off"
)

// HealingPolicy is how a cluster wants to be healed. Zero fields take their defaults.
type HealingPolicy struct {
	// Mode is on, dry_run or off. Default on.
	Mode HealingMode `json:"mode,omitempty" enum:"on,dry_run,off" doc:"dry_run decides and records what it would do, and does nothing. Default on."`
	// CycleInterval is the time between two looks at the cluster, 5 s to 1 h. Default 1 min.
	CycleInterval Duration `json:"cycle_interval,omitempty" doc:"The time between two looks at the cluster, 5s to 1h. Default 1m."`
	// DrainTimeout is how long an agent that healing drains may finish its work. Default 5 min.
	DrainTimeout Duration `json:"drain_timeout,omitempty" doc:"How long an agent that is drained may finish its work. Default 5m."`
	// Patience is how long something must be wrong before healing acts. Default 30 s.
	Patience Duration `json:"patience,omitempty" doc:"How long something must be wrong before anything is done, 1s to 1h. Default 30s."`
	// Damping is the least time between two equal actions on the same agent; it doubles each time. Default 10 min.
	Damping Duration `json:"damping,omitempty" doc:"The least time between two equal actions on the same agent; it doubles each time. Default 10m."`
	// RestoreAfter is how long an agent that healing took out of service must be healthy before it is given work again;
	// it doubles each time. Default 5 min.
	RestoreAfter Duration `json:"restore_after,omitempty" doc:"How long an agent that was taken out of service must be healthy before it is given work again; it doubles each time. Default 5m."`
	// StuckAfter is how long a task may wait for a person, or in a lane that moves nothing, before that is reported.
	// Default 15 min.
	StuckAfter Duration `json:"stuck_after,omitempty" doc:"How long a task may wait for a person, or in a lane that moves nothing, before that is reported, 1m to 168h. Default 15m."`
	// MaxActions bounds the actions of one cycle in the cluster. Default 3.
	MaxActions int `json:"max_actions,omitempty" minimum:"0" maximum:"100" doc:"Bounds the actions of one cycle. Default 3."`
}

// DefaultHealingInterval is the time between two healing cycles.
const DefaultHealingInterval = time.Minute

// Bounds of a healing policy.
const (
	minHealingInterval = 5 * time.Second
	maxHealingActions  = 100
)

// WithDefaults fills what was left out.
func (p HealingPolicy) WithDefaults() HealingPolicy {
	if p.Mode == "" {
		p.Mode = HealingOn
	}
	if p.MaxActions == 0 {
		p.MaxActions = 3
	}
	p.CycleInterval = Duration(p.CycleInterval.Or(DefaultHealingInterval))
	p.DrainTimeout = Duration(p.DrainTimeout.Or(DefaultDrainTimeout))
	p.Patience = Duration(p.Patience.Or(30 * time.Second))
	p.Damping = Duration(p.Damping.Or(10 * time.Minute))
	p.RestoreAfter = Duration(p.RestoreAfter.Or(5 * time.Minute))
	p.StuckAfter = Duration(p.StuckAfter.Or(15 * time.Minute))
	return p
}

// Validate checks p after WithDefaults.
func (p HealingPolicy) Validate() error {
	switch p.Mode {
	case HealingOn, HealingDryRun, HealingOff:
	default:
		return errors.New("mode must be on, dry_run or off")
	}
	if p.MaxActions < 1 || p.MaxActions > maxHealingActions {
		return errors.New("max_actions must lie between 1 and 100")
	}
	for _, d := range []struct {
		name     string
		value    Duration
		min, max time.Duration
	}{
		{"cycle_interval", p.CycleInterval, minHealingInterval, time.Hour},
		{"drain_timeout", p.DrainTimeout, time.Second, MaxDrainTimeout},
		{"patience", p.Patience, time.Second, time.Hour},
		{"damping", p.Damping, time.Second, 24 * time.Hour},
		{"restore_after", p.RestoreAfter, time.Second, 24 * time.Hour},
		{"stuck_after", p.StuckAfter, time.Minute, 7 * 24 * time.Hour},
	} {
		if err := ValidateDuration(d.name, d.value, d.min, d.max); err != nil {
			return err
		}
	}
	return nil
}
