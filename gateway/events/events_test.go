package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	updatepb "go.temporal.io/api/update/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/gateway/events"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	rest "mainstay.dev/sdk/client"
	"mainstay.dev/sdk/protocol"
)

// fakeFleet is a Temporal with clusters, hubs and tasks that tell events. What needs no answer of its own is a nil
// method.
type fakeFleet struct {
	client.Client
	mu       sync.Mutex
	clusters map[string]*fakeCluster
	hubs     map[string]*fakeEventHub
	tasks    []*workflowpb.WorkflowExecutionInfo
	calls    map[string]int
	marks    map[string][]*historypb.HistoryEvent // the histories of tasks, by workflow id
	ledgers  map[string]*job.Ledger               // of runs, by workflow id
	down     bool                                 // nothing answers
	noAsk    error                                // the error of starting a question to a hub
}

type fakeCluster struct {
	created time.Time
	log     cluster.EventLog
	length  int64
}

type fakeEventHub struct {
	process string
	log     cluster.EventLog
	hints   int64
	changed map[string]int64
	wake    chan struct{}
	silent  bool
	most    int // events in one answer; 0: all
}

func newFakeFleet() *fakeFleet {
	return &fakeFleet{clusters: map[string]*fakeCluster{}, hubs: map[string]*fakeEventHub{}, calls: map[string]int{},
		ledgers: map[string]*job.Ledger{}}
}

func (f *fakeFleet) count(call string) error {
	f.calls[call]++
	if f.down {
		return serviceerror.NewUnavailable("canary: down")
	}
	return nil
}

// all is how many calls there were.
func (f *fakeFleet) all() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, calls := range f.calls {
		n += calls
	}
	return n
}

func (f *fakeFleet) cluster(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters[name] = &fakeCluster{created: time.Now()}
}

func (f *fakeFleet) hub(id, process string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.hubs[id]; old != nil {
		close(old.wake)
	}
	f.hubs[id] = &fakeEventHub{process: process, changed: map[string]int64{}, wake: make(chan struct{})}
}

// decides has a cluster keep an event; unless hub is empty, that hub knows of it.
func (f *fakeFleet) decides(clusterName, hub string, kind api.EventType, agent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clusters[clusterName]
	c.length++
	c.log.Add(cluster.Event{Type: kind, Time: time.Now(), EventData: api.EventData{Cluster: clusterName, AgentID: agent}},
		8)
	if h := f.hubs[hub]; h != nil {
		h.hints++
		h.changed[clusterName] = h.hints
		h.signal()
	}
}

// sees has a hub note an event.
func (f *fakeFleet) sees(hub string, e cluster.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Time = time.Now()
	f.hubs[hub].log.Add(e, 8)
	f.hubs[hub].signal()
}

func payload(value any) *commonpb.Payload {
	p, err := converter.GetDefaultDataConverter().ToPayload(value)
	if err != nil {
		panic(err)
	}
	return p
}

func execution(id string, status enumspb.WorkflowExecutionStatus) *workflowpb.WorkflowExecutionInfo {
	return &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: "run"},
		Status: status, StartTime: timestamppb.Now()}
}

func (h *fakeEventHub) signal() {
	close(h.wake)
	h.wake = make(chan struct{})
}

// task adds a task as visibility shows it.
func (f *fakeFleet) task(
	id string, status enumspb.WorkflowExecutionStatus, change ...func(*workflowpb.WorkflowExecutionInfo),
) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info := execution(contract.TaskWorkflowID(id), status)
	info.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{}}
	if status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		info.CloseTime = timestamppb.Now()
	}
	for _, c := range change {
		c(info)
	}
	f.tasks = append([]*workflowpb.WorkflowExecutionInfo{info}, f.tasks...)
}

func (f *fakeFleet) ListWorkflow(
	_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("list"); err != nil {
		return nil, err
	}
	answer := &workflowservice.ListWorkflowExecutionsResponse{}
	if strings.Contains(r.GetQuery(), "'Cluster'") {
		for name := range f.clusters {
			answer.Executions = append(answer.Executions, execution(contract.ClusterWorkflowID(name),
				enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING))
		}
		for id := range f.hubs {
			answer.Executions = append(answer.Executions, execution(contract.HubWorkflowID(id),
				enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING))
		}
		return answer, nil
	}
	marked := strings.Contains(r.GetQuery(), contract.AttrStatusAt.GetName())
	for _, info := range f.tasks {
		tenant := contract.Keyword(info.GetSearchAttributes().GetIndexedFields(), contract.AttrTenant)
		if strings.Contains(r.GetQuery(), contract.AttrTenant.GetName()) &&
			!strings.Contains(r.GetQuery(), contract.Equals(contract.AttrTenant.GetName(), tenant)) {
			continue
		}
		var at time.Time
		has := contract.Decode(info.GetSearchAttributes().GetIndexedFields()[contract.AttrStatusAt.GetName()], &at)
		if marked && has && between(r.GetQuery(), at) ||
			!marked && strings.Contains(r.GetQuery(), "'"+info.GetStatus().String()+"'") {
			answer.Executions = append(answer.Executions, info)
		}
	}
	from, _ := strconv.Atoi(string(r.GetNextPageToken()))
	answer.Executions = answer.Executions[from:]
	if size := int(r.GetPageSize()); size > 0 && len(answer.Executions) > size {
		answer.Executions, answer.NextPageToken = answer.Executions[:size], []byte(strconv.Itoa(from+size))
	}
	return answer, nil
}

