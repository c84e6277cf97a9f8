package api

import (
	"encoding/json"
	"time"

	"mainstay.dev/mainstay/job"
)

// Run is a run of a job as clients see it.
type Run struct {
	ID string `json:"id"`
	job.Ledger
	Cluster       string `json:"cluster"`
	Tenant        string `json:"tenant,omitempty"`
	WorkflowID    string `json:"workflow_id" doc:"Where the run is in Temporal."`
	WorkflowRunID string `json:"workflow_run_id,omitempty"`
	Duplicate     bool   `json:"duplicate,omitempty" doc:"The idempotency key was sent before."`
}

// RunEntry is a run in a list: what Temporal tells of it without asking the run itself.
type RunEntry struct {
	ID         string        `json:"id"`
	Job        string        `json:"job"`
	JobVersion int           `json:"job_version,omitempty"`
	Cluster    string        `json:"cluster"`
	Tenant     string        `json:"tenant,omitempty"`
	Status     job.RunStatus `json:"status" enum:"running,pausing,paused,blocked,completed,partial,failed,cancelled"`
	StartedAt  *time.Time    `json:"started_at,omitempty"`
	EndedAt    *time.Time    `json:"ended_at,omitempty"`
}

// PauseRunRequest pauses a run.
type PauseRunRequest struct {
	Mode   job.PauseMode `json:"mode,omitempty" enum:"stop,finish" doc:"stop (the default): tasks under way are stopped, keep their checkpoints, and go on after the pause. finish: they finish."`
	Reason string        `json:"reason,omitempty" maxLength:"512" doc:"Kept in the run's ledger."`
}

// RetryRunRequest runs again what has not succeeded of a run that has ended.
type RetryRunRequest struct {
	From   string `json:"from,omitempty" maxLength:"24" doc:"A step: it and all that come after it run again, also those that succeeded. Left out: what has not succeeded."`
	Reason string `json:"reason,omitempty" maxLength:"512"`
}

// StepRequest is what a person decides about a step.
type StepRequest struct {
	Reason string          `json:"reason,omitempty" maxLength:"512" doc:"Kept in the run's ledger."`
	Output json.RawMessage `json:"output,omitempty" doc:"With complete: the step's output, up to 16 KiB."`
}
