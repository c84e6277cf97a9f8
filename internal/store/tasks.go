package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// statusTimeout bounds looking at the deliveries of a list's tasks.
const statusTimeout = 2 * time.Second

// Tasks are the tasks of a namespace.
type Tasks struct{ Store }

// Tasks are the namespace's.
func (s Store) Tasks() Tasks { return Tasks{s} }

// Task is a task, with fields that clients do not see. How much is known depends on how it was read: visibility takes
// every open task that is not marked for queued (OfInfo), a description adds its delivery (Describe), and its workflow
// has the rest (Complete).
type Task struct {
	api.Task
	Safety       api.RetrySafety
	Digest       string         // of what was submitted
	Mark         api.TaskStatus // the status that the workflow has written where lists see it
	MarkedAt     time.Time      // when the mark was set or removed; zero: never
	Delivery     *Delivery      // the pending one; nil: there is none, or it is not known
	HistoryBytes int64          // of its workflow; 0: not known
	idle         bool           // neither a delivery nor a workflow task is under way
	whole        bool           // nothing more is known of it
}

// Delivery is a delivery of a task that is under way.
type Delivery struct {
	Queue    string
	Priority int32
	State    enumspb.PendingActivityState
	Attempt  api.Attempt // who has it, according to its hub
	Report   contract.AttemptReport
	Hub      string    // that has it; empty: not known
	SeenAt   time.Time // its last sign of life; zero before it is started
}

// Started reports whether a hub has the delivery.
func (d *Delivery) Started() bool { return d.State != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED }

// OfInfo reads a task from Temporal's record of a workflow. Its id is empty if the workflow is no task.
func OfInfo(info *workflowpb.WorkflowExecutionInfo) Task {
	id, _ := contract.TaskOfWorkflowID(info.GetExecution().GetWorkflowId())
	attributes := info.GetSearchAttributes().GetIndexedFields()
	mark := api.TaskStatus(contract.Keyword(attributes, contract.AttrStatus))
	t := Task{Mark: mark, HistoryBytes: info.GetHistorySizeBytes(), Task: api.Task{
		ID:         id,
		WorkflowID: info.GetExecution().GetWorkflowId(),
		RunID:      info.GetExecution().GetRunId(),
		Type:       contract.Keyword(attributes, contract.AttrTaskType),
		Cluster:    contract.Keyword(attributes, contract.AttrCluster),
		Agent:      contract.Keyword(attributes, contract.AttrAgent),
		Tenant:     contract.Keyword(attributes, contract.AttrTenant),
		Status:     statusOf(info.GetStatus(), mark),
		CreatedAt:  TimeOf(info.GetStartTime()),
		ClosedAt:   TimeOf(info.GetCloseTime()),
	}}
	contract.Decode(attributes[contract.AttrStatusAt.GetName()], &t.MarkedAt)
	var terms []string
	contract.Decode(attributes[contract.AttrLabels.GetName()], &terms)
	t.Labels, t.RerunOf = contract.LabelsOf(terms), contract.RerunOf(terms)
	contract.Decode(attributes[contract.AttrRanOn.GetName()], &t.RanOn)
	t.readMemo(info)
	return t
}

// readMemo fills in the fields from the memo.
func (t *Task) readMemo(info *workflowpb.WorkflowExecutionInfo) {
	memo := info.GetMemo().GetFields()
	contract.Decode(memo[contract.MemoCapabilities], &t.RequiredCapabilities)
	contract.Decode(memo[contract.MemoPlace], &t.Place)
	contract.Decode(memo[contract.MemoSafety], &t.Safety)
	contract.Decode(memo[contract.MemoSchedule], &t.Schedule)
	contract.Decode(memo[contract.MemoDigest], &t.Digest)
	contract.Decode(memo[contract.MemoTrace], &t.TraceID)
	priority := api.Priority(info.GetPriority().GetPriorityKey())
	contract.Decode(memo[contract.MemoPriority], &priority)
	t.setPriority(priority)
	var start time.Time
	if contract.Decode(memo[contract.MemoStartAt], &start) && !start.IsZero() {
		start = start.UTC()
		t.StartAt = &start
	}
	t.ExpiresAt = expiryOf(&t.Task, memo)
	var dead api.DeadLetter
	if t.Status == api.TaskDeadLetter && contract.Decode(memo[contract.MemoDeadLetter], &dead) {
		t.DeadLetter, t.Tried = &dead, dead.Tried
	}
}

