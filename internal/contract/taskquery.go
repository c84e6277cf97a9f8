package contract

import (
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// TaskQuery is the visibility query for the tasks that a filter selects. Visibility cannot distinguish queued, running
// and retry_wait: tasks found for these must be described. It does not know causes either.
func TaskQuery(f *api.TaskFilter) string {
	terms := []string{Equals("WorkflowType", TaskWorkflow)}
	for _, filter := range []struct{ attribute, value string }{
		{AttrCluster.GetName(), f.Cluster},
		{AttrTaskType.GetName(), f.Type},
		{AttrTenant.GetName(), f.Tenant},
		{AttrAgent.GetName(), f.Agent},
	} {
		if filter.value != "" {
			terms = append(terms, Equals(filter.attribute, filter.value))
		}
	}
	for _, label := range LabelList(f.Labels) {
		terms = append(terms, Equals(AttrLabels.GetName(), label))
	}
	if !f.SubmittedAfter.IsZero() {
		terms = append(terms, "StartTime >= "+quoteTime(f.SubmittedAfter))
	}
	if !f.SubmittedBefore.IsZero() {
		terms = append(terms, "StartTime < "+quoteTime(f.SubmittedBefore))
	}
	status := f.Status
	if f.Cause != "" {
		status = api.TaskDeadLetter
	}
	if status != "" {
		terms = append(terms, statusTerm(status))
	}
	return strings.Join(terms, " AND ")
}

// WithStatus is the term for the tasks with one of these statuses, as far as visibility distinguishes them.
func WithStatus(statuses ...string) string {
	terms := make([]string, len(statuses))
	for i, status := range statuses {
		terms[i] = "(" + statusTerm(api.TaskStatus(status)) + ")"
	}
	slices.Sort(terms)
	return "(" + strings.Join(slices.Compact(terms), " OR ") + ")"
}

// OfAgent is the term for the tasks that an agent had, or that are pinned to it.
func OfAgent(agent string) string {
	return "(" + Equals(AttrAgent.GetName(), agent) + " OR " + Equals(AttrRanOn.GetName(), agent) + ")"
}

// WithIDPrefix is the term for the tasks whose id begins so.
func WithIDPrefix(prefix string) string {
	return "WorkflowId STARTS_WITH " + Quoted(TaskWorkflowID(prefix))
}

// DeliveringQuery is the visibility query for what may have attempts under way in a cluster: open tasks that wait for
// no person, open runs of jobs, and open arrays.
func DeliveringQuery(cluster string) string {
	return "(" + TaskQuery(&api.TaskFilter{Cluster: cluster, Status: api.TaskRunning}) + " OR " +
		"(" + Equals("WorkflowType", RunWorkflow) + " OR " + Equals("WorkflowType", ArrayWorkflow) + ") AND " + Equals(AttrCluster.GetName(), cluster) + " AND " +
		ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING) + ")"
}

// PinnedQuery is the visibility query for the open tasks that are pinned to an agent, and the open runs of jobs with a
// pinned step, unless an expression names the agent.
func PinnedQuery(agent string) string {
	return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING) + " AND (" +
		Equals("WorkflowType", TaskWorkflow) + " AND " + Equals(AttrAgent.GetName(), agent) + " OR " +
		Equals("WorkflowType", RunWorkflow) + " AND " +
		Equals(AttrLabels.GetName(), LaneTerm(task.AgentLane(agent))) + ")"
}

// OpenTaskQuery is TaskQuery for the tasks that have not ended.
func OpenTaskQuery(f *api.TaskFilter) string {
	return TaskQuery(f) + " AND " + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
}

// LaneUsersQuery is the visibility query for what may use a cluster's lane of capabilities: tasks that wait there, and
// all runs of jobs, because visibility lacks their steps' lanes. It leaves out what ended before since.
func LaneUsersQuery(cluster, lane string, since time.Time) string {
	return Equals(AttrCluster.GetName(), cluster) + " AND (" +
		"(" + Equals("WorkflowType", TaskWorkflow) + " OR " + Equals("WorkflowType", ArrayWorkflow) + ") AND " +
		laneUser(lane) +
		" OR " + Equals("WorkflowType", RunWorkflow) + ") AND (" +
		ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING) + " OR CloseTime >= " + quoteTime(since) + ")"
}

