package api

import (
	"encoding/json"
	"time"
)

// Run is a run of a job as clients see it.
type Run struct {
	ID string `json:"id"`
	Ledger
	Cluster       string `json:"cluster"`
	Tenant        string `json:"tenant,omitempty"`
	WorkflowID    string `json:"workflow_id" doc:"Where the run is in Temporal."`
	WorkflowRunID string `json:"workflow_run_id,omitempty"`
	Duplicate     bool   `json:"duplicate,omitempty" doc:"The idempotency key was sent before."`

	Actions     []RunAction             `json:"actions,omitempty" enum:"pause,resume,cancel,retry" doc:"What a person can do to the run now."`
	StepActions map[string][]StepAction `json:"step_actions,omitempty" doc:"What a person can do to its steps now, by step: approve, reject, retry, skip, complete, fail."`
	Plan        []PlannedStep           `json:"plan,omitempty" doc:"With include=plan: its steps by level, then by name."`
}

// PlannedStep is where a step stands in the plan of its run.
type PlannedStep struct {
	Step     string   `json:"step"`
	Level    int      `json:"level" doc:"How many steps the longest way to it has: 0 of a step that comes after none."`
	After    []string `json:"after,omitempty" doc:"The steps that it comes after."`
	Optional bool     `json:"optional,omitempty" doc:"The run neither waits for it nor fails with it."`
}

// RunEntry is a run in a list: the facts that Temporal has without asking the run itself.
type RunEntry struct {
	ID         string     `json:"id"`
	Job        string     `json:"job"`
	JobVersion int        `json:"job_version,omitempty"`
	Cluster    string     `json:"cluster"`
	Tenant     string     `json:"tenant,omitempty"`
	Status     RunStatus  `json:"status" enum:"running,pausing,paused,blocked,completed,partial,failed,cancelled"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
}

// PauseRunRequest pauses a run.
type PauseRunRequest struct {
	Mode   PauseMode `json:"mode,omitempty" enum:"stop,finish" doc:"stop (the default): tasks under way are stopped, keep their checkpoints, and go on after the pause. finish: they finish."`
	Reason string    `json:"reason,omitempty" maxLength:"512" doc:"Kept in the run's ledger."`
}

// RetryRunRequest runs again what has not succeeded of a run that has ended.
type RetryRunRequest struct {
	From   string `json:"from,omitempty" maxLength:"24" doc:"A step: it and all that come after it run again, also those that succeeded. Left out: what has not succeeded."`
	Reason string `json:"reason,omitempty" maxLength:"512"`
}

// StepRequest is what a person decides about a step.
type StepRequest struct {
	Reason  string          `json:"reason,omitempty" maxLength:"512" doc:"Kept in the run's ledger."`
	Output  json.RawMessage `json:"output,omitempty" doc:"With complete: the step's output, up to 16 KiB."`
	Attempt int             `json:"attempt,omitempty" minimum:"1" doc:"With complete: take the result of this attempt, which the step's check did not accept."`
}
