package api

import (
	"errors"
	"time"
)

// HealingType is a kind of healing action.
type HealingType string

// The types of healing actions, the most urgent first.
const (
	// a critical or failed agent: its work and roles go to others, and it goes out of service
	HealFailover HealingType = "failover_agent"
	// an attempt that no agent runs: it is ended, so that the task is delivered again
	HealReassign HealingType = "reassign_task"
	// fewer agents than wanted: scaling starts some, and shards and targets are spread
	HealRebalance HealingType = "rebalance_cluster"
	// a degraded agent: it finishes its work and goes out of service
	HealDrain  HealingType = "drain_agent"
	HealReduce HealingType = "reduce_load" // an agent in warning: it gets fewer tasks at a time
	// an agent that healing took out of service and that is healthy again
	HealRestore HealingType = "restore_agent"
	HealReport  HealingType = "report" // a problem that needs a person
)

// HealingVerdict is what healing does about a finding.
type HealingVerdict string

// The verdicts.
const (
	HealAct  HealingVerdict = "act"     // healing acts
	HealPlan HealingVerdict = "planned" // a dry run: healing would act
	HealSkip HealingVerdict = "skipped" // healing must not act; the reason is recorded
	HealWait HealingVerdict = "waiting" // healing does not act now, for an expected reason
)

// HealingOutcome is the state of an action.
type HealingOutcome string

// The statuses of an action.
const (
	HealingRunning   HealingOutcome = "running"
	HealingSucceeded HealingOutcome = "succeeded"
	HealingFailed    HealingOutcome = "failed"
	HealingPlanned   HealingOutcome = "planned"  // a dry run: nothing was done
	HealingSkipped   HealingOutcome = "skipped"  // nothing was done; outcome has the reason
	HealingReported  HealingOutcome = "reported" // it needs a person
)

// HealingDecision is a cycle's decision about one finding.
type HealingDecision struct {
	Type     HealingType `json:"type"`
	Cluster  string      `json:"cluster"`
	TargetID string      `json:"target_id"` // the agent, task, lane or cluster that it is about
	Priority int         `json:"priority"`
	// Reason is the problem, and Facts are the facts behind it.
	Reason string       `json:"reason"`
	Facts  HealingFacts `json:"facts,omitzero"`
	// Verdict is what healing does, and Why the reason for not acting.
	Verdict HealingVerdict `json:"verdict"`
	Why     string         `json:"why,omitempty"`
}

// HealingFacts are the facts that led to a decision.
type HealingFacts struct {
	Status  AgentStatus `json:"status,omitempty"`
	Level   HealthLevel `json:"health,omitempty"`
	Score   *float64    `json:"health_score,omitempty"`
	Detail  string      `json:"detail,omitempty"` // the reason for the level
	Since   time.Time   `json:"since,omitzero"`
	Epoch   int64       `json:"epoch,omitempty"` // of the agent's session
	Serving int         `json:"serving"`         // agents of the cluster that get work
	Healthy int         `json:"healthy"`         // those of them that are healthy
	Wanted  int         `json:"wanted,omitempty"`
	Scaled  bool        `json:"scaled,omitempty"`  // scaling may start agents
	Running int         `json:"running,omitempty"` // tasks that the agent runs
	Times   int         `json:"times_before,omitempty"`
	Orphan  *Orphan     `json:"orphan,omitempty"`
}

// Orphan is an attempt that counts as running and that no agent runs.
type Orphan struct {
	TaskID  string    `json:"task_id"`
	Attempt int       `json:"attempt"`
	RunID   string    `json:"run_id"` // of the task's workflow
	Hub     string    `json:"hub,omitempty"`
	AgentID string    `json:"agent_id,omitempty"` // the agent that had it; empty: none is known
	Since   time.Time `json:"since"`              // of its last sign of life
}

// HealingRecord is the record of one healing action.
type HealingRecord struct {
	ID       string         `json:"id"`
	Cycle    string         `json:"cycle,omitempty"` // the cycle that decided it
	Cluster  string         `json:"cluster"`
	Type     HealingType    `json:"type" enum:"failover_agent,reassign_task,rebalance_cluster,drain_agent,reduce_load,restore_agent,report"`
	TargetID string         `json:"target_id"`
	Priority int            `json:"priority"`
	Reason   string         `json:"reason"`
	Facts    HealingFacts   `json:"facts,omitzero"`
	Status   HealingOutcome `json:"status" enum:"running,succeeded,failed,planned,skipped,reported"`
	// Outcome is the outcome in words; Ref is the id of the drain or failover that the action made.
	Outcome     string     `json:"outcome,omitempty"`
	Ref         string     `json:"ref,omitempty"`
	DecidedAt   time.Time  `json:"decided_at"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	// WorkflowID and RunID are those of its workflow in Temporal; the reader of the record adds them.
	WorkflowID string `json:"workflow_id,omitempty"`
	RunID      string `json:"run_id,omitempty"`
}

// HealingCycleRecord is the record of one healing cycle.
type HealingCycleRecord struct {
	ID     string `json:"id"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Clusters and Agents count what the cycle looked at; Silent are the clusters that did not answer.
	Clusters int      `json:"clusters"`
	Agents   int      `json:"agents"`
	Silent   []string `json:"silent,omitempty"`
	// Decisions are empty when nothing is wrong. LeftOut counts further ones, which wait.
	Decisions   []HealingDecision `json:"decisions,omitempty"`
	LeftOut     int               `json:"left_out,omitempty"`
	StartedAt   time.Time         `json:"started_at"`
	CompletedAt *time.Time        `json:"completed_at,omitempty"`
	// Error is why the cycle could not look at the fleet.
	Error string `json:"error,omitempty"`
}

