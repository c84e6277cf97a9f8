package gateway

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/store"
)

const (
	runStarting     fleet.TaskStatus = "starting"
	runNotSubmitted fleet.TaskStatus = "not_submitted"
	runUnknown      fleet.TaskStatus = "unknown"
)

// runs tells what became of a schedule's newest firings, newest first.
func (g *Gateway) runs(ctx context.Context, name string, actions []*schedulepb.ScheduleActionResult) []api.ScheduleRun {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	runs, firings := make([]api.ScheduleRun, 0, len(actions)), make([]string, 0, len(actions))
	for i := len(actions) - 1; i >= 0; i-- {
		firing := actions[i].GetStartWorkflowResult().GetWorkflowId()
		if schedule, at, ok := contract.FiringOfWorkflowID(firing); ok && schedule == name {
			firings = append(firings, firing)
			runs = append(runs, api.ScheduleRun{
				TaskID: contract.FiringTaskID(name, at), Status: runUnknown, ScheduledAt: at, FiredAt: timeOf(actions[i].GetActualTime()),
			})
		}
	}
	parallel.Each(len(runs), fanOut, func(i int) { g.completeRun(ctx, &runs[i], name, firings[i]) })
	return runs
}

// completeRun puts in how the task stands, or why there is none.
func (g *Gateway) completeRun(ctx context.Context, run *api.ScheduleRun, schedule, firing string) {
	d, err := g.client.DescribeWorkflowExecution(ctx, contract.TaskWorkflowID(run.TaskID), "")
	if err == nil && contract.MadeBy(d.GetWorkflowExecutionInfo(), schedule) {
		run.Status, run.ClosedAt = contract.DescribedStatus(d, time.Now()), timeOf(d.GetWorkflowExecutionInfo().GetCloseTime())
		return
	}
	if err != nil && store.KindOf(err) != store.NotFound {
		return
	}
	if d, err = g.client.DescribeWorkflowExecution(ctx, firing, ""); err != nil {
		return
	}
	run.ClosedAt = timeOf(d.GetWorkflowExecutionInfo().GetCloseTime())
	switch d.GetWorkflowExecutionInfo().GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		run.Status = runStarting
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:
		run.Status, run.Why = runNotSubmitted, g.whyFailed(ctx, d)
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		run.Status, run.Why = runNotSubmitted, "the firing was cancelled before it had made its task"
	}
}

// whyFailed is the innermost message of a failed firing; it is ours.
func (g *Gateway) whyFailed(ctx context.Context, d *workflowservice.DescribeWorkflowExecutionResponse) string {
	execution := d.GetWorkflowExecutionInfo().GetExecution()
	events := g.client.GetWorkflowHistory(ctx, execution.GetWorkflowId(), execution.GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return ""
		}
		failure := event.GetWorkflowExecutionFailedEventAttributes().GetFailure()
		for failure.GetCause() != nil {
			failure = failure.GetCause()
		}
		if kind := failure.GetApplicationFailureInfo().GetType(); kind == contract.UnknownCluster || kind == contract.IDTaken {
			return failure.GetMessage()
		}
	}
	return "the firing failed; the Temporal Web UI shows why, under " + execution.GetWorkflowId()
}
