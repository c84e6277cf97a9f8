package api

import (
	"errors"
	"time"
)

// BrakePolicy decides when the number of agents that vanished at once makes the network the likelier cause.
type BrakePolicy struct {
	// Share is a share of the agents that are online or lost, above 0 and up to 1; more than it must be lost. 1 turns
	// the brake off. Default 0.5.
	Share float64 `json:"share,omitempty" exclusiveMinimum:"0" maximum:"1" doc:"Of the agents that are online or lost, more than this share must be lost: they have had work and vanished. 1 turns the brake off. Default 0.5."`
	// MinLost is the least number of agents that must be lost, so that small clusters fail over as usual. Default 3.
	MinLost int `json:"min_lost,omitempty" minimum:"1" maximum:"5000" doc:"And at least so many. Default 3."`
	// Window is the time within which they must vanish. Default 10 s.
	Window Duration `json:"window,omitempty" least:"1s" most:"10m" doc:"Within this time. Default 10s."`
}

// WithDefaults fills what was left out.
func (p BrakePolicy) WithDefaults() BrakePolicy {
	defaultTo(&p.Share, 0.5)
	defaultTo(&p.MinLost, 3)
	defaultTo(&p.Window, Duration(10*time.Second))
	return p
}

// Validate checks p after WithDefaults.
func (p BrakePolicy) Validate() error {
	if !(p.Share > 0 && p.Share <= 1) { // also refuses NaN
		return errors.New("share must be above 0 and at most 1")
	}
	return Within("", p)
}