// expiryOf is when a task expires that no agent has had yet, by its memo; nil: it does not, or has been delivered.
func expiryOf(t *api.Task, memo map[string]*commonpb.Payload) *time.Time {
	var at time.Time
	in := api.Duration(api.DefaultExpiration)
	contract.Decode(memo[contract.MemoExpiresIn], &in)
	switch {
	case t.Status != api.TaskQueued || t.CreatedAt == nil:
		return nil
	case contract.Decode(memo[contract.MemoExpiresAt], &at):
	case in == 0:
		return nil
	case t.StartAt != nil && t.StartAt.After(*t.CreatedAt):
		at = t.StartAt.Add(in.Std())
	default:
		at = t.CreatedAt.Add(in.Std())
	}
	return new(at.UTC())
}

func (t *Task) setPriority(p api.Priority) {
	t.Priority, t.PriorityName = int(p.OrDefault()), p.OrDefault().String()
}

// statusOf derives a task's status from its workflow's, and from its mark where that says more. An open task without
// one is called queued.
func statusOf(execution enumspb.WorkflowExecutionStatus, mark api.TaskStatus) api.TaskStatus {
	switch execution {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return api.TaskCompleted
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:
		if mark == api.TaskExpired {
			return api.TaskExpired
		}
		return api.TaskFailed
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return api.TaskCancelled
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return api.TaskExpired
	}
	switch mark {
	case api.TaskReview, api.TaskDeadLetter:
		return mark
	}
	return api.TaskQueued
}

// Describe is a task as Temporal itself knows it, without asking a worker.
func (s Tasks) Describe(ctx context.Context, id string) (Task, error) {
	workflowID, key := contract.Locate(id)
	if strings.HasPrefix(key, ".") {
		return s.describeElement(ctx, id, key)
	}
	if key != "" {
		return s.describeStep(ctx, id, workflowID, key)
	}
	return s.describe(ctx, workflowID, "")
}

func (s Tasks) describe(ctx context.Context, workflowID, runID string) (Task, error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, runID)
	if err != nil {
		return Task{}, err
	}
	t := OfInfo(d.GetWorkflowExecutionInfo())
	t.Delivery, t.idle = deliveryOf(d.GetPendingActivities(), ""), d.GetPendingWorkflowTask() == nil
	return t, nil
}

// deliveryOf is the delivery of the task with a key among a workflow's activities; nil: there is none.
func deliveryOf(pending []*workflowpb.PendingActivityInfo, key string) *Delivery {
	for _, p := range pending {
		of, number := contract.AttemptOfActivityID(p.GetActivityId())
		if !delivers(p) || of != key {
			continue
		}
		delivery := &Delivery{
			Queue:    p.GetActivityOptions().GetTaskQueue().GetName(),
			Priority: p.GetActivityOptions().GetPriority().GetPriorityKey(),
			State:    p.GetState(),
		}
		delivery.Attempt.Number = number
		delivery.Hub, _ = contract.HubOfIdentity(p.GetLastWorkerIdentity())
		a := &delivery.Attempt
		if contract.Payloads.FromPayloads(p.GetHeartbeatDetails(), &delivery.Report) == nil {
			*a = delivery.Report.Attempt(a.Number)
			a.AliveAt, a.DeadlineAt = delivery.Report.AliveAt, delivery.Report.DeadlineAt
		}
		if started := TimeOf(p.GetLastStartedTime()); started != nil {
			a.StartedAt, delivery.SeenAt = cmp.Or(a.StartedAt, started), *started
		}
		if beat := TimeOf(p.GetLastHeartbeatTime()); beat != nil && beat.After(delivery.SeenAt) {
			delivery.SeenAt = *beat
		}
		return delivery
	}
	return nil
}

