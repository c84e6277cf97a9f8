package fleet

import (
	"fmt"
	"time"
)

// TaskDefaults are what a cluster's tasks have that leave it out. Zero fields take the installation's defaults.
type TaskDefaults struct {
	// MaxAttempts is how many attempts may fail before a task is a dead letter. Default 3.
	MaxAttempts int `json:"max_attempts,omitempty" minimum:"0" maximum:"100" doc:"Attempts that may fail before a task is a dead letter. Default 3."`
	// MaxTransfers is how many agents a task may be lost with before it is a dead letter. Default 3.
	MaxTransfers int `json:"max_transfers,omitempty" minimum:"0" maximum:"100" doc:"Agents a task may be lost with before it is a dead letter. Default 3."`
	// ExpiresIn is how long a task may wait for an agent. Default 1 h.
	ExpiresIn Duration `json:"expires_in,omitempty" doc:"How long a task may wait for an agent. Default 1h."`
}

// WithDefaults fills what was left out.
func (d TaskDefaults) WithDefaults() TaskDefaults {
	if d.MaxAttempts == 0 {
		d.MaxAttempts = DefaultMaxAttempts
	}
	if d.MaxTransfers == 0 {
		d.MaxTransfers = DefaultMaxTransfers
	}
	d.ExpiresIn = Duration(d.ExpiresIn.Or(DefaultExpiration))
	return d
}

// Validate checks d after WithDefaults.
func (d TaskDefaults) Validate() error {
	if d.MaxAttempts < 1 || d.MaxAttempts > 100 || d.MaxTransfers < 1 || d.MaxTransfers > 100 {
		return fmt.Errorf("max_attempts and max_transfers must lie between 1 and 100")
	}
	return ValidateDuration("expires_in", d.ExpiresIn, time.Second, 30*24*time.Hour)
}

// Apply gives a task what it leaves out.
func (d TaskDefaults) Apply(s *TaskSpec) {
	if s.Retry.MaxAttempts == 0 {
		s.Retry.MaxAttempts = d.MaxAttempts
	}
	if s.Retry.MaxTransfers == 0 {
		s.Retry.MaxTransfers = d.MaxTransfers
	}
	if s.ExpiresIn == 0 {
		s.ExpiresIn = d.ExpiresIn
	}
}
