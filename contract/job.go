package contract

import (
	"strings"

	"mainstay.dev/mainstay/job"
)

// JobWorkflow is a job: its definition with versions, and the runs that its concurrency bounds.
const JobWorkflow = "Job"

// JobWorkflowID is the id of the workflow of a job. name is the full one, with its tenant.
func JobWorkflowID(name string) string { return "job/" + name }

// JobOfWorkflowID is the inverse of JobWorkflowID.
func JobOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "job/") }

// JobInput starts a Job workflow.
type JobInput struct {
	Name string `json:"name"`
	// Carried is what a run of the workflow hands to the next.
	Carried *job.Job `json:"carried,omitempty"`
}

// Messages of the Job workflow.
var (
	JobQuery = Query[job.Job]{"job"}
	// ApplyJobUpdate gives the job a definition. The first starts the workflow.
	ApplyJobUpdate  = Update[ApplyJob, job.Job]{"apply"}
	PauseJobUpdate  = Update[RunRequest, job.Job]{"pause"}
	ResumeJobUpdate = Update[RunRequest, job.Job]{"resume"}
	// DeleteJobUpdate ends the workflow. Runs go on.
	DeleteJobUpdate = Update[RunRequest, job.Job]{"delete"}
	// RunBeginsSignal asks a job whether a run may begin: RunAdmittedSignal answers. RunEndedSignal tells its end.
	RunBeginsSignal = Signal[RunBegins]{"run-begins"}
	RunEndedSignal  = Signal[RunEnded]{"run-ended"}
	// EndedRunsActivity tells which of some runs have ended.
	EndedRunsActivity = Activity[[]string, []string]{"EndedRuns"}
	// ScheduleJobActivity makes the schedules of a job in Temporal as its definition has them.
	ScheduleJobActivity = Activity[ScheduleJob, None]{"ScheduleJob"}
)

// MemoJob is the JobNote of a job.
const MemoJob = "job"

// JobNote is what lists tell of a job.
type JobNote struct {
	Type      job.Type `json:"type"`
	Version   int      `json:"version"`
	Steps     int      `json:"steps"`
	Schedules int      `json:"schedules,omitempty"`
	Events    []string `json:"events,omitempty"`
	Paused    bool     `json:"paused,omitempty"`
}

// ScheduleJob is the input of ScheduleJobActivity.
type ScheduleJob struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	// Definition is the one in force; nil: the job is deleted.
	Definition *job.Definition `json:"definition,omitempty"`
	Paused     bool            `json:"paused,omitempty"`
	Had        int             `json:"had"` // how many schedules there were
}

// ApplyJob is a checked definition.
type ApplyJob struct {
	Definition job.Definition `json:"definition"`
	// Expected is the version that the caller has seen; 0: any.
	Expected int    `json:"expected,omitempty"`
	By       string `json:"by,omitempty"`
}

// RunBegins is a run of a job with bounded concurrency.
type RunBegins struct {
	Run string `json:"run"`
	// Key is the value of the concurrency's key.
	Key         string          `json:"key,omitempty"`
	Concurrency job.Concurrency `json:"concurrency"`
}

// Admission says that a run may begin, or that it is not started, and why.
type Admission = job.Admission

// RunEnded is the end of a run.
type RunEnded struct {
	Run string `json:"run"`
}