func delivers(p *workflowpb.PendingActivityInfo) bool {
	return p.GetActivityType().GetName() == contract.RunTaskActivity.Name
}

// DeliveringIn are the tasks of a workflow that have a delivery: a task's own, those of the steps of a run, or the
// bundles of an array. Of them only the ids and the deliveries are known.
func (s Tasks) DeliveringIn(ctx context.Context, workflowID, workflowRunID string) (tasks []Task, err error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, workflowRunID)
	if err != nil {
		return nil, err
	}
	run, isRun := contract.RunOfWorkflowID(workflowID)
	for _, p := range d.GetPendingActivities() {
		if !delivers(p) {
			continue
		}
		key, _ := contract.AttemptOfActivityID(p.GetActivityId())
		t := Task{Delivery: deliveryOf([]*workflowpb.PendingActivityInfo{p}, key)}
		t.WorkflowID, t.RunID = workflowID, d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
		if of, isArray := contract.ArrayOfWorkflowID(workflowID); isArray {
			t.ID = of + array.Mark + strings.TrimPrefix(key, ".")
		} else if t.ID, _ = contract.TaskOfWorkflowID(workflowID); isRun {
			t.ID = run + job.StepMark + key
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// deliveringAtOnce bounds the workflows that Delivering reads side by side: each may have 8 MiB of checkpoints.
const deliveringAtOnce = 8

// Delivering are the tasks of a cluster that have a delivery, as DeliveringIn reads them, if keep wants them. It looks
// at the newest workflows only, up to most.
func (s Tasks) Delivering(ctx context.Context, cluster string, most int, keep func(*Task) bool) ([]Task, error) {
	var open []*commonpb.WorkflowExecution
	for info, err := range s.Workflows(ctx, contract.DeliveringQuery(cluster)) {
		if err != nil {
			return nil, fmt.Errorf("list the open tasks of cluster %s: %w", cluster, err)
		}
		if open = append(open, info.GetExecution()); len(open) == most {
			break
		}
	}
	found := make([][]Task, len(open))
	parallel.Each(len(open), deliveringAtOnce, func(i int) {
		// A workflow that cannot be described has ended, as a rule.
		tasks, _ := s.DeliveringIn(ctx, open[i].GetWorkflowId(), open[i].GetRunId())
		for t := range tasks {
			if keep(&tasks[t]) {
				found[i] = append(found[i], tasks[t])
			}
		}
	})
	return slices.Concat(found...), ctx.Err()
}

// TakeDelivery fills in the pending delivery: whether a hub has it, and its last report. It reports whether there is
// one.
func (t *Task) TakeDelivery() bool {
	if t.Delivery == nil {
		return false
	}
	t.Status = api.TaskQueued
	if t.Delivery.Started() {
		t.Status, t.Why, t.ExpiresAt = api.TaskRunning, "", nil
		t.Tried++
		t.Attempts = append(t.Attempts, t.Delivery.Attempt)
	}
	return true
}

// Refine uses a description to distinguish queued, running and retry_wait. Other statuses stay.
func (t *Task) Refine(now time.Time) {
	if t.Status == api.TaskQueued && !t.TakeDelivery() && !t.WaitsForStart(now) && t.idle {
		t.Status = api.TaskRetryWait // it waits for a timer
	}
}

// WaitsForStart reports whether the task's time has not come, and then says so in the task.
func (t *Task) WaitsForStart(now time.Time) bool {
	if t.Status != api.TaskQueued || t.StartAt == nil || !t.StartAt.After(now) {
		return false
	}
	t.NextAttemptAt, t.Why = t.StartAt, api.StartsAt(*t.StartAt)
	return true
}

// RefineAll describes and refines the tasks of a list that visibility takes for queued. It asks the workflows of those
// that were delivered before for the rest: there are few. A task that cannot be read stays queued.
func (s Tasks) RefineAll(ctx context.Context, tasks []Task) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	parallel.Each(len(tasks), atOnce, func(i int) {
		if tasks[i].Status != api.TaskQueued {
			return
		}
		if t, err := s.describe(ctx, tasks[i].WorkflowID, tasks[i].RunID); err == nil {
			t.Refine(time.Now())
			if t.Status == api.TaskRetryWait || t.Delivery != nil && t.Delivery.Attempt.Number > 1 {
				_ = s.Complete(ctx, &t) // without it, it has what the description has
				t.Result, t.Attempts = nil, t.Attempts[max(0, len(t.Attempts)-1):]
			}
			tasks[i] = t
		}
	})
}

// Complete adds to a described task what its workflow knows, or how it ended. An error of an open task leaves it as it
// is.
func (s Tasks) Complete(ctx context.Context, t *Task) error {
	if t.whole {
		return nil
	}
	if t.Status.Final() {
		end, err := s.End(ctx, t.WorkflowID, t.RunID)
		if err == nil {
			t.takeEnd(end)
		}
		return err
	}
	state, err := contract.StatusQuery.Ask(ctx, s.Client, t.WorkflowID)
	if err != nil {
		return err
	}
	t.takeState(&state)
	if state.Status == api.TaskQueued {
		t.TakeDelivery()
	}
	return nil
}

// takeState takes over the workflow's own state.
func (t *Task) takeState(s *contract.TaskState) {
	if s.Status != "" {
		t.Status = s.Status
	}
	t.Why, t.NextAttemptAt, t.ExpiresAt, t.DeadLetter = s.Why, s.NextAttempt, s.ExpiresAt, s.DeadLetter
	if s.Cancelling != nil {
		t.Cancelling = &api.Cancelling{Reason: s.Cancelling.Reason, By: s.Cancelling.By}
	}
	t.Attempts, t.Tried, t.Result, t.ResultAttempt = s.Attempts, s.Tried, s.Result, s.ResultAttempt
	t.LateResult = s.Late
	t.Recovery, t.PolicyState = s.Recovery, s.PolicyState
	if s.Priority != 0 {
		t.setPriority(s.Priority)
	}
}

// ShowRecovery puts in how the task's recovery stands at a time, by its status.
func (t *Task) ShowRecovery(now time.Time) {
	if t.Recovery == nil {
		return
	}
	t.PolicyState = task.ShowPolicy(t.PolicyState, t.Recovery, now)
	t.RecoveryStatus = task.RecoveryStatus(t.Status, t.PolicyState)
	t.RecoveryRequiresReview = t.Status == api.TaskReview
}

// takeEnd takes over what the workflow left. The status is its own unless the state says more.
func (t *Task) takeEnd(end End) {
	var state contract.TaskState
	ended := t.Status
	if end.Read(&state) {
		t.takeState(&state)
	} else if ended != api.TaskCompleted {
		t.Why = end.Why()
	}
	if ended == api.TaskCancelled {
		t.Status = api.TaskCancelled
	}
}

// Submitted is what was submitted, from the first event of the task's history; it needs no worker. It is nil for an
// input that cannot be read.
func (s Tasks) Submitted(ctx context.Context, t *api.Task) (*api.TaskSpec, error) {
	if _, _, _, ok := job.CutTaskID(t.ID); ok {
		return s.stepSpec(ctx, t)
	}
	if _, number, ok := array.ElementOf(t.ID); ok {
		return s.elementSpec(ctx, t, number)
	}
	page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx,
		&workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: s.Namespace, MaximumPageSize: 1,
			Execution: &commonpb.WorkflowExecution{WorkflowId: t.WorkflowID, RunId: t.RunID},
		})
	events := page.GetHistory().GetEvents()
	if err != nil || len(events) == 0 {
		return nil, err
	}
	if input := inputOf(events[0]); input != nil {
		return &input.Spec, nil
	}
	return nil, nil
}