// between reports whether a query for marks finds one of this time.
func between(query string, at time.Time) bool {
	bound := func(than string) time.Time {
		_, after, _ := strings.Cut(query, contract.AttrStatusAt.GetName()+than+"'")
		text, _, _ := strings.Cut(after, "'")
		t, _ := time.Parse(time.RFC3339Nano, text)
		return t
	}
	to := bound(" < ")
	return !at.Before(bound(" >= ")) && (to.IsZero() || at.Before(to))
}

func (f *fakeFleet) WorkflowService() workflowservice.WorkflowServiceClient {
	return fakeHistories{f: f}
}

type fakeHistories struct {
	workflowservice.WorkflowServiceClient
	f *fakeFleet
}

func (h fakeHistories) GetWorkflowExecutionHistory(
	_ context.Context, r *workflowservice.GetWorkflowExecutionHistoryRequest, _ ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.f.calls["history"]++
	return &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{
		Events: h.f.marks[r.GetExecution().GetWorkflowId()]}}, nil
}

// marked is what a change of a task's mark leaves in its history; "": the mark was removed.
func marked(status api.TaskStatus, at time.Time) *historypb.HistoryEvent {
	fields := map[string]*commonpb.Payload{contract.AttrStatusAt.GetName(): payload(at)}
	if status != "" {
		fields[contract.AttrStatus.GetName()] = payload(status)
	}
	return &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
		Attributes: &historypb.HistoryEvent_UpsertWorkflowSearchAttributesEventAttributes{
			UpsertWorkflowSearchAttributesEventAttributes: &historypb.UpsertWorkflowSearchAttributesEventAttributes{
				SearchAttributes: &commonpb.SearchAttributes{IndexedFields: fields}}}}
}

// retried is a person's request to run a dead letter again.
func retried(by, reason string) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
		EventTime: timestamppb.Now(),
		Attributes: &historypb.HistoryEvent_WorkflowExecutionUpdateAcceptedEventAttributes{
			WorkflowExecutionUpdateAcceptedEventAttributes: &historypb.WorkflowExecutionUpdateAcceptedEventAttributes{
				AcceptedRequest: &updatepb.Request{Input: &updatepb.Input{Name: contract.RetryUpdate.Name,
					Args: &commonpb.Payloads{Payloads: []*commonpb.Payload{payload(contract.RetryRequest{
						ForTask: contract.ForTask{By: by}, Reason: reason})}}}}}}}
}

func (f *fakeFleet) DescribeWorkflowExecution(
	_ context.Context, id, _ string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("describe"); err != nil {
		return nil, err
	}
	for _, info := range f.tasks {
		if f.ledgers[id] != nil && info.GetExecution().GetWorkflowId() == id {
			return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info}, nil
		}
	}
	name, _ := contract.ClusterOfWorkflowID(id)
	c := f.clusters[name]
	if c == nil {
		return nil, serviceerror.NewNotFound("canary: no such workflow")
	}
	info := execution(id, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	info.HistoryLength = c.length
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info}, nil
}

func (f *fakeFleet) QueryWorkflow(_ context.Context, id, _, query string, args ...any) (converter.EncodedValue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("query"); err != nil {
		return nil, err
	}
	if l := f.ledgers[id]; l != nil && query == contract.LedgerQuery.Name {
		f.calls["ledger"]++
		left := payload(*l)
		return client.NewValue(&commonpb.Payloads{Payloads: []*commonpb.Payload{left}}), nil
	}
	name, _ := contract.ClusterOfWorkflowID(id)
	c := f.clusters[name]
	if c == nil || query != contract.EventsQuery.Name {
		return nil, serviceerror.NewNotFound("canary: no such workflow")
	}
	since := args[0].(contract.EventsSince)
	answer := contract.ClusterEvents{CreatedAt: c.created, Seq: c.log.Seq}
	if since.From.IsZero() {
		answer.Events, answer.Missing = c.log.After(since.After)
	} else if events, missing := c.log.Since(since.From); missing {
		answer.Events, answer.Missing = events, 1
	} else {
		answer.Events = events
	}
	return client.NewValue(&commonpb.Payloads{Payloads: []*commonpb.Payload{payload(answer)}}), nil
}

