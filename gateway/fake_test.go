package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// execution is one workflow of the fake Temporal.
type execution struct {
	info    *workflowpb.WorkflowExecutionInfo
	pending []*workflowpb.PendingActivityInfo
	wft     *workflowpb.PendingWorkflowTaskInfo
	last    *historypb.HistoryEvent
	history []*historypb.HistoryEvent // after the first event
	query   func() (any, error)
	update  func(name string, arg any) (any, error)
	options client.StartWorkflowOptions
	input   any
}

// fakeTemporal is a client with workflows in memory. Methods that the gateway does not use are nil and panic.
type fakeTemporal struct {
	client.Client
	mu         sync.Mutex
	executions map[string]*execution
	fail       error // answers everything when set
	describes  int
	onDescribe func(n int) // called with the count, under the lock
	onStart    func(*execution)
	list       func(*workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse,
		error)
	count      func(query string) int64 // of workflows and schedules
	workers    []*workerpb.WorkerHeartbeat
	workersErr error
	updates    []string
	signals    []fakeSignal
	cancelled  []string // by Temporal's own request
	schedules  fakeSchedules
	starting   atomic.Int32               // starts of workflows under way
	mostStarts atomic.Int32               // the most at a time
	backlogs   map[string]map[int32]int64 // waiting tasks by task queue and priority
	pollers    map[string][]string        // identities by task queue
}

// fakeSignal is a signal that was sent.
type fakeSignal struct {
	workflowID, name string
	arg              any
}

func newFake() *fakeTemporal { return &fakeTemporal{executions: map[string]*execution{}} }

func (f *fakeTemporal) ExecuteWorkflow(
	_ context.Context, o client.StartWorkflowOptions, workflow any, args ...any,
) (client.WorkflowRun, error) {
	starting := f.starting.Add(1)
	defer f.starting.Add(-1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mostStarts.Store(max(starting, f.mostStarts.Load()))
	if f.fail != nil {
		return nil, f.fail
	}
	if e := f.executions[o.ID]; e != nil {
		running := e.info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		if running || o.WorkflowIDReusePolicy == enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE {
			return nil, serviceerror.NewWorkflowExecutionAlreadyStarted("already started", "", "run")
		}
	}
	e := open(o.ID, workflow.(string))
	e.options, e.input = o, args[0]
	fields := map[string]*commonpb.Payload{}
	for key, value := range o.TypedSearchAttributes.GetUntypedValues() {
		fields[key.GetName()] = payload(value)
	}
	e.info.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: fields}
	e.info.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{}}
	for key, value := range o.Memo {
		e.info.Memo.Fields[key] = payload(value)
	}
	f.executions[o.ID] = e
	if f.onStart != nil {
		f.onStart(e)
	}
	return fakeRun{}, nil
}

type fakeRun struct{ client.WorkflowRun }

func (fakeRun) GetRunID() string { return "run" }

func (f *fakeTemporal) DescribeWorkflowExecution(
	ctx context.Context, id, _ string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.describes++
	if f.onDescribe != nil {
		f.onDescribe(f.describes)
	}
	if f.fail != nil {
		return nil, f.fail
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e := f.executions[id]
	if e == nil {
		return nil, serviceerror.NewNotFound("canary: no such workflow")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: e.info,
		PendingActivities: e.pending, PendingWorkflowTask: e.wft}, nil
}

func (f *fakeTemporal) QueryWorkflow(_ context.Context, id, _, _ string, _ ...any) (converter.EncodedValue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	e := f.executions[id]
	switch {
	case e == nil:
		return nil, serviceerror.NewNotFound("canary: no such workflow")
	case e.query == nil:
		return nil, serviceerror.NewFailedPrecondition("canary: no poller seen for task queue recently")
	}
	answer, err := e.query()
	return encoded{answer}, err
}

// QueryWorkflowWithOptions is of workflows that have not ended.
func (f *fakeTemporal) QueryWorkflowWithOptions(
	ctx context.Context, r *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	f.mu.Lock()
	e := f.executions[r.WorkflowID]
	f.mu.Unlock()
	if e != nil && e.info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return &client.QueryWorkflowWithOptionsResponse{QueryRejected: &querypb.QueryRejected{}}, nil
	}
	answer, err := f.QueryWorkflow(ctx, r.WorkflowID, r.RunID, r.QueryType)
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: answer}, err
}