// inputOf is the input of a task's workflow, by its first event; nil: it cannot be read.
func inputOf(first *historypb.HistoryEvent) *contract.TaskInput {
	var input contract.TaskInput
	p := first.GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()
	if len(p) == 0 || !contract.Decode(p[0], &input) {
		return nil
	}
	return &input
}

// StartAgain starts a task that has ended otherwise than completed once more, under its id and with its input. One that
// is under way stays as it is.
func (s Tasks) StartAgain(ctx context.Context, t *Task, weight float64) error {
	payload, err := s.firstInput(ctx, t.WorkflowID, t.RunID)
	var in contract.TaskInput
	if err == nil && !contract.Decode(payload, &in) {
		err = errors.New("its input cannot be read")
	}
	if err == nil {
		err = s.Complete(ctx, t)
	}
	if err != nil {
		return err
	}
	in.Carried = nil
	if n := len(t.Attempts); n > 0 { // attempts count on: agents run none a second time
		last := t.Attempts[n-1].Number
		in.Carried = &contract.TaskCarried{Attempts: t.Attempts, Deliveries: last, RoutesSince: last, Tried: t.Tried,
			WaitingSince: time.Now().UTC()}
	}
	start := contract.StartOf(in.TaskID, &in.Spec, weight)
	start.Memo[contract.MemoDigest] = t.Digest
	options := start.Options()
	options.WorkflowIDReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	_, err = s.Client.ExecuteWorkflow(ctx, options, contract.TaskWorkflow, in)
	if KindOf(err) == Exists {
		return nil
	}
	return err
}