// ask answers as hub.readEvents does.
func (f *fakeFleet) ask(
	ctx context.Context, hub string, in contract.ReadEventsInput,
) (r contract.ReadEventsResult, answered bool, err error) {
	f.mu.Lock()
	err = f.count("ask")
	if f.noAsk != nil {
		err = f.noAsk
	}
	f.mu.Unlock()
	if err != nil {
		return r, false, err
	}
	over := time.After(in.Wait.Std())
	for last := in.Newest || in.Wait == 0; ; {
		f.mu.Lock()
		h := f.hubs[hub]
		if h == nil || h.silent {
			f.mu.Unlock()
			select {
			case <-ctx.Done():
				return r, false, ctx.Err()
			case <-time.After(3 * time.Second):
				return r, false, nil
			}
		}
		r = h.read(in)
		wake := h.wake
		f.mu.Unlock()
		if last || len(r.Events)+len(r.Changed) > 0 || r.Missing != 0 {
			return r, true, nil
		}
		select {
		case <-wake:
		case <-over:
			last = true
		case <-ctx.Done():
			return r, false, ctx.Err()
		}
	}
}

func (h *fakeEventHub) read(in contract.ReadEventsInput) contract.ReadEventsResult {
	r := contract.ReadEventsResult{Process: h.process, Seq: h.log.Seq, Hints: h.hints}
	switch {
	case in.Newest:
		return r
	case in.Process != "" && in.Process != h.process:
		r.Events, _ = h.log.After(0)
		r.Missing = -1
	case !in.From.IsZero():
		r.Events, _ = h.log.Since(in.From)
	default:
		r.Events, r.Missing = h.log.After(in.After)
	}
	if h.most > 0 && len(r.Events) > h.most {
		r.Events, r.More = r.Events[:h.most], true
		r.Seq = r.Events[h.most-1].Seq
	}
	for cluster, hint := range h.changed {
		if hint > in.Hints {
			r.Changed = append(r.Changed, cluster)
		}
	}
	return r
}

// follower reads a stream within a bubble.
type follower struct {
	mu     sync.Mutex
	lines  []string
	events []api.CloudEvent
	last   string
	cancel context.CancelFunc
	ended  chan struct{}
}

// pipeWriter is an answer that is read while it is written.
type pipeWriter struct {
	*io.PipeWriter
	header http.Header
	status int
}

func (w *pipeWriter) Header() http.Header    { return w.header }
func (w *pipeWriter) WriteHeader(status int) { w.status = status }
func (w *pipeWriter) Flush()                 {}

// follow opens a stream and returns when it stands.
func follow(t *testing.T, h http.Handler, query, last string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{cancel: cancel, ended: make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/agents/events?"+query, nil)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	from, to := io.Pipe()
	w := &pipeWriter{PipeWriter: to, header: http.Header{}}
	go func() {
		h.ServeHTTP(w, r)
		_ = to.Close()
	}()
	go func() {
		defer close(f.ended)
		reader := rest.NewEventReader(from)
		for {
			_, event, err := reader.Next()
			f.mu.Lock()
			f.last = reader.LastID
			if err != nil {
				f.mu.Unlock()
				return
			}
			f.events = append(f.events, *event)
			about := event.Subject
			if event.Type == api.EventGap {
				about = event.Data.Reason
			}
			f.lines = append(f.lines, strings.TrimPrefix(string(event.Type), api.EventPrefix)+" "+about)
			f.mu.Unlock()
		}
	}()
	synctest.Wait()
	return f
}

// told returns the lines so far, and forgets them.
func (f *follower) told() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := f.lines
	f.lines = nil
	return lines
}

// leave ends the stream as a client that has gone, and returns the id that it would go on from.
func (f *follower) leave() string {
	f.cancel()
	<-f.ended
	return f.last
}

// inFleet runs a test in a bubble with a gateway on a fake fleet. What still runs when it ends fails it.
func inFleet(t *testing.T, test func(t *testing.T, f *fakeFleet, h http.Handler)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFleet()
		f.cluster("c")
		f.hub("hub-1", "p1")
		pass(time.Hour) // what is there is old
		h, stop := serve(f)
		defer stop()
		test(t, f, h)
	})
}

