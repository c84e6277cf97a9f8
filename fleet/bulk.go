package fleet

import (
	"cmp"
	"errors"
	"slices"
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

// MaxBulkIDs bounds the tasks that a bulk operation names by id.
const MaxBulkIDs = 1000

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

// Bulk is an action on all tasks that a filter, or a list of ids, selects.
type Bulk struct {
	Action BulkAction `json:"action"`
	Filter TaskFilter `json:"filter,omitzero"`
	IDs    []string   `json:"ids,omitempty"`
	// All must be set when neither filter nor ids select tasks.
	All      bool           `json:"all,omitempty"`
	Decision ReviewDecision `json:"decision,omitempty"` // of BulkReview
	Priority Priority       `json:"priority,omitempty"` // of BulkPriority
	Reason   string         `json:"reason"`
	By       string         `json:"by,omitempty"` // who asked for it
}

// Validate refuses an operation without a selection, or with one that its action does not allow. The errors are
// FieldErrors.
func (b *Bulk) Validate() error {
	statuses := b.Action.Statuses()
	switch {
	case statuses == nil:
		return wrongField("action", "must be cancel, retry, discard, review or priority")
	case b.All && (len(b.IDs) > 0 || !b.Filter.Empty()):
		return wrongField("all", "must be left out when filter selects tasks")
	case len(b.IDs) > 0 && !b.Filter.Empty():
		return wrongField("filter.ids", "must be given alone, without other filters")
	case len(b.IDs) > MaxBulkIDs:
		return wrongField("filter.ids", "must be at most %d", MaxBulkIDs)
	case !b.All && len(b.IDs) == 0 && b.Filter.Empty():
		return wrongField("filter", "is empty, which would mean every task; if that is meant, say \"all\": true")
	case b.Filter.Status != "" && !slices.Contains(statuses, b.Filter.Status):
		return wrongField("filter.status", "must be a status in which a task can be acted on so: %s", oneOf(statuses))
	case b.Filter.Cause != "" && (!slices.Contains(statuses, TaskDeadLetter) ||
		b.Filter.Status != "" && b.Filter.Status != TaskDeadLetter):
		return wrongField("filter.cause", "is of dead letters: leave it out")
	case b.Action == BulkReview && b.Decision == "":
		return wrongField("decision", "must be rerun, completed or failed")
	case b.Action != BulkReview && b.Decision != "":
		return wrongField("decision", "belongs to the action review")
	case b.Action == BulkPriority && !b.Priority.Valid():
		return wrongField("priority", "must be 1 (first) to 5 (last), or critical, high, normal, low or background")
	case b.Action != BulkPriority && b.Priority != 0:
		return wrongField("priority", "belongs to the action priority")
	case !b.Filter.SubmittedAfter.IsZero() && !b.Filter.SubmittedBefore.IsZero() &&
		!b.Filter.SubmittedBefore.After(b.Filter.SubmittedAfter):
		return wrongField("filter.submitted_before", "must be after submitted_after")
	}
	if err := cmp.Or(ValidateTime("filter.submitted_after", b.Filter.SubmittedAfter),
		ValidateTime("filter.submitted_before", b.Filter.SubmittedBefore)); err != nil {
		return err
	}
	if err := ValidateLabels(b.Filter.Labels); err != nil {
		return &FieldError{"filter.labels", errors.New("must be names and values that a task's labels can have")}
	}
	for _, id := range b.IDs {
		if !IsTaskID(id) {
			return &FieldError{"filter.ids", errors.New("must be ids of tasks")}
		}
	}
	if b.Decision != "" {
		if err := b.Decision.Validate(); err != nil {
			return &FieldError{"decision", err}
		}
	}
	return nil
}

// oneOf lists statuses in words: "a, b or c".
func oneOf(statuses []TaskStatus) string {
	text := string(statuses[0])
	for i, s := range statuses[1:] {
		separator := ", "
		if i == len(statuses)-2 {
			separator = " or "
		}
		text += separator + string(s)
	}
	return text
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
