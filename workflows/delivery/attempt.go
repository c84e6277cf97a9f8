package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

const (
	// attemptsKept bounds the attempts a task's state lists; older ones stay in its history.
	attemptsKept = 20
	// formerText bounds in bytes what the state has of each text of an attempt before the newest.
	formerText = 512
	// cancelWait bounds how long a cancelled task waits for its agent to stop, beyond the grace of its work.
	cancelWait = 30 * time.Second
	// targetWait is how long the target of a failover by hand has to take a task that it may run.
	targetWait = 5 * time.Second
	// TimeoutMargin is how much later than the agent Temporal ends an attempt that ran too long.
	TimeoutMargin = time.Minute
)

// attemptEnd is how one attempt ended, for the loop.
type attemptEnd int

const (
	attemptUnfinished attemptEnd = iota // no result: task.Redeliver decides
	attemptCompleted
	attemptCancelled
	attemptExpired
	attemptSuspended // stopped, to go on later
)

// deliver schedules one attempt on the lane and waits for its end.
func (d *Delivery) deliver(ctx workflow.Context) (contract.AttemptReport, attemptEnd) {
	d.status = api.TaskQueued
	d.carried.Deliveries++
	number := d.carried.Deliveries
	d.delivering = number
	defer func() { d.delivering = 0 }()
	lane, wait := d.task.Lane, d.queueTimeLeft(ctx)
	target, within := d.target(ctx)
	late := "agent " + target + " did not take it in time; now any agent may"
	spec, route := d.task.Spec, d.route(ctx)
	if route != nil {
		spec = spec.ForRoute(*route)
		spec.Payload = mesh.WithRoute(spec.Payload, *route)
		if place := (contract.TaskPlace{Lane: lane}); place.Opens() {
			lane = contract.Lane(&spec, 0, place.OwnType())
		}
		target, within = "", mesh.RouteWait(&d.task.Spec, d.carried.Tally.Returns)
		late = "no agent that can call " + route.Provider + " took it in time"
	}
	if target != "" {
		lane = contract.AgentLane(d.task.Spec.Cluster, target)
	}
	if within > 0 {
		wait = min(wait, within)
	}
	attemptCtx, stop := workflow.WithCancel(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ActivityID:             contract.AttemptActivityID(d.task.TaskID, number),
		TaskQueue:              lane,
		ScheduleToStartTimeout: wait,
		StartToCloseTimeout:    d.task.Spec.AttemptTimeout() + d.task.Spec.Grace() + TimeoutMargin,
		HeartbeatTimeout:       api.AttemptBackstop + d.task.Spec.AwaitedFor(d.task.Instance),
		WaitForCancellation:    true,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                fmt.Sprintf("attempt %d of %s", number, d.task.Spec.Type),
	}))
	defer stop()
	input := contract.RunTaskInput{TaskID: d.task.TaskID, Attempt: number, Spec: spec,
		Checkpoint: d.carried.Checkpoint, CheckpointDigest: d.carried.CheckpointDigest, Tally: d.carried.Tally,
		LostAt: d.carried.LostAt, Instance: d.task.Instance, ResultLimit: d.task.ResultLimit,
		IdempotencyKey: d.task.IdempotencyKey, DeadlineAt: d.task.DeadlineAt}
	if policy := d.carried.Tally.Policy; policy != nil {
		input.Exclude = policy.Excluded
	}
	if last := d.lastLost(); last != nil {
		input.TransferredFrom, input.PreferAgent = last.AgentID, cmp.Or(d.carried.Target, d.carried.Prefer)
	}
	if p := d.deliveryPriority(); p != d.task.Spec.Priority {
		// Fairness key and weight are left out: the activity inherits the workflow's.
		attemptCtx = workflow.WithPriority(attemptCtx, temporal.Priority{PriorityKey: int(p)})
	}
	future := workflows.RunTask(attemptCtx, input)
	_ = workflow.Await(ctx, func() bool { return future.IsReady() || d.cancel != nil || d.stopping })
	suspending := d.stopping && d.cancel == nil && ctx.Err() == nil
	if !future.IsReady() {
		if !suspending {
			d.heedCancellation(ctx)
		}
		stop()
		waitCtx, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		wait := cancelWait
		if d.task.Instance != nil {
			wait += d.task.Instance.StopGrace.Std()
		} else {
			wait += d.task.Spec.Grace()
		}
		_, _ = workflow.AwaitWithOptions(waitCtx, workflows.Named(wait, "until the agent has stopped"), future.IsReady)
	}
	if !future.IsReady() {
		report, how := unconfirmed(suspending)
		d.goesOn(task.AttemptEnd{Outcome: api.AttemptLost, At: workflow.Now(ctx)})
		d.record(number, report, route)
		return report, how
	}
	report, err := future.Get(ctx)
	how := attemptCompleted
	if err != nil {
		report, how = classify(err)
	}
	switch {
	case how == attemptCancelled && suspending && d.cancel == nil:
		how, report.Reason = attemptSuspended, "paused"
	case how == attemptExpired && within > 0:
		how, report.Reason = attemptUnfinished, late
	case how == attemptCompleted && d.task.Spec.KeepRunning:
		how, report.Outcome, report.Begun = attemptUnfinished, api.AttemptCompleted, true
		report.Reason = "its work ended, and it has no end"
	}
	if report.Checkpoint != nil {
		d.carried.Checkpoint, d.carried.CheckpointDigest = report.Checkpoint, report.CheckpointDigest
	}
	d.record(number, report, route)
	d.carried.Target = report.Target
	if report.Outcome != api.AttemptReturned { // a delivery that no agent took does not end a failover
		d.carried.LostAt, d.carried.Prefer = report.NoticedAt, report.Prefer
	}
	return report, how
}

