// Package delivery delivers tasks to agents: attempts, backoffs, the safety gate, reviews and dead letters. It is the
// one way in which work reaches an agent. A workflow that delivers tasks is their carrier: Task carries one task, Run
// one for each of its steps.
package delivery

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// Carrier is the workflow that delivers a task.
type Carrier interface {
	// Mark shows in lists a status of the task that the carrier's own status lacks; "" removes the mark.
	Mark(ctx workflow.Context, status api.TaskStatus)
	// Note shows a field of the task in lists.
	Note(ctx workflow.Context, field string, value any)
	// Held learns that the task waits for a person.
	Held(ctx workflow.Context)
	// KeepsDeadLetters reports whether a task that is not delivered again waits for a person instead of failing.
	KeepsDeadLetters() bool
	// Yield reports whether the carrier wants to continue as new before the next attempt.
	Yield(ctx workflow.Context) bool
}

// Delivery delivers one task until it has ended. All that changes is in here.
type Delivery struct {
	task    contract.TaskInput
	carrier Carrier
	log     []api.Attempt
	carried contract.TaskCarried

	status api.TaskStatus
	why    string
	next   *time.Time
	result json.RawMessage
	source int             // the attempt that brought the result
	dead   *api.DeadLetter // set since the task became a dead letter

	delivering int // the attempt that is in its lane or with an agent; 0: none
	suspended  bool
	stopping   bool // suspended, and the attempt under way is to be stopped

	reprioritized int  // how often its priority was changed
	unsettled     bool // what waits in its lane may have another than the newest

	cancel  *contract.CancelRequest
	retry   *contract.RetryRequest
	discard *contract.DiscardRequest
	review  *contract.ReviewRequest
	late    *api.LateResult // brought since the task is in review
	failed  bool            // a person decided in review that it failed
}

// New is the delivery of a task that was submitted at a time, or that goes on from what an earlier run of its carrier
// handed over.
func New(task contract.TaskInput, submitted time.Time, carrier Carrier) *Delivery {
	d := &Delivery{task: task, carrier: carrier, status: api.TaskQueued}
	if task.Carried != nil {
		d.carried, d.log = *task.Carried, task.Carried.Attempts
		return d
	}
	d.carried.WaitingSince = submitted
	if task.Spec.StartAt.After(submitted) {
		d.carried.WaitingSince = task.Spec.StartAt
	}
	return d
}

// whyExpired says why no agent took the task, as far as the task knows.
func (d *Delivery) whyExpired() string {
	why := "the task expired before an agent took it"
	if d.carried.Tried > 0 {
		why += " again"
	}
	switch spec := &d.task.Spec; {
	case d.why != "":
		why += "; last: " + d.why
	case spec.Agent != "":
		why += ": only agent " + spec.Agent + " may"
	default:
		why += neededBy(spec, (&contract.TaskPlace{Lane: d.task.Lane}).OwnType())
	}
	return why
}

// neededBy says what an agent needs for a task, and a handler of its type if that has lanes of its own.
func neededBy(spec *api.TaskSpec, ownType bool) string {
	var needs []string
	if ownType {
		needs = append(needs, "that handles type "+spec.Type)
	}
	if len(spec.RequiredCapabilities) > 0 {
		needs = append(needs, "with "+strings.Join(spec.RequiredCapabilities, ", "))
	}
	if len(needs) == 0 {
		return ""
	}
	return ": it needs one " + strings.Join(needs, " and ")
}