func serve(f *fakeFleet) (http.Handler, func()) {
	s := httpapi.New(httpapi.Options{})
	feed := events.New(events.Options{Store: store.Store{Client: f, Namespace: "default"}, Logger: zap.NewNop(),
		AskHub: f.ask})
	feed.Register(s.API())
	return s.Handler(), feed.Close
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func problem(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	var p protocol.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, code, p.Code)
	require.NotContains(t, w.Body.String(), "canary")
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func running(task string) cluster.Event {
	return cluster.Event{Type: api.EventTaskRunning, EventData: api.EventData{Cluster: "c", TaskID: task,
		AgentID: "a-1", Attempt: 2}}
}

func TestEventsComeFromAllSources(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		f.decides("c", "", api.EventAgentJoined, "before")
		f.task("before", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
		pass(time.Second)
		l := follow(t, h, "", "")
		defer l.leave()
		require.Empty(t, l.told(), "what happened before is no news")

		f.decides("c", "hub-1", api.EventAgentLost, "a-1")
		require.Equal(t, []string{"agent.lost agents/a-1"}, l.told(), "at once")
		f.sees("hub-1", running("t-1"))
		require.Equal(t, []string{"task.running tasks/t-1"}, l.told(), "at once")
		f.decides("c", "", api.EventLeaderElected, "a-2")
		pass(time.Second)
		require.Equal(t, []string{"leader.elected agents/a-2"}, l.told(), "also what no hub knows")
		f.task("t-2", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
		f.task("t-3", enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED)
		pass(2 * time.Second)
		require.Equal(t, []string{"task.queued tasks/t-2", "task.queued tasks/t-3", "task.cancelled tasks/t-3"},
			l.told())

		f.cluster("later")
		f.decides("later", "", api.EventClusterCreated, "")
		pass(6 * time.Second)
		require.Equal(t, []string{"cluster.created "}, l.told(),
			"of a cluster that is made meanwhile, from its beginning")
	})
}

func TestEventIsToldOnce(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		l := follow(t, h, "", "")
		defer l.leave()
		e := running("t-1")
		now := time.Now()
		e.Attempt, e.QueuedAt = 1, &now
		f.sees("hub-1", e)
		done := running("t-1")
		done.Type = api.EventTaskCompleted
		f.sees("hub-1", done)
		require.Equal(t, []string{"task.queued tasks/t-1", "task.running tasks/t-1", "task.completed tasks/t-1"},
			l.told())
		f.task("t-1", enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
		pass(30 * time.Second)
		require.Empty(t, l.told(), "visibility tells the same")
		f.task("t-2", enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
		pass(11 * time.Second)
		require.Equal(t, []string{"task.queued tasks/t-2", "task.completed tasks/t-2"}, l.told(), "what no hub told")
	})
}

func TestDecidedTasks(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		l := follow(t, h, "type=task.review,task.dead_letter,task.failed,task.queued", "")
		defer l.leave()
		mark := func(status string) func(*workflowpb.WorkflowExecutionInfo) {
			return func(info *workflowpb.WorkflowExecutionInfo) {
				fields := info.GetSearchAttributes().GetIndexedFields()
				fields[contract.AttrStatusAt.GetName()] = payload(time.Now())
				delete(fields, contract.AttrStatus.GetName())
				if status != "" {
					fields[contract.AttrStatus.GetName()] = payload(status)
				}
				info.StartTime = timestamppb.New(time.Now().Add(-time.Hour))
			}
		}
		open := enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		f.task("t-review", open, mark("review"))
		f.task("t-dead", open, mark("dead_letter"))
		f.task("t-ending", open, mark("failed"))
		f.task("t-failed", enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, mark("failed"))
		f.task("t-again", open, mark(""))
		f.mu.Lock()
		f.marks = map[string][]*historypb.HistoryEvent{contract.TaskWorkflowID("t-again"): {
			retried("ann", "the disk is back"), marked("", time.Now())}}
		f.mu.Unlock()
		pass(time.Second + 100*time.Millisecond)
		got := l.told()
		slices.Sort(got)
		require.Equal(t, []string{"task.dead_letter tasks/t-dead", "task.failed tasks/t-failed",
			"task.review tasks/t-review"}, got)
		pass(2 * time.Second)
		require.Equal(t, []string{"task.queued tasks/t-again"}, l.told(),
			"once it is certain that it is not about to end")
		require.Equal(t, "ann had it run again: the disk is back", l.events[len(l.events)-1].Data.Reason)
		pass(20 * time.Second)
		require.Empty(t, l.told())
	})
}