// unconfirmed is the end of an attempt whose agent has not confirmed in time that it stopped. A pause took it off the
// agent, which is no loss.
func unconfirmed(suspending bool) (contract.AttemptReport, attemptEnd) {
	if suspending {
		return contract.AttemptReport{Outcome: api.AttemptMoved, Begun: true, Planned: true,
			Reason: "paused; the agent did not confirm that it stopped"}, attemptUnfinished
	}
	return contract.AttemptReport{Outcome: api.AttemptCancelled,
		Reason: "cancelled; the agent did not confirm that it stopped"}, attemptCancelled
}

// target is the one agent that the next attempt goes to, and within which time, if that is above 0: its recovery's
// agent, or the one that a failover by hand chose. The agent's own lane reaches it through whichever hub it has.
func (d *Delivery) target(ctx workflow.Context) (agent string, within time.Duration) {
	if recovery := d.task.Spec.EffectiveRecovery(); recovery != nil {
		if agent, within = task.PlacementOf(d.carried.Tally.Policy, recovery, workflow.Now(ctx)); agent != "" {
			return agent, within
		}
	}
	if d.carried.Target == "" || d.lastLost() == nil || d.task.Spec.Agent != "" {
		return "", 0
	}
	return d.carried.Target, targetWait
}

// EndOf reads how a delivery without a result ended from the activity's error; expired: no agent took it in time.
func EndOf(err error) (report contract.AttemptReport, expired bool) {
	report, how := classify(err)
	return report, how == attemptExpired
}

// classify reads how an attempt ended from the activity's error.
func classify(err error) (contract.AttemptReport, attemptEnd) {
	var report contract.AttemptReport
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.Type() == contract.AttemptFailure &&
		application.Details(&report) == nil {
		return report, attemptUnfinished
	}
	if cancelled, ok := errors.AsType[*temporal.CanceledError](err); ok {
		if cancelled.HasDetails() {
			_ = cancelled.Details(&report)
		}
		report.Outcome = api.AttemptCancelled
		return report, attemptCancelled
	}
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok {
		if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
			return contract.AttemptReport{Outcome: api.AttemptReturned,
				Reason: "no agent took it in time"}, attemptExpired
		}
		if timeout.HasLastHeartbeatDetails() {
			_ = timeout.LastHeartbeatDetails(&report)
		}
		report.Begun, report.LeaseRemaining = true, nil
		report.Outcome = api.AttemptLost
		report.Reason = "no hub has heard of the attempt for at least " + api.AttemptBackstop.String()
		if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_START_TO_CLOSE {
			report.Outcome, report.Reason = api.AttemptTimedOut, "the attempt ran longer than the task's timeout"
		}
		return report, attemptUnfinished
	}
	return contract.AttemptReport{Outcome: api.AttemptFailed, Begun: true, Reason: err.Error()}, attemptUnfinished
}

// record keeps the newest attempts in the state. It keeps all texts of the newest, and the beginning of the others':
// the state is handed over beside a payload or a result of 1 MiB, in a message that may have 2.
func (d *Delivery) record(number int, report contract.AttemptReport, route *api.Route) {
	if report.Outcome != api.AttemptReturned {
		d.carried.Tried++
	}
	d.log = slices.Clone(d.log[max(0, len(d.log)-attemptsKept+1):])
	for i := range d.log {
		former := &d.log[i]
		former.Reason = api.Shorten(former.Reason, formerText)
		if former.Progress != nil {
			former.Progress = new(*former.Progress)
			former.Progress.Step = api.Shorten(former.Progress.Step, formerText)
			former.Progress.Message = api.Shorten(former.Progress.Message, formerText)
		}
	}
	attempt := report.Attempt(number)
	attempt.Route = route
	d.log = append(d.log, attempt)
}

// route is the one that the next attempt is for; nil of a task without routes.
func (d *Delivery) route(ctx workflow.Context) *api.Route {
	if len(d.task.Spec.Routes) == 0 {
		return nil
	}
	route, _, none := mesh.NextRoute(d.task.Spec.Routes, d.routed(), workflow.Now(ctx))
	if none != "" { // a correction, after a person had the task run again
		route = d.task.Spec.Routes[0]
	}
	return &route
}

// routed are the attempts since the task began, or since a person had it run again: all its routes are free then.
func (d *Delivery) routed() []api.Attempt {
	i := slices.IndexFunc(d.log, func(a api.Attempt) bool { return a.Number > d.carried.RoutesSince })
	if i < 0 {
		return nil
	}
	return d.log[i:]
}

// lastLost is the attempt that the task was last lost with or taken off, until another begins: deliveries that no agent
// began change nothing. The log has the newest of these only, so in the end it is forgotten.
func (d *Delivery) lastLost() *api.Attempt {
	for i := len(d.log) - 1; i >= 0; i-- {
		switch last := &d.log[i]; {
		case last.Outcome.Gone():
			return last
		case last.Outcome != api.AttemptReturned:
			return nil
		}
	}
	return nil
}
