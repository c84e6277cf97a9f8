package task

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// delivery is how one delivery ended, for the loop.
type delivery int

const (
	deliveryUnfinished delivery = iota // no result: fleet.Redeliver decides
	deliveryCompleted
	deliveryCancelled
	deliveryExpired
)

// deliver schedules one attempt on the lane and waits for its end.
func (r *run) deliver(ctx workflow.Context) (contract.AttemptReport, delivery) {
	r.status = fleet.TaskQueued
	r.carry.Deliveries++
	number := r.carry.Deliveries
	r.delivering = number
	defer func() { r.delivering = 0 }()
	attemptCtx, stop := workflow.WithCancel(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ActivityID:             contract.AttemptActivityID(number),
		TaskQueue:              r.in.Lane,
		ScheduleToStartTimeout: r.queueTimeLeft(ctx),
		StartToCloseTimeout:    r.in.Spec.Timeout.Or(fleet.DefaultTaskTimeout) + timeoutMargin,
		HeartbeatTimeout:       fleet.AttemptBackstop,
		WaitForCancellation:    true,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                fmt.Sprintf("attempt %d of %s", number, r.in.Spec.Type),
	}))
	defer stop()
	input := contract.RunTaskInput{TaskID: r.in.TaskID, Attempt: number, Spec: r.in.Spec,
		Checkpoint: r.carry.Checkpoint, Tally: r.carry.Tally, LostAt: r.carry.LostAt}
	if last := r.lastLost(); last != nil {
		input.TransferredFrom, input.PreferAgent = last.AgentID, r.carry.Target
	}
	if p := r.deliveryPriority(); p != r.in.Spec.Priority {
		// Fairness key and weight are left out: the activity inherits the workflow's.
		attemptCtx = workflow.WithPriority(attemptCtx, temporal.Priority{PriorityKey: int(p)})
	}
	future := contract.RunTaskActivity.Execute(attemptCtx, input)
	_ = workflow.Await(ctx, func() bool { return future.IsReady() || r.cancel != nil })
	if !future.IsReady() {
		if r.cancel == nil {
			r.cancel = &contract.CancelRequest{Reason: "the workflow was cancelled"}
		}
		stop()
		waitCtx, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		_, _ = workflow.AwaitWithOptions(waitCtx, workflows.Named(cancelWait, "until the agent has stopped"),
			future.IsReady)
	}
	if !future.IsReady() {
		report := contract.AttemptReport{Outcome: fleet.AttemptCancelled,
			Reason: "cancelled; the agent did not confirm that it stopped"}
		r.record(number, report)
		return report, deliveryCancelled
	}
	report, err := future.Get(ctx)
	how := deliveryCompleted
	if err != nil {
		report, how = classify(err)
	}
	if report.Checkpoint != nil {
		r.carry.Checkpoint = report.Checkpoint
	}
	r.record(number, report)
	r.carry.Target = report.Target
	if report.Outcome != fleet.AttemptReturned { // a delivery that no agent took does not end a failover
		r.carry.LostAt = report.NoticedAt
	}
	return report, how
}

// classify reads how an attempt ended from the activity's error.
func classify(err error) (contract.AttemptReport, delivery) {
	var report contract.AttemptReport
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.Type() == contract.AttemptFailure &&
		application.Details(&report) == nil {
		return report, deliveryUnfinished
	}
	var cancelled *temporal.CanceledError
	if errors.As(err, &cancelled) {
		if cancelled.HasDetails() {
			_ = cancelled.Details(&report)
		}
		report.Outcome = fleet.AttemptCancelled
		return report, deliveryCancelled
	}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
			return contract.AttemptReport{Outcome: fleet.AttemptReturned,
				Reason: "no agent took it in time"}, deliveryExpired
		}
		if timeout.HasLastHeartbeatDetails() {
			_ = timeout.LastHeartbeatDetails(&report)
		}
		report.Begun, report.LeaseRemaining = true, nil
		report.Outcome = fleet.AttemptLost
		report.Reason = "no hub has heard of the attempt for " + fleet.AttemptBackstop.String()
		if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_START_TO_CLOSE {
			report.Outcome, report.Reason = fleet.AttemptTimedOut, "the attempt ran longer than the task's timeout"
		}
		return report, deliveryUnfinished
	}
	return contract.AttemptReport{Outcome: fleet.AttemptFailed, Begun: true, Reason: err.Error()}, deliveryUnfinished
}

// record keeps the newest attempts in the state.
func (r *run) record(number int, report contract.AttemptReport) {
	if len(r.log) == attemptsKept {
		r.log = append(r.log[:0:0], r.log[1:]...)
	}
	r.log = append(r.log, report.Attempt(number))
}

// lastLost is the newest attempt, if its agent was lost with it.
func (r *run) lastLost() *fleet.Attempt {
	if len(r.log) == 0 {
		return nil
	}
	if last := &r.log[len(r.log)-1]; last.Outcome == fleet.AttemptLost {
		return last
	}
	return nil
}
