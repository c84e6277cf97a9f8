package events

import (
	"context"
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

const (
	// taskEvery is how often the feed looks for changes of tasks that only visibility has; hubs report completions and
	// running tasks.
	taskEvery = time.Second
	// taskRarely and taskSometimes count rounds: how often it looks for what a hub may have failed to report, and for
	// cancelled tasks.
	taskRarely    = 10
	taskSometimes = 2
	// taskOverlap is how long after it happened a change may appear in visibility. Most appear within taskLate, and
	// only one round in taskRarely looks further back: repeated reads keep the store busy.
	taskOverlap = 10 * time.Second
	taskLate    = 2 * time.Second
	// One look reads pages of one kind of change. The first has firstPage, each next one twice as many, up to
	// largestPage, and all together at most lookAt. Others wait while the store reads one.
	firstPage   = 25
	largestPage = 100
	lookAt      = 1000
	// settles is how long a task whose status was removed may still be about to end.
	settles = 1500 * time.Millisecond
)

// taskLook is one way of looking for changes of tasks: a visibility query whose answer is sorted by time, newest first.
type taskLook struct {
	query  string
	at     func(*workflowpb.WorkflowExecutionInfo) time.Time // nil: everything that the query finds
	before *taskLook                                         // what goes on where this ends; nil: nothing
}

// tasksAndRuns are the workflows that are looked at.
var tasksAndRuns = "(" + contract.Equals("WorkflowType", contract.TaskWorkflow) + " OR " +
	contract.Equals("WorkflowType", contract.RunWorkflow) + ")"

// statusLook finds tasks and runs by their workflow's status, which visibility sorts by the end, or else by the start.
func statusLook(status enumspb.WorkflowExecutionStatus) taskLook {
	look := taskLook{query: tasksAndRuns +
		" AND " + contract.ExecutionIs(status)}
	look.at = func(info *workflowpb.WorkflowExecutionInfo) time.Time {
		if info.GetCloseTime() != nil {
			return info.GetCloseTime().AsTime()
		}
		return info.GetStartTime().AsTime()
	}
	return look
}

// markedLook finds tasks whose status attribute was set since a time: those of the last minute, then those of the two
// minutes before, the four before these, and so on. A store sorts all that a query finds for each page.
func markedLook(since time.Time) taskLook {
	return markedBetween(since, time.Now(), time.Time{}, firstWindow)
}

// firstWindow is the time that the first query for marks is about.
const firstWindow = time.Minute

// markedBetween finds those that were set before to, if it is not zero, and since a time; the nearest to now first.
func markedBetween(since, now, to time.Time, window time.Duration) taskLook {
	from := now.Add(-window)
	if from.Before(since) {
		from = since
	}
	set := func(than string, at time.Time) string {
		return " AND " + contract.AttrStatusAt.GetName() + than + contract.Quoted(at.UTC().Format(time.RFC3339Nano))
	}
	look := taskLook{query: tasksAndRuns + set(" >= ", from)}
	if !to.IsZero() {
		look.query += set(" < ", to)
	}
	if from.After(since) {
		look.before = new(markedBetween(since, from, from, 2*window))
	}
	return look
}

// of finds only the tasks of a tenant, unless that is empty.
func (l taskLook) of(tenant string) taskLook {
	if tenant != "" {
		l.query += " AND " + contract.Equals(contract.AttrTenant.GetName(), tenant)
	}
	if l.before != nil {
		l.before = new(l.before.of(tenant))
	}
	return l
}

// beginTasks notes the changes just before the run, so that they are not published.
func (r *feedRun) beginTasks(ctx context.Context) {
	since := r.begun.Add(-taskOverlap)
	changes, _, err := r.feed.taskChanges(ctx, allLooks(since), since)
	if err != nil {
		r.feed.logger.Debug("tasks were not looked at", zap.Error(err))
	}
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range changes {
		if changes[i].Time.Before(r.begun) {
			r.isNew(changes[i].id)
		}
	}
}

func allLooks(since time.Time) []taskLook {
	return []taskLook{
		statusLook(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING), markedLook(since),
		statusLook(enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED), statusLook(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED),
		statusLook(enumspb.WORKFLOW_EXECUTION_STATUS_FAILED), statusLook(enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED),
		statusLook(enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT),
	}
}

// lookAtTasks publishes the changes of tasks that are new in visibility.
func (r *feedRun) lookAtTasks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	now := time.Now()
	r.mu.Lock()
	r.rounds++
	rounds, deaf, since := r.rounds, r.deaf, r.read.Add(-taskLate)
	far := rounds%taskRarely == 0
	if far {
		since = r.readFar.Add(-taskOverlap)
	}
	r.mu.Unlock()
	looks := allLooks(since)
	switch {
	case far:
	case deaf:
		looks = looks[:4]
	case rounds%taskSometimes == 0:
		looks = looks[:3]
	default:
		looks = looks[:2]
	}
	changes, more, err := r.feed.taskChanges(ctx, looks, since)
	if err != nil {
		if ctx.Err() == nil {
			r.feed.logger.Debug("tasks were not looked at", zap.Error(err))
		}
		return
	}
	if more {
		changes = append(changes, gap(now, "", "more tasks changed than can be told: the list of tasks has them all",
			0))
	}
	kept := changes[:0]
	for _, c := range changes {
		if !c.Time.Before(r.begun) {
			kept = append(kept, c)
		}
	}
	r.explainMarks(ctx, kept)
	tasks, runs := kept[:0:0], kept[:0:0]
	for _, c := range kept {
		if api.OfRun(c.Type) {
			runs = append(runs, c)
		} else {
			tasks = append(tasks, c)
		}
	}
	r.mu.Lock()
	r.read = now
	if far {
		r.readFar = now
	}
	known := r.readFar.Add(-taskOverlap)
	r.mu.Unlock()
	r.publish(tasks, func(p *position) { p.tasks = known })
	r.lookAtRuns(ctx, runs)
}