// HasLabels compares exactly: visibility in SQLite ignores case.
func (t *Task) HasLabels(labels map[string]string) bool {
	for name, value := range labels {
		if own, ok := t.Labels[name]; !ok || own != value {
			return false
		}
	}
	return true
}

// Matches reports whether the task has the filter's labels and cause, which visibility does not compare exactly.
func (t *Task) Matches(f *api.TaskFilter) bool {
	return t.HasLabels(f.Labels) && (f.Cause == "" || t.DeadLetter != nil && t.DeadLetter.Kind == f.Cause)
}

// MadeBy reports whether a schedule made the task. A task that only has the id of a firing's task is not its own.
func (t *Task) MadeBy(schedule string) bool {
	tenant, _ := api.CutTenant(schedule)
	return t.Schedule == schedule && schedule != "" && t.Tenant == tenant
}

// LooksAlike reports whether visibility finds tasks of other statuses too for one.
func LooksAlike(status api.TaskStatus) bool {
	return status == api.TaskQueued || status == api.TaskRunning || status == api.TaskRetryWait
}

// Queue is the task queue in which the pending delivery is or was; "" without one.
func (t *Task) Queue() string {
	if t.Delivery == nil {
		return ""
	}
	return t.Delivery.Queue
}

// Level is the priority of the pending delivery, or else the task's own.
func (t *Task) Level() int32 {
	if t.Delivery == nil {
		return int32(t.Priority)
	}
	return cmp.Or(t.Delivery.Priority, int32(t.Priority))
}

// Unhandled reports whether no agent could run the task when it was last offered.
func (t *Task) Unhandled() bool { return t.Mark == contract.TaskUnhandled }

// Running is the attempt that a hub has; nil: none has one.
func (t *Task) Running() *api.Attempt {
	if t.Delivery == nil || !t.Delivery.Started() {
		return nil
	}
	attempt := t.Delivery.Attempt
	attempt.Hub = cmp.Or(attempt.Hub, t.Delivery.Hub) // before its first heartbeat
	return &attempt
}

