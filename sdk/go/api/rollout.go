package api

import (
	"time"
)

// RolloutPolicy says how spawned agents are replaced when what they are started with has changed.
type RolloutPolicy struct {
	MaxUnavailable int      `json:"max_unavailable,omitempty" minimum:"1" maximum:"50" doc:"How many agents may be missing while others are started in their place. Default 1."`
	HealthyTime    Duration `json:"healthy_time,omitempty" least:"1s" most:"1h" doc:"How long a new agent must be online before it counts as healthy. Default 10s."`
	Deadline       Duration `json:"deadline,omitempty" least:"1s" most:"168h" doc:"The rollout fails when it does not get on for so long. Default 10m; longer than a drain, a start and healthy_time together."`
	Canary         int      `json:"canary,omitempty" minimum:"0" maximum:"50" doc:"How many agents with the new settings are started first, beside the old ones; these are replaced when the canaries are promoted. Default 0."`
	AutoPromote    bool     `json:"auto_promote,omitempty" doc:"Canaries are promoted as soon as they are healthy. Default: a person promotes them."`
	AutoRevert     bool     `json:"auto_revert,omitempty" doc:"After a rollout that failed, the settings of the last that succeeded are put in force again."`
}

// WithDefaults is the policy with what was left out; nil stays nil.
func (p *RolloutPolicy) WithDefaults() *RolloutPolicy {
	if p == nil {
		return nil
	}
	q := *p
	defaultTo(&q.MaxUnavailable, 1)
	defaultTo(&q.HealthyTime, Duration(10*time.Second))
	defaultTo(&q.Deadline, Duration(10*time.Minute))
	return &q
}

func (p *RolloutPolicy) validate(spawn *SpawnPolicy) error {
	if p == nil {
		return nil
	}
	if least := spawn.DrainTimeout + spawn.JoinTimeout + p.HealthyTime; p.Deadline < least {
		return WrongField("scaling.rollout.deadline", "must be at least %s: a drain, a start and healthy_time", least)
	}
	return nil
}

// RolloutStatus is where a rollout stands.
type RolloutStatus string

// The statuses of a rollout.
const (
	RolloutRunning    RolloutStatus = "running"
	RolloutWaiting    RolloutStatus = "waiting" // the canaries are healthy, and a person is to promote them
	RolloutSuccessful RolloutStatus = "successful"
	RolloutFailed     RolloutStatus = "failed"
	// RolloutCancelled: scaling or its rollout was taken from the settings, or another rollout took its place.
	RolloutCancelled RolloutStatus = "cancelled"
)

// Rollout is how new agents take the place of those that were started with other settings.
type Rollout struct {
	Number int           `json:"number"`
	Status RolloutStatus `json:"status"`
	Reason string        `json:"reason,omitempty"`
	// Revert: it puts earlier settings in force again, and is not reverted itself.
	Revert bool `json:"revert,omitempty"`
	// Former are the settings before, and Stable the agents that have them.
	Former SpawnPolicy `json:"former"`
	Stable []string    `json:"stable,omitempty"`
	// Canary is how many agents are started beside the others before it is promoted. Canaries are these agents, and
	// Blocked is why they could not be started.
	Canary     int             `json:"canary,omitempty" minimum:"0" maximum:"50"`
	Canaries   []string        `json:"canaries,omitempty"`
	Blocked    *ScalingBlocked `json:"blocked,omitempty"`
	PromotedAt time.Time       `json:"promoted_at,omitzero"`
	// Old are the agents to replace; Left is how many of them serve, and Healthy how many others are healthy.
	Old     []string `json:"old,omitempty"`
	Left    int      `json:"left"`
	Healthy int      `json:"healthy"`
	// ProgressAt is when it got on last; Best is how many new agents were healthy at once.
	Best       int       `json:"best,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	ProgressAt time.Time `json:"progress_at"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}
