package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Backoff bounds between the attempts of a task.
const (
	DefaultInitialInterval = 2 * time.Second
	DefaultMaxInterval     = 5 * time.Minute
)

// TaskStatus is the status of a task. docs/ARCHITECTURE.md has the state diagram.
type TaskStatus string

// The statuses of a task. The first five are open, the rest are final.
const (
	TaskQueued     TaskStatus = "queued"      // waiting in its lane for an agent
	TaskRunning    TaskStatus = "running"     // an agent has it
	TaskRetryWait  TaskStatus = "retry_wait"  // waiting out the backoff before the next attempt
	TaskReview     TaskStatus = "review"      // a person must decide: running it again may not be safe
	TaskDeadLetter TaskStatus = "dead_letter" // attempts are used up; kept for retry until the retention ends
	TaskCompleted  TaskStatus = "completed"
	TaskFailed     TaskStatus = "failed"
	TaskCancelled  TaskStatus = "cancelled"
	TaskExpired    TaskStatus = "expired"
)

// Final reports whether no further change is possible.
func (s TaskStatus) Final() bool {
	switch s {
	case TaskCompleted, TaskFailed, TaskCancelled, TaskExpired:
		return true
	}
	return false
}

// Settled reports whether nothing more happens to the task without a person.
func (s TaskStatus) Settled() bool { return s.Final() || s == TaskReview || s == TaskDeadLetter }

// RetrySafety decides when a task may be delivered again after its agent was lost.
type RetrySafety string

// The retry safeties.
const (
	Idempotent RetrySafety = "idempotent"   // at once: running twice does no harm
	Fenced     RetrySafety = "fenced"       // only after the lost session's lease has certainly run out
	AtMostOnce RetrySafety = "at_most_once" // never by itself: the task goes to review
	// nobody has said: tried again after a failure, but a person decides when it was lost with its agent
	Unmarked RetrySafety = "unmarked"
)

// Validate refuses unknown values; "" is the default.
func (s RetrySafety) Validate() error {
	switch s {
	case "", Idempotent, Fenced, AtMostOnce, Unmarked:
		return nil
	}
	return errors.New("retry_safety must be idempotent, fenced, at_most_once or unmarked")
}

// NeedsPerson reports whether a person decides about a task that may have begun on an agent which was lost.
func (s RetrySafety) NeedsPerson() bool { return s == AtMostOnce || s == Unmarked }

// Defaults of a task.
const (
	DefaultMaxAttempts         = 3
	DefaultMaxTransfers        = 3
	DefaultExpiration          = time.Hour
	DefaultTaskTimeout         = 24 * time.Hour
	DefaultDeadLetterRetention = 7 * 24 * time.Hour
	// AttemptBackstop bounds how long an attempt may go without a heartbeat by any hub. Hubs detect losses fast; this
	// only catches attempts that no hub knows.
	AttemptBackstop = 60 * time.Second
	// MaxPayloadBytes bounds a task's payload and an attempt's result, each as JSON text.
	MaxPayloadBytes = 1 << 20
	// MaxLabels bounds the labels of a task.
	MaxLabels = 16
	// LabelCorrelation is the label with the correlation id of the event that started a task. Its spans have it too.
	LabelCorrelation = "correlation_id"
	// maxLabelValue bounds the value of one, in bytes.
	maxLabelValue = 128
	// MaxCheckpointBytes bounds a checkpoint.
	MaxCheckpointBytes = 64 << 10
)