// Run delivers attempts to the task's lane until one completes or task.Redeliver decides to stop. State then says how
// the task ended. It reports false when it returned before that because the carrier wants to continue as new.
func (d *Delivery) Run(ctx workflow.Context) (ended bool) {
	d.awaitStart(ctx)
	for {
		d.heedCancellation(ctx)
		if d.cancel != nil {
			return d.end(api.TaskCancelled, d.cancel.Reason)
		}
		if d.queueTimeLeft(ctx) <= 0 {
			return d.end(api.TaskExpired, d.whyExpired())
		}
		if d.carrier.Yield(ctx) {
			return false
		}
		if d.suspended {
			d.awaitResume(ctx)
			continue
		}
		report, how := d.deliver(ctx)
		switch how {
		case attemptCompleted:
			d.result, d.source = report.Output, d.carried.Deliveries
			return d.end(api.TaskCompleted, "")
		case attemptCancelled:
			return d.end(api.TaskCancelled, d.cancelReason(report.Reason))
		case attemptExpired:
			return d.end(api.TaskExpired, d.whyExpired())
		case attemptSuspended:
			continue
		}
		end := report.End()
		end.At, end.Paused = workflow.Now(ctx), d.suspended
		if end.AgentID == "" && end.Outcome.Gone() {
			end.AgentID = d.task.Spec.Agent // no other may have had it
		}
		d.goesOn(end)
		next := task.Redeliver(&d.task.Spec, d.task.TaskID, d.carried.Tally, end)
		next = mesh.Reroute(&d.task.Spec, d.routed(), next, end.At)
		d.carried.Tally = next.Tally
		if report.Begun {
			d.carried.WaitingSince = workflow.Now(ctx) // an agent had it: the wait for the next agent begins
			d.carrier.Mark(ctx, "")
		}
		if next.Status == api.TaskFailed {
			return d.end(api.TaskFailed, next.Why)
		}
		if end.Unhandled && d.cancel == nil {
			lane := d.task.Lane
			if d.task.Lane = workflows.PlaceAgain(ctx, &d.task.Spec, lane); d.task.Lane != lane {
				d.carrier.Mark(ctx, "")
				continue
			}
		}
		if final, why := d.pause(ctx, next, end.Kind()); final != "" {
			return d.end(final, why)
		}
	}
}

// goesOn keeps until when the agent of an attempt that has ended may go on with it.
func (d *Delivery) goesOn(end task.AttemptEnd) {
	if until := end.GoesOnUntil(&d.task.Spec); until.After(d.carried.GoesOnUntil) {
		d.carried.GoesOnUntil = until
	}
}

// pause waits for a backoff or for a person, as next requires after an end of a kind. It returns a final status when
// the wait ended the task.
func (d *Delivery) pause(ctx workflow.Context, next task.Redelivery, kind string) (api.TaskStatus, string) {
	d.status, d.why = next.Status, next.Why
	switch next.Status {
	case api.TaskRetryWait:
		if next.Unhandled {
			d.carrier.Mark(ctx, contract.TaskUnhandled)
		}
		wait := next.Wait
		if d.carried.Tally.Returns > 0 || d.fixedExpiry() {
			wait = min(wait, max(d.queueTimeLeft(ctx), time.Second)) // it may expire first
		}
		at := workflow.Now(ctx).Add(wait)
		d.next = &at
		woken := contract.WakeSignal.Inbox(ctx)
		woken.Take(func(contract.None) {}) // of the delivery before
		_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(wait, "wait before the next attempt"),
			func() bool { return d.cancel != nil || next.Unhandled && woken.Len() > 0 })
		d.next = nil
		if d.carried.Tally.Returns == 0 {
			d.carried.WaitingSince = workflow.Now(ctx) // a backoff does not count as waiting for an agent
		}
	case api.TaskReview:
		d.carrier.Mark(ctx, api.TaskReview)
		d.carrier.Held(ctx)
		_ = workflow.Await(ctx, func() bool { return d.review != nil || d.cancel != nil })
		if d.review != nil {
			return d.reviewed(ctx)
		}
	case api.TaskDeadLetter:
		if !d.carrier.KeepsDeadLetters() {
			return api.TaskFailed, next.Why
		}
		if final, why := d.keepDeadLetter(ctx, next.Why, kind); final != "" {
			return final, why
		}
	}
	d.heedCancellation(ctx)
	return "", ""
}

// Suspend delivers no other attempt until Resume. With stop, the attempt under way is stopped and keeps its checkpoint,
// if the task may begin again by itself; else it finishes.
func (d *Delivery) Suspend(stop bool) {
	d.suspended, d.stopping = true, stop && !d.task.Spec.Safety().NeedsPerson()
}

// Resume goes on after Suspend.
func (d *Delivery) Resume() { d.suspended, d.stopping = false, false }

// Cancel ends the task, as a person's request does.
func (d *Delivery) Cancel(reason string) {
	if d.cancel == nil {
		d.cancel = &contract.CancelRequest{Reason: reason}
	}
}

// Delivering reports whether an attempt is in its lane or with an agent.
func (d *Delivery) Delivering() bool { return d.delivering != 0 }

func (d *Delivery) awaitResume(ctx workflow.Context) {
	d.status, d.why = api.TaskQueued, "paused"
	d.carrier.Held(ctx)
	_ = workflow.Await(ctx, func() bool { return !d.suspended || d.cancel != nil })
	d.why = ""
	d.carried.WaitingSince = workflow.Now(ctx) // a pause does not count as waiting for an agent
}

// GivenUp reports whether a person has given the task up.
func (d *Delivery) GivenUp() bool { return d.discard != nil || d.failed }

