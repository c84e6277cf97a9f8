package gateway

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// Bounds of the interval at which a wait looks again: an eighth of the time waited so far.
const (
	maxWait    = 60 * time.Second
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// waitForTask returns the task as soon as it is settled, or as it stands when wait is over. It looks again and again:
// history long polls miss a completion now and then.
func (g *Gateway) waitForTask(ctx context.Context, id string, wait time.Duration) (api.Task, error) {
	start := time.Now()
	for {
		description, err := g.describeTask(ctx, id)
		if err != nil {
			return api.Task{}, err
		}
		elapsed := time.Since(start)
		if elapsed >= wait || taskOf(description.GetWorkflowExecutionInfo()).Status.Settled() {
			return g.complete(ctx, description)
		}
		if err := g.pause(ctx, min(nextPause(elapsed), wait-elapsed)); err != nil {
			return api.Task{}, g.answer(err, "wait for a task", protocol.CodeUnknownTask)
		}
	}
}

func nextPause(elapsed time.Duration) time.Duration {
	return min(max(elapsed/8, firstPause), lastPause)
}

// task returns a task as it stands.
func (g *Gateway) task(ctx context.Context, id string) (api.Task, error) {
	return g.waitForTask(ctx, id, 0)
}

func (g *Gateway) describeTask(ctx context.Context, id string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	id, err := ownTask(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	description, err := g.client.DescribeWorkflowExecution(ctx, contract.TaskWorkflowID(id), "")
	if err != nil {
		return nil, g.answer(err, "describe a task", protocol.CodeUnknownTask)
	}
	if !sees(ctx, contract.TenantOf(description.GetWorkflowExecutionInfo())) {
		return nil, unknown(protocol.CodeUnknownTask)
	}
	return description, nil
}

// complete adds to an execution's record what only the workflow, its history or its cluster knows.
func (g *Gateway) complete(ctx context.Context, d *workflowservice.DescribeWorkflowExecutionResponse) (api.Task, error) {
	task := taskOf(d.GetWorkflowExecutionInfo())
	if task.Status.Final() {
		return g.completeClosed(ctx, task)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := g.queryTask(ctx, task.ID)
	if err != nil {
		g.logger.Debug("a task's workflow did not answer", zap.String("task", task.ID), zap.Error(err))
		if !task.takeActivity(d.GetPendingActivities()) || task.Status != fleet.TaskRunning {
			task.Why = "no worker answered for the task; only what Temporal itself knows is shown"
		}
		return task.Task, nil
	}
	task.takeState(state)
	if state.Status == fleet.TaskQueued {
		task.takeActivity(d.GetPendingActivities())
	}
	g.explain(ctx, &task)
	return task.Task, nil
}

func (g *Gateway) queryTask(ctx context.Context, id string) (contract.TaskState, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return contract.StatusQuery.Ask(ctx, g.client, contract.TaskWorkflowID(id))
}

// completeClosed reads how the task ended from its workflow's last event.
func (g *Gateway) completeClosed(ctx context.Context, task taskView) (api.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	events := g.client.GetWorkflowHistory(ctx, task.WorkflowID, task.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	var last *historypb.HistoryEvent
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return api.Task{}, g.answer(err, "read a task's end", protocol.CodeUnknownTask)
		}
		last = event
	}
	takeEnd(&task, last)
	return task.Task, nil
}

// takeEnd puts in what a closing event carries. The status is the execution's unless the state says more.
func takeEnd(task *taskView, event *historypb.HistoryEvent) {
	var state contract.TaskState
	switch event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		if converter.GetDefaultDataConverter().FromPayloads(event.GetWorkflowExecutionCompletedEventAttributes().GetResult(), &state) == nil {
			task.takeState(state)
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		err := temporal.GetDefaultFailureConverter().FailureToError(event.GetWorkflowExecutionFailedEventAttributes().GetFailure())
		var application *temporal.ApplicationError
		if errors.As(err, &application) && application.HasDetails() && application.Details(&state) == nil {
			task.takeState(state)
			return
		}
		task.Why = "its workflow failed; the Temporal Web UI shows the failure"
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		details := event.GetWorkflowExecutionCanceledEventAttributes().GetDetails()
		if details != nil && converter.GetDefaultDataConverter().FromPayloads(details, &state) == nil {
			task.takeState(state)
		}
		task.Status = fleet.TaskCancelled
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		task.Why = "its workflow was terminated"
		if reason := event.GetWorkflowExecutionTerminatedEventAttributes().GetReason(); reason != "" {
			task.Why += ": " + reason
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		task.Why = "its workflow ran out of time"
	}
}

// refine tells a running task from a waiting one by its pending delivery alone, for lists.
func refine(t *taskView, d *workflowservice.DescribeWorkflowExecutionResponse) {
	*t = taskOf(d.GetWorkflowExecutionInfo())
	if t.Status == fleet.TaskQueued {
		if !t.takeActivity(d.GetPendingActivities()) {
			waitsForStart(&t.Task, time.Now())
		}
		t.Status = contract.DescribedStatus(d, time.Now())
	}
}
