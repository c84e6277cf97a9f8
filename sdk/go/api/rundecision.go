package api

import (
	"time"
)

// RunAction is what a person does to a run.
type RunAction string

// What a person can do to a run.
const (
	PauseRun  RunAction = "pause"
	ResumeRun RunAction = "resume"
	CancelRun RunAction = "cancel"
	RetryRun  RunAction = "retry" // run again what has not succeeded, as a new run
)

// Decision is what a person decided about a step or a run.
type Decision struct {
	Action string    `json:"action"`
	Step   string    `json:"step,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// RunPause says who paused a run, and what happens to its running tasks.
type RunPause struct {
	Mode PauseMode `json:"mode" enum:"stop,finish" doc:"stop: tasks under way are stopped, keep their checkpoints, and go on after the pause. finish: they finish."`
	Decision
}

// StepAction is what a person decides about a step.
type StepAction string

// What a person can decide about a step. A review of its task is the task's own.
const (
	RetryStep    StepAction = "retry"    // run it again, after it has failed
	SkipStep     StepAction = "skip"     // go on without it
	CompleteStep StepAction = "complete" // it was done by other means: take this output
	FailStep     StepAction = "fail"     // give it up
	ApproveStep  StepAction = "approve"
	RejectStep   StepAction = "reject"
)

// PauseMode says what a pause does to running tasks.
type PauseMode string

// The modes of a pause.
const (
	PauseStop   PauseMode = "stop"   // it is stopped, keeps its checkpoint, and goes on after the pause
	PauseFinish PauseMode = "finish" // it finishes
)