func (f *fakeTemporal) UpdateWorkflow(
	_ context.Context, o client.UpdateWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	e := f.executions[o.WorkflowID]
	if e == nil || e.info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, serviceerror.NewNotFound("canary: workflow execution already completed")
	}
	f.updates = append(f.updates, o.UpdateName)
	answer, err := e.update(o.UpdateName, o.Args[0])
	return fakeHandle{answer: answer, err: err}, nil
}

func (f *fakeTemporal) SignalWorkflow(_ context.Context, id, _, name string, arg any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	if e := f.executions[id]; e == nil || e.info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return serviceerror.NewNotFound("canary: workflow execution already completed")
	}
	f.signals = append(f.signals, fakeSignal{id, name, arg})
	return nil
}

func (f *fakeTemporal) CancelWorkflow(_ context.Context, id, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, id)
	return f.fail
}

type fakeHandle struct {
	client.WorkflowUpdateHandle
	answer any
	err    error
}

func (h fakeHandle) Get(_ context.Context, into any) error {
	if until, waits := h.answer.(chan struct{}); waits {
		<-until
		return h.err
	}
	if h.err != nil || into == nil {
		return h.err
	}
	return encoded{h.answer}.Get(into)
}

func (f *fakeTemporal) GetWorkflowHistory(
	ctx context.Context, id, _ string, longPoll bool, filter enumspb.HistoryEventFilterType,
) client.HistoryEventIterator {
	if filter != enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT {
		panic("the gateway must read only the last event")
	}
	if longPoll {
		<-ctx.Done() // the report of the end is always lost here
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &oneEvent{event: f.executions[id].last}
}

type oneEvent struct{ event *historypb.HistoryEvent }

func (o *oneEvent) HasNext() bool { return o.event != nil }
func (o *oneEvent) Next() (*historypb.HistoryEvent, error) {
	e := o.event
	o.event = nil
	return e, nil
}

func (f *fakeTemporal) ListWorkflow(
	_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	if f.list != nil {
		return f.list(r)
	}
	answer := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, e := range f.executions {
		if strings.Contains(r.GetQuery(), "WorkflowType = '"+e.info.GetType().GetName()+"'") {
			answer.Executions = append(answer.Executions, e.info)
		}
	}
	return answer, nil
}

func (f *fakeTemporal) WorkflowService() workflowservice.WorkflowServiceClient {
	return fakeService{f: f}
}

type fakeService struct {
	workflowservice.WorkflowServiceClient
	f *fakeTemporal
}

func (s fakeService) ListWorkers(
	context.Context, *workflowservice.ListWorkersRequest, ...grpc.CallOption,
) (*workflowservice.ListWorkersResponse, error) {
	if s.f.workersErr != nil {
		return nil, s.f.workersErr
	}
	answer := &workflowservice.ListWorkersResponse{}
	for _, h := range s.f.workers {
		//nolint:staticcheck // what the gateway reads
		answer.WorkersInfo = append(answer.WorkersInfo, &workerpb.WorkerInfo{WorkerHeartbeat: h})
	}
	return answer, nil
}

// GetWorkflowExecutionHistory answers the first event, or all.
func (s fakeService) GetWorkflowExecutionHistory(
	_ context.Context, r *workflowservice.GetWorkflowExecutionHistoryRequest, _ ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	e := s.f.executions[r.GetExecution().GetWorkflowId()]
	if s.f.fail != nil {
		return nil, serviceerror.NewUnavailable("canary")
	}
	events := []*historypb.HistoryEvent{{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, EventTime: e.info.GetStartTime(),
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{Input: payloads(
				e.input)},
		},
	}}
	if r.GetMaximumPageSize() != 1 {
		events = append(events, e.history...)
	}
	return &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{Events: events}}, nil
}