// taskChanges are the changes since a time that the looks find. more says that there are more than they may read.
func (f *Feed) taskChanges(
	ctx context.Context, looks []taskLook, since time.Time,
) (changes []told, more bool, err error) {
	found, cut, errs := make([][]told, len(looks)), make([]bool, len(looks)), make([]error, len(looks))
	parallel.Each(len(looks), atOnce, func(i int) { found[i], cut[i], errs[i] = f.lookForTasks(ctx, looks[i], since) })
	for i := range looks {
		if errs[i] != nil {
			return nil, false, errs[i]
		}
		changes, more = append(changes, found[i]...), more || cut[i]
	}
	return changes, more, nil
}

func (f *Feed) lookForTasks(
	ctx context.Context, look taskLook, since time.Time,
) (changes []told, more bool, err error) {
	var page []byte
	for read, size := 0, firstPage; read < lookAt; size = min(2*size, largestPage) {
		found, next, err := rest.InTurn(f.store.Page)(ctx, look.query, size, page)
		if err != nil {
			return nil, false, err
		}
		read += len(found)
		for _, info := range found {
			if look.at != nil && look.at(info).Before(since) {
				return changes, false, nil
			}
			changes = append(changes, changesOf(info, since)...)
		}
		if page = next; len(page) > 0 {
			continue
		}
		if look.before == nil {
			return changes, false, nil
		}
		look = *look.before
	}
	return changes, true, nil
}

// changesOf are the changes of one task or run since a time, as far as visibility knows them.
func changesOf(info *workflowpb.WorkflowExecutionInfo, since time.Time) []told {
	if _, is := contract.TaskOfWorkflowID(info.GetExecution().GetWorkflowId()); !is {
		return changesOfRun(info, since)
	}
	task := store.OfInfo(info)
	status := task.Status
	base := api.EventData{Cluster: task.Cluster, Tenant: task.Tenant, TaskID: task.ID, TaskType: task.Type}
	var changes []told
	add := func(id string, reached api.TaskStatus, at time.Time, data api.EventData) {
		if !at.Before(since) {
			changes = append(changes, told{id: id, run: task.RunID, Event: cluster.Event{Type: api.TaskEvent(reached),
				Time: at.UTC(), EventData: data}})
		}
	}
	queued := base
	queued.AgentID = task.Agent
	if task.WaitsForStart(time.Now()) {
		queued.Reason, queued.NextAttemptAt = task.Why, task.NextAttemptAt
	}
	add(taskEventID(task.ID, api.TaskQueued), api.TaskQueued, info.GetStartTime().AsTime(), queued)
	if status.Final() {
		add(taskEventID(task.ID, status), status, info.GetCloseTime().AsTime(), base)
		return changes
	}
	marked := task.MarkedAt
	ending := status == api.TaskQueued && (task.Mark != "" || time.Since(marked) < settles)
	if marked.IsZero() || ending {
		return changes // or about to end: the next look publishes it
	}
	data := base
	switch status {
	case api.TaskQueued:
		explain(&data, &store.Mark{})
	case api.TaskDeadLetter:
		if task.DeadLetter != nil {
			data.Reason = task.DeadLetter.Cause
		}
	}
	add(markEventID(task.ID, status, marked), status, marked, data)
	return changes
}

// explainMarks reads from histories who had tasks run again, and what led to a review: visibility has only the status.
func (r *feedRun) explainMarks(ctx context.Context, changes []told) {
	var marked []*told
	r.feed.mu.Lock()
	for i := range changes {
		c := &changes[i]
		again := c.Type == api.EventTaskQueued && c.id != taskEventID(c.TaskID, api.TaskQueued)
		_, known := r.known[c.id]
		if (again || c.Type == api.EventTaskReview) && !known && len(marked) < maxMarked {
			marked = append(marked, c)
		}
	}
	r.feed.mu.Unlock()
	parallel.Each(len(marked), atOnce, func(i int) {
		c := marked[i]
		marks, err := r.feed.store.Tasks().Marks(ctx, &api.Task{
			WorkflowID: contract.TaskWorkflowID(c.TaskID), RunID: c.run})
		if err != nil {
			r.feed.logger.Debug("a task's decisions were not read", zap.Error(err))
			return
		}
		for j := range marks {
			if marks[j].At.UnixMilli() == c.Time.UnixMilli() {
				explain(&c.EventData, &marks[j])
			}
		}
	})
}

// explain adds the cause of a mark: a person's request, or an attempt's end.
func explain(data *api.EventData, m *store.Mark) {
	data.AgentID = m.By.AgentID
	switch {
	case m.Status == "" && m.By.By == "":
		data.Reason = "a person had it run again"
	case m.Status == "":
		data.Reason = m.By.By + " had it run again"
	case m.By.Event != "":
		data.Reason = "attempt " + strconv.Itoa(m.By.Attempt) + ": " + m.By.Event
	}
	if m.By.Reason != "" {
		data.Reason += ": " + m.By.Reason
	}
}

func markEventID(task string, status api.TaskStatus, at time.Time) string {
	return taskEventID(task, status) + "." + strconv.FormatInt(at.UnixMilli(), 36)
}