// laneUser finds what may wait in a lane that was opened. A lane of a type is found by the tasks' type and not by a
// LaneTerm, because the tasks may be older than the lane.
func laneUser(lane string) string {
	taskType, capabilities := task.TypeOfLane(lane), task.CapabilitiesOfLane(lane)
	if taskType == "" {
		return Equals(AttrLabels.GetName(), LaneTerm(lane))
	}
	query := Equals(AttrTaskType.GetName(), taskType)
	if len(capabilities) > 0 {
		query += " AND " + Equals(AttrLabels.GetName(), LaneTerm(task.CapabilityLane(capabilities)))
	}
	return query
}

// LaneTasksQuery is the visibility query for the open tasks that may wait in a lane: those that wait for no person.
func LaneTasksQuery(cluster, lane string) string {
	query := TaskQuery(&api.TaskFilter{Cluster: cluster, Status: api.TaskQueued})
	if agent, pinned := task.AgentOfLane(lane); pinned {
		return query + " AND " + Equals(AttrAgent.GetName(), agent)
	} else if task.IsOpened(lane) {
		return query + " AND " + laneUser(lane)
	}
	return query
}

// LaneStepsQuery is the visibility query for the open runs and arrays with something that may wait in a lane.
func LaneStepsQuery(cluster, lane string) string {
	query := "(" + Equals("WorkflowType", RunWorkflow) + " OR " + Equals("WorkflowType", ArrayWorkflow) + ") AND " +
		Equals(AttrCluster.GetName(), cluster) + " AND " + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	if set := task.CapabilitiesOfLane(lane); len(set) > 0 { // of other lanes expressions can decide
		query += " AND " + Equals(AttrLabels.GetName(), LaneTerm(task.CapabilityLane(set)))
	}
	return query
}

// TaskWaiting is a status for filters only: queued or retry_wait.
const TaskWaiting api.TaskStatus = "waiting"

// TaskUnhandled is a mark and a status for filters only: the task was offered, and no agent there could run it. It
// stays until an agent has had the task, so a task with it is queued, running or in retry_wait.
const TaskUnhandled api.TaskStatus = "unhandled"

func statusTerm(status api.TaskStatus) string {
	marked := AttrStatus.GetName()
	open := ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	switch status {
	case api.TaskReview, api.TaskDeadLetter, TaskUnhandled:
		return openWithMark(string(status))
	case api.TaskCompleted:
		return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	case api.TaskCancelled:
		return "(" + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED) +
			" OR " + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED) + ")"
	case api.TaskExpired:
		return "(" + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT) +
			" OR " + Equals(marked, string(api.TaskExpired)) + ")"
	case api.TaskFailed:
		return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_FAILED) + " AND (" + marked +
			" IS NULL OR " + Equals(marked, string(api.TaskFailed)) + ")"
	}
	return open + " AND (" + marked + " IS NULL OR " + Equals(marked, string(TaskUnhandled)) + ")"
}

// openWithMark is the term for open workflows with a mark: few among many. SQLite reads a range, even of one value, by
// its own index.
func openWithMark(mark string) string {
	return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING) + " AND " + AttrStatus.GetName() +
		" BETWEEN " + Quoted(mark) + " AND " + Quoted(mark)
}

// ExecutionIs is the term of a visibility query for a status of the workflow.
func ExecutionIs(s enumspb.WorkflowExecutionStatus) string {
	return Equals("ExecutionStatus", s.String())
}

// Equals is the term of a visibility query for an attribute's value, or for one of the values of a list.
func Equals(attribute, value string) string { return attribute + " = " + Quoted(value) }

// Quoted is a value as a string of the query language.
func Quoted(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(value) + "'"
}

func quoteTime(t time.Time) string { return Quoted(t.UTC().Format(time.RFC3339Nano)) }