func TestNothingIsAskedWhileNobodyListens(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		pass(time.Hour)
		require.Zero(t, f.all())
		first, second := follow(t, h, "", ""), follow(t, h, "type=agent", "")
		pass(time.Minute)
		begin := f.all()
		pass(10 * time.Minute)
		with := float64(f.all()-begin) / 600
		f.mu.Lock()
		t.Logf("%.2f calls a second while somebody listens to an idle fleet of one cluster and one hub: %v", with,
			f.calls)
		f.mu.Unlock()
		require.Less(t, with, 5.0)
		first.leave()
		pass(time.Minute)
		require.Empty(t, second.told())
		second.leave()
		pass(10 * time.Second)
		begin = f.all()
		pass(time.Hour)
		require.Equal(t, begin, f.all(), "nothing is asked any more")
		again := follow(t, h, "", "")
		defer again.leave()
		f.decides("c", "hub-1", api.EventAgentLost, "a-1")
		require.Equal(t, []string{"agent.lost agents/a-1"}, again.told(), "and it begins again")
	})
}

func TestListenerGoesOnAtAnotherGateway(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		l := follow(t, h, "", "")
		f.decides("c", "hub-1", api.EventAgentJoined, "a-1")
		f.sees("hub-1", running("t-1"))
		require.Len(t, l.told(), 2)
		last := l.leave()

		f.decides("c", "hub-1", api.EventAgentLost, "a-1")
		f.sees("hub-1", running("t-2"))
		f.task("t-3", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
		f.cluster("new")
		f.decides("new", "", api.EventClusterCreated, "")
		pass(20 * time.Second)
		other, stop := serve(f)
		defer stop()
		l = follow(t, other, "", last)
		got := l.told()
		slices.Sort(got)
		require.Equal(t, []string{"agent.lost agents/a-1", "cluster.created ", "task.queued tasks/t-3",
			"task.running tasks/t-2"}, got, "all of it, and nothing twice")
		f.decides("c", "hub-1", api.EventAgentRecovered, "a-1")
		require.Equal(t, []string{"agent.recovered agents/a-1"}, l.told())
		last = l.leave()

		t.Log("the gateway is restarted after a quiet time: sources that told nothing lately are not in the id")
		l = follow(t, other, "", last)
		pass(10 * time.Minute)
		last = l.leave()
		f.decides("c", "hub-1", api.EventAgentLeft, "a-1")
		l = follow(t, h, "", last)
		defer l.leave()
		require.Equal(t, []string{"agent.left agents/a-1"}, l.told())
	})
}

func TestGaps(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		l := follow(t, h, "", "")
		f.decides("c", "hub-1", api.EventAgentJoined, "a-1")
		f.sees("hub-1", running("t-1"))
		require.Len(t, l.told(), 2)
		last := l.leave()
		for i := range 10 {
			f.decides("c", "", api.EventAgentJoined, fmt.Sprint("b-", i))
			f.sees("hub-1", running("t-1"))
		}
		l = follow(t, h, "type=gap", last)
		got := l.told()
		slices.Sort(got)
		require.Equal(t, []string{"gap older events of hub hub-1 are no longer kept",
			"gap older events of the cluster are no longer kept"}, got)
		for _, e := range l.events {
			require.Equal(t, 2, e.Data.Count)
		}

		pass(2 * time.Second) // the cluster is read
		require.Empty(t, l.told(), "the same gap is told once")
		f.hub("hub-1", "p2")
		f.sees("hub-1", running("t-9"))
		require.Equal(t, []string{"gap hub hub-1 was restarted: what happened at its agents meanwhile is not known"},
			l.told())
		last = l.leave()

		f.hub("hub-1", "p3")
		l = follow(t, h, "type=gap", last)
		require.Equal(t, []string{"gap hub hub-1 was restarted: what happened at its agents meanwhile is not known"},
			l.told())
		l.leave()
		l = follow(t, h, "", "not an id")
		require.Equal(t, []string{"gap Last-Event-ID is not of this API: what happened before is not told"}, l.told())
		l.leave()
	})
}

func TestSilentHubAndTemporalAway(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		f.mu.Lock()
		f.hubs["hub-1"].silent = true
		f.mu.Unlock()
		l := follow(t, h, "", "")
		pass(6 * time.Second)
		require.Empty(t, l.told())
		f.decides("c", "", api.EventAgentLost, "a-1")
		pass(time.Second)
		require.Equal(t, []string{"agent.lost agents/a-1"}, l.told(), "the others go on")
		f.mu.Lock()
		f.hubs["hub-1"].silent = false
		f.mu.Unlock()
		pass(10 * time.Second)
		require.Equal(t, []string{"gap hub hub-1 did not answer for a while"}, l.told())
		f.mu.Lock()
		f.down = true
		f.mu.Unlock()
		pass(time.Minute)
		require.Empty(t, l.told())
		f.decides("c", "hub-1", api.EventAgentJoined, "a-1")
		f.mu.Lock()
		f.down = false
		f.mu.Unlock()
		pass(6 * time.Second)
		require.Equal(t, []string{"agent.joined agents/a-1"}, l.told(),
			"what happened meanwhile is told, for the sources remember it")
		l.leave()

		f.mu.Lock()
		f.noAsk = httpapi.Problem(protocol.CodeNotSupported, "no canary here")
		f.mu.Unlock()
		pass(time.Minute)
		l = follow(t, h, "type=gap", "")
		defer l.leave()
		pass(time.Second)
		got := l.told()
		require.Len(t, got, 1)
		require.Contains(t, got[0], "what only hubs know")
	})
}

