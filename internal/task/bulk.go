package task

import (
	"cmp"
	"errors"
	"slices"

	"mainstay.dev/sdk/api"
)

// MaxBulkIDs bounds the tasks that a bulk operation names by id.
const MaxBulkIDs = 1000

// Bulk is an action on all tasks that a filter, or a list of ids, selects.
type Bulk struct {
	Action api.BulkAction `json:"action"`
	Filter api.TaskFilter `json:"filter,omitzero"`
	IDs    []string       `json:"ids,omitempty"`
	// All must be set when neither filter nor ids select tasks.
	All      bool               `json:"all,omitempty"`
	Decision api.ReviewDecision `json:"decision,omitempty"` // of BulkReview
	Priority api.Priority       `json:"priority,omitempty"` // of BulkPriority
	Reason   string             `json:"reason"`
	By       string             `json:"by,omitempty"` // who asked for it
}

// Validate refuses an operation without a selection, or with one that its action does not allow. The errors are
// FieldErrors.
func (b *Bulk) Validate() error {
	statuses := b.Action.Statuses()
	switch {
	case statuses == nil:
		return api.WrongField("action", "must be cancel, retry, discard, review or priority")
	case b.All && (len(b.IDs) > 0 || !b.Filter.Empty()):
		return api.WrongField("all", "must be left out when filter selects tasks")
	case len(b.IDs) > 0 && !b.Filter.Empty():
		return api.WrongField("filter.ids", "must be given alone, without other filters")
	case len(b.IDs) > MaxBulkIDs:
		return api.WrongField("filter.ids", "must be at most %d", MaxBulkIDs)
	case !b.All && len(b.IDs) == 0 && b.Filter.Empty():
		return api.WrongField("filter", "is empty, which would mean every task; if that is meant, say \"all\": true")
	case b.Filter.Status != "" && !slices.Contains(statuses, b.Filter.Status):
		return api.WrongField("filter.status", "must be a status in which a task can be acted on so: %s", oneOf(statuses))
	case b.Filter.Cause != "" && (!slices.Contains(statuses, api.TaskDeadLetter) ||
		b.Filter.Status != "" && b.Filter.Status != api.TaskDeadLetter):
		return api.WrongField("filter.cause", "is of dead letters: leave it out")
	case b.Action == api.BulkReview && b.Decision == "":
		return api.WrongField("decision", "must be rerun, completed or failed")
	case b.Action != api.BulkReview && b.Decision != "":
		return api.WrongField("decision", "belongs to the action review")
	case b.Action == api.BulkPriority && !b.Priority.Valid():
		return api.WrongField("priority", "must be 1 (first) to 5 (last), or critical, high, normal, low or background")
	case b.Action != api.BulkPriority && b.Priority != 0:
		return api.WrongField("priority", "belongs to the action priority")
	case !b.Filter.SubmittedAfter.IsZero() && !b.Filter.SubmittedBefore.IsZero() &&
		!b.Filter.SubmittedBefore.After(b.Filter.SubmittedAfter):
		return api.WrongField("filter.submitted_before", "must be after submitted_after")
	}
	if err := cmp.Or(api.ValidateTime("filter.submitted_after", b.Filter.SubmittedAfter),
		api.ValidateTime("filter.submitted_before", b.Filter.SubmittedBefore)); err != nil {
		return err
	}
	if err := api.ValidateLabels(b.Filter.Labels); err != nil {
		return &api.FieldError{Field: "filter.labels", Err: errors.New("must be names and values that a task's labels can have")}
	}
	for _, id := range b.IDs {
		if !api.IsTaskID(id) {
			return &api.FieldError{Field: "filter.ids", Err: errors.New("must be ids of tasks")}
		}
	}
	if b.Decision != "" {
		if err := b.Decision.Validate(); err != nil {
			return &api.FieldError{Field: "decision", Err: err}
		}
	}
	return nil
}

// oneOf lists statuses in words: "a, b or c".
func oneOf(statuses []api.TaskStatus) string {
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
