package schedule

import (
	"context"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

func (h *Handlers) list(ctx context.Context, in *listInput) (page rest.Page[api.ScheduleEntry], err error) {
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return page, err
	}
	query := rest.AllOf(ofTasks, rest.Filter(contract.AttrCluster, in.Cluster),
		rest.Filter(contract.AttrTaskType, in.Type), rest.Filter(contract.AttrTenant, in.Tenant))
	found, err := rest.PageOf(ctx, h.Core, "list schedules", h.Store.Schedules, query, in.RecordPageInput)
	page.Next = found.Next
	for _, entry := range found.Items {
		if name, ours := contract.ScheduleOfID(entry.GetScheduleId()); ours {
			page.Items = append(page.Items, scheduleEntry(name, entry))
		}
	}
	return page, err
}

// ofTasks finds the schedules of tasks: each has the type of its tasks as a search attribute.
var ofTasks = contract.AttrTaskType.GetName() + " IS NOT NULL"

func scheduleEntry(name string, entry *schedulepb.ScheduleListEntry) api.ScheduleEntry {
	info, fields := entry.GetInfo(), entry.GetSearchAttributes().GetIndexedFields()
	times := store.TimesOf(info.GetSpec())
	e := api.ScheduleEntry{
		Name:     name,
		Cron:     times.Cron,
		TimeZone: times.TimeZone,
		Interval: times.Interval,
		Paused:   info.GetPaused(),
		Note:     info.GetNotes(),
		Type:     contract.Keyword(fields, contract.AttrTaskType),
		Cluster:  contract.Keyword(fields, contract.AttrCluster),
		Tenant:   contract.Keyword(fields, contract.AttrTenant),
	}
	next := nextTimes(&times, info.GetFutureActionTimes())
	if e.Ended = len(next) == 0; !e.Ended && !e.Paused {
		e.NextTime = &next[0]
	}
	if recent := info.GetRecentActions(); len(recent) > 0 {
		last := recent[len(recent)-1]
		e.LastTime = store.TimeOf(last.GetActualTime())
		if schedule, at, ok := contract.FiringOfWorkflowID(last.GetStartWorkflowResult().GetWorkflowId()); ok {
			e.LastTask = contract.FiringTaskID(schedule, at)
		}
	}
	return e
}

const (
	runStarting     api.TaskStatus = "starting"
	runNotSubmitted api.TaskStatus = "not_submitted"
	runUnknown      api.TaskStatus = "unknown"
)

// runs are a schedule's newest firings with their results, newest first.
func (h *Handlers) runs(
	ctx context.Context, name string, actions []*schedulepb.ScheduleActionResult,
) []api.ScheduleRun {
	ctx, cancel := context.WithTimeout(ctx, rest.QueryTimeout)
	defer cancel()
	runs, firings := make([]api.ScheduleRun, 0, len(actions)), make([]string, 0, len(actions))
	for i := len(actions) - 1; i >= 0; i-- {
		firing := actions[i].GetStartWorkflowResult().GetWorkflowId()
		if schedule, at, ok := contract.FiringOfWorkflowID(firing); ok && schedule == name {
			firings = append(firings, firing)
			runs = append(runs, api.ScheduleRun{
				TaskID:      contract.FiringTaskID(name, at),
				Status:      runUnknown,
				ScheduledAt: at,
				FiredAt:     store.TimeOf(actions[i].GetActualTime()),
			})
		}
	}
	parallel.Each(len(runs), rest.FanOut, func(i int) { h.completeRun(ctx, &runs[i], name, firings[i]) })
	return runs
}

// completeRun puts in how the task stands, or why there is none.
func (h *Handlers) completeRun(ctx context.Context, run *api.ScheduleRun, schedule, firing string) {
	task, err := h.Store.Tasks().Describe(ctx, run.TaskID)
	if err == nil && task.MadeBy(schedule) {
		task.Refine(time.Now())
		run.Status, run.ClosedAt = task.Status, task.ClosedAt
		return
	}
	if err != nil && store.KindOf(err) != store.NotFound {
		return
	}
	info, err := h.Store.Describe(ctx, firing)
	if err != nil {
		return
	}
	run.ClosedAt = store.TimeOf(info.GetCloseTime())
	switch info.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		run.Status = runStarting
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:
		run.Status, run.Why = runNotSubmitted, h.whyFailed(ctx, info.GetExecution())
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		run.Status, run.Why = runNotSubmitted, "the firing was cancelled before it had made its task"
	}
}

// whyFailed is the innermost message of a failed firing; it is ours.
func (h *Handlers) whyFailed(ctx context.Context, firing *commonpb.WorkflowExecution) string {
	end, err := h.Store.End(ctx, firing.GetWorkflowId(), firing.GetRunId())
	if err != nil {
		return ""
	}
	failure := end.Failure()
	for failure.GetCause() != nil {
		failure = failure.GetCause()
	}
	if kind := failure.GetApplicationFailureInfo().GetType(); kind == contract.UnknownCluster ||
		kind == contract.IDTaken {
		return failure.GetMessage()
	}
	return "the firing failed; the Temporal Web UI shows why, under " + firing.GetWorkflowId()
}