func TestPastOnly(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		f.decides("c", "", api.EventAgentJoined, "long-ago")
		pass(30 * time.Minute)
		f.decides("c", "", api.EventAgentLost, "a-1")
		for _, task := range []string{"t-1", "t-2", "t-3"} { // more than the hub tells in one answer
			f.sees("hub-1", running(task))
		}
		f.hubs["hub-1"].most = 1
		pass(time.Minute)
		l := follow(t, h, "since=15m&follow=false", "")
		<-l.ended
		require.Equal(t, []string{"agent.lost agents/a-1", "task.running tasks/t-1", "task.running tasks/t-2",
			"task.running tasks/t-3"}, l.told())
	})
}

// Visibility has only the last mark of a task. What was decided before is told from its history.
func TestPastHasEveryMark(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		at := ago(5 * time.Minute)
		f.task("t-1", enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, func(info *workflowpb.WorkflowExecutionInfo) {
			info.StartTime = timestamppb.New(ago(50 * time.Minute))
			info.SearchAttributes.IndexedFields[contract.AttrStatusAt.GetName()] = payload(at)
		})
		f.marks = map[string][]*historypb.HistoryEvent{contract.TaskWorkflowID("t-1"): {
			marked(api.TaskReview, ago(40*time.Minute)), marked("", ago(30*time.Minute)),
			marked(api.TaskDeadLetter, ago(20*time.Minute)), marked("", ago(10*time.Minute)),
			marked(api.TaskDeadLetter, at), marked("", at),
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED},
		}}
		l := follow(t, h, "since=1h&follow=false&type=task", "")
		<-l.ended
		require.Equal(t, []string{"task.queued tasks/t-1", "task.review tasks/t-1", "task.queued tasks/t-1",
			"task.dead_letter tasks/t-1", "task.queued tasks/t-1", "task.dead_letter tasks/t-1", "task.completed tasks/t-1"},
			l.told())
	})
}

// TestPastOfTooManyMarksHasAGap has more tasks with marks than histories are read.
func TestPastOfTooManyMarksHasAGap(t *testing.T) {
	for _, more := range []int{0, 1} {
		t.Run(fmt.Sprint(more, " more"), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
				at := time.Now().Add(-5 * time.Minute)
				for i := range 200 + more {
					f.task(fmt.Sprint("t-", i), enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
						func(info *workflowpb.WorkflowExecutionInfo) {
							info.SearchAttributes.IndexedFields[contract.AttrStatusAt.GetName()] = payload(at)
						})
				}
				l := follow(t, h, "since=1h&follow=false&type=gap", "")
				<-l.ended
				told := l.told()
				require.Len(t, told, more)
				for _, line := range told {
					require.Equal(t, "gap reviews and dead letters that were decided meanwhile are not all known", line)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				require.Equal(t, 200, f.calls["history"])
			})
		})
	}
}

// More tasks of one kind changed than are read: a listener learns that it was not told of all.
func TestPastOfTooManyChangesHasAGap(t *testing.T) {
	for tasks, gaps := range map[int]int{900: 0, 1100: 1} {
		t.Run(fmt.Sprint(tasks), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
				for i := range tasks {
					f.task(fmt.Sprint("t-", i), enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
				}
				l := follow(t, h, "since=1h&follow=false", "")
				<-l.ended
				told := l.told()
				have := slices.DeleteFunc(slices.Clone(told), func(line string) bool {
					return line != "gap more tasks changed than can be told: the list of tasks has them all"
				})
				require.Len(t, have, gaps, "of %d lines", len(told))
				require.GreaterOrEqual(t, len(told), 900)
			})
		})
	}
}

// The past of a tenant costs what its own tasks cost.
func TestPastOfATenantReadsItsOwnTasks(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		f.marks = map[string][]*historypb.HistoryEvent{}
		for _, tenant := range []string{"acme", "beta", "beta"} {
			id := fmt.Sprintf("%s:t-%d", tenant, len(f.marks))
			at := time.Now().Add(-5 * time.Minute)
			f.task(id, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, func(info *workflowpb.WorkflowExecutionInfo) {
				info.SearchAttributes.IndexedFields[contract.AttrStatusAt.GetName()] = payload(at)
				info.SearchAttributes.IndexedFields[contract.AttrTenant.GetName()] = payload(tenant)
			})
			f.marks[contract.TaskWorkflowID(id)] = []*historypb.HistoryEvent{marked(api.TaskReview, at), marked("", at),
				{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED}}
		}
		l := follow(t, h, "since=1h&follow=false&type=task&tenant=acme", "")
		<-l.ended
		require.Contains(t, l.told(), "task.review tasks/acme:t-0")
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Equal(t, 1, f.calls["history"])
	})
}

