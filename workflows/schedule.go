package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// placeTimeout bounds how long a firing waits for its cluster's answer about the lane, or for facts about a task.
const placeTimeout = 15 * time.Minute

// Firing is one time of a schedule. It makes one task and waits until that is settled, because Temporal's overlap
// policies go by the workflow. The task's id is made of the schedule's name and the nominal time, so a time that fires
// twice is one task. The task outlives the schedule and the firing.
func Firing(ctx workflow.Context, in contract.FiringInput) (contract.FiringResult, error) {
	var result contract.FiringResult
	//nolint:staticcheck // the typed attributes leave out those that Temporal's scheduler has set, which have no type
	schedule, at, ok := contract.FiringOf(workflow.GetInfo(ctx).SearchAttributes)
	if !ok {
		return result, temporal.NewNonRetryableApplicationError("only a schedule of Mainstay can start this workflow",
			contract.Refused, nil)
	}
	result.TaskID = contract.FiringTaskID(schedule, at)
	task, weight, err := placed(ctx, result.TaskID, in.Spec)
	if err != nil {
		return result, err
	}
	start := contract.StartOf(result.TaskID, &task.Spec, weight)
	start.Memo[contract.MemoSchedule] = schedule
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            start.WorkflowID,
		TaskQueue:             contract.WorkerQueue,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WaitForCancellation:   true,
		TypedSearchAttributes: start.Attributes,
		Memo:                  start.Memo,
		StaticSummary:         start.Summary,
		Priority:              start.Priority,
	}), contract.TaskWorkflow, task)
	if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			result.Repeated = true
			return result, madeBefore(ctx, schedule, result.TaskID, task.Spec)
		}
		return result, fmt.Errorf("start task %s: %w", result.TaskID, err)
	}
	return awaitTask(ctx, child, result)
}

// placed asks the cluster for the task's lane, since the cluster may have been deleted or made anew with other shards.
// weight is the tenant's weight there.
func placed(ctx workflow.Context, id string, spec api.TaskSpec) (task contract.TaskInput, weight float64, err error) {
	ctx = workflow.WithActivityOptions(ctx, firingActivity("find the lane in "+spec.Cluster))
	place, err := contract.PlaceTaskActivity.Execute(ctx,
		contract.PlaceOfSpec(&spec, cmp.Or(spec.ShardKey, id))).Get(ctx)
	if err != nil {
		return task, 0, err
	}
	return place.Input(id, spec), place.TenantWeight, nil
}

func firingActivity(summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              contract.WorkerQueue,
		StartToCloseTimeout:    15 * time.Second,
		ScheduleToCloseTimeout: placeTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumInterval: 15 * time.Second},
		Summary:                summary,
	}
}

// madeBefore returns nil if an earlier firing of the same time made the task with this firing's id. If the schedule did
// not make it, the firing fails, with an event.
func madeBefore(ctx workflow.Context, schedule, id string, spec api.TaskSpec) error {
	asked := workflow.WithActivityOptions(ctx, firingActivity("look who made task "+id))
	own, err := contract.IsMadeByActivity.Execute(asked, contract.IsMadeByInput{TaskID: id,
		Schedule: schedule, Spec: spec}).Get(ctx)
	if err != nil || own {
		return err
	}
	why := fmt.Sprintf("there is a task %s already, which schedule %s as it is now did not make, so no task was made",
		id, schedule)
	announce(ctx, spec.Cluster, cluster.Event{Type: api.EventScheduleFailed,
		EventData: api.EventData{Tenant: spec.Tenant, ID: schedule, Reason: why}})
	return temporal.NewNonRetryableApplicationError(why, contract.IDTaken, nil)
}

// awaitTask waits until the task has ended or needs a person. A cancelled firing cancels its task.
func awaitTask(
	ctx workflow.Context, child workflow.ChildWorkflowFuture, result contract.FiringResult,
) (contract.FiringResult, error) {
	ended := contract.SettledSignal.Inbox(ctx)
	waitCtx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(waitCtx, func() bool { return child.IsReady() || ended.Len() > 0 })
	if !child.IsReady() {
		settled, _ := ended.Next()
		result.Status = settled.Status
		return result, notCompleted(result.TaskID, settled.Status, settled.Why)
	}
	err := child.Get(waitCtx, nil)
	var failed *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case err == nil:
		result.Status = api.TaskCompleted
		return result, nil
	case errors.As(err, &cancelled):
		result.Status = api.TaskCancelled
		return result, temporal.NewCanceledError(result)
	case errors.As(err, &failed):
		return result, notCompleted(result.TaskID, api.TaskStatus(failed.Type()), failed.Message())
	}
	return result, err
}

// notCompleted is the end of a firing whose task did not complete, in one line.
func notCompleted(id string, status api.TaskStatus, why string) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf("task %s is %s: %s", id, status, why), string(status),
		nil)
}