// HealingMode limits what the healing cycle may do in a cluster.
type HealingMode string

// The modes of healing.
const (
	HealingOn     HealingMode = "on"
	HealingDryRun HealingMode = "dry_run" // decides and records what it would do, and does nothing
	HealingOff    HealingMode = "off"
)

// AgentRecovery is the remedy for a spawned agent that stays unhealthy.
type AgentRecovery string

// The recoveries.
const (
	RecoverByReplace  AgentRecovery = "replace"  // another takes its place
	RecoverByRestart  AgentRecovery = "restart"  // it is started anew, under its id and by its spawner
	RecoverByReassign AgentRecovery = "reassign" // the agents that are left do its work
)

// HealingPolicy has a cluster's healing settings. Zero fields take their defaults.
type HealingPolicy struct {
	// Mode is on, dry_run or off. Default on.
	Mode HealingMode `json:"mode,omitempty" enum:"on,dry_run,off" doc:"dry_run decides and records what it would do, and does nothing. Default on."`
	// CycleInterval is the time between two looks at the cluster, 5 s to 1 h. Default 1 min.
	CycleInterval Duration `json:"cycle_interval,omitempty" least:"5s" most:"1h" doc:"The time between two looks at the cluster, 5s to 1h. Default 1m."`
	// DrainTimeout is how long an agent that healing drains may finish its work. Default 5 min.
	DrainTimeout Duration `json:"drain_timeout,omitempty" least:"1s" most:"24h" doc:"How long an agent that is drained may finish its work. Default 5m."`
	// Patience is how long something must be wrong before healing acts. Default 30 s.
	Patience Duration `json:"patience,omitempty" least:"1s" most:"1h" doc:"How long something must be wrong before anything is done, 1s to 1h. Default 30s."`
	// Damping is the least time between two equal actions on the same agent; it doubles each time. Default 10 min.
	Damping Duration `json:"damping,omitempty" least:"1s" most:"24h" doc:"The least time between two equal actions on the same agent; it doubles each time. Default 10m."`
	// RestoreAfter is how long an agent that healing took out of service must be healthy before it gets work again; it
	// doubles each time. Default 5 min.
	RestoreAfter Duration `json:"restore_after,omitempty" least:"1s" most:"24h" doc:"How long an agent that was taken out of service must be healthy before it is given work again; it doubles each time. Default 5m."`
	// ReplaceAfter is how long a spawned agent that healing took out of service may stay unhealthy before it is stopped
	// for good. Default 15 min.
	ReplaceAfter Duration `json:"replace_after,omitempty" least:"1m" most:"24h" doc:"How long a spawned agent that was taken out of service may stay unhealthy before it is stopped for good, 1m to 24h. Default 15m."`
	// RecoverBy is the remedy for the agent after that. Default replace.
	RecoverBy AgentRecovery `json:"recover_by,omitempty" enum:"replace,restart,reassign" doc:"What scaling then does about it. replace: it is stopped for good, and another was started at once. restart: it is started anew under its id by its spawner, and replaced if that does not help. reassign: it is stopped for good, and the agents that are left do its work. Default replace."`
	// StuckAfter is how long a task may wait for a person, or in a lane that moves nothing, before that is reported.
	// Default 15 min.
	StuckAfter Duration `json:"stuck_after,omitempty" least:"1m" most:"168h" doc:"How long a task may wait for a person, or in a lane that moves nothing, before that is reported, 1m to 168h. Default 15m."`
	// MaxActions bounds the actions of one cycle in the cluster. Default 3.
	MaxActions int `json:"max_actions,omitempty" minimum:"1" maximum:"100" doc:"Bounds the actions of one cycle. Default 3."`
}

// DefaultHealingInterval is the time between two healing cycles.
const DefaultHealingInterval = time.Minute

// WithDefaults fills what was left out.
func (p HealingPolicy) WithDefaults() HealingPolicy {
	defaultTo(&p.Mode, HealingOn)
	defaultTo(&p.MaxActions, 3)
	defaultTo(&p.CycleInterval, Duration(DefaultHealingInterval))
	defaultTo(&p.DrainTimeout, Duration(DefaultDrainTimeout))
	defaultTo(&p.Patience, Duration(30*time.Second))
	defaultTo(&p.Damping, Duration(10*time.Minute))
	defaultTo(&p.RestoreAfter, Duration(5*time.Minute))
	defaultTo(&p.ReplaceAfter, Duration(15*time.Minute))
	defaultTo(&p.RecoverBy, RecoverByReplace)
	defaultTo(&p.StuckAfter, Duration(15*time.Minute))
	return p
}

// Validate checks p after WithDefaults.
func (p HealingPolicy) Validate() error {
	switch p.Mode {
	case HealingOn, HealingDryRun, HealingOff:
	default:
		return errors.New("mode must be on, dry_run or off")
	}
	switch p.RecoverBy {
	case RecoverByReplace, RecoverByRestart, RecoverByReassign:
	default:
		return errors.New("recover_by must be replace, restart or reassign")
	}
	return Within("", p)
}