// Page is one page of the tasks that a visibility query finds, and the token of the next.
func (s Tasks) Page(ctx context.Context, query string, size int, token []byte) (tasks []Task, next []byte, err error) {
	infos, next, err := s.Store.Page(ctx, query, size, token)
	return readAll(infos, OfInfo), next, err
}

// maxReruns bounds the reruns that a task names.
const maxReruns = 20

// Reruns are the ids of the newest tasks that repeat one.
func (s Tasks) Reruns(ctx context.Context, id string) (ids []string, err error) {
	tasks, _, err := s.Newest(ctx, contract.RerunsQuery(id), maxReruns, nil)
	for i := range tasks {
		ids = append(ids, tasks[i].ID)
	}
	return ids, err
}

// Submission is a task that is to be started.
type Submission struct {
	contract.TaskInput
	Digest  string  // of what was submitted
	TraceID string  // of the trace that records it, if one does
	Weight  float64 // of its tenant in the cluster; 0: it has none
}

// Start starts a task. One with the same id is an error of the kind Exists.
func (s Tasks) Start(ctx context.Context, in *Submission) (Task, error) {
	start := contract.StartOf(in.TaskID, &in.Spec, in.Weight)
	start.Memo[contract.MemoDigest] = in.Digest
	if in.TraceID != "" {
		start.Memo[contract.MemoTrace] = in.TraceID
	}
	if in.RerunOf != "" {
		start.Repeat(in.RerunOf)
	}
	run, err := s.Client.ExecuteWorkflow(ctx, start.Options(), contract.TaskWorkflow, in.TaskInput)
	if err != nil {
		return Task{}, err
	}
	t := Task{Task: api.Task{
		ID:         in.TaskID,
		WorkflowID: start.WorkflowID,
		RunID:      run.GetRunID(),
		TraceID:    in.TraceID,
		Status:     api.TaskQueued,
		Type:       in.Spec.Type,
		Cluster:    in.Spec.Cluster,
		Agent:      in.Spec.Agent,
		Tenant:     in.Spec.Tenant,
		Labels:     in.Spec.Labels,
		RerunOf:    in.RerunOf,

		RequiredCapabilities: task.CapabilitiesOf(&in.Spec),
		Place:                in.Spec.Place,
	}}
	if !in.Spec.StartAt.IsZero() {
		t.StartAt = &in.Spec.StartAt
	}
	t.setPriority(in.Spec.Priority)
	t.WaitsForStart(time.Now())
	return t, nil
}

const (
	// pinnedPage is how many tasks one look reads; each look leaves out the agents that are known.
	pinnedPage = 1000
	// pinnedPages bounds the looks of one request: agents whose pinned work is hidden behind a lot of others' are left
	// out.
	pinnedPages = 5
)

// Pinned are the agents to which open tasks are pinned, by cluster; of all clusters when only is empty.
func (s Tasks) Pinned(ctx context.Context, only string) (map[string][]string, error) {
	agent := contract.AttrAgent.GetName()
	pinned := map[string][]string{}
	var known []string
	for range pinnedPages {
		query := contract.OpenTaskQuery(&api.TaskFilter{Cluster: only}) + " AND " + agent + " > ''"
		if len(known) > 0 {
			query += " AND " + agent + " NOT IN (" + strings.Join(known, ", ") + ")"
		}
		found, next, err := s.Store.Page(ctx, query, pinnedPage, nil)
		if err != nil {
			return nil, fmt.Errorf("list pinned tasks: %w", err)
		}
		seen := map[[2]string]bool{}
		for _, info := range found {
			attributes := info.GetSearchAttributes().GetIndexedFields()
			key := [2]string{contract.Keyword(attributes, contract.AttrCluster),
				contract.Keyword(attributes, contract.AttrAgent)}
			if key[1] == "" || seen[key] {
				continue
			}
			seen[key] = true
			pinned[key[0]] = append(pinned[key[0]], key[1])
			known = append(known, contract.Quoted(key[1]))
		}
		if len(next) == 0 {
			break
		}
	}
	return pinned, nil
}
