package contract

import (
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// TaskInput starts a Task workflow.
type TaskInput struct {
	TaskID string       `json:"task_id"`
	Spec   api.TaskSpec `json:"spec"`
	Lane   string       `json:"lane"`
	// DeadLetterRetention is the cluster's; zero: api.DefaultDeadLetterRetention.
	DeadLetterRetention api.Duration `json:"dead_letter_retention,omitempty"`
	// By is who submitted the task; empty: a schedule, or anybody while security is off.
	By string `json:"by,omitempty"`
	// Instance says that the task is an instance of a job, which learns of the task's end.
	Instance *api.InstanceOf `json:"instance,omitempty"`
	// Event is the event from outside that started the task; it gets a report if the task dies.
	Event string `json:"event,omitempty"`
	// ResultLimit is how many bytes its result may have; 0: api.MaxPayloadBytes.
	ResultLimit int `json:"result_limit,omitempty"`
	// IdempotencyKey is the key of the work that agents get; empty: the task's id. DeadlineAt is when its step or run
	// ends it in any case.
	IdempotencyKey string     `json:"idempotency_key,omitempty"`
	DeadlineAt     *time.Time `json:"deadline_at,omitempty"`
	// RerunOf is the task that this one repeats, as a person asked.
	RerunOf string `json:"rerun_of,omitempty"`
	// Carried is what a run of the workflow hands to the next.
	Carried *TaskCarried `json:"carried,omitempty"`
}

// TaskCarried is a Task workflow's state over continue-as-new.
type TaskCarried struct {
	Attempts   []api.Attempt   `json:"attempts,omitempty"`
	Deliveries int             `json:"deliveries"`
	Tally      task.Tally      `json:"tally"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	// CheckpointDigest is the digest from the agent that made the checkpoint.
	CheckpointDigest string `json:"checkpoint_digest,omitempty"`
	// Priority is what a person has set since the submission; zero: the spec's.
	Priority api.Priority `json:"priority,omitempty"`
	// WaitingSince is when the task was to start, or an agent last had it; expires_in counts from it.
	WaitingSince time.Time `json:"waiting_since"`
	// Tried is how many attempts agents have had.
	Tried int `json:"tried,omitempty"`
	// LostAt is when the loss of the last attempt's agent was noticed.
	LostAt *time.Time `json:"lost_at,omitempty"`
	// GoesOnUntil is when the agents of earlier attempts have certainly stopped fenced work.
	GoesOnUntil time.Time `json:"goes_on_until,omitzero"`
	// Target is the agent that a failover by hand chose for the next attempt.
	Target string `json:"target,omitempty"`
	// Prefer is the agent that the cluster's strategy chose for it, after a loss.
	Prefer string `json:"prefer,omitempty"`
	// RoutesSince is the last attempt before a person had the task run again: since then its routes are free again.
	RoutesSince int `json:"routes_since,omitempty"`
	// Told: the event that started the task has the report that it died.
	Told bool `json:"told,omitempty"`
}

// TaskState is what the query StatusQuery answers and what a Task workflow returns: it is the task without its input.
type TaskState struct {
	Status   api.TaskStatus  `json:"status"`
	Why      string          `json:"why,omitempty"`
	Attempts []api.Attempt   `json:"attempts,omitempty"`
	Tried    int             `json:"tried,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	// ResultAttempt is the number of the attempt that the result is of; zero: of none.
	ResultAttempt int `json:"result_attempt,omitempty"`
	// Late is the result that an agent brought after the task had gone to review; nil: none, or it is decided.
	Late        *api.LateResult `json:"late_result,omitempty"`
	NextAttempt *time.Time      `json:"next_attempt_at,omitempty"`
	// ExpiresAt is until when a task waits for an agent.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Priority is the one in force; zero: the default.
	Priority api.Priority `json:"priority,omitempty"`
	// DeadLetter is set while the task is a dead letter, and afterwards if it ended as one.
	DeadLetter *api.DeadLetter `json:"dead_letter,omitempty"`
	// Cancelling is set from when a cancellation was asked for until the task has ended.
	Cancelling *CancelRequest `json:"cancelling,omitempty"`
	// Recovery is the task's recovery with its defaults, PolicyState its history; nil for a task with a retry policy.
	Recovery    *api.Recovery    `json:"recovery,omitempty"`
	PolicyState *api.PolicyState `json:"policy_state,omitempty"`
}

// Done answers updates of tasks, arrays, runs and clusters. Full answers would stay in the history, and several at once
// could be more than Temporal accepts.
type Done struct{}

// Messages of the Task workflow.
var (
	StatusQuery  = Query[TaskState]{"status"}
	CancelUpdate = Update[CancelRequest, Done]{"cancel"}
	// RetryUpdate and DiscardUpdate are for dead letters only, ReviewUpdate for a task in review.
	RetryUpdate        = Update[RetryRequest, Done]{"retry"}
	DiscardUpdate      = Update[DiscardRequest, Done]{"discard"}
	ReviewUpdate       = Update[ReviewRequest, Done]{"review"}
	ReprioritizeUpdate = Update[ReprioritizeRequest, Done]{"reprioritize"}
	// LateResultUpdate brings a result of the attempt that a task in review was lost with.
	LateResultUpdate = Update[LateResultRequest, Done]{"late-result"}
	// WakeSignal offers a task again that no agent could run: an agent has joined since.
	WakeSignal = Signal[None]{"wake"}
	// RunTaskActivity is one delivery of a task. It is scheduled on a lane; hubs poll lanes and complete it by token.
	RunTaskActivity = Activity[RunTaskInput, AttemptReport]{"RunTask"}
	// ReprioritizeActivity changes the priority of a delivery that waits in its lane.
	ReprioritizeActivity = Activity[ReprioritizeInput, None]{"Reprioritize"}
)

// ForTask says which task of a workflow a request is for.
type ForTask struct {
	// Task is the key that Locate returns; empty for a Task workflow, which has one.
	Task string `json:"task,omitempty"`
	// By is who asks; the request stays in the history. Empty while security is off.
	By string `json:"by,omitempty"`
}

// TaskKey is the key of the task.
func (f ForTask) TaskKey() string { return f.Task }

// Address says which task the request is for, and who asks.
func (f *ForTask) Address(key, by string) { f.Task, f.By = key, by }

// TaskRequest is what a person asks of an open task.
type TaskRequest interface{ TaskKey() string }

// CancelRequest ends an open task.
type CancelRequest struct {
	ForTask
	Reason string `json:"reason,omitempty"`
}

// RetryRequest gives a dead letter a fresh set of attempts.
type RetryRequest struct {
	ForTask
	Reason string `json:"reason,omitempty"`
}

// DiscardRequest gives a dead letter up before its retention ends.
type DiscardRequest struct {
	ForTask
	Reason string `json:"reason"`
}

// ReprioritizeRequest changes the priority of an open task's further deliveries.
type ReprioritizeRequest struct {
	ForTask
	Priority api.Priority `json:"priority"`
	Reason   string       `json:"reason,omitempty"`
}

// ReprioritizeInput is the input of ReprioritizeActivity.
type ReprioritizeInput struct {
	WorkflowID string       `json:"workflow_id"`
	RunID      string       `json:"run_id"`
	ActivityID string       `json:"activity_id"`
	Priority   api.Priority `json:"priority"`
}

// ReviewRequest is a person's decision about a task in review.
type ReviewRequest struct {
	ForTask
	Decision api.ReviewDecision `json:"decision"`
	Result   json.RawMessage    `json:"result,omitempty"`
	Reason   string             `json:"reason,omitempty"`
}

// LateResultRequest is the result of an attempt that Temporal no longer takes.
type LateResultRequest struct {
	ForTask
	api.LateResult
}

// RunTaskInput is the input of RunTaskActivity: all a hub needs to give the attempt to an agent.
type RunTaskInput struct {
	TaskID          string          `json:"task_id"`
	Attempt         int             `json:"attempt"`
	Spec            api.TaskSpec    `json:"spec"`
	Checkpoint      json.RawMessage `json:"checkpoint,omitempty"`
	TransferredFrom string          `json:"transferred_from,omitempty"`
	// CheckpointDigest is the digest from the checkpoint's maker.
	CheckpointDigest string `json:"checkpoint_digest,omitempty"`
	// Exclude are agents that do not get this attempt.
	Exclude []string `json:"exclude,omitempty"`
	// LostAt is when a hub noticed the loss of the agent that had the attempt before; absent if there was none.
	LostAt *time.Time `json:"lost_at,omitempty"`
	// PreferAgent gets this attempt if it can: the target of a failover by hand, or whom the cluster's strategy chose.
	PreferAgent string `json:"prefer_agent,omitempty"`
	// Tally is the task's so far: with it, hubs can announce to listeners what follows the attempt.
	Tally task.Tally `json:"tally,omitzero"`
	// Elements make the delivery a bundle of an array; Element is the place of a delivery of one element.
	Elements []api.Element `json:"elements,omitempty"`
	Element  *int          `json:"element,omitempty"`
	// ResultLimit is how many bytes its result may have; 0: api.MaxPayloadBytes.
	ResultLimit int `json:"result_limit,omitempty"`
	// Instance says that the task is an instance of a job.
	Instance *api.InstanceOf `json:"instance,omitempty"`
	// IdempotencyKey and DeadlineAt are the TaskInput's.
	IdempotencyKey string     `json:"idempotency_key,omitempty"`
	DeadlineAt     *time.Time `json:"deadline_at,omitempty"`
}

// LogLimit bounds in bytes of JSON the end of an attempt's log that Temporal keeps. It has room for 500 lines of 64 KiB
// of ordinary text.
const LogLimit = 128 << 10

// ElementLogLimit is the LogLimit of deliveries of an array whose results may have resultLimit bytes.
func ElementLogLimit(resultLimit int) int { return min(resultLimit/4, LogLimit) }

// AttemptReport is how an attempt ended: the activity's result, or the details of its failure. While the attempt runs
// it is also the activity's heartbeat, so any observer of the workflow sees who runs it.
type AttemptReport struct {
	AgentID   string             `json:"agent_id,omitempty"`
	Instance  string             `json:"instance_id,omitempty"`
	Epoch     int64              `json:"epoch,omitempty"`
	Hub       string             `json:"hub,omitempty"`
	StartedAt *time.Time         `json:"started_at,omitempty"`
	EndedAt   *time.Time         `json:"ended_at,omitempty"`
	Outcome   api.AttemptOutcome `json:"outcome,omitempty"`
	Output    json.RawMessage    `json:"output,omitempty"`
	Reason    string             `json:"reason,omitempty"`
	ErrorType string             `json:"error_type,omitempty"` // what kind of failure it was, if the handler named it
	Final     bool               `json:"final,omitempty"`      // a failure that must not be tried again
	Progress  *api.Progress      `json:"progress,omitempty"`
	// AliveAt is the last sign of life, and DeadlineAt until when it may run. Heartbeats alone have them.
	AliveAt    *time.Time `json:"alive_at,omitempty"`
	DeadlineAt *time.Time `json:"deadline_at,omitempty"`
	// Marks are the attempt's first reports of progress in each step and quarter, cut short, for the task's history.
	Marks []ProgressMark `json:"marks,omitempty"`
	// Checkpoint is the newest the agent sent; the next attempt receives it.
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	// CheckpointDigest is the agent's digest of it. Without a checkpoint, it is the digest of one that was too large to
	// keep.
	CheckpointDigest string `json:"checkpoint_digest,omitempty"`
	// LeaseRemaining is how long after the report a lost agent may go on with fenced work; absent: unknown.
	LeaseRemaining *api.Duration `json:"lease_remaining,omitempty"`
	// Target is who should get the next attempt, by a failover by hand.
	Target string `json:"target,omitempty"`
	// Prefer is who should rather get it, by the cluster's strategy, after the loss of the agent.
	Prefer string `json:"prefer,omitempty"`
	// Planned says that a person, a drain or the graceful stop of its agent took the attempt off its agent.
	Planned bool `json:"planned,omitempty"`
	// NoticedAt is when a hub noticed that the agent, or the attempt on it, is lost; absent if it was planned.
	NoticedAt *time.Time `json:"noticed_at,omitempty"`
	// Begun is false when the agent certainly never began the attempt.
	Begun bool `json:"begun,omitempty"`
	// NotReceived says of a returned attempt that it reached an agent that lives and that did not receive it.
	NotReceived bool `json:"not_received,omitempty"`
	// Unhandled and RetryAfter say of a returned attempt that no agent of the hub could run it, busy or not, and from
	// when one may.
	Unhandled  bool         `json:"unhandled,omitempty"`
	RetryAfter api.Duration `json:"retry_after,omitempty"`
	// Awaits: when its agent is out of touch, its hub waits for it for its disconnect grace.
	Awaits bool `json:"awaits,omitempty"`
	// Elements are the results of a bundle that completed.
	Elements []api.ElementResult `json:"elements,omitempty"`
}

// ProgressMark is progress with its time.
type ProgressMark struct {
	At time.Time `json:"at"`
	api.Progress
}

// maxMarks bounds the marks of an attempt, and markedStep and markedMessage their texts in bytes. Each heartbeat has
// all, and the heartbeats of all attempts of a run or an array are to fit into the 8 MiB of a workflow's mutable state.
const maxMarks, markedStep, markedMessage = 16, 64, 100

// AddMark adds progress to an attempt's marks if it is the first of its step or quarter.
func AddMark(marks []ProgressMark, p api.Progress, now time.Time) []ProgressMark {
	p.Step, p.Message = api.Shorten(p.Step, markedStep), api.Shorten(p.Message, markedMessage)
	if n := len(marks); n == maxMarks || n > 0 && marks[n-1].Step == p.Step && marks[n-1].Percent/25 == p.Percent/25 {
		return marks
	}
	return append(marks, ProgressMark{At: now.UTC(), Progress: p})
}

// Attempt is what a task keeps of the attempt.
func (r *AttemptReport) Attempt(number int) api.Attempt {
	return api.Attempt{
		Number: number, AgentID: r.AgentID, Instance: r.Instance, Epoch: r.Epoch, Hub: r.Hub,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, Outcome: r.Outcome, Reason: r.Reason, ErrorType: r.ErrorType,
		Progress: r.Progress,
	}
}

// End is what task.Redeliver wants to know of an attempt that brought no result.
func (r *AttemptReport) End() task.AttemptEnd {
	return task.AttemptEnd{
		Outcome: r.Outcome, Begun: r.Begun, Final: r.Final, LeaseRemaining: r.LeaseRemaining, Reason: r.Reason,
		ErrorType: r.ErrorType, Planned: r.Planned, Unhandled: r.Unhandled, RetryAfter: r.RetryAfter,
		NotReceived: r.NotReceived, AgentID: r.AgentID,
		CheckpointLost: r.Checkpoint == nil && r.CheckpointDigest != "",
	}
}

// AttemptFailure is the application failure type of every attempt that did not complete; its one detail is an
// AttemptReport.
const AttemptFailure = "AttemptFailure"

// Refused is the application error type of an update that is not possible in the present state. Its message is for
// people.
const Refused = "Refused"

// Unchanged is the detail of the refusal of a request that would change nothing.
const Unchanged = "unchanged"

// IsUnchanged reports whether an update was refused because it would change nothing: it needs no room in the history.
func IsUnchanged(err error) bool {
	refused, ok := errors.AsType[*temporal.ApplicationError](err)
	var detail string
	return ok && refused.Type() == Refused && refused.Details(&detail) == nil && detail == Unchanged
}

// Outdated is the application error type of an update that was meant for an older state.
const Outdated = "Outdated"

// Busy is the application error type of an update that the workflow does not take now, and will in a moment.
const Busy = "Busy"
