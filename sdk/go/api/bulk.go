package api

import (
	"time"
)

// BulkAction is what a bulk operation does to each task.
type BulkAction string

// The bulk actions.
const (
	BulkCancel   BulkAction = "cancel"
	BulkRetry    BulkAction = "retry"
	BulkDiscard  BulkAction = "discard"
	BulkReview   BulkAction = "review"
	BulkPriority BulkAction = "priority"
)

// Statuses are the statuses in which a task allows the action.
func (a BulkAction) Statuses() []TaskStatus {
	switch a {
	case BulkCancel, BulkPriority:
		return []TaskStatus{TaskQueued, TaskRunning, TaskRetryWait, TaskReview, TaskDeadLetter}
	case BulkRetry, BulkDiscard:
		return []TaskStatus{TaskDeadLetter}
	case BulkReview:
		return []TaskStatus{TaskReview}
	}
	return nil
}

// TaskFilter selects tasks that match all of its set fields; empty selects every task.
type TaskFilter struct {
	Cluster         string            `json:"cluster,omitempty"`
	Status          TaskStatus        `json:"status,omitempty"`
	Type            string            `json:"type,omitempty"`
	Tenant          string            `json:"tenant,omitempty"`
	Agent           string            `json:"agent,omitempty"` // the agent that the task is pinned to
	Labels          map[string]string `json:"labels,omitempty"`
	Cause           string            `json:"cause,omitempty"` // the kind of a dead letter's
	SubmittedAfter  time.Time         `json:"submitted_after,omitzero"`
	SubmittedBefore time.Time         `json:"submitted_before,omitzero"`
}

// Empty reports whether the filter selects every task.
func (f *TaskFilter) Empty() bool {
	return f.Cluster == "" && f.Status == "" && f.Type == "" && f.Tenant == "" && f.Agent == "" && len(f.Labels) == 0 &&
		f.Cause == "" && f.SubmittedAfter.IsZero() && f.SubmittedBefore.IsZero()
}

// BulkStatus is the state of a bulk operation.
type BulkStatus string

// The statuses of a bulk operation.
const (
	BulkRunning   BulkStatus = "running"
	BulkCompleted BulkStatus = "completed" // all tasks were asked; the counts have their answers
	BulkCancelled BulkStatus = "cancelled" // stopped before the end
	BulkFailed    BulkStatus = "failed"
)

// BulkExample is a task that was not acted on, with the reason.
type BulkExample struct {
	TaskID  string      `json:"task_id"`
	Outcome BulkOutcome `json:"outcome"`
	Reason  string      `json:"reason"`
}

// BulkOutcome is the outcome for one task.
type BulkOutcome string

// The outcomes. A task that turns out not to match has none.
const (
	BulkTaskDone    BulkOutcome = "done"
	BulkTaskSkipped BulkOutcome = "skipped"
	BulkTaskFailed  BulkOutcome = "failed"
)