// heedCancellation treats the workflow's own cancellation, as from the Web UI, like a cancel update.
func (d *Delivery) heedCancellation(ctx workflow.Context) {
	if ctx.Err() != nil {
		d.Cancel("the workflow was cancelled")
	}
}

// reviewed carries out a person's decision.
func (d *Delivery) reviewed(ctx workflow.Context) (api.TaskStatus, string) {
	decision, late := *d.review, d.late
	d.review, d.late = nil, nil
	switch decision.Decision {
	case api.ReviewAccept:
		if late.Outcome != api.AttemptCompleted {
			d.failed = true
			return api.TaskFailed, byReview("failed", "its agent reported: "+late.Reason)
		}
		d.result, d.source = late.Result, late.Attempt
		return api.TaskCompleted, byReview("completed", cmp.Or(decision.Reason, "its agent had brought the result"))
	case api.ReviewCompleted:
		d.result = decision.Result
		return api.TaskCompleted, byReview("completed", decision.Reason)
	case api.ReviewFailed:
		d.failed = true
		return api.TaskFailed, byReview("failed", decision.Reason)
	}
	d.restart(ctx, "review: run again")
	return "", ""
}

func byReview(done, reason string) string {
	if reason == "" {
		return done + " by review"
	}
	return done + " by review: " + reason
}

// restart gives the task a fresh set of attempts and a fresh time to wait for an agent.
func (d *Delivery) restart(ctx workflow.Context, why string) {
	if n := len(d.log); n > 0 && d.log[n-1].ErrorType == api.ErrorTypeCheckpoint {
		d.carried.Checkpoint, d.carried.CheckpointDigest = nil, "" // it begins anew
	}
	d.retry, d.dead, d.carried.LostAt = nil, nil, nil
	d.carried.Tally = task.Tally{Retried: true}
	d.carried.RoutesSince = d.carried.Deliveries
	d.carried.WaitingSince = workflow.Now(ctx)
	d.status, d.why = api.TaskQueued, why
	d.carrier.Mark(ctx, "")
}

func (d *Delivery) queueTimeLeft(ctx workflow.Context) time.Duration {
	return d.expiresAt().Sub(workflow.Now(ctx))
}

// fixedExpiry reports whether the task expires at a time that it was submitted with.
func (d *Delivery) fixedExpiry() bool {
	return !d.task.Spec.ExpiresAt.IsZero() && !d.carried.Tally.Retried
}

func (d *Delivery) expiresAt() time.Time {
	if d.fixedExpiry() {
		return d.task.Spec.ExpiresAt
	}
	return d.carried.WaitingSince.Add(d.task.Spec.Expiration())
}

func (d *Delivery) cancelReason(fallback string) string {
	if d.cancel != nil && d.cancel.Reason != "" {
		return d.cancel.Reason
	}
	return fallback
}

func (d *Delivery) end(status api.TaskStatus, why string) bool {
	d.status, d.why = status, why
	return true
}

// State is the task as it stands now.
func (d *Delivery) State() contract.TaskState {
	state := contract.TaskState{Status: d.status, Why: d.why, Attempts: d.log, Tried: d.carried.Tried, Result: d.result,
		ResultAttempt: d.source, Late: d.late, NextAttempt: d.next, Priority: d.priority(), DeadLetter: d.dead}
	if !d.status.Final() {
		state.Cancelling = d.cancel
	}
	waits := d.status == api.TaskQueued ||
		d.status == api.TaskRetryWait && (d.carried.Tally.Returns > 0 || d.fixedExpiry())
	if waits && !d.carried.WaitingSince.IsZero() && !d.task.Spec.KeepRunning {
		state.ExpiresAt = new(d.expiresAt())
	}
	if state.Recovery = d.task.Spec.EffectiveRecovery(); state.Recovery != nil {
		state.PolicyState = d.carried.Tally.Policy.Clone()
	}
	return state
}

// Task is the task with what its carrier hands over when it continues as new.
func (d *Delivery) Task() contract.TaskInput {
	d.carried.Attempts = d.log
	task := d.task
	task.Carried = &d.carried
	return task
}

// awaitStart waits until the task may be delivered for the first time, or is cancelled.
func (d *Delivery) awaitStart(ctx workflow.Context) {
	at := d.task.Spec.StartAt
	wait := at.Sub(workflow.Now(ctx))
	if d.carried.Deliveries > 0 || wait <= 0 {
		return
	}
	d.next, d.why = &at, api.StartsAt(at)
	_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(wait, d.why), func() bool { return d.cancel != nil })
	d.next, d.why = nil, ""
}
