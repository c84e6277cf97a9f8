package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// RecoveryAction is what recovery does next.
type RecoveryAction string

// The actions.
const (
	ActionRestart    RecoveryAction = "restart"     // an attempt on the same agent
	ActionReschedule RecoveryAction = "reschedule"  // an attempt on another agent
	ActionAwaitAgent RecoveryAction = "await_agent" // an attempt on the same agent, whenever it is there
	ActionReview     RecoveryAction = "review"      // a person decides
	ActionNone       RecoveryAction = "none"        // nothing by itself
)

// PolicyState is what a task's recovery has done and does next.
type PolicyState struct {
	Restarts    []time.Time `json:"restarts,omitempty" doc:"When restarts were to begin: the newest 50 that may still count."`
	Reschedules []time.Time `json:"reschedules,omitempty" doc:"The same of reschedules. One that no agent began is taken out again."`
	// ActiveRestarts and ActiveReschedules are set when a task is shown.
	ActiveRestarts    int            `json:"active_restarts,omitempty" doc:"How many restarts count now. Only with the task itself."`
	ActiveReschedules int            `json:"active_reschedules,omitempty" doc:"How many reschedules count now. Only with the task itself."`
	LastFailure       string         `json:"last_failure,omitempty" doc:"How the last attempt failed or was lost."`
	NextAction        RecoveryAction `json:"next_action,omitempty" enum:"restart,reschedule,await_agent,review,none" doc:"What follows the last attempt: one on the same agent at its time (restart), one on another (reschedule), one on the same agent when it is there (await_agent), the decision of a person (review), or nothing (none)."`
	NextAt            *time.Time     `json:"next_at,omitempty" doc:"When that may begin at the earliest."`
	Exhausted         string         `json:"exhausted,omitempty" doc:"Which policies allow no further attempt."`
	Agent             string         `json:"agent,omitempty" doc:"The agent of the last attempt."`
	Excluded          []string       `json:"excluded,omitempty" doc:"Agents that do not get the next attempt."`
	ExcludedUntil     *time.Time     `json:"excluded_until,omitempty" doc:"Until when, if no other agent begins it before."`
	Refunded          bool           `json:"refunded,omitempty" doc:"The reschedule under way does not count: no agent has begun it."`
}

// Clone is a copy that can be changed; of nil an empty one.
func (s *PolicyState) Clone() *PolicyState {
	if s == nil {
		return &PolicyState{}
	}
	c := *s
	c.Restarts, c.Reschedules = slices.Clone(s.Restarts), slices.Clone(s.Reschedules)
	return &c
}

// RecoveryMode says how far a task may go by itself after an attempt that brought no result.
type RecoveryMode string

// The modes.
const (
	ClusterRecover RecoveryMode = "cluster_recover" // again on its agent, then on another
	LocalRestart   RecoveryMode = "local_restart"   // again on its agent, never on another
	ManualRecover  RecoveryMode = "manual_recover"  // not by itself: a person decides
)

// Recovery says what happens after each attempt of a task that brought no result. It takes the place of the task's
// RetryPolicy.
type Recovery struct {
	Mode       RecoveryMode    `json:"mode,omitempty" enum:"cluster_recover,local_restart,manual_recover" doc:"How far it may go by itself: again on its agent and then on another (cluster_recover, the default), again on its agent only (local_restart), or as a person decides (manual_recover)."`
	Restart    *RecoveryPolicy `json:"restart,omitempty" doc:"Attempts on the same agent, after a failure. What is left out has the default of the mode."`
	Reschedule *RecoveryPolicy `json:"reschedule,omitempty" doc:"Attempts on another agent, after the agent was lost or restarts are used up. What is left out has the default of the mode."`
}

// RecoveryPolicy bounds and spaces attempts. Its window slides: an attempt counts until interval after its beginning.
type RecoveryPolicy struct {
	Attempts      *int          `json:"attempts,omitempty" minimum:"0" maximum:"50" doc:"How many may begin within interval. 0: none."`
	Interval      Duration      `json:"interval,omitempty" least:"1s" most:"720h" doc:"How long one counts, from when it was to begin."`
	Delay         Duration      `json:"delay,omitempty" least:"1ms" most:"24h" doc:"Wait before the first."`
	DelayFunction DelayFunction `json:"delay_function,omitempty" enum:"constant,exponential,fibonacci" doc:"How the wait grows with each that counts: not (constant), 1 2 4 8 times (exponential), or 1 1 2 3 5 times (fibonacci)."`
	MaxDelay      Duration      `json:"max_delay,omitempty" least:"1ms" most:"24h" doc:"The longest wait."`
	Mode          Exhaustion    `json:"mode,omitempty" enum:"fail,delay" doc:"When attempts are used up: none follows (fail), or the next follows when the first no longer counts (delay)."`
	Unlimited     bool          `json:"unlimited,omitempty" doc:"They are never used up."`
}

// DelayFunction says how waits grow.
type DelayFunction string