// RetryPolicy bounds and spaces the attempts of a task.
type RetryPolicy struct {
	// MaxAttempts counts attempts whose handler reported a failure. 0 means DefaultMaxAttempts.
	MaxAttempts int `json:"max_attempts,omitempty" minimum:"1" maximum:"100" doc:"Attempts that may fail before the task is a dead letter. Default 3."`
	// MaxTransfers counts attempts lost with their agent. 0 means DefaultMaxTransfers.
	MaxTransfers int `json:"max_transfers,omitempty" minimum:"1" maximum:"100" doc:"Agents the task may be lost with before it is a dead letter. Default 3."`
	// InitialInterval is the backoff before the second attempt; it doubles each time. 0 means 2 s.
	InitialInterval Duration `json:"initial_interval,omitempty" least:"1ms" most:"1h" doc:"Wait before the second attempt; doubles each time. Default 2s."`
	// MaxInterval caps the backoff. 0 means 5 min.
	MaxInterval Duration `json:"max_interval,omitempty" least:"1ms" most:"24h" doc:"Longest wait between attempts. Default 5m."`
	// NonRetryable are the types of failures that must not be tried again.
	NonRetryable []string `json:"non_retryable,omitempty" maxItems:"32" doc:"Types of failures, as agents report them in error_type, that must not be tried again: the task fails at once."`
}

// TaskSpec is the task that a client submits.
type TaskSpec struct {
	Type                  string            `json:"type" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"What kind of work it is; agents declare which types they handle."`
	Cluster               string            `json:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The cluster whose agents may do it."`
	Payload               json.RawMessage   `json:"payload,omitempty" doc:"Any JSON up to 1 MiB; handed to the agent's handler."`
	Priority              Priority          `json:"priority,omitempty" doc:"1 (first) to 5 (last), or critical, high, normal, low or background. Default 3, normal."`
	Agent                 string            `json:"agent,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Only this agent of the cluster may do it. It need not be online: the task waits for it."`
	ShardKey              string            `json:"shard_key,omitempty" maxLength:"256" doc:"In a sharded cluster, tasks of one key go to one shard. Left out: the task's id."`
	RequiredCapabilities  []string          `json:"required_capabilities,omitempty" maxItems:"32" doc:"Only agents with all of these may do it."`
	PreferredCapabilities []string          `json:"preferred_capabilities,omitempty" maxItems:"32" doc:"Agents with these are preferred."`
	Affinity              string            `json:"affinity,omitempty" maxLength:"256" doc:"The agent that is preferred for it."`
	Retry                 RetryPolicy       `json:"retry,omitzero" doc:"Bounds and spaces the attempts."`
	Recovery              *Recovery         `json:"recovery,omitempty" doc:"What happens after an attempt that brought no result: restarts on the same agent, then attempts on others. It takes the place of retry, but for non_retryable."`
	KeepRunning           bool              `json:"keep_running,omitempty" doc:"Its work has no end: an attempt that completes begins again by its recovery, none has a timeout unless one is given, and the task does not expire."`
	RetrySafety           RetrySafety       `json:"retry_safety,omitempty" enum:"idempotent,fenced,at_most_once,unmarked" doc:"When it may run again after its agent was lost: at once (idempotent, the default), after the lost agent's lease has ended (fenced), or only when a person says so (at_most_once, and unmarked, which is tried again after a reported failure)."`
	Timeout               Duration          `json:"timeout,omitempty" least:"1s" most:"720h" doc:"How long one attempt may run. Default 24h."`
	StartAt               time.Time         `json:"start_at,omitzero" doc:"When it may first be delivered, at most a year ahead. In the past or left out: at once."`
	ExpiresIn             Duration          `json:"expires_in,omitempty" least:"1s" most:"720h" doc:"How long it may wait for an agent before it expires, counted from start_at. Default 1h."`
	ExpiresAt             time.Time         `json:"expires_at,omitzero" doc:"Instead of expires_in: after this time no agent takes it, however often it was tried before; at most 30 days after start_at. Once a person has retried it, expires_in counts."`
	BeaconTimeout         Duration          `json:"beacon_timeout,omitempty" least:"1s" most:"24h" doc:"An attempt whose handler gives no sign of life for this long is ended and counts as failed. 45s, with a sign every 15s, is the usual choice. Default: not watched."`
	StopGrace             *Duration         `json:"stop_grace,omitempty" least:"0s" most:"10m" doc:"How long its work has to end once it was asked to, because it was cancelled or is out of time: a command gets SIGTERM, and SIGKILL then. 0s: at once. Default: the cluster's, else 30s for a command and 5s for other work. The end of a lease and the stop of its agent wait for no more than 0s and 5s."`
	DisconnectGrace       *Duration         `json:"disconnect_grace,omitempty" least:"0s" most:"24h" doc:"How long its agent may be out of touch before its attempt counts as lost: one that comes back meanwhile goes on with it. 0s: not at all. Default: the cluster's, else 30s for at_most_once and unmarked tasks and 0s for idempotent ones, which run elsewhere at once. Not of fenced ones, which are held until the agent's lease has ended."`
	Provider              string            `json:"provider,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The outside service that it calls, as agents name it. Agents with access are preferred; one that the provider limits the rate of does not get it before the limit ends."`
	Routes                []Route           `json:"routes,omitempty" maxItems:"8" doc:"Of a task that calls a model: the providers and models to use, the first that works. Each attempt is one call of one of them; its agent has the capability model.PROVIDER."`
	Tenant                string            `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Whose work it is; tenants share agents fairly."`
	Labels                map[string]string `json:"labels,omitempty" doc:"Up to 16 names and values, to find tasks by."`
	Place                 Demand            `json:"place,omitzero" doc:"Resources, devices, volumes and ports that it needs of its agent. It waits until an agent has them free."`
}