// A change that visibility shows seconds after it happened is told, also to who has gone meanwhile.
func TestChangesThatAppearLateAreTold(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		l := follow(t, h, "", "")
		pass(11 * time.Second)
		happened := timestamppb.Now()
		pass(8 * time.Second)
		f.task("t-1", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
			func(info *workflowpb.WorkflowExecutionInfo) { info.StartTime = happened })
		leaves := follow(t, h, "", "")
		pass(500 * time.Millisecond)
		last := leaves.leave()
		pass(10 * time.Second)
		require.Equal(t, []string{"task.queued tasks/t-1"}, l.told())
		l.leave()
		back := follow(t, h, "", last)
		defer back.leave()
		require.Equal(t, []string{"task.queued tasks/t-1"}, back.told())
	})
}

// The past of tasks is read as lists are: when it is the client's turn.
func TestPastIsReadInTurn(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		var takes, gives atomic.Int64
		turn := func(context.Context) (func(), error) {
			takes.Add(1)
			return func() { gives.Add(1) }, nil
		}
		inTurn := func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(httpapi.WithTurn(r.Context(), turn)))
		}
		for i := range 30 { // more than the first page
			f.task(fmt.Sprint("t-", i), enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
		}
		l := follow(t, http.HandlerFunc(inTurn), "since=1h&follow=false", "")
		<-l.ended
		require.Len(t, l.told(), 30)
		require.Equal(t, int64(6+1+6+6), takes.Load(), "six kinds of changes, a second page, marks and decisions of "+
			"1, 2, 4, 8, 16 and 29 minutes")
		require.Equal(t, takes.Load(), gives.Load())
		turn = func(context.Context) (func(), error) { return nil, httpapi.RetryAfter(time.Second, "not yet") }
		l = follow(t, http.HandlerFunc(inTurn), "since=1h&follow=false", "")
		<-l.ended
		require.Equal(t, []string{"gap the tasks were not all read in time: what happened to them is not known"}, l.told())
	})
}

func TestStoppingGatewayEndsItsStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFleet()
		f.cluster("c")
		h, stop := serve(f)
		l := follow(t, h, "", "")
		begun := time.Now()
		stop()
		stop()
		<-l.ended
		require.Less(t, time.Since(begun), time.Second)
		w := get(h, "/api/v1/agents/events")
		problem(t, w, http.StatusServiceUnavailable, protocol.CodeUnavailable)
	})
}

func TestIdleStreamShowsThatItIsAlive(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		last := follow(t, h, "", "").leave()
		require.NotEmpty(t, last, "there is something to go on from before the first event")
		l := follow(t, h, "type=agent", "")
		for range 5 { // which it does not want
			f.sees("hub-1", running("t-1"))
			pass(10 * time.Second)
		}
		require.Empty(t, l.told())
		require.NotEqual(t, last, l.leave(), "it moves on")
	})
}

func TestEventsRefuseBadRequests(t *testing.T) {
	t.Parallel()
	h, stop := serve(newFakeFleet())
	defer stop()
	for _, query := range []string{"type=agents", "type=agent,", "cluster=NO", "agent=A", "since=yesterday",
		"since=-1m", "since=48h", "since=2020-01-01T00:00:00Z", "follow=maybe", "what=ever", "type=a&type=%00canary"} {
		// what is accepted by mistake would stream for ever
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/agents/events?"+query, nil))
		cancel()
		problem(t, w, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
	}
}

// run adds a run as visibility shows it, and its ledger.
func (f *fakeFleet) run(
	id string, status enumspb.WorkflowExecutionStatus, l *job.Ledger, change ...func(*workflowpb.WorkflowExecutionInfo),
) {
	as := func(info *workflowpb.WorkflowExecutionInfo) {
		info.Execution.WorkflowId = contract.RunWorkflowID(id)
		info.SearchAttributes.IndexedFields[contract.AttrJob.GetName()] = payload("j")
		info.SearchAttributes.IndexedFields[contract.AttrCluster.GetName()] = payload("c")
	}
	f.task(id, status, append([]func(*workflowpb.WorkflowExecutionInfo){as}, change...)...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledgers[contract.RunWorkflowID(id)] = l
}

// GetWorkflowHistory has what a run that failed left.
func (f *fakeFleet) GetWorkflowHistory(
	_ context.Context, id, _ string, _ bool, _ enumspb.HistoryEventFilterType,
) client.HistoryEventIterator {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := &commonpb.Payloads{Payloads: []*commonpb.Payload{payload(*f.ledgers[id])}}
	return &lastEvent{event: &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{
			WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{
				Failure: &failurepb.Failure{FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
					ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Details: left}}}}}}}
}

