package store

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	updatepb "go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// historyPage is how many events of a history are read at a time: each may bring 1 MiB.
const historyPage = 8

// Events are the events of a workflow, of all runs that continued each other up to this one, oldest first. An error
// ends them.
func (s Store) Events(ctx context.Context, workflowID, runID string) iter.Seq2[*historypb.HistoryEvent, error] {
	return func(yield func(*historypb.HistoryEvent, error) bool) {
		for first := true; runID != ""; first = false {
			var next string
			for token, begin := []byte(nil), true; begin || len(token) > 0; begin = false {
				page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx,
					&workflowservice.GetWorkflowExecutionHistoryRequest{
						Namespace: s.Namespace, NextPageToken: token, MaximumPageSize: historyPage,
						Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
					})
				if err != nil {
					yield(nil, err)
					return
				}
				for _, e := range page.GetHistory().GetEvents() {
					origin := e.GetWorkflowExecutionStartedEventAttributes().GetFirstExecutionRunId()
					if first && origin != "" && origin != runID {
						next = origin // begin with the oldest run
						break
					}
					if !yield(e, nil) {
						return
					}
					next = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
				}
				if token = page.GetNextPageToken(); first && next != "" {
					break
				}
			}
			runID = next
		}
	}
}

// AttemptLog is the end of what an attempt of the task wrote, as its end brought it into the task's history; nil: none.
func (s Tasks) AttemptLog(ctx context.Context, t *api.Task, number int) (lines []api.LogLine, err error) {
	scheduled := int64(-1)
	_, key := contract.Locate(t.ID)
	for e, err := range s.Events(ctx, t.WorkflowID, t.RunID) {
		if err != nil {
			return nil, err
		}
		if attemptOf(e, key) == number {
			scheduled = e.GetEventId()
		}
		if of, left := activityEnd(e); of == scheduled {
			if p := left.GetPayloads(); len(p) > 1 {
				contract.Decode(p[1], &lines)
			}
			return lines, nil
		}
	}
	return nil, nil
}

// firstDelivery is the spec with which the task of a step or an element was first delivered; nil: it was not.
func (s Tasks) firstDelivery(ctx context.Context, t *api.Task, key string) (*api.TaskSpec, error) {
	for e, err := range s.Events(ctx, t.WorkflowID, t.RunID) {
		var input contract.RunTaskInput
		p := e.GetActivityTaskScheduledEventAttributes().GetInput().GetPayloads()
		switch {
		case err != nil:
			return nil, err
		case attemptOf(e, key) > 0 && len(p) > 0 && contract.Decode(p[0], &input):
			return &input.Spec, nil
		}
	}
	return nil, nil
}

// maxMoments bounds the task's history in an answer. The submission is always in it.
const maxMoments = 500

// The requests of people.
const (
	momentRetried  = "retried"
	momentReviewed = "reviewed"
)

// History is what happened to the task, oldest first, from its workflow's history, and from the delivery that is under
// way, if there is one. An element of an array gets its attempts from there, also those in bundles, counted from 1.
func (s Tasks) History(ctx context.Context, t *api.Task, d *Delivery) ([]api.TaskMoment, error) {
	var tell teller
	_, tell.key = contract.Locate(t.ID)
	if _, n, ok := array.ElementOf(t.ID); ok {
		tell.element = &n
	}
	for e, err := range s.Events(ctx, t.WorkflowID, t.RunID) {
		if err != nil {
			return nil, err
		}
		tell.take(e)
	}
	if d != nil && d.Started() && (d.Attempt.Number == tell.attempt || tell.element != nil) {
		tell.went(tell.attempt, &d.Report, time.Time{})
	}
	if tell.element != nil {
		for i := range t.Attempts { // the one that runs
			t.Attempts[i].Number = tell.attempt
		}
		t.Attempts = append(tell.ends, t.Attempts...)
	}
	if t.Status.Final() && t.ClosedAt != nil {
		tell.add(api.TaskMoment{At: *t.ClosedAt, Event: string(t.Status), Reason: t.Why})
	}
	slices.SortStableFunc(tell.moments, func(a, b api.TaskMoment) int { return a.At.Compare(b.At) })
	if over := len(tell.moments) - maxMoments; over > 0 {
		tell.moments = slices.Delete(tell.moments, 1, over+1)
	}
	return tell.moments, nil
}

