// Package task is the Task workflow: it delivers one task to agents until it has ended.
package task

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

const (
	// attemptsKept bounds the attempts a task's state lists; older ones stay in its history.
	attemptsKept = 20
	// cancelWait bounds how long a cancelled task waits for its agent to stop.
	cancelWait = 30 * time.Second
	// timeoutMargin is how much later than the agent Temporal ends an attempt that ran too long.
	timeoutMargin = time.Minute
)

// Workflow runs one task to its end: it delivers attempts to its lane until one completes or fleet.Redeliver decides to
// stop. A completed task returns its state. Any other end is the workflow's failure (or cancellation) with the state as
// its detail, so that the Web UI shows it as such.
func Workflow(ctx workflow.Context, in contract.TaskInput) (contract.TaskState, error) {
	run, err := newRun(ctx, in)
	if err != nil {
		return contract.TaskState{}, err
	}
	return run.loop(ctx)
}

// run is one run of a Task workflow. All that changes is in here.
type run struct {
	in    contract.TaskInput
	log   []fleet.Attempt
	carry contract.TaskCarried

	status fleet.TaskStatus
	why    string
	next   *time.Time
	result json.RawMessage
	source int               // the attempt that brought the result
	dead   *fleet.DeadLetter // set since the task became a dead letter
	marked fleet.TaskStatus  // the status search attribute as last set

	delivering int // the attempt that is in its lane or with an agent; 0: none

	cancel  *contract.CancelRequest
	retry   *contract.RetryRequest
	discard *contract.DiscardRequest
	review  *contract.ReviewRequest
}

func newRun(ctx workflow.Context, in contract.TaskInput) (*run, error) {
	r := &run{in: in, status: fleet.TaskQueued}
	if in.Carried != nil {
		r.carry, r.log = *in.Carried, in.Carried.Attempts
		marked, _ := workflow.GetTypedSearchAttributes(ctx).GetKeyword(contract.AttrStatus)
		r.marked = fleet.TaskStatus(marked)
	} else {
		r.carry.WaitingSince = workflow.GetInfo(ctx).WorkflowStartTime
		if in.Spec.StartAt.After(r.carry.WaitingSince) {
			r.carry.WaitingSince = in.Spec.StartAt
		}
	}
	if err := contract.StatusQuery.Handle(ctx, func() contract.TaskState { return r.state() }); err != nil {
		return nil, err
	}
	return r, r.setUpdateHandlers(ctx)
}

// loop delivers attempts until the task has ended.
func (r *run) loop(ctx workflow.Context) (contract.TaskState, error) {
	r.awaitStart(ctx)
	for {
		if r.cancel != nil {
			return r.end(ctx, fleet.TaskCancelled, r.cancel.Reason)
		}
		if r.queueTimeLeft(ctx) <= 0 {
			return r.end(ctx, fleet.TaskExpired, "the task expired before an agent took it")
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && workflow.AllHandlersFinished(ctx) {
			return r.continueAsNew(ctx)
		}
		report, delivery := r.deliver(ctx)
		switch delivery {
		case deliveryCompleted:
			r.result, r.source = report.Output, r.carry.Deliveries
			return r.end(ctx, fleet.TaskCompleted, "")
		case deliveryCancelled:
			return r.end(ctx, fleet.TaskCancelled, r.cancelReason(report.Reason))
		case deliveryExpired:
			return r.end(ctx, fleet.TaskExpired, "the task expired before an agent took it")
		}
		next := fleet.Redeliver(&r.in.Spec, r.in.TaskID, r.carry.Tally, report.End())
		r.carry.Tally = next.Tally
		if report.Begun {
			r.carry.WaitingSince = workflow.Now(ctx) // an agent had it: the wait for the next agent begins
			if r.marked == contract.TaskUnhandled {
				r.mark(ctx, "")
			}
		}
		if next.Status == fleet.TaskFailed {
			return r.end(ctx, fleet.TaskFailed, next.Why)
		}
		if final, why := r.pause(ctx, next); final != "" {
			return r.end(ctx, final, why)
		}
	}
}

// pause waits for a backoff or for a person, as next requires. It returns a final status when the wait ended the task.
func (r *run) pause(ctx workflow.Context, next fleet.Redelivery) (fleet.TaskStatus, string) {
	r.status, r.why = next.Status, next.Why
	switch next.Status {
	case fleet.TaskRetryWait:
		if next.Unhandled {
			r.mark(ctx, contract.TaskUnhandled)
		}
		at := workflow.Now(ctx).Add(next.Wait)
		r.next = &at
		_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(next.Wait, "wait before the next attempt"),
			func() bool { return r.cancel != nil })
		r.next = nil
		if r.carry.Tally.Returns == 0 {
			r.carry.WaitingSince = workflow.Now(ctx) // a backoff does not count as waiting for an agent
		}
	case fleet.TaskReview:
		r.mark(ctx, fleet.TaskReview)
		r.tellFiring(ctx)
		r.await(ctx, func() bool { return r.review != nil || r.cancel != nil })
		if r.review != nil {
			return r.reviewed(ctx)
		}
	case fleet.TaskDeadLetter:
		if final, why := r.keepDeadLetter(ctx, next.Why); final != "" {
			return final, why
		}
	}
	r.heedCancellation(ctx)
	return "", ""
}

