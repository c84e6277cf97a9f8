package api

import (
	"encoding/json"
	"time"
)

// Correction is a result of a step that its check did not accept.
type Correction struct {
	Attempt int             `json:"attempt" doc:"The attempt of its task that brought the result."`
	Errors  []string        `json:"errors" doc:"What is wrong with it."`
	Output  json.RawMessage `json:"output,omitempty" doc:"The result, if it has at most 16 KiB."`
	At      time.Time       `json:"at"`
}

// StepWork is what the ledger knows of one task of a step: the step's own, or that of one element.
type StepWork struct {
	Status      StepStatus   `json:"status"`
	Why         string       `json:"why,omitempty"`
	TaskID      string       `json:"task_id,omitempty"`
	Attempts    []Attempt    `json:"attempts,omitempty" doc:"The newest 20."`
	StartedAt   *time.Time   `json:"started_at,omitempty" doc:"When its task was first put into a lane."`
	EndedAt     *time.Time   `json:"ended_at,omitempty"`
	NextAt      *time.Time   `json:"next_at,omitempty" doc:"When it goes on: the end of a backoff or of a wait."`
	PolicyState *PolicyState `json:"policy_state,omitempty" doc:"With recovery: what that has done, and what follows."`
	// RecoveryStatus and RecoveryRequiresReview are set when a run is shown.
	RecoveryStatus         string          `json:"recovery_status,omitempty" enum:"ok,restarting,rescheduling,waiting_for_agent,blocked,review,exhausted" doc:"With recovery: how it stands. blocked: no agent takes it; why says the reason, next_at when it is offered again."`
	RecoveryRequiresReview bool            `json:"recovery_requires_review,omitempty" doc:"It goes on only as a person decides."`
	Result                 json.RawMessage `json:"-"` // until the step has ended
	Output                 json.RawMessage `json:"output,omitempty" doc:"What the run keeps of its result."`
	Tool                   string          `json:"tool,omitempty" doc:"The tool that it calls, for the model of its step."`
}

// StepEntry is what the ledger knows of one step.
type StepEntry struct {
	Step  string `json:"step"`
	Begun bool   `json:"begun,omitempty"`
	StepWork
	Approval       bool         `json:"approval,omitempty" doc:"It waits, or waited, for a person to approve."`
	Safety         RetrySafety  `json:"safety,omitempty"`
	IdempotencyKey string       `json:"idempotency_key,omitempty" doc:"The same for every attempt of the step in this run."`
	DeadlineAt     *time.Time   `json:"deadline_at,omitempty"`
	Policy         *StepPolicy  `json:"policy,omitempty" doc:"What is in force for its attempts, once it has begun."`
	Elements       []StepWork   `json:"elements,omitempty" doc:"With for_each; with tools, the calls of them."`
	Turns          int          `json:"turns,omitempty" doc:"With tools: how often its model has called some and learnt what they said, since a person last had it run again."`
	Corrections    []Correction `json:"corrections,omitempty" doc:"Results that its check did not accept, with what is wrong with them."`
	Forgiven       int          `json:"forgiven,omitempty" doc:"How many of them were there when a person last had it run again."`
	Note           string       `json:"note,omitempty" doc:"What that person wrote for the next correction."`
	Verdict        *StepWork    `json:"verdict,omitempty" doc:"The task that checks its result."`
	Counts         *StepCounts  `json:"counts,omitempty" doc:"With for_each."`
	Array          string       `json:"array,omitempty" doc:"With for_each of more than 100 elements: the id of their array, which tells of them."`
}

// StepPolicy is the policy in force for the attempts of a step, with all defaults.
type StepPolicy struct {
	Timeout       Duration     `json:"timeout" doc:"How long one attempt may run."`
	BeaconTimeout Duration     `json:"beacon_timeout,omitempty" doc:"An attempt that gives no sign of life for so long is ended, and counts as failed."`
	Retry         *RetryPolicy `json:"retry,omitempty" doc:"Absent: it has a recovery."`
	Recovery      *Recovery    `json:"recovery,omitempty"`
	OnFailure     OnFailure    `json:"on_failure" enum:"fail,partial,skip,hold" doc:"What follows the last attempt."`
}

// StepCounts are how many elements of a step stand where.
type StepCounts struct {
	Total   int `json:"total"`
	Done    int `json:"done"`
	Failed  int `json:"failed"`
	Running int `json:"running"` // queued, running or waiting
}

// Ledger is what a run has done and what comes next.
type Ledger struct {
	Job        string          `json:"job"`
	JobVersion int             `json:"job_version,omitempty"`
	Status     RunStatus       `json:"status" enum:"running,pausing,paused,blocked,completed,partial,failed,cancelled"`
	Why        string          `json:"why,omitempty"`
	Inputs     json.RawMessage `json:"inputs,omitempty"`
	Origin     RunOrigin       `json:"origin"`
	Steps      []StepEntry     `json:"steps" doc:"By level, then by name."`
	Output     json.RawMessage `json:"output,omitempty" doc:"What a terminal sink completed the run with."`
	Paused     *RunPause       `json:"paused,omitempty"`
	Tokens     int             `json:"tokens,omitempty" doc:"What the models that its steps called have taken, in and out."`
	MicroUSD   int             `json:"micro_usd,omitempty" doc:"What that cost, in millionths of a US dollar, as far as agents know the prices."`
	Budgets    int             `json:"budgets,omitempty" doc:"How often a resume gave it its budget again."`
	Cancel     *Decision       `json:"cancel,omitempty" doc:"Who cancelled it, and why."`
	Decisions  []Decision      `json:"decisions,omitempty" doc:"What people decided about the run and its steps: the newest 50."`
	StartedAt  time.Time       `json:"started_at"`
	DeadlineAt *time.Time      `json:"deadline_at,omitempty"`
	EndedAt    *time.Time      `json:"ended_at,omitempty"`
}

// RunOrigin says what started a run.
type RunOrigin struct {
	By       string `json:"by,omitempty" doc:"Who dispatched it, or ran it again."`
	Schedule bool   `json:"schedule,omitempty" doc:"Its job's schedule started it."`
	Event    string `json:"event,omitempty" doc:"The inbound event that started it."`
	RetryOf  string `json:"retry_of,omitempty" doc:"The run that it repeats from the steps that had not succeeded."`
}

// Entry returns the entry of a step, nil for none.
func (l *Ledger) Entry(step string) *StepEntry {
	for i := range l.Steps {
		if l.Steps[i].Step == step {
			return &l.Steps[i]
		}
	}
	return nil
}
