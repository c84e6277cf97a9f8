package api

import (
	"encoding/json"
	"time"
)

// TaskRequest is a task as a client submits it.
type TaskRequest struct {
	ID             string `json:"id,omitempty" maxLength:"127" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$" doc:"The task's id, up to 63 characters; the task's tenant and a colon may stand before it, as in the id of the answer. Left out: one is made. Submitting the same task again answers the one that has the id; another body is refused with 409 idempotency_conflict."`
	IdempotencyKey string `json:"idempotency_key,omitempty" maxLength:"256" doc:"One key in a tenant and cluster starts one task, however often it is submitted, also after the task has ended. With another body it is refused with 409 idempotency_conflict. Not together with id."`
	TaskSpec
}

// RerunTaskRequest asks for a task that repeats another.
type RerunTaskRequest struct {
	ID             string          `json:"id,omitempty" maxLength:"127" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$" doc:"The id of the new task, as in a submission. Left out: one is made."`
	IdempotencyKey string          `json:"idempotency_key,omitempty" maxLength:"256" doc:"The key of the new task, as in a submission: the same key starts one. Not together with id."`
	Payload        json.RawMessage `json:"payload,omitempty" doc:"Instead of the payload of the old task."`
}

// Task is a task as clients see it.
type Task struct {
	ID      string     `json:"id"`
	Type    string     `json:"type"`
	Cluster string     `json:"cluster"`
	Status  TaskStatus `json:"status" enum:"queued,running,retry_wait,review,dead_letter,completed,failed,cancelled,expired"`
	Why     string     `json:"why,omitempty" doc:"Why it is not running, or why it ended as it did."`
	Agent   string     `json:"agent,omitempty" doc:"The agent it is pinned to."`

	RequiredCapabilities []string `json:"required_capabilities,omitempty" doc:"Those that its agent must have, also by its routes."`
	Place                Demand   `json:"place,omitzero" doc:"Resources, devices, volumes and ports that it needs of its agent."`

	RanOn         []string          `json:"ran_on,omitempty" doc:"The agents that had it, the last one last. Of an open task, those whose attempts have ended."`
	Priority      int               `json:"priority,omitempty" doc:"1 (first) to 5 (last): the one in force."`
	PriorityName  string            `json:"priority_name,omitempty" enum:"critical,high,normal,low,background"`
	Tenant        string            `json:"tenant,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Attempts      []Attempt         `json:"attempts,omitempty" doc:"The newest attempts, oldest first. One without ended_at is running."`
	Tried         int               `json:"delivery_attempts,omitempty" doc:"How many attempts agents have had, the one that runs too. Lists have it of tasks that wait, run, or are dead letters."`
	Payload       json.RawMessage   `json:"payload,omitempty" doc:"What was submitted; only with include=payload. Of a step's task: with the values of its expressions, once it was delivered."`
	Cancelling    *Cancelling       `json:"cancelling,omitempty" doc:"A cancellation was asked for, and the agent has not stopped yet."`
	Spec          *TaskSpec         `json:"spec,omitempty" doc:"What it was submitted with, without the payload, and with the cluster's defaults; only with include=payload."`
	History       []TaskMoment      `json:"history,omitempty" doc:"What happened to it, oldest first, at most 500 of the newest; only with include=history."`
	Result        json.RawMessage   `json:"result,omitempty" doc:"What the handler returned."`
	ResultAttempt int               `json:"result_attempt,omitempty" doc:"The number of the attempt that the result is of."`
	LateResult    *LateResult       `json:"late_result,omitempty" doc:"Of a task in review: what its agent brought after it had counted as lost. The decision accept takes it."`

	Recovery               *Recovery    `json:"recovery,omitempty" doc:"Its recovery, with what it left out. Absent: it has a retry policy."`
	PolicyState            *PolicyState `json:"policy_state,omitempty" doc:"With recovery: what that has done, and what follows."`
	RecoveryStatus         string       `json:"recovery_status,omitempty" enum:"ok,restarting,rescheduling,waiting_for_agent,blocked,review,exhausted" doc:"With recovery: how it stands. blocked: no agent takes it; why says the reason, next_attempt_at when it is offered again."`
	RecoveryRequiresReview bool         `json:"recovery_requires_review,omitempty" doc:"It goes on only as a person decides."`

	StartAt       *time.Time  `json:"start_at,omitempty" doc:"When it may first be delivered, if that was not at once."`
	NextAttemptAt *time.Time  `json:"next_attempt_at,omitempty" doc:"When the backoff ends, or the task starts."`
	ExpiresAt     *time.Time  `json:"expires_at,omitempty" doc:"Of a task that waits for an agent: when it expires if none takes it."`
	DeadLetter    *DeadLetter `json:"dead_letter,omitempty" doc:"Of a dead letter, and of a task that ended as one: since when, until when it is kept for a retry, and why. In lists the cause may be shortened."`
	CreatedAt     *time.Time  `json:"created_at,omitempty"`
	ClosedAt      *time.Time  `json:"closed_at,omitempty"`
	WorkflowID    string      `json:"workflow_id" doc:"Where the task is in Temporal."`
	RunID         string      `json:"run_id,omitempty"`
	TraceID       string      `json:"trace_id,omitempty" doc:"The OpenTelemetry trace in which it was submitted, if that is recorded."`
	Schedule      string      `json:"schedule,omitempty" doc:"The schedule that made it."`
	RerunOf       string      `json:"rerun_of,omitempty" doc:"The task that it repeats."`
	Reruns        []string    `json:"reruns,omitempty" doc:"The newest tasks that repeat it, at most 20; only with include=history."`
	Duplicate     bool        `json:"duplicate,omitempty" doc:"The id or idempotency key was submitted before."`
}

// Cancelling is a cancellation that is under way.
type Cancelling struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty" doc:"Who asked for it. Absent while security is off."`
}

