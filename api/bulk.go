package api

import (
	"time"

	"mainstay.dev/mainstay/fleet"
)

// TaskFilterRequest selects tasks by what they are, or by their ids.
type TaskFilterRequest struct {
	Cluster         string            `json:"cluster,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Status          fleet.TaskStatus  `json:"status,omitempty" enum:"queued,running,retry_wait,review,dead_letter" doc:"One in which the action is possible."`
	Type            string            `json:"type,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Tenant          string            `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Agent           string            `json:"agent,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The agent they are pinned to."`
	Labels          map[string]string `json:"labels,omitempty" doc:"All of these."`
	SubmittedAfter  *time.Time        `json:"submitted_after,omitempty" doc:"Submitted at this time or later."`
	SubmittedBefore *time.Time        `json:"submitted_before,omitempty" doc:"Submitted before this time. Default: before the operation began."`
	IDs             []string          `json:"ids,omitempty" maxItems:"1000" doc:"These tasks, instead of all else."`
}

// BulkRequest is an action on many tasks.
type BulkRequest struct {
	Action   fleet.BulkAction     `json:"action" enum:"cancel,retry,discard,review,priority" doc:"cancel: open tasks. retry, discard: dead letters. review: tasks in review. priority: open tasks."`
	Filter   TaskFilterRequest    `json:"filter,omitzero" doc:"All that is set must hold."`
	All      bool                 `json:"all,omitempty" doc:"Needed when filter selects nothing: every task that the action is possible for."`
	Reason   string               `json:"reason" minLength:"1" maxLength:"512" doc:"Kept in the history of the operation and of each task."`
	Decision fleet.ReviewDecision `json:"decision,omitempty" enum:"rerun,completed,failed" doc:"With the action review."`
	Priority fleet.Priority       `json:"priority,omitempty" doc:"With the action priority: 1 (first) to 5 (last), or critical, high, normal, low or background."`
	DryRun   bool                 `json:"dry_run,omitempty" doc:"Only say how many tasks there are, and some of them."`
}

// Bulk is a bulk operation as clients see it, or what a dry run found.
type Bulk struct {
	ID       string               `json:"id,omitempty" doc:"Absent from a dry run."`
	DryRun   bool                 `json:"dry_run,omitempty"`
	Action   fleet.BulkAction     `json:"action"`
	Filter   *fleet.TaskFilter    `json:"filter,omitempty" doc:"Absent when all tasks were meant, or those of a list of ids."`
	All      bool                 `json:"all,omitempty"`
	Decision fleet.ReviewDecision `json:"decision,omitempty"`
	Priority int                  `json:"priority,omitempty"`
	Reason   string               `json:"reason"`
	Status   fleet.BulkStatus     `json:"status,omitempty" enum:"running,completed,cancelled,failed" doc:"completed: every task was asked; the counts say what came of it."`
	Why      string               `json:"why,omitempty"`
	Expected int                  `json:"expected" doc:"How many tasks were found at the beginning; they may become fewer."`
	AtMost   bool                 `json:"at_most,omitempty" doc:"There may be fewer than expected: too many tasks to look at each beforehand, as queued, running, retry_wait and labels need. The operation itself does."`
	Sample   []string             `json:"sample,omitempty" doc:"Of a dry run: ids of some of the tasks."`
	Matched  int                  `json:"matched" doc:"Tasks that were asked so far: done, skipped and failed."`
	Done     int                  `json:"done"`
	Skipped  int                  `json:"skipped" doc:"No longer in a state for it."`
	Failed   int                  `json:"failed"`
	Examples []fleet.BulkExample  `json:"examples,omitempty" doc:"Some of the tasks that were skipped or failed, and why: up to 20 of each."`

	StartedAt  *time.Time `json:"started_at,omitempty"`
	ClosedAt   *time.Time `json:"closed_at,omitempty"`
	WorkflowID string     `json:"workflow_id,omitempty" doc:"Where the operation is in Temporal."`
}
