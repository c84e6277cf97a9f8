package contract

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/fleet"
)

// TaskStatusOf derives a task's status from its workflow's, and from the status attribute where that says more. An open
// task without the attribute is called queued; whether it runs is in its pending activity: see DescribedStatus.
func TaskStatusOf(execution enumspb.WorkflowExecutionStatus, marked fleet.TaskStatus) fleet.TaskStatus {
	switch execution {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return fleet.TaskCompleted
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:
		if marked == fleet.TaskExpired {
			return fleet.TaskExpired
		}
		return fleet.TaskFailed
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return fleet.TaskCancelled
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return fleet.TaskExpired
	}
	switch marked {
	case fleet.TaskReview, fleet.TaskDeadLetter:
		return marked
	}
	return fleet.TaskQueued
}

// DescribedStatus is a task's status as its workflow's description tells it, without asking a worker: it knows queued,
// running and retry_wait apart.
func DescribedStatus(d *workflowservice.DescribeWorkflowExecutionResponse, now time.Time) fleet.TaskStatus {
	info := d.GetWorkflowExecutionInfo()
	status := TaskStatusOf(info.GetStatus(), fleet.TaskStatus(Keyword(info.GetSearchAttributes().GetIndexedFields(), AttrStatus)))
	if status != fleet.TaskQueued {
		return status
	}
	for _, p := range d.GetPendingActivities() {
		if p.GetActivityType().GetName() != RunTaskActivity.Name {
			continue
		}
		if p.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			return fleet.TaskQueued
		}
		return fleet.TaskRunning
	}
	var start time.Time
	Decode(info.GetMemo().GetFields()[MemoStartAt], &start)
	if d.GetPendingWorkflowTask() == nil && !start.After(now) {
		return fleet.TaskRetryWait // neither a delivery nor a workflow task is under way: it waits for a timer
	}
	return fleet.TaskQueued
}