// ValidateLabels checks the labels of a task, or of what has tasks.
func ValidateLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return WrongField("labels", "may be at most %d", MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := ValidateID("label name", name); err != nil {
			return err
		}
		if err := ValidateLine("labels."+name, labels[name], maxLabelValue); err != nil {
			return err
		}
	}
	return nil
}

// ValidateLine checks a short text that people see in lists: up to most bytes, in one line, without control characters.
func ValidateLine(what, text string, most int) error {
	if len(text) > most {
		return WrongField(what, "may be at most %d characters", most)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return WrongField(what, "has a line end or another control character: leave it out")
	}
	return nil
}

// Validate checks the fields that need no facts about the fleet. Messages never repeat the submitted value.
func (s *TaskSpec) Validate() error {
	if err := cmp.Or(ValidateID("type", s.Type), ValidateID("cluster", s.Cluster), optionalID("agent", s.Agent),
		optionalID("tenant", s.Tenant), optionalID("provider", s.Provider)); err != nil {
		return err
	}
	for _, list := range [][]string{s.RequiredCapabilities, s.PreferredCapabilities} {
		if len(list) > 32 {
			return fmt.Errorf("a task may name at most 32 capabilities")
		}
		for _, c := range list {
			if err := ValidateID("capability", c); err != nil {
				return err
			}
		}
	}
	if s.Priority != 0 && !s.Priority.Valid() {
		return ErrPriority
	}
	if err := cmp.Or(s.RetrySafety.Validate(), s.Recovery.Validate()); err != nil {
		return err
	}
	if r := s.Retry; s.Recovery != nil &&
		(r.MaxAttempts != 0 || r.MaxTransfers != 0 || r.InitialInterval != 0 || r.MaxInterval != 0) {
		return WrongField("recovery", "takes the place of retry: leave out all of retry but non_retryable")
	}
	if !s.ExpiresAt.IsZero() && (s.ExpiresIn != 0 || s.KeepRunning) {
		return WrongField("expires_at", "stands instead of expires_in, and for work that ends: give one of them")
	}
	if len(s.Payload) > MaxPayloadBytes {
		return fmt.Errorf("%w: payload is larger than %d bytes", ErrTooLarge, MaxPayloadBytes)
	}
	if err := validateRoutes(s.Routes); err != nil {
		return err
	}
	if err := cmp.Or(ValidateLine("shard_key", s.ShardKey, 256), ValidateLine("affinity", s.Affinity, 256),
		ValidateLabels(s.Labels), Within("", s)); err != nil {
		return err
	}
	if s.Retry.InitialInterval.Or(DefaultInitialInterval) > s.Retry.MaxInterval.Or(DefaultMaxInterval) &&
		s.Retry.InitialInterval != 0 {
		return fmt.Errorf(
			"retry.initial_interval must not be longer than retry.max_interval, which is %s unless it is given",
			DefaultMaxInterval,
		)
	}
	if err := s.Place.Validate(); err != nil {
		return err
	}
	if s.DisconnectGrace != nil && s.Safety() == Fenced {
		return WrongField("disconnect_grace",
			"has no use for fenced work: an agent that is out of touch stops it when its lease ends; remove it")
	}
	return validateErrorTypes("retry.non_retryable", s.Retry.NonRetryable)
}