// heedCancellation treats the workflow's own cancellation, as from the Web UI, like a cancel update.
func (r *run) heedCancellation(ctx workflow.Context) {
	if ctx.Err() != nil && r.cancel == nil {
		r.cancel = &contract.CancelRequest{Reason: "the workflow was cancelled"}
	}
}

// reviewed carries out a person's decision.
func (r *run) reviewed(ctx workflow.Context) (fleet.TaskStatus, string) {
	decision := *r.review
	r.review = nil
	switch decision.Decision {
	case fleet.ReviewCompleted:
		r.result = decision.Result
		return fleet.TaskCompleted, byReview("completed", decision.Reason)
	case fleet.ReviewFailed:
		return fleet.TaskFailed, byReview("failed", decision.Reason)
	}
	r.restart(ctx, "review: run again")
	return "", ""
}

func byReview(done, reason string) string {
	if reason == "" {
		return done + " by review"
	}
	return done + " by review: " + reason
}

// restart gives the task a fresh set of attempts and a fresh time to wait for an agent.
func (r *run) restart(ctx workflow.Context, why string) {
	r.retry, r.dead, r.carry.LostAt = nil, nil, nil
	r.carry.Tally = fleet.Tally{}
	r.carry.WaitingSince = workflow.Now(ctx)
	r.status, r.why = fleet.TaskQueued, why
	r.mark(ctx, "")
}

// await waits for a condition or the workflow's cancellation.
func (r *run) await(ctx workflow.Context, condition func() bool) {
	_ = workflow.Await(ctx, condition)
}

func (r *run) queueTimeLeft(ctx workflow.Context) time.Duration {
	deadline := r.carry.WaitingSince.Add(r.in.Spec.ExpiresIn.Or(fleet.DefaultExpiration))
	return deadline.Sub(workflow.Now(ctx))
}

func (r *run) cancelReason(fallback string) string {
	if r.cancel != nil && r.cancel.Reason != "" {
		return r.cancel.Reason
	}
	return fallback
}

// end closes the task. Only a completed task returns normally.
func (r *run) end(ctx workflow.Context, status fleet.TaskStatus, why string) (contract.TaskState, error) {
	r.status, r.why = status, why
	switch status {
	case fleet.TaskCompleted:
		if r.marked != "" {
			r.mark(ctx, "")
		}
		return r.state(), nil
	case fleet.TaskCancelled:
		if r.marked != "" {
			r.mark(ctx, "")
		}
		return contract.TaskState{}, temporal.NewCanceledError(r.state())
	}
	r.mark(ctx, status)
	return contract.TaskState{},
		temporal.NewApplicationErrorWithOptions(fmt.Sprintf("task %s: %s", status, why), string(status),
			temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{r.state()}})
}

// mark sets the search attributes for statuses that the execution status does not show, with the time, so that readers
// of events find the change; "" removes them.
func (r *run) mark(ctx workflow.Context, status fleet.TaskStatus) {
	if r.marked == status {
		return
	}
	update, at := contract.AttrStatus.ValueUnset(), contract.AttrStatusAt.ValueSet(workflow.Now(ctx))
	switch {
	case status != "":
		update = contract.AttrStatus.ValueSet(string(status))
	case r.marked == contract.TaskUnhandled:
		at = contract.AttrStatusAt.ValueUnset() // its hub publishes that an agent has it
	}
	r.marked = status
	if err := workflow.UpsertTypedSearchAttributes(ctx, update, at); err != nil {
		workflow.GetLogger(ctx).Warn("The status search attribute was not set", "error", err)
	}
}

func (r *run) state() contract.TaskState {
	return contract.TaskState{Status: r.status, Why: r.why, Attempts: r.log, Result: r.result, ResultAttempt: r.source,
		NextAttempt: r.next, Priority: r.priority(), DeadLetter: r.dead}
}

func (r *run) continueAsNew(ctx workflow.Context) (contract.TaskState, error) {
	r.carry.Attempts = r.log
	next := r.in
	next.Carried = &r.carry
	return contract.TaskState{}, workflow.NewContinueAsNewError(ctx, contract.TaskWorkflow, next)
}

// awaitStart waits until the task may be delivered for the first time, or is cancelled.
func (r *run) awaitStart(ctx workflow.Context) {
	at := r.in.Spec.StartAt
	wait := at.Sub(workflow.Now(ctx))
	if r.carry.Deliveries > 0 || wait <= 0 {
		return
	}
	r.next, r.why = &at, fleet.StartsAt(at)
	_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(wait, r.why), func() bool { return r.cancel != nil })
	r.next, r.why = nil, ""
	r.heedCancellation(ctx)
}