// The delay functions.
const (
	DelayConstant    DelayFunction = "constant"
	DelayExponential DelayFunction = "exponential"
	DelayFibonacci   DelayFunction = "fibonacci"
)

// Exhaustion says what comes after the last attempt of a policy.
type Exhaustion string

// What follows the last attempt of a policy.
const (
	ExhaustedFail  Exhaustion = "fail"
	ExhaustedDelay Exhaustion = "delay"
)

var errRecovery = errors.New("must be cluster_recover, local_restart or manual_recover, or a section with mode, restart " +
	"and reschedule")

// UnmarshalJSON reads a mode, or all.
func (r *Recovery) UnmarshalJSON(data []byte) error {
	*r = Recovery{}
	if len(data) > 0 && data[0] == '"' {
		if json.Unmarshal(data, &r.Mode) != nil || r.Mode.validate() != nil {
			return errRecovery
		}
		return nil
	}
	type plain Recovery // without this method
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode((*plain)(r))
}

func (m RecoveryMode) validate() error {
	switch m {
	case "", ClusterRecover, LocalRestart, ManualRecover:
		return nil
	}
	return WrongField("recovery.mode", "must be cluster_recover, local_restart or manual_recover")
}

// Validate checks what was given.
func (r *Recovery) Validate() error {
	if r == nil {
		return nil
	}
	return cmp.Or(r.Mode.validate(), r.Restart.validate("recovery.restart"),
		r.Reschedule.validate("recovery.reschedule"))
}

func (p *RecoveryPolicy) validate(field string) error {
	if p == nil {
		return nil
	}
	switch p.DelayFunction {
	case "", DelayConstant, DelayExponential, DelayFibonacci:
	default:
		return WrongField(field+".delay_function", "must be constant, exponential or fibonacci")
	}
	switch p.Mode {
	case "", ExhaustedFail, ExhaustedDelay:
	default:
		return WrongField(field+".mode", "must be fail or delay")
	}
	if p.MaxDelay != 0 && p.Delay > p.MaxDelay {
		return WrongField(field+".delay", "must not be longer than max_delay")
	}
	return Within(field+".", p)
}

// DefaultRecovery is the recovery of a mode. keepRunning is true of services and system jobs, whose work has no end,
// and false of batch and sysbatch.
func DefaultRecovery(mode RecoveryMode, keepRunning bool) Recovery {
	restart := RecoveryPolicy{Attempts: new(3), Interval: Duration(24 * time.Hour), Delay: Duration(time.Second),
		DelayFunction: DelayExponential, MaxDelay: Duration(30 * time.Second), Mode: ExhaustedFail}
	reschedule := RecoveryPolicy{Attempts: new(0), Interval: Duration(24 * time.Hour),
		Delay: Duration(5 * time.Second), DelayFunction: DelayConstant, MaxDelay: Duration(5 * time.Second),
		Mode: ExhaustedFail}
	if keepRunning {
		restart.Interval = Duration(10 * time.Minute)
	}
	switch {
	case mode == ManualRecover:
		restart.Attempts = new(0)
	case mode == LocalRestart && keepRunning:
		restart.Mode = ExhaustedDelay
	case mode == LocalRestart:
	case keepRunning:
		reschedule.Unlimited, reschedule.Interval = true, Duration(time.Hour)
		reschedule.DelayFunction, reschedule.MaxDelay = DelayExponential, Duration(5*time.Minute)
	default:
		reschedule.Attempts = new(1)
	}
	return Recovery{Mode: cmp.Or(mode, ClusterRecover), Restart: &restart, Reschedule: &reschedule}
}

// WithDefaults fills what was left out.
func (r *Recovery) WithDefaults(keepRunning bool) *Recovery {
	filled := DefaultRecovery(r.Mode, keepRunning)
	filled.Restart = r.Restart.over(*filled.Restart)
	filled.Reschedule = r.Reschedule.over(*filled.Reschedule)
	return &filled
}

// over is the policy, with what it leaves out from another.
func (p *RecoveryPolicy) over(d RecoveryPolicy) *RecoveryPolicy {
	if p == nil {
		return &d
	}
	merged := *p
	if p.Attempts == nil {
		merged.Attempts, merged.Unlimited = d.Attempts, p.Unlimited || d.Unlimited
	}
	defaultTo(&merged.Interval, d.Interval)
	defaultTo(&merged.Delay, min(d.Delay, Duration(p.MaxDelay.Or(d.Delay.Std()))))
	defaultTo(&merged.DelayFunction, d.DelayFunction)
	defaultTo(&merged.MaxDelay, max(d.MaxDelay, merged.Delay))
	defaultTo(&merged.Mode, d.Mode)
	return &merged
}

// Active are those of a history that count at a time.
func (p *RecoveryPolicy) Active(history []time.Time, now time.Time) []time.Time {
	since := now.Add(-p.Interval.Std())
	for i, at := range history {
		if at.After(since) {
			return history[i:]
		}
	}
	return nil
}