// Safety returns the task's retry safety, or the default.
func (s *TaskSpec) Safety() RetrySafety {
	if s.RetrySafety == "" {
		return Idempotent
	}
	return s.RetrySafety
}

// EffectiveRecovery is the task's recovery with its defaults; nil: it has a retry policy.
func (s *TaskSpec) EffectiveRecovery() *Recovery {
	switch {
	case s.Recovery != nil:
		return s.Recovery.WithDefaults(s.KeepRunning)
	case s.KeepRunning:
		return new(DefaultRecovery("", true))
	}
	return nil
}

// EffectiveRetry is the task's retry policy with its defaults; nil: it has a recovery.
func (s *TaskSpec) EffectiveRetry() *RetryPolicy {
	if s.EffectiveRecovery() != nil {
		return nil
	}
	return new(s.Retry.withDefaults())
}

// Endless stands for a time that does not come.
const Endless = 10 * 365 * 24 * time.Hour

// AttemptTimeout is how long one attempt may run.
func (s *TaskSpec) AttemptTimeout() time.Duration {
	if s.KeepRunning {
		return s.Timeout.Or(Endless)
	}
	return s.Timeout.Or(DefaultTaskTimeout)
}

// Expiration is how long it may wait for an agent.
func (s *TaskSpec) Expiration() time.Duration {
	if s.KeepRunning {
		return Endless
	}
	return s.ExpiresIn.Or(DefaultExpiration)
}

// AttemptOutcome is the outcome of one delivery of a task.
type AttemptOutcome string

// The outcomes of an attempt.
const (
	AttemptRunning   AttemptOutcome = ""          // not ended yet
	AttemptCompleted AttemptOutcome = "completed" // the handler returned a result
	AttemptFailed    AttemptOutcome = "failed"    // the handler reported a failure
	AttemptLost      AttemptOutcome = "lost"      // the agent was lost, fenced or replaced
	AttemptMoved     AttemptOutcome = "moved"     // a person, a drain or its stopping agent took it off the agent
	AttemptTimedOut  AttemptOutcome = "timed_out" // the task's timeout or beacon timeout passed
	// never begun: no agent accepted it in time, or the agent handed it back
	AttemptReturned  AttemptOutcome = "returned"
	AttemptCancelled AttemptOutcome = "cancelled"
)

// Gone reports whether the attempt went with its agent, or was taken off it, so that another agent has the next.
func (o AttemptOutcome) Gone() bool { return o == AttemptLost || o == AttemptMoved }

// Progress is a running handler's last report.
type Progress struct {
	Percent int    `json:"percent,omitempty" minimum:"0" maximum:"100"`
	Step    string `json:"step,omitempty" maxLength:"200"`
	Message string `json:"message,omitempty" maxLength:"1000"`
	// EstimatedDuration is how long the attempt takes in all, as the agent guesses. People see it; nothing acts on it.
	EstimatedDuration Duration `json:"estimated_duration,omitempty" least:"0s" doc:"How long the attempt takes in all, as its agent guesses."`
}

