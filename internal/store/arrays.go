package store

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// Arrays are the arrays of a namespace.
type Arrays struct{ Store }

// Arrays are the namespace's.
func (s Store) Arrays() Arrays { return Arrays{s} }

// Start starts an array. One with the same id is an error of the kind Exists.
func (s Arrays) Start(ctx context.Context, id, digest string, in *contract.ArrayInput, weight float64) error {
	start := contract.StartOfArray(id, in, weight)
	start.Memo[contract.MemoDigest] = digest
	_, err := s.Client.ExecuteWorkflow(ctx, start.Options(), contract.ArrayWorkflow, *in)
	return err
}

// ofArrayInfo reads an array's entry from Temporal's record of its workflow.
func ofArrayInfo(info *workflowpb.WorkflowExecutionInfo) api.ArrayEntry {
	attributes := info.GetSearchAttributes().GetIndexedFields()
	var terms []string
	contract.Decode(attributes[contract.AttrLabels.GetName()], &terms)
	e := api.ArrayEntry{
		Type:      contract.Keyword(attributes, contract.AttrTaskType),
		Cluster:   contract.Keyword(attributes, contract.AttrCluster),
		Tenant:    contract.Keyword(attributes, contract.AttrTenant),
		Labels:    contract.LabelsOf(terms),
		Status:    markedStatus(info.GetStatus(), api.ArrayStatus(contract.Keyword(attributes, contract.AttrStatus))),
		CreatedAt: TimeOf(info.GetStartTime()),
		ClosedAt:  TimeOf(info.GetCloseTime()),
	}
	e.ID, _ = contract.ArrayOfWorkflowID(info.GetExecution().GetWorkflowId())
	contract.Decode(info.GetMemo().GetFields()[contract.MemoElements], &e.Elements)
	return e
}

// Array is an array as Temporal knows it.
type Array struct {
	api.Array
	Digest  string // of what was submitted
	first   string // the workflow's first run
	pending []*workflowpb.PendingActivityInfo
}

// Describe is an array as Temporal itself knows it.
func (s Arrays) Describe(ctx context.Context, id string) (a Array, err error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, contract.ArrayWorkflowID(id), "")
	if err != nil {
		return a, err
	}
	info := d.GetWorkflowExecutionInfo()
	a.ArrayEntry = ofArrayInfo(info)
	a.WorkflowID, a.RunID = info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
	a.Counts = api.ElementCounts{Total: a.Elements}
	a.first = info.GetFirstRunId()
	contract.Decode(info.GetMemo().GetFields()[contract.MemoDigest], &a.Digest)
	a.pending = d.GetPendingActivities()
	return a, nil
}

// Complete adds to a described array what its workflow knows, or how it ended.
func (s Arrays) Complete(ctx context.Context, a *Array) error {
	var state contract.ArrayState
	if a.Status.Final() {
		end, err := s.End(ctx, a.WorkflowID, a.RunID)
		if err != nil {
			return err
		}
		if !end.Read(&state) {
			a.Why = end.Why()
			return nil
		}
	} else {
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		var err error
		if state, err = contract.ArrayQuery.Ask(ctx, s.Client, a.WorkflowID); err != nil {
			a.Why = "no worker answered for the array; only what Temporal itself knows is shown"
			return nil // the answer has what is known
		}
	}
	a.take(&state)
	return nil
}

// take takes over the state from the array's workflow. Elements whose delivery waits in its lane are queued.
func (a *Array) take(state *contract.ArrayState) {
	a.Status, a.Why, a.Counts, a.Priority = state.Status, state.Why, state.Counts, int(state.Priority)
	a.Until = state.Until
	for _, p := range a.pending {
		key, _ := contract.AttemptOfActivityID(p.GetActivityId())
		if p.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			elements := state.Flying[a.ID+array.Mark+strings.TrimPrefix(key, ".")]
			a.Counts.Queued += elements
			a.Counts.Running -= elements
		}
	}
}

// describeElement is an element of an array as a task, without its result, or a bundle that is under way.
func (s Tasks) describeElement(ctx context.Context, id, key string) (Task, error) {
	named, _, _ := strings.Cut(id, array.Mark)
	a, err := s.Arrays().Describe(ctx, named)
	if err != nil {
		return Task{}, err
	}
	t := Task{whole: true, HistoryBytes: ResultsTake, Task: api.Task{ID: id, Type: a.Type, Cluster: a.Cluster,
		Tenant: a.Tenant, Labels: a.Labels, WorkflowID: a.WorkflowID, RunID: a.RunID}}
	if _, number, element := array.ElementOf(id); element {
		page, err := s.Arrays().Elements(ctx, named, contract.ElementsRequest{From: number, Limit: 1})
		if err != nil || len(page.Elements) == 0 {
			return Task{}, cmp.Or(err, errNoElement)
		}
		e := &page.Elements[0]
		t.Status, t.Why, t.NextAttemptAt = api.TaskStatus(e.Status), e.Why, e.NextAt
		_, key = contract.Locate(e.Delivery)
	}
	t.Delivery = deliveryOf(a.pending, key)
	if !t.TakeDelivery() && t.Status == "" {
		return Task{}, errNoElement
	}
	return t, nil
}