// teller turns the events of a task's workflow into a history for people.
type teller struct {
	key       string // of the task in its workflow
	moments   []api.TaskMoment
	attempt   int   // the delivery that is under way
	scheduled int64 // the event that began it
	queued    int   // where in moments it begins
	since     time.Time
	element   *int          // of an array; nil: it is another task
	attempts  int           // of an element, so far
	ends      []api.Attempt // of an element
}

func (l *teller) add(m api.TaskMoment) {
	m.At = m.At.UTC()
	l.moments = append(l.moments, m)
}

func (l *teller) take(e *historypb.HistoryEvent) {
	at := e.GetEventTime().AsTime()
	switch e.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		if input := inputOf(e); len(l.moments) == 0 && l.key == "" {
			m := api.TaskMoment{At: at, Event: "submitted"}
			if input != nil {
				m.By = input.By
			}
			l.add(m)
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		if number, input := l.delivers(e); number > 0 {
			m := api.TaskMoment{At: at, Event: "queued", Attempt: number}
			if input.TransferredFrom != "" {
				m.Reason = "its last agent was " + input.TransferredFrom
			}
			l.attempt, l.scheduled, l.queued, l.since = number, e.GetEventId(), len(l.moments), at
			l.add(m)
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
		if e.GetActivityTaskStartedEventAttributes().GetScheduledEventId() == l.scheduled {
			hub, _ := contract.HubOfIdentity(e.GetActivityTaskStartedEventAttributes().GetIdentity())
			l.since = at
			l.add(api.TaskMoment{At: at, Event: "delivered", Attempt: l.attempt, Reason: "to hub " + hub})
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
		l.asked(at, e.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
		who := e.GetWorkflowExecutionCancelRequestedEventAttributes().GetIdentity()
		if strings.HasSuffix(who, "@") {
			who = "" // a process, by the SDK's default: pid@host@
		}
		l.add(api.TaskMoment{At: at, Event: "cancel_asked", By: who, Reason: "the workflow was cancelled in Temporal"})
	case enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
		fields := e.GetUpsertWorkflowSearchAttributesEventAttributes().GetSearchAttributes().GetIndexedFields()
		switch mark := api.TaskStatus(contract.Keyword(fields, contract.AttrStatus)); mark {
		case api.TaskReview, api.TaskDeadLetter:
			l.add(api.TaskMoment{At: at, Event: string(mark)})
		}
	}
	if of, left := activityEnd(e); of != 0 && of == l.scheduled {
		l.scheduled = 0
		l.ended(e, at, left)
	}
}

// delivers is the number of the attempt that an event schedules, and its input; 0: it schedules none of the task.
func (l *teller) delivers(e *historypb.HistoryEvent) (number int, input contract.RunTaskInput) {
	if number = attemptOf(e, l.key); number == 0 && l.element == nil {
		return 0, input
	}
	if p := e.GetActivityTaskScheduledEventAttributes().GetInput().GetPayloads(); len(p) > 0 {
		contract.Decode(p[0], &input)
	}
	if l.element != nil {
		is := func(e api.Element) bool { return e.Number == *l.element }
		if number == 0 && !slices.ContainsFunc(input.Elements, is) {
			return 0, input
		}
		l.attempts++
		number = l.attempts
	}
	return number, input
}

// asked adds what a person asked for, by the update that the workflow has accepted.
func (l *teller) asked(at time.Time, update *updatepb.Input) {
	words := map[string]string{
		contract.CancelUpdate.Name: "cancel_asked", contract.RetryUpdate.Name: momentRetried,
		contract.DiscardUpdate.Name: "discarded", contract.ReviewUpdate.Name: momentReviewed,
		contract.ReprioritizeUpdate.Name: "prioritized", contract.LateResultUpdate.Name: "late_result",
	}
	var request struct {
		contract.ForTask
		Reason   string
		Decision api.ReviewDecision
		Priority api.Priority
		Attempt  int
		AgentID  string `json:"agent_id"`
		Outcome  api.AttemptOutcome
	}
	if p := update.GetArgs().GetPayloads(); len(p) > 0 {
		contract.Decode(p[0], &request)
	}
	reason := request.Reason
	switch {
	case request.Decision != "":
		reason = joined(string(request.Decision), reason)
	case request.Outcome != "":
		reason = joined(string(request.Outcome), reason)
	case request.Priority != 0:
		reason = joined(request.Priority.String(), reason)
	}
	if word := words[update.GetName()]; word != "" && request.Task == l.key {
		l.add(api.TaskMoment{At: at, Event: word, By: request.By, Reason: reason, Attempt: request.Attempt,
			AgentID: request.AgentID})
	}
}

func joined(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// during adds the moments of a delivery, until its end, that others than Temporal saw; zero: it is under way. Their
// clocks may differ from Temporal's, and must not change the order.
func (l *teller) during(m api.TaskMoment, end time.Time) {
	if m.At.Before(l.since) {
		m.At = l.since
	}
	if !end.IsZero() && m.At.After(end) {
		m.At = end
	}
	l.add(m)
}

// ended adds how the delivery that is under way went and ended.
func (l *teller) ended(e *historypb.HistoryEvent, at time.Time, left *commonpb.Payloads) {
	var report contract.AttemptReport
	if p := left.GetPayloads(); len(p) > 0 {
		contract.Decode(p[0], &report)
	}
	if l.element != nil && !l.own(&report) {
		l.attempts-- // the agent handed it back, or none took it
		l.moments = l.moments[:l.queued]
		return
	}
	m := api.TaskMoment{At: at, Event: string(report.Outcome), Attempt: l.attempt, AgentID: report.AgentID,
		Reason: report.Reason}
	switch {
	case e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		m.Event, m.Reason = endOfTime(e)
	case e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		m.Event = string(api.AttemptCancelled)
	case report.Planned && report.Outcome == api.AttemptLost: // another process contested its agent's id
		m.Event = string(api.AttemptMoved)
	case report.Outcome == api.AttemptReturned && report.AgentID == "":
		if last := l.queued - 1; last > 0 && l.moments[last].Event == m.Event && l.moments[last].Reason == m.Reason {
			l.moments = l.moments[:l.queued]
			l.moments[last].Times = max(1, l.moments[last].Times) + 1
			l.moments[last].At, l.moments[last].Attempt = at.UTC(), l.attempt
			return
		}
	}
	if report.Outcome != api.AttemptReturned {
		l.went(l.attempt, &report, at)
	}
	if l.element != nil {
		attempt := report.Attempt(l.attempt)
		attempt.Outcome, attempt.Reason = api.AttemptOutcome(m.Event), m.Reason
		l.ends = append(l.ends, attempt)
	}
	l.add(m)
}

// own turns the report of a delivery into the element's. It reports whether it was an attempt of the element.
func (l *teller) own(report *contract.AttemptReport) bool {
	if len(report.Elements) == 0 {
		return report.Outcome != api.AttemptReturned
	}
	for i := range report.Elements {
		if r := &report.Elements[i]; r.Number == *l.element {
			report.Outcome, report.Reason, report.ErrorType = r.Outcome, r.Error, r.ErrorType
			return true
		}
	}
	return false
}

// went adds when an attempt began, and its progress.
func (l *teller) went(attempt int, r *contract.AttemptReport, end time.Time) {
	if r.StartedAt != nil {
		l.during(api.TaskMoment{At: *r.StartedAt, Event: "running", Attempt: attempt, AgentID: r.AgentID}, end)
	}
	for _, mark := range r.Marks {
		l.during(api.TaskMoment{At: mark.At, Event: "progress", Attempt: attempt, AgentID: r.AgentID,
			Progress: &mark.Progress}, end)
	}
}

// endOfTime says what it means that Temporal ended a delivery by a timeout.
func endOfTime(e *historypb.HistoryEvent) (event, reason string) {
	kind := e.GetActivityTaskTimedOutEventAttributes().GetFailure().GetTimeoutFailureInfo().GetTimeoutType()
	switch kind {
	case enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return string(api.AttemptReturned), "no agent took it in time"
	case enumspb.TIMEOUT_TYPE_START_TO_CLOSE:
		return string(api.AttemptTimedOut), "the attempt ran longer than the task's timeout"
	}
	return string(api.AttemptLost), "no hub has heard of the attempt for at least " + api.AttemptBackstop.String()
}

// Mark is a change of the status that a task's workflow shows to lists.
type Mark struct {
	Status api.TaskStatus // "": it was removed, because a person had the task run again
	At     time.Time
	// By is what led to it: the person's request, or the attempt's end. Its Event is empty where the history has none.
	By api.TaskMoment
}

// Marks are a task's changes of status that lists see, as its workflow made them, without the one with which it ended.
func (s Tasks) Marks(ctx context.Context, t *api.Task) (marks []Mark, err error) {
	var tell teller
	last := Mark{}
	for e, err := range s.Events(ctx, t.WorkflowID, t.RunID) {
		if err != nil {
			return nil, err
		}
		tell.take(e)
		if !last.At.IsZero() && !ends(e) {
			marks = append(marks, last)
		}
		last = Mark{}
		fields := e.GetUpsertWorkflowSearchAttributesEventAttributes().GetSearchAttributes().GetIndexedFields()
		if contract.Decode(fields[contract.AttrStatusAt.GetName()], &last.At) {
			last.Status = api.TaskStatus(contract.Keyword(fields, contract.AttrStatus))
			last.By = tell.cause(last.Status)
		}
	}
	if !last.At.IsZero() {
		marks = append(marks, last)
	}
	return marks, nil
}

// cause is the newest moment that can have led to a mark.
func (l *teller) cause(mark api.TaskStatus) api.TaskMoment {
	for _, m := range slices.Backward(l.moments) {
		switch m.Event {
		case momentRetried, momentReviewed:
			if mark == "" {
				return m
			}
		case string(api.AttemptLost), string(api.AttemptFailed), string(api.AttemptTimedOut),
			string(api.AttemptMoved):
			if mark != "" {
				return m
			}
		}
	}
	return api.TaskMoment{}
}

// ends reports whether a workflow's run ends with an event.
func ends(e *historypb.HistoryEvent) bool {
	switch e.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		return true
	}
	return false
}

// attemptOf is the number of the attempt that an event schedules of a workflow's task; 0: it schedules none.
func attemptOf(e *historypb.HistoryEvent, key string) int {
	a := e.GetActivityTaskScheduledEventAttributes()
	if a.GetActivityType().GetName() != contract.RunTaskActivity.Name {
		return 0
	}
	if of, number := contract.AttemptOfActivityID(a.GetActivityId()); of == key {
		return number
	}
	return 0
}

// activityEnd is what an event leaves of an activity that it ends, and the event that scheduled it; 0: it ends none.
func activityEnd(e *historypb.HistoryEvent) (scheduled int64, left *commonpb.Payloads) {
	switch e.GetEventType() {
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		a := e.GetActivityTaskCompletedEventAttributes()
		return a.GetScheduledEventId(), a.GetResult()
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		a := e.GetActivityTaskFailedEventAttributes()
		return a.GetScheduledEventId(), a.GetFailure().GetApplicationFailureInfo().GetDetails()
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		a := e.GetActivityTaskCanceledEventAttributes()
		return a.GetScheduledEventId(), a.GetDetails()
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		a := e.GetActivityTaskTimedOutEventAttributes()
		return a.GetScheduledEventId(), a.GetFailure().GetTimeoutFailureInfo().GetLastHeartbeatDetails()
	}
	return 0, nil
}
