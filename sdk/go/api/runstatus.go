package api

// StepStatus is where a step of a run stands.
type StepStatus string

// The statuses of a step. The last four are final.
const (
	StepPending   StepStatus = "pending"    // a step that it comes after has not ended
	StepReady     StepStatus = "ready"      // it may begin, and waits for max_parallel, a pause or a time
	StepQueued    StepStatus = "queued"     // its task waits in a lane
	StepRunning   StepStatus = "running"    // an agent has it
	StepRetryWait StepStatus = "retry_wait" // it waits out the backoff before the next attempt
	StepBlocked   StepStatus = "blocked"    // it cannot go on without a person; Why says for what
	StepCompleted StepStatus = "completed"
	StepPartial   StepStatus = "partial" // some elements failed, no more than are tolerated; or its failure counts so
	StepSkipped   StepStatus = "skipped" // its condition was false, a person skipped it, or its failure counts so
	StepFailed    StepStatus = "failed"
)

// Known reports whether a step can have the status.
func (s StepStatus) Known() bool {
	switch s {
	case StepPending, StepReady, StepQueued, StepRunning, StepRetryWait, StepBlocked:
		return true
	}
	return s.Final()
}

// Final reports whether the step has ended.
func (s StepStatus) Final() bool { return s.Through() || s == StepFailed }

// Through reports whether steps after it may begin.
func (s StepStatus) Through() bool { return s == StepCompleted || s == StepPartial || s == StepSkipped }

// Task is the status of the step's task.
func (s StepStatus) Task() TaskStatus {
	switch s {
	case StepRunning:
		return TaskRunning
	case StepRetryWait:
		return TaskRetryWait
	case StepBlocked:
		return TaskReview
	case StepCompleted, StepPartial:
		return TaskCompleted
	case StepSkipped:
		return TaskCancelled
	case StepFailed:
		return TaskFailed
	}
	return TaskQueued
}

// RunStatus is where a run stands.
type RunStatus string

// The statuses of a run. The last four are final.
const (
	RunRunning   RunStatus = "running"
	RunPausing   RunStatus = "pausing" // nothing new begins; running tasks finish or are being stopped
	RunPaused    RunStatus = "paused"
	RunBlocked   RunStatus = "blocked" // nothing goes on until a person decides
	RunCompleted RunStatus = "completed"
	RunPartial   RunStatus = "partial" // completed, but a step is partial
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// Final reports whether the run has ended.
func (s RunStatus) Final() bool {
	return s == RunCompleted || s == RunPartial || s == RunFailed || s == RunCancelled
}