// TaskMoment is one thing that happened to a task.
type TaskMoment struct {
	At       time.Time `json:"at"`
	Event    string    `json:"event" doc:"submitted; of an attempt: queued, delivered (to a hub), running, progress, and how it ended, as its outcome; moved: a person or a drain took it off its agent; waiting, review, dead_letter; cancel_asked, retried, discarded, reviewed, prioritized; late_result: its agent brought a result after the task had gone to review; at last how the task ended: completed, failed, cancelled or expired, without an attempt."`
	Attempt  int       `json:"attempt,omitempty"`
	AgentID  string    `json:"agent_id,omitempty"`
	By       string    `json:"by,omitempty" doc:"Who asked for it: the name and id of a token or certificate. Absent while security is off."`
	Reason   string    `json:"reason,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Times    int       `json:"times,omitempty" doc:"How many deliveries came back in a row for this reason, without having reached an agent. Absent: one."`
}

// TaskLog has lines of the log of one attempt.
type TaskLog struct {
	Lines   []LogLine `json:"lines" doc:"Up to 500 lines, of 64 KiB in all. A gap in the numbers means that older lines are no longer kept."`
	Next    int64     `json:"next" doc:"Send it as after to go on."`
	Attempt int       `json:"attempt,omitempty" doc:"The attempt that wrote them. Absent: none has begun."`
	AgentID string    `json:"agent_id,omitempty"`
	Ended   bool      `json:"ended" doc:"The attempt has ended, and so has its log."`
	Why     string    `json:"why,omitempty" doc:"Why there are no lines."`
}

// ReasonRequest says why a person acts.
type ReasonRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Kept in the history."`
}

// Text is the reason; "" if none was given.
func (r *ReasonRequest) Text() string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// Batch answers a batch of tasks.
type Batch struct {
	Tasks    []BatchItem `json:"tasks" doc:"One answer for each task, in the order submitted."`
	Accepted int         `json:"accepted"`
	Rejected int         `json:"rejected"`
}

// BatchItem answers one task of a batch: the task's id and status, or why it was not accepted.
type BatchItem struct {
	ID        string      `json:"id,omitempty"`
	Status    TaskStatus  `json:"status,omitempty"`
	Duplicate bool        `json:"duplicate,omitempty"`
	Error     *BatchError `json:"error,omitempty"`
}

// BatchError is why one task of a batch was not accepted.
type BatchError struct {
	Code   string         `json:"code"`
	Detail string         `json:"detail"`
	Errors []ProblemField `json:"errors,omitempty"`
}

// ReviewTaskRequest is a person's decision about a task in review.
type ReviewTaskRequest struct {
	Decision ReviewDecision  `json:"decision" enum:"accept,rerun,completed,failed" doc:"accept: take the late_result that its agent brought. rerun: it is safe, deliver it again. completed: it was done, take result. failed: give it up."`
	Result   json.RawMessage `json:"result,omitempty" doc:"The task's result, with the decision completed."`
	Reason   string          `json:"reason,omitempty" maxLength:"512" doc:"Kept in the task's history."`
}

