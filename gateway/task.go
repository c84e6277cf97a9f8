package gateway

import (
	"cmp"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// taskView is a task with what was read beside it.
type taskView struct {
	api.Task
	required []string // capabilities, to say why it waits
	safety   fleet.RetrySafety
	digest   string // of what was submitted
	queue    string // the task queue of its pending delivery
	level    int32  // the priority of its pending delivery

	unhandled bool // no agent could run it when it was last offered
}

// newTask is a task as it stands right after it was accepted.
func newTask(id string, spec *fleet.TaskSpec, runID string) api.Task {
	task := api.Task{
		ID: id, Type: spec.Type, Cluster: spec.Cluster, Status: fleet.TaskQueued, Agent: spec.Agent,
		Tenant: spec.Tenant, Labels: spec.Labels, WorkflowID: contract.TaskWorkflowID(id), RunID: runID, StartAt: known(spec.StartAt),
	}
	setPriority(&task, spec.Priority)
	waitsForStart(&task, time.Now())
	return task
}

func setPriority(t *api.Task, p fleet.Priority) {
	t.Priority, t.PriorityName = int(p.OrDefault()), p.OrDefault().String()
}

// waitsForStart reports whether the task's time has not come, and then says so in the task.
func waitsForStart(t *api.Task, now time.Time) bool {
	if t.Status != fleet.TaskQueued || t.StartAt == nil || !t.StartAt.After(now) {
		return false
	}
	t.NextAttemptAt, t.Why = t.StartAt, fleet.StartsAt(*t.StartAt)
	return true
}

// taskOf is what an execution's record tells of a task, without asking its workflow.
func taskOf(info *workflowpb.WorkflowExecutionInfo) taskView {
	id, _ := contract.TaskOfWorkflowID(info.GetExecution().GetWorkflowId())
	attributes := info.GetSearchAttributes().GetIndexedFields()
	task := taskView{Task: api.Task{
		ID: id, WorkflowID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId(),
		Type: contract.Keyword(attributes, contract.AttrTaskType), Cluster: contract.Keyword(attributes, contract.AttrCluster),
		Agent: contract.Keyword(attributes, contract.AttrAgent), Tenant: contract.Keyword(attributes, contract.AttrTenant),
		Status: contract.TaskStatusOf(info.GetStatus(), fleet.TaskStatus(contract.Keyword(attributes, contract.AttrStatus))),
	}}
	task.unhandled = contract.Keyword(attributes, contract.AttrStatus) == string(contract.TaskUnhandled)
	var labels []string
	if contract.Decode(attributes[contract.AttrLabels.GetName()], &labels) && len(labels) > 0 {
		task.Labels = make(map[string]string, len(labels))
		for _, label := range labels {
			name, value := contract.ParseLabelTerm(label)
			task.Labels[name] = value
		}
	}
	task.takeMemo(info)
	if t := info.GetStartTime(); t != nil {
		at := t.AsTime().UTC()
		task.CreatedAt = &at
	}
	if t := info.GetCloseTime(); t != nil {
		at := t.AsTime().UTC()
		task.ClosedAt = &at
	}
	return task
}

// takeMemo puts in what the memo tells.
func (t *taskView) takeMemo(info *workflowpb.WorkflowExecutionInfo) {
	memo := info.GetMemo().GetFields()
	contract.Decode(memo[contract.MemoCapabilities], &t.required)
	contract.Decode(memo[contract.MemoSafety], &t.safety)
	contract.Decode(memo[contract.MemoSchedule], &t.Schedule)
	contract.Decode(memo[contract.MemoDigest], &t.digest)
	contract.Decode(memo[contract.MemoTrace], &t.TraceID)
	priority := fleet.Priority(info.GetPriority().GetPriorityKey())
	contract.Decode(memo[contract.MemoPriority], &priority)
	setPriority(&t.Task, priority)
	var start time.Time
	if contract.Decode(memo[contract.MemoStartAt], &start) {
		t.StartAt = known(start)
	}
	var dead fleet.DeadLetter
	if t.Status == fleet.TaskDeadLetter && contract.Decode(memo[contract.MemoDeadLetter], &dead) {
		t.DeadLetter, t.Why = &dead, whyDeadLetter(&dead)
	}
}

// takeState puts in what the workflow itself says.
func (t *taskView) takeState(s contract.TaskState) {
	if s.Status != "" {
		t.Status = s.Status
	}
	t.Why, t.Attempts, t.Result, t.ResultAttempt, t.NextAttemptAt, t.DeadLetter = s.Why, s.Attempts, s.Result, s.ResultAttempt, s.NextAttempt, s.DeadLetter
	if s.Priority != 0 {
		setPriority(&t.Task, s.Priority)
	}
}

// takeActivity puts in what the pending delivery tells: whether an agent has it, and what it last reported. It returns
// false when no delivery is pending.
func (t *taskView) takeActivity(pending []*workflowpb.PendingActivityInfo) bool {
	for _, p := range pending {
		if p.GetActivityType().GetName() != contract.RunTaskActivity.Name {
			continue
		}
		t.queue = p.GetActivityOptions().GetTaskQueue().GetName()
		t.level = cmp.Or(p.GetActivityOptions().GetPriority().GetPriorityKey(), int32(t.Priority))
		if p.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			t.Status = fleet.TaskQueued
			return true
		}
		t.Status, t.Why = fleet.TaskRunning, ""
		t.Attempts = append(t.Attempts, attemptOf(p))
		return true
	}
	return false
}

// attemptOf is the running attempt; its heartbeat details say who has it.
func attemptOf(p *workflowpb.PendingActivityInfo) fleet.Attempt {
	attempt := fleet.Attempt{Number: contract.AttemptOfActivityID(p.GetActivityId())}
	var report contract.AttemptReport
	if converter.GetDefaultDataConverter().FromPayloads(p.GetHeartbeatDetails(), &report) == nil {
		attempt.AgentID, attempt.Instance, attempt.Epoch, attempt.Hub = report.AgentID, report.Instance, report.Epoch, report.Hub
		attempt.StartedAt, attempt.Progress = report.StartedAt, report.Progress
	}
	if attempt.StartedAt == nil && p.GetLastStartedTime() != nil {
		at := p.GetLastStartedTime().AsTime().UTC()
		attempt.StartedAt = &at
	}
	return attempt
}
