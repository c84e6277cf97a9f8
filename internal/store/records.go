package store

import (
	"context"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
)

// recordTimeout bounds a question to a workflow, and reading the records of a page.
const recordTimeout = 3 * time.Second

// Records are the records that the workflows of one type keep of what they do. A workflow is asked for its record while
// it runs; afterwards the record is what it returned.
type Records[T any] struct {
	Store
	Query contract.Query[T]
	// Partial makes a record of what Temporal itself knows, for use when the record cannot be had. ok is false for a
	// workflow that keeps none.
	Partial func(Known) (record T, ok bool)
	// Locate puts in what only Temporal knows; nil: nothing.
	Locate func(record *T, run *commonpb.WorkflowExecution)
}

// Known is what Temporal itself knows of a workflow.
type Known struct {
	WorkflowID string
	StartedAt  time.Time
	ClosedAt   *time.Time // nil: it runs
	Status     enumspb.WorkflowExecutionStatus
	Why        string // why its record cannot be had, in words for people
	// The search attributes of most workflows.
	Tenant, TaskType, Mark string
}

func knownOf(info *workflowpb.WorkflowExecutionInfo, why string) Known {
	fields := info.GetSearchAttributes().GetIndexedFields()
	k := Known{WorkflowID: info.GetExecution().GetWorkflowId(), ClosedAt: TimeOf(info.GetCloseTime()),
		Status: info.GetStatus(), Why: why, Tenant: contract.Keyword(fields, contract.AttrTenant),
		TaskType: contract.Keyword(fields, contract.AttrTaskType), Mark: contract.Keyword(fields, contract.AttrStatus)}
	if at := TimeOf(info.GetStartTime()); at != nil {
		k.StartedAt = *at
	}
	return k
}

// Standing is one status for a workflow that runs, and another for one that has ended.
func Standing[S any](k Known, running, ended S) S {
	if k.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return running
	}
	return ended
}

// Get is the record of a workflow's newest run.
func (r Records[T]) Get(ctx context.Context, workflowID string) (record T, err error) {
	info, err := r.Describe(ctx, workflowID)
	if err != nil {
		return record, err
	}
	record, _ = r.Of(ctx, info)
	return record, nil
}

// Page is one page of the records that a visibility query finds, and the token of the next.
func (r Records[T]) Page(
	ctx context.Context, query string, size int, token []byte,
) (records []T, next []byte, err error) {
	infos, next, err := r.Store.Page(ctx, query, size, token)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	read, ours := make([]T, len(infos)), make([]bool, len(infos))
	parallel.Each(len(infos), atOnce, func(i int) { read[i], ours[i] = r.Of(ctx, infos[i]) })
	records = make([]T, 0, len(infos))
	for i := range read {
		if ours[i] {
			records = append(records, read[i])
		}
	}
	return records, next, nil
}

// Of is the record of a run.
func (r Records[T]) Of(ctx context.Context, info *workflowpb.WorkflowExecutionInfo) (record T, ok bool) {
	if _, ok := r.Partial(knownOf(info, "")); !ok {
		return record, false
	}
	var why string
	id, run := info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		var err error
		if record, err = r.Query.AskRun(ctx, r.Client, id, run); err != nil {
			why = "no worker answered for it; only what Temporal itself knows is shown"
		}
	} else {
		record, why = EndRecord[T](ctx, r.Store, id, run)
	}
	if why != "" {
		record, _ = r.Partial(knownOf(info, why))
	}
	if r.Locate != nil {
		r.Locate(&record, info.GetExecution())
	}
	return record, true
}

// EndRecord is the record that a closed run of a workflow returned. When it cannot be had, why says so in words for
// people.
func EndRecord[T any](ctx context.Context, s Store, workflowID, runID string) (record T, why string) {
	end, err := s.End(ctx, workflowID, runID)
	if err != nil {
		return record, "Temporal did not answer in time; only a part of the record is shown"
	}
	if end.Read(&record) {
		return record, ""
	}
	return record, end.Why()
}

// End is how a workflow ended: its last event.
type End struct{ event *historypb.HistoryEvent }

// End reads how a closed run of a workflow ended.
func (s Store) End(ctx context.Context, workflowID, runID string) (end End, err error) {
	const last = enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
	for events := s.Client.GetWorkflowHistory(ctx, workflowID, runID, false, last); events.HasNext(); {
		if end.event, err = events.Next(); err != nil {
			return End{}, err
		}
	}
	return end, nil
}

// AwaitEnd returns when a workflow's newest run has ended, or when it cannot find out; now and then it is late.
func (s Store) AwaitEnd(ctx context.Context, workflowID string) {
	const last = enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
	s.Client.GetWorkflowHistory(ctx, workflowID, "", true, last).HasNext()
}

// Read decodes what the workflow returned, or left in the details of its failure or its cancellation. It reports
// whether there was something to decode.
func (e End) Read(into any) bool {
	left := e.event.GetWorkflowExecutionCompletedEventAttributes().GetResult()
	switch e.event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		left = e.Failure().GetApplicationFailureInfo().GetDetails()
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		left = e.event.GetWorkflowExecutionCanceledEventAttributes().GetDetails()
	}
	return len(left.GetPayloads()) > 0 && contract.Payloads.FromPayloads(left, into) == nil
}

// Failure is the failure of a workflow that failed.
func (e End) Failure() *failurepb.Failure {
	return e.event.GetWorkflowExecutionFailedEventAttributes().GetFailure()
}

// Why says how the workflow ended when Read has nothing, in words for people.
func (e End) Why() string {
	switch e.event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		return "its record cannot be read; the Temporal Web UI shows it"
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		if reason := e.event.GetWorkflowExecutionTerminatedEventAttributes().GetReason(); reason != "" {
			return "its workflow was terminated: " + reason
		}
		return "its workflow was terminated"
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		return "its workflow was cancelled"
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		return "its workflow ran out of time"
	}
	return "its workflow failed; the Temporal Web UI shows the failure"
}