// DiscardTaskRequest gives a dead letter up.
type DiscardTaskRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"512" doc:"Why; the task's why says it afterwards."`
}

// TaskPriorityRequest changes a task's priority.
type TaskPriorityRequest struct {
	Priority Priority `json:"priority" doc:"1 (first) to 5 (last), or critical, high, normal, low or background."`
	Reason   string   `json:"reason,omitempty" maxLength:"512" doc:"Kept in the task's history."`
}

// DeadLetters are dead letters, counted by type and cause.
type DeadLetters struct {
	Groups []DeadLetterGroup `json:"groups" doc:"The largest first."`
	Total  int               `json:"total" doc:"All that were counted."`
	More   bool              `json:"more,omitempty" doc:"There are older ones, which were not counted."`
}

// DeadLetterGroup are dead letters of a type and kind of cause.
type DeadLetterGroup struct {
	Type   string    `json:"type"`
	Cause  string    `json:"cause" doc:"The kind of the cause, as dead_letter.kind has it."`
	Count  int       `json:"count"`
	Newest string    `json:"newest" doc:"The id of the one that was submitted last."`
	Why    string    `json:"why" doc:"The cause of that one."`
	Since  time.Time `json:"since" doc:"Since when the first of them is a dead letter."`
}

// TaskFilterRequest selects tasks by what they are, or by their ids.
type TaskFilterRequest struct {
	Cluster         string            `json:"cluster,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Status          TaskStatus        `json:"status,omitempty" enum:"queued,running,retry_wait,review,dead_letter" doc:"One in which the action is possible."`
	Type            string            `json:"type,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Tenant          string            `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Agent           string            `json:"agent,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The agent they are pinned to."`
	Labels          map[string]string `json:"labels,omitempty" doc:"All of these."`
	Cause           string            `json:"cause,omitempty" maxLength:"128" doc:"Of dead letters: the kind of their cause, as dead_letter.kind has it."`
	SubmittedAfter  *time.Time        `json:"submitted_after,omitempty" doc:"Submitted at this time or later."`
	SubmittedBefore *time.Time        `json:"submitted_before,omitempty" doc:"Submitted before this time. Default: before the operation began."`
	IDs             []string          `json:"ids,omitempty" maxItems:"1000" doc:"These tasks, instead of all else."`
}

// BulkRequest is an action on many tasks.
type BulkRequest struct {
	Action   BulkAction        `json:"action" enum:"cancel,retry,discard,review,priority" doc:"cancel: open tasks. retry, discard: dead letters. review: tasks in review. priority: open tasks."`
	Filter   TaskFilterRequest `json:"filter,omitzero" doc:"All that is set must hold."`
	All      bool              `json:"all,omitempty" doc:"Needed when filter selects nothing: every task that the action is possible for."`
	Reason   string            `json:"reason" minLength:"1" maxLength:"512" doc:"Kept in the history of the operation and of each task."`
	Decision ReviewDecision    `json:"decision,omitempty" enum:"rerun,completed,failed" doc:"With the action review."`
	Priority Priority          `json:"priority,omitempty" doc:"With the action priority: 1 (first) to 5 (last), or critical, high, normal, low or background."`
	DryRun   bool              `json:"dry_run,omitempty" doc:"Only say how many tasks there are, and some of them."`
}

// Bulk is a bulk operation as clients see it, or what a dry run found.
type Bulk struct {
	ID       string         `json:"id,omitempty" doc:"Absent from a dry run."`
	DryRun   bool           `json:"dry_run,omitempty"`
	Action   BulkAction     `json:"action"`
	Filter   *TaskFilter    `json:"filter,omitempty" doc:"Absent when all tasks were meant, or those of a list of ids."`
	All      bool           `json:"all,omitempty"`
	Decision ReviewDecision `json:"decision,omitempty"`
	Priority int            `json:"priority,omitempty"`
	Reason   string         `json:"reason"`
	Status   BulkStatus     `json:"status,omitempty" enum:"running,completed,cancelled,failed" doc:"completed: every task was asked; the counts say what came of it."`
	Why      string         `json:"why,omitempty"`
	Expected int            `json:"expected" doc:"How many tasks were found at the beginning; they may become fewer."`
	AtMost   bool           `json:"at_most,omitempty" doc:"There may be fewer than expected: too many tasks to look at each beforehand, as queued, running, retry_wait and labels need. The operation itself does."`
	Sample   []string       `json:"sample,omitempty" doc:"Of a dry run: ids of some of the tasks."`
	Matched  int            `json:"matched" doc:"Tasks that were asked so far: done, skipped and failed."`
	Done     int            `json:"done"`
	Skipped  int            `json:"skipped" doc:"No longer in a state for it."`
	Failed   int            `json:"failed"`
	Examples []BulkExample  `json:"examples,omitempty" doc:"Some of the tasks that were skipped or failed, and why: up to 20 of each."`

	StartedAt  *time.Time `json:"started_at,omitempty"`
	ClosedAt   *time.Time `json:"closed_at,omitempty"`
	WorkflowID string     `json:"workflow_id,omitempty" doc:"Where the operation is in Temporal."`
}