// elementSpec is what an element of an array was submitted with; nil: the array's input cannot be read.
func (s Tasks) elementSpec(ctx context.Context, t *api.Task, number int) (*api.TaskSpec, error) {
	payload, err := s.firstInput(ctx, t.WorkflowID, t.RunID)
	var in contract.ArrayInput
	if err != nil || payload == nil || !contract.Decode(payload, &in) || number >= in.Total() {
		return nil, err
	}
	in.Spec.Payload = in.Payload(number)
	return &in.Spec, nil
}

var errNoElement = serviceerror.NewNotFound("the array has no such element, or the bundle has ended")

// Elements are a page of an array's elements; its workflow answers, also after its end.
func (s Arrays) Elements(
	ctx context.Context, id string, r contract.ElementsRequest,
) (page contract.ElementsPage, err error) {
	return contract.ElementsQuery.Ask(ctx, s.Client, contract.ArrayWorkflowID(id), r)
}

// ResultsAt is a place among an array's results: a page of the history of one run of its workflow, and how many
// results of that page come before.
type ResultsAt struct {
	Run  string `json:"r"`
	Page []byte `json:"p,omitempty"`
	Skip int    `json:"s,omitempty"`
}

const (
	// resultBytes bounds the results of an array that are read at a time; a single event may have more.
	resultBytes = 2 << 20
	// ResultsTake is about what reading one page of them takes, in bytes, copies included.
	ResultsTake = 8 << 20
)

// Results are up to limit results of an array's elements that completed, or 2 MiB of them, in the order in which they
// came, and the place of the next; nil: there is none yet. They are in the events of the workflow's history.
func (s Arrays) Results(
	ctx context.Context, a *Array, at *ResultsAt, limit int,
) (results []api.ArrayResult, next *ResultsAt, err error) {
	if at == nil {
		at = &ResultsAt{Run: a.first}
	}
	bytes := 0
	for {
		page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx,
			&workflowservice.GetWorkflowExecutionHistoryRequest{
				Namespace: s.Namespace, NextPageToken: at.Page, MaximumPageSize: historyPage,
				Execution: &commonpb.WorkflowExecution{WorkflowId: a.WorkflowID, RunId: at.Run},
			})
		if err != nil {
			return nil, nil, err
		}
		var found []api.ArrayResult
		after := ""
		for _, e := range page.GetHistory().GetEvents() {
			found = append(found, resultsOf(e)...)
			after = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
		}
		found = found[min(max(0, at.Skip), len(found)):]
		for i := range found {
			if len(results) == limit || bytes > resultBytes {
				return results, &ResultsAt{Run: at.Run, Page: at.Page, Skip: at.Skip + i}, nil
			}
			results, bytes = append(results, found[i]), bytes+len(found[i].Output)
		}
		switch token := page.GetNextPageToken(); {
		case len(token) > 0:
			at = &ResultsAt{Run: at.Run, Page: token}
		case after != "":
			at = &ResultsAt{Run: after}
		default:
			return results, nil, nil
		}
		if len(results) == limit || bytes > resultBytes {
			return results, at, nil
		}
	}
}

// resultsOf are the results of elements that an event brought.
func resultsOf(e *historypb.HistoryEvent) (results []api.ArrayResult) {
	payloads := e.GetActivityTaskCompletedEventAttributes().GetResult()
	var report contract.AttemptReport
	if len(payloads.GetPayloads()) == 0 ||
		contract.Payloads.FromPayload(payloads.GetPayloads()[0], &report) != nil {
		return nil
	}
	for _, r := range report.Elements {
		if r.Outcome == api.AttemptCompleted {
			results = append(results, api.ArrayResult{Element: r.Number, Output: r.Output, AgentID: report.AgentID,
				Millis: r.Milliseconds})
		}
	}
	return results
}

// Seal is the place as a page token.
func (r *ResultsAt) Seal() []byte {
	if r == nil {
		return nil
	}
	text, _ := json.Marshal(r) // cannot fail
	return text
}
