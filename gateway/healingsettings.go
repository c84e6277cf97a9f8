package gateway

import "mainstay.dev/mainstay/fleet"

// HealingSettings are fleet.HealingPolicy as a client submits and sees it.
type HealingSettings struct {
	Mode          fleet.HealingMode `json:"mode,omitempty" enum:"on,dry_run,off" doc:"dry_run decides and records what it would do, and does nothing. Default on."`
	CycleInterval fleet.Duration    `json:"cycle_interval,omitempty" doc:"The time between two looks at the cluster, 5s to 1h. Default 1m."`
	DrainTimeout  fleet.Duration    `json:"drain_timeout,omitempty" doc:"How long an agent that is drained may finish its work. Default 5m."`
	Patience      fleet.Duration    `json:"patience,omitempty" doc:"How long something must be wrong before anything is done, 1s to 1h. Default 30s."`
	Damping       fleet.Duration    `json:"damping,omitempty" doc:"The least time between two equal actions on the same agent; it doubles each time. Default 10m."`
	RestoreAfter  fleet.Duration    `json:"restore_after,omitempty" doc:"How long an agent that was taken out of service must be healthy before it is given work again; it doubles each time. Default 5m."`
	StuckAfter    fleet.Duration    `json:"stuck_after,omitempty" doc:"How long a task may wait for a person, or in a lane that moves nothing, before that is reported, 1m to 168h. Default 15m."`
	MaxActions    int               `json:"max_actions,omitempty" minimum:"0" maximum:"100" doc:"Bounds the actions of one cycle. Default 3."`
}

// HealingPatch changes some of them: what is left out stays as it is. A zero takes the default.
type HealingPatch struct {
	Mode          *fleet.HealingMode `json:"mode,omitempty" enum:"on,dry_run,off"`
	CycleInterval *fleet.Duration    `json:"cycle_interval,omitempty"`
	DrainTimeout  *fleet.Duration    `json:"drain_timeout,omitempty"`
	Patience      *fleet.Duration    `json:"patience,omitempty"`
	Damping       *fleet.Duration    `json:"damping,omitempty"`
	RestoreAfter  *fleet.Duration    `json:"restore_after,omitempty"`
	StuckAfter    *fleet.Duration    `json:"stuck_after,omitempty"`
	MaxActions    *int               `json:"max_actions,omitempty" minimum:"0" maximum:"100"`
}

func (p *HealingPatch) apply(h *fleet.HealingPolicy) {
	set(&h.Mode, p.Mode)
	set(&h.CycleInterval, p.CycleInterval)
	set(&h.DrainTimeout, p.DrainTimeout)
	set(&h.Patience, p.Patience)
	set(&h.Damping, p.Damping)
	set(&h.RestoreAfter, p.RestoreAfter)
	set(&h.StuckAfter, p.StuckAfter)
	set(&h.MaxActions, p.MaxActions)
}