// Attempt is one delivery of a task to one agent.
type Attempt struct {
	Number    int        `json:"number"`
	AgentID   string     `json:"agent_id,omitempty"`
	Instance  string     `json:"instance_id,omitempty"`
	Epoch     int64      `json:"epoch,omitempty"`
	Hub       string     `json:"hub,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// AliveAt and DeadlineAt are set when an attempt is shown.
	AliveAt    *time.Time     `json:"alive_at,omitempty" doc:"Of one that runs: its last sign of life, as its hub told within the last 20 s."`
	DeadlineAt *time.Time     `json:"deadline_at,omitempty" doc:"Until when it may run: its timeout, or the deadline of its step or run. Of those that have ended, only a run's steps have it."`
	Outcome    AttemptOutcome `json:"outcome,omitempty" enum:"completed,failed,lost,moved,timed_out,returned,cancelled"`
	Reason     string         `json:"reason,omitempty"`
	// ErrorType is the type of the failure, if the handler gave one.
	ErrorType string    `json:"error_type,omitempty"`
	Progress  *Progress `json:"progress,omitempty"`
	// Route is the one of the task's routes that the attempt was for.
	Route *Route `json:"route,omitempty"`
}

// ErrTooLarge is wrapped by errors about bodies and payloads over their bound.
var ErrTooLarge = fmt.Errorf("too large")

// DeadLetter has when and why a task became a dead letter, and until when it is kept for a retry.
type DeadLetter struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Cause string    `json:"cause"`
	// Tried is how many attempts agents had.
	Tried int `json:"delivery_attempts,omitempty" doc:"How many attempts agents had."`
	// Kind is the end's Kind.
	Kind string `json:"kind,omitempty" doc:"What kind of cause it is, by which lists and bulk operations find it (cause): the type of the last failure, such as exit_2 or no_beacon, if it has one; else failed, timed_out, lost or not_received."`
}

// ReviewDecision is a person's decision about a task in review.
type ReviewDecision string

// The decisions.
const (
	ReviewRerun     ReviewDecision = "rerun"     // it is safe: deliver it again
	ReviewCompleted ReviewDecision = "completed" // it was done; take the given result
	ReviewFailed    ReviewDecision = "failed"    // give it up
	ReviewAccept    ReviewDecision = "accept"    // take the result that its agent brought late
)

// Validate checks the decision.
func (d ReviewDecision) Validate() error {
	switch d {
	case ReviewRerun, ReviewCompleted, ReviewFailed, ReviewAccept:
		return nil
	}
	return fmt.Errorf("decision must be accept, rerun, completed or failed")
}

// LateResult is what an agent reported of an attempt after its task had gone to review.
type LateResult struct {
	Attempt   int             `json:"attempt"`
	AgentID   string          `json:"agent_id"`
	At        time.Time       `json:"at" doc:"When the agent brought it."`
	StartedAt *time.Time      `json:"started_at,omitempty"`
	EndedAt   *time.Time      `json:"ended_at,omitempty" doc:"When the work ended, by the agent's clock."`
	Outcome   AttemptOutcome  `json:"outcome" enum:"completed,failed" doc:"How the work ended."`
	Result    json.RawMessage `json:"result,omitempty" doc:"What the handler returned."`
	Reason    string          `json:"reason,omitempty" doc:"Why it failed."`
}

// ValidateStartAt checks when a task may first be delivered: at most a year ahead. A time in the past means at once.
// The zero time passes.
func ValidateStartAt(at, now time.Time) error {
	if at.After(now.AddDate(1, 0, 0)) {
		return errors.New("start_at must be at most 1 year ahead")
	}
	return ValidateTime("start_at", at)
}

// maxExpiration is how long a task may wait for an agent at most.
const maxExpiration = 30 * 24 * time.Hour

// ValidateExpiresAt checks the time of a task's expiry that is submitted now. The zero time passes.
func (s *TaskSpec) ValidateExpiresAt(now time.Time) error {
	begin := now
	if s.StartAt.After(now) {
		begin = s.StartAt
	}
	switch at := s.ExpiresAt; {
	case at.IsZero():
		return nil
	case !at.After(now):
		return fmt.Errorf("expires_at is past: it is %s now; give a later time, or expires_in",
			now.UTC().Format(time.RFC3339))
	case !at.After(begin):
		return errors.New("expires_at must be after start_at")
	case at.After(begin.Add(maxExpiration)):
		return errors.New("expires_at must be at most 30 days after start_at, or after now")
	}
	return nil
}

// StartsAt states in words when a task begins that must wait for its time.
func StartsAt(at time.Time) string { return "starts at " + at.UTC().Format(time.RFC3339) }

// Bounds of the types of failures, which handlers name freely.
const (
	MaxErrorTypeBytes = 128
	maxErrorTypes     = 32
)

// ErrorTypeNoBeacon is the type of failure of an attempt without signs of life.
const ErrorTypeNoBeacon = "no_beacon"

// ErrorTypeCheckpoint is the type of failure of an attempt whose checkpoint is not the one that was saved.
const ErrorTypeCheckpoint = "checkpoint_damaged"

// ValidErrorType reports whether a text can be the type of a failure: printable, on one line, 1 to 128 bytes.
func ValidErrorType(text string) bool {
	return text != "" && len(text) <= MaxErrorTypeBytes && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func validateErrorTypes(what string, types []string) error {
	if len(types) > maxErrorTypes {
		return fmt.Errorf("%s may have at most %d entries", what, maxErrorTypes)
	}
	for _, t := range types {
		if !ValidErrorType(t) {
			return fmt.Errorf("an entry of %s must be 1 to %d printable characters, without blanks around it", what,
				MaxErrorTypeBytes)
		}
	}
	return nil
}

// HeldTask is an attempt that an agent has.
type HeldTask struct {
	TaskID    string     `json:"task_id"`
	Attempt   int        `json:"attempt"`
	StartedAt *time.Time `json:"started_at,omitempty" doc:"Absent: it was assigned, and has not begun."`
	Percent   int        `json:"percent,omitempty" doc:"Of its progress, as its handler last said."`
	Type      string     `json:"type,omitempty"`
	// RequiredCapabilities are unknown to a hub that took the attempt over from an earlier process.
	RequiredCapabilities []string    `json:"required_capabilities,omitempty"`
	Allocation           *Allocation `json:"allocation,omitempty" doc:"What it has of its agent's resources, devices, volumes and ports."`
	Movable              bool        `json:"movable,omitempty" doc:"A rebalance of tasks may move it: it may run again, and is not pinned."`
	MovingTo             string      `json:"moving_to,omitempty" doc:"The agent that is to go on with it, once this one has stopped it."`
}

// TaskDefaults are a cluster's defaults for settings that tasks leave out. Zero fields take the installation's
// defaults.
type TaskDefaults struct {
	// MaxAttempts is how many attempts may fail before a task is a dead letter. Default 3.
	MaxAttempts int `json:"max_attempts,omitempty" minimum:"1" maximum:"100" doc:"Attempts that may fail before a task is a dead letter. Default 3."`
	// MaxTransfers is how many agents a task may be lost with before it is a dead letter. Default 3.
	MaxTransfers int `json:"max_transfers,omitempty" minimum:"1" maximum:"100" doc:"Agents a task may be lost with before it is a dead letter. Default 3."`
	// ExpiresIn is how long a task may wait for an agent. Default 1 h.
	ExpiresIn Duration `json:"expires_in,omitempty" least:"1s" most:"720h" doc:"How long a task may wait for an agent. Default 1h."`
	// StopGrace is how long a task's work has to end once it was asked to. Default 30 s for commands, 5 s for other
	// work.
	StopGrace *Duration `json:"stop_grace,omitempty" least:"0s" most:"10m" doc:"How long a task's work has to end once it was asked to. Default 30s for commands, 5s for other work."`
	// DisconnectGrace is of at_most_once and unmarked tasks. Default 30 s.
	DisconnectGrace *Duration `json:"disconnect_grace,omitempty" least:"0s" most:"24h" doc:"How long the agent of an at_most_once or unmarked task may be out of touch before the task counts as lost. Default 30s."`
	// RetrySafety is when a task may run again after its agent was lost. Default idempotent.
	RetrySafety RetrySafety `json:"retry_safety,omitempty" enum:"idempotent,fenced,at_most_once,unmarked" doc:"When a task may run again after its agent was lost. Default idempotent."`
}

// WithDefaults fills what was left out.
func (d TaskDefaults) WithDefaults() TaskDefaults {
	defaultTo(&d.MaxAttempts, DefaultMaxAttempts)
	defaultTo(&d.MaxTransfers, DefaultMaxTransfers)
	defaultTo(&d.ExpiresIn, Duration(DefaultExpiration))
	defaultTo(&d.RetrySafety, Idempotent)
	return d
}

// Validate checks d after WithDefaults.
func (d TaskDefaults) Validate() error {
	return cmp.Or(Within("", d), d.RetrySafety.Validate())
}

// Apply sets what a task leaves out.
func (d TaskDefaults) Apply(s *TaskSpec) {
	defaultTo(&s.Retry.MaxAttempts, d.MaxAttempts)
	defaultTo(&s.Retry.MaxTransfers, d.MaxTransfers)
	defaultTo(&s.ExpiresIn, d.ExpiresIn)
	defaultTo(&s.StopGrace, d.StopGrace)
	defaultTo(&s.RetrySafety, d.RetrySafety)
	if s.Safety().NeedsPerson() {
		defaultTo(&s.DisconnectGrace, d.DisconnectGrace)
	}
}

// DefaultDisconnectGrace is how long the agent of at_most_once and unmarked work may be out of touch. Agents that
// cannot connect try every two seconds, and a hub or a switch that restarts is back by then.
const DefaultDisconnectGrace = 30 * time.Second

// AwaitedFor is how long the agent of the task may be out of touch before its attempt counts as lost; 0: not at all.
// instance is nil of a task that is none. Fenced work has nothing of it: hubs hold that until its lease has ended.
func (s *TaskSpec) AwaitedFor(instance *InstanceOf) time.Duration {
	switch {
	case instance != nil:
		return instance.DisconnectGrace.Std()
	case s.DisconnectGrace != nil && s.Safety() != Fenced:
		return s.DisconnectGrace.Std()
	case s.Safety().NeedsPerson():
		return DefaultDisconnectGrace
	}
	return 0
}

// Grace is how long the task's work has to end once it was asked to.
func (s *TaskSpec) Grace() time.Duration { return GraceOf(s.Type, s.StopGrace) }

// GraceOf is how long work of a type has to end once it was asked to; given is the task's own value, if it has one.
func GraceOf(taskType string, given *Duration) time.Duration {
	switch {
	case given != nil:
		return given.Std()
	case taskType == ExecType:
		return DefaultCommandGrace
	}
	return DefaultStopGrace
}

// ExecType is the task type whose payload is a command to run.
const ExecType = "exec"

// NeedsTreeEnd reports whether the task may only go to agents that end all processes of a command. Otherwise processes
// could outlive their agent, and run beside the next attempt of a fenced task, or unseen after one that a person
// decides about.
func (s *TaskSpec) NeedsTreeEnd() bool { return NeedsTreeEnd(s.Type, s.Safety()) }

// NeedsTreeEnd reports whether a task may run only on an agent that ends all processes of a command.
func NeedsTreeEnd(taskType string, safety RetrySafety) bool {
	return taskType == ExecType && (safety == Fenced || safety.NeedsPerson())
}