type lastEvent struct{ event *historypb.HistoryEvent }

func (l *lastEvent) HasNext() bool { return l.event != nil }

func (l *lastEvent) Next() (*historypb.HistoryEvent, error) {
	e := l.event
	l.event = nil
	return e, nil
}

func TestRunsAndStepsAreTold(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		const running, failed = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
		l := follow(t, h, "type=run,step", "")
		defer l.leave()
		begun := time.Now()
		step := func(id string, status api.StepStatus, why string) api.StepEntry {
			return api.StepEntry{Step: id, Begun: true, StepWork: api.StepWork{Status: status, Why: why, StartedAt: &begun}}
		}
		ledger := &job.Ledger{Job: "j", Status: api.RunRunning, StartedAt: begun, Steps: []api.StepEntry{
			step("a", api.StepQueued, ""), step("b", api.StepPending, "")}}
		f.run("r-1", running, ledger)
		pass(2 * time.Second)
		require.Equal(t, []string{"run.started runs/r-1"}, l.told())

		done := cluster.Event{Type: api.EventTaskCompleted, EventData: api.EventData{Cluster: "c", TaskID: "r-1~a"}}
		f.sees("hub-1", done)
		f.mu.Lock()
		ended := time.Now()
		job.EndWork(&ledger.Steps[0].StepWork, api.StepCompleted, "", ended)
		f.mu.Unlock()
		pass(3 * time.Second)
		require.Equal(t, []string{"step.completed runs/r-1"}, l.told(), "the run goes on")

		f.mu.Lock()
		ledger.Steps[1].Status, ledger.Steps[1].Why = api.StepBlocked, "decide"
		at := time.Now()
		ledger.Steps[1].Attempts = []api.Attempt{{Number: 1, EndedAt: &at}}
		ledger.Status, ledger.Why = api.RunBlocked, "step b: decide"
		f.tasks[0].SearchAttributes.IndexedFields[contract.AttrStatus.GetName()] = payload("blocked")
		f.tasks[0].SearchAttributes.IndexedFields[contract.AttrStatusAt.GetName()] = payload(at)
		f.mu.Unlock()
		pass(2 * time.Second)
		require.Equal(t, []string{"run.blocked runs/r-1", "step.blocked runs/r-1"}, sorted(l.told()))
		require.Contains(t, reasons(l), "run.blocked: step b: decide")

		f.mu.Lock()
		f.tasks = nil
		f.mu.Unlock()
		job.EndWork(&ledger.Steps[1].StepWork, api.StepFailed, "given up", time.Now())
		ledger.Steps[1].Elements = []api.StepWork{{Status: api.StepFailed, Why: "no agent took its task in time",
			EndedAt: ledger.Steps[1].EndedAt}, {Status: api.StepCompleted, EndedAt: ledger.Steps[1].EndedAt}}
		ledger.Close(api.RunFailed, "step b failed: given up", time.Now())
		f.run("r-1", failed, ledger)
		pass(11 * time.Second)
		require.Equal(t, []string{"run.failed runs/r-1", "step.failed runs/r-1", "step.failed runs/r-1"},
			sorted(l.told()), "what no hub told, within ten seconds")
		want := []string{"run.failed: step b failed: given up", "step.failed: given up",
			"step.failed: no agent took its task in time"}
		require.Subset(t, reasons(l), want)
		pass(time.Minute)
		require.Empty(t, l.told(), "each is told once")

		f.run("r-2", running, &job.Ledger{})
		past := follow(t, h, "type=AgentTaskFailed,run.failed&since=15m&follow=false", "")
		<-past.ended
		require.Equal(t, want, sorted(reasons(past)), "the past knows it too")
		require.Equal(t, "r-1~b.0", past.events[0].Data.TaskID)
	})
}

func TestLedgersAreReadOnlyForThoseWhoWantThem(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fakeFleet, h http.Handler) {
		l := follow(t, h, "type=task,agent", "")
		f.run("r-1", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, &job.Ledger{})
		f.sees("hub-1", running("r-1~a"))
		pass(20 * time.Second)
		require.Equal(t, []string{"task.running tasks/r-1~a"}, l.told())
		l.leave()
		require.Zero(t, f.calls["ledger"])
	})
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}

// reasons are the types of all events of a listener, with why.
func reasons(l *follower) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		all = append(all, strings.TrimPrefix(string(e.Type), api.EventPrefix)+": "+e.Data.Reason)
	}
	return all
}
