package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

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

// What comes after the last attempt of a policy.
const (
	ExhaustedFail  Exhaustion = "fail"
	ExhaustedDelay Exhaustion = "delay"
)

// maxRecoveryAttempts bounds the attempts of a policy, and the histories that are kept.
const maxRecoveryAttempts = 50

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
	return wrongField("recovery.mode", "must be cluster_recover, local_restart or manual_recover")
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
		return wrongField(field+".delay_function", "must be constant, exponential or fibonacci")
	}
	switch p.Mode {
	case "", ExhaustedFail, ExhaustedDelay:
	default:
		return wrongField(field+".mode", "must be fail or delay")
	}
	if p.MaxDelay != 0 && p.Delay > p.MaxDelay {
		return wrongField(field+".delay", "must not be longer than max_delay")
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

// NextRecovery is when the next may begin, by a history of when earlier ones were to begin. It reports false when they are used
// up and none follows.
func NextRecovery(p *RecoveryPolicy, history []time.Time, now time.Time) (time.Time, bool) {
	active, limit := p.Active(history, now), *p.Attempts
	switch {
	case p.Unlimited || len(active) < limit:
		return now.Add(recoveryWait(p, len(active))), true
	case limit == 0 || p.Mode != ExhaustedDelay:
		return time.Time{}, false
	}
	at, free := now.Add(recoveryWait(p, limit-1)), active[len(active)-limit].Add(p.Interval.Std())
	if free.After(at) {
		at = free
	}
	return at, true
}

// recoveryWait is the wait after n that count.
func recoveryWait(p *RecoveryPolicy, n int) time.Duration {
	wait, limit := p.Delay.Std(), p.MaxDelay.Std()
	switch p.DelayFunction {
	case DelayExponential:
		return doubled(wait, n, limit)
	case DelayFibonacci:
		for next := wait; n > 0 && wait < limit; n-- {
			wait, next = next, wait+next
		}
	}
	return min(wait, limit)
}

// String says how many are allowed.
func recoveriesAllowed(p *RecoveryPolicy, what string) string {
	return fmt.Sprintf("%s in %s", Count(*p.Attempts, what), p.Interval)
}