// deliveryEvents are what a delivery leaves in the history: it was scheduled, and ended so.
func deliveryEvents(number int, report contract.AttemptReport, log ...api.LogLine) []*historypb.HistoryEvent {
	scheduled := int64(10 * number)
	left := payloads(report)
	if len(log) > 0 {
		left.Payloads = append(left.Payloads, payload(log))
	}
	end := &historypb.HistoryEvent{
		EventId: scheduled + 2, EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED,
		EventTime: timestamppb.New(time.Unix(1_800_000_000+scheduled+2, 0)),
		Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{
			ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{
				ScheduledEventId: scheduled,
				Failure: &failurepb.Failure{FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
					ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Details: left}}}}},
	}
	if report.Outcome == api.AttemptCompleted {
		end.EventType = enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
		end.Attributes = &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{
				ScheduledEventId: scheduled, Result: left}}
	}
	return []*historypb.HistoryEvent{{
		EventId: scheduled, EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		EventTime: timestamppb.New(time.Unix(1_800_000_000+scheduled, 0)),
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
				ActivityId:   contract.AttemptActivityID("t-1", number),
				ActivityType: &commonpb.ActivityType{Name: contract.RunTaskActivity.Name},
				Input:        payloads(contract.RunTaskInput{TaskID: "t-1", Attempt: number})}},
	}, end}
}

func (s fakeService) DescribeTaskQueue(
	_ context.Context, r *workflowservice.DescribeTaskQueueRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeTaskQueueResponse, error) {
	if s.f.fail != nil {
		return nil, s.f.fail
	}
	if pollers, asked := s.f.pollers[r.GetTaskQueue().GetName()]; asked {
		answer := &workflowservice.DescribeTaskQueueResponse{}
		for _, identity := range pollers {
			answer.Pollers = append(answer.Pollers, &taskqueuepb.PollerInfo{Identity: identity,
				LastAccessTime: timestamppb.New(time.Unix(1_800_000_000, 0))})
		}
		return answer, nil
	}
	if !r.GetReportStats() || r.GetTaskQueueType() != enumspb.TASK_QUEUE_TYPE_ACTIVITY {
		return nil, serviceerror.NewInvalidArgument("canary: wants the stats of a lane")
	}
	answer := &workflowservice.DescribeTaskQueueResponse{Stats: &taskqueuepb.TaskQueueStats{},
		StatsByPriorityKey: map[int32]*taskqueuepb.TaskQueueStats{}}
	for priority, n := range s.f.backlogs[r.GetTaskQueue().GetName()] {
		answer.Stats.ApproximateBacklogCount += n
		answer.Stats.ApproximateBacklogAge = durationpb.New(90 * time.Second)
		answer.Stats.TasksAddRate, answer.Stats.TasksDispatchRate = 1.5, .254
		answer.StatsByPriorityKey[priority] = &taskqueuepb.TaskQueueStats{ApproximateBacklogCount: n,
			ApproximateBacklogAge: durationpb.New(time.Second)}
	}
	return answer, nil
}

// encoded passes a value through JSON, as Temporal does.
type encoded struct{ value any }

func (e encoded) HasValue() bool { return e.value != nil }
func (e encoded) Get(into any) error {
	text, err := json.Marshal(e.value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, reflect.ValueOf(into).Interface())
}

func payload(value any) *commonpb.Payload {
	p, err := converter.GetDefaultDataConverter().ToPayload(value)
	if err != nil {
		panic(err)
	}
	return p
}

func payloads(value any) *commonpb.Payloads {
	return &commonpb.Payloads{Payloads: []*commonpb.Payload{payload(value)}}
}

// open is a running workflow that answers no query.
func open(id, kind string) *execution {
	return &execution{info: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: "run"}, Type: &commonpb.WorkflowType{Name: kind},
		Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, StartTime: timestamppb.New(time.Unix(1_800_000_000, 0)),
	}}
}

// serve mounts a gateway on a server as the binary does.
func serve(t *testing.T, f *fakeTemporal) http.Handler {
	t.Helper()
	return serveWith(t, f)
}

// serveWith is serve with a client of another kind.
func serveWith(t *testing.T, f client.Client) http.Handler {
	t.Helper()
	s := httpapi.New(httpapi.Options{})
	gateway.New(gateway.Options{Store: store.Store{Client: f}, Key: []byte(tokenKey),
		Registerer: prometheus.NewRegistry()}).Register(s.API())
	return validated(t, s)
}

func do(h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	return serveRequest(h, newRequest(method, target, body))
}

func newRequest(method, target, body string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func serveRequest(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func answer[T any](t *testing.T, w *httptest.ResponseRecorder, status int) T {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	var v T
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
	return v
}

func problem(t *testing.T, w *httptest.ResponseRecorder, status int, code string) protocol.Problem {
	t.Helper()
	p := answer[protocol.Problem](t, w, status)
	require.Equal(t, code, p.Code)
	require.NotContains(t, w.Body.String(), "canary")
	return p
}
