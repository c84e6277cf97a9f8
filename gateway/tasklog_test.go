package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// fakeHub answers the questions that are put to hubs.
type fakeHub struct {
	*fakeTemporal
	mu      sync.Mutex
	answers []func(contract.ReadLogInput) (contract.ReadLogResult, error)
	queues  []string
	asked   []contract.ReadLogInput
	removed int
	start   error
	health  func(queue string) (contract.ReadHealthResult, error)
	tasks   func(queue string) (contract.ReadTasksResult, error)
	spawner func(queue string) (contract.SpawnerInfo, error)
}

func (f *fakeHub) ExecuteActivity(
	_ context.Context, o client.StartActivityOptions, activity any, args ...any,
) (client.ActivityHandle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.start != nil {
		return nil, f.start
	}
	if _, asked := args[0].(contract.ReadTasksInput); asked {
		result, err := f.tasks(o.TaskQueue)
		return fakeReading{result: result, err: err}, nil
	}
	if _, asked := args[0].(contract.ReadHealthInput); asked {
		f.queues = append(f.queues, o.TaskQueue)
		rated, err := f.health(o.TaskQueue)
		return fakeReading{result: rated, err: err}, nil
	}
	if _, asked := args[0].(contract.None); asked {
		info, err := f.spawner(o.TaskQueue)
		return fakeReading{result: info, err: err}, nil
	}
	in := args[0].(contract.ReadLogInput)
	f.queues, f.asked = append(f.queues, o.TaskQueue), append(f.asked, in)
	answer := f.answers[0]
	f.answers = f.answers[1:]
	result, err := answer(in)
	return fakeReading{result: result, err: err}, nil
}

func (f *fakeHub) WorkflowService() workflowservice.WorkflowServiceClient {
	return hubService{fakeService{f: f.fakeTemporal}, f}
}

type hubService struct {
	fakeService
	hub *fakeHub
}

func (s hubService) DeleteActivityExecution(
	context.Context, *workflowservice.DeleteActivityExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DeleteActivityExecutionResponse, error) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.removed++
	return &workflowservice.DeleteActivityExecutionResponse{}, nil
}

type fakeReading struct {
	client.ActivityHandle
	result any
	err    error
}

func (r fakeReading) GetRunID() string { return "run" }
func (r fakeReading) Get(_ context.Context, into any) error {
	if r.err != nil {
		return r.err
	}
	return encoded{r.result}.Get(into)
}

func says(lines ...int64) func(contract.ReadLogInput) (contract.ReadLogResult, error) {
	return func(contract.ReadLogInput) (contract.ReadLogResult, error) {
		result := contract.ReadLogResult{AgentID: "a-2"}
		for _, n := range lines {
			result.Lines = append(result.Lines, api.LogLine{Number: n, At: time.Unix(1_800_000_006, 0).UTC(),
				Stream: "stdout", Text: "canary"})
		}
		return result, nil
	}
}

func gone(contract.ReadLogInput) (contract.ReadLogResult, error) {
	return contract.ReadLogResult{Gone: true}, nil
}

func TestTaskLog(t *testing.T) {
	t.Parallel()
	first := api.Attempt{Number: 1, AgentID: "a-1", Hub: "hub-9", Outcome: api.AttemptFailed}
	returned := api.Attempt{Number: 2, Outcome: api.AttemptReturned}
	wrote := func(numbers ...int64) []api.LogLine { // what says gives
		result, _ := says(numbers...)(contract.ReadLogInput{})
		return result.Lines
	}
	started := func(report *contract.AttemptReport) []*workflowpb.PendingActivityInfo {
		p := delivery(2, enumspb.PENDING_ACTIVITY_STATE_STARTED, report)
		p.LastWorkerIdentity = "hub/hub-2"
		return []*workflowpb.PendingActivityInfo{p}
	}
	queued := contract.TaskState{Status: api.TaskQueued, Attempts: []api.Attempt{first}}
	for name, c := range map[string]struct {
		state   contract.TaskState
		pending []*workflowpb.PendingActivityInfo
		closed  bool
		query   string
		answers []func(contract.ReadLogInput) (contract.ReadLogResult, error)
		queues  []string
		wants   api.TaskLog // Lines are only counted
		lines   int
		kept    []api.LogLine // with the first attempt
	}{
		"of the attempt that runs": {
			state:   queued,
			pending: started(&contract.AttemptReport{AgentID: "a-2", Hub: "hub-1"}),
			query:   "?after=3&wait=2s",
			answers: []func(contract.ReadLogInput) (contract.ReadLogResult, error){says(4, 5)},
			queues:  []string{"hub/hub-1"}, lines: 2, wants: api.TaskLog{Attempt: 2, AgentID: "a-2", Next: 5},
		},
		"before the first heartbeat": {
			state:   queued,
			pending: started(nil),
			answers: []func(contract.ReadLogInput) (contract.ReadLogResult, error){says()},
			queues:  []string{"hub/hub-2"}, wants: api.TaskLog{Attempt: 2, AgentID: "a-2"},
		},
		"an agent that cannot": {
			state: queued, pending: started(nil), answers: []func(contract.ReadLogInput) (contract.ReadLogResult,
				error){
				func(contract.ReadLogInput) (contract.ReadLogResult, error) {
					return contract.ReadLogResult{AgentID: "a-2", Silent: true}, nil
				}},
			queues: []string{"hub/hub-2"},
			wants: api.TaskLog{Attempt: 2, AgentID: "a-2",
				Why: "the agent does not send its log; it may not know how to"},
		},
		"looks again while it is between two hubs": {
			state: queued, pending: started(nil), query: "?wait=20s",
			answers: []func(contract.ReadLogInput) (contract.ReadLogResult, error){gone,
				func(contract.ReadLogInput) (contract.ReadLogResult, error) {
					return contract.ReadLogResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START,
						errors.New("canary"))
				}, says(1)},
			queues: []string{"hub/hub-2", "hub/hub-2", "hub/hub-2"},
			lines:  1,
			wants:  api.TaskLog{Attempt: 2, AgentID: "a-2", Next: 1},
		},
		"of an earlier attempt": {
			state: queued, pending: started(nil), query: "?attempt=1&after=7", kept: wrote(7, 8, 9), lines: 2,
			wants: api.TaskLog{Attempt: 1, AgentID: "a-1", Next: 9, Ended: true},
		},
		"of an attempt that wrote nothing": {
			state: queued, pending: started(nil), query: "?attempt=1",
			wants: api.TaskLog{Attempt: 1, AgentID: "a-1", Ended: true, Why: "the attempt wrote nothing"},
		},
		"of an attempt to come": {
			state:   queued,
			pending: started(nil),
			query:   "?attempt=3",
			wants:   api.TaskLog{Attempt: 3, Why: "attempt 3 has not begun"},
		},
		"between attempts": {
			state: contract.TaskState{Status: api.TaskRetryWait, Why: "attempt failed",
				Attempts: []api.Attempt{first}},
			query: "?wait=20ms",
			wants: api.TaskLog{Why: "attempt failed"},
		},
		"of a dead letter": {
			state: contract.TaskState{Status: api.TaskDeadLetter, Attempts: []api.Attempt{first, returned}},
			query: "?wait=20s", kept: wrote(1), lines: 1,
			wants: api.TaskLog{Attempt: 1, AgentID: "a-1", Ended: true, Next: 1},
		},
		"of a task whose agent was lost": {
			closed: true, query: "?wait=20s", state: contract.TaskState{Status: api.TaskCancelled,
				Attempts: []api.Attempt{{Number: 1, AgentID: "a-2", Hub: "hub-1", Outcome: api.AttemptLost}}},
			wants: api.TaskLog{Attempt: 1, AgentID: "a-2", Ended: true,
				Why: "the agent was lost before it had sent anything that the attempt wrote"},
		},
		"of a task that no agent ever had": {
			closed: true, state: contract.TaskState{Status: api.TaskExpired},
			wants: api.TaskLog{Ended: true, Why: "no agent has had the task"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeHub{fakeTemporal: newFake(), answers: c.answers}
			e := f.withTask(c.state)
			e.pending = c.pending
			e.history = deliveryEvents(1, contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptFailed}, c.kept...)
			if c.closed {
				e.close(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, &historypb.HistoryEvent{
					EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
					Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
						WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{Result: payloads(c.state)}},
				})
			}
			got := answer[api.TaskLog](t, do(serveWith(t, f), http.MethodGet, tasksPath+"/t-1/log"+c.query, ""),
				http.StatusOK)
			require.NotNil(t, got.Lines)
			require.Len(t, got.Lines, c.lines)
			got.Lines = nil
			require.Equal(t, c.wants, got)
			require.Equal(t, c.queues, f.queues)
			require.Equal(t, len(c.queues), f.removed, "no reading is left in Temporal")
		})
	}
}

func TestTaskLogProblems(t *testing.T) {
	t.Parallel()
	running := func() *fakeHub {
		f := &fakeHub{fakeTemporal: newFake()}
		f.withTask(contract.TaskState{Status: api.TaskQueued}).pending = []*workflowpb.PendingActivityInfo{
			delivery(1, enumspb.PENDING_ACTIVITY_STATE_STARTED, &contract.AttemptReport{Hub: "hub-1"})}
		return f
	}
	f := running()
	f.start = serviceerror.NewUnimplemented("canary: unknown method StartActivityExecution")
	p := problem(t, do(serveWith(t, f), http.MethodGet, tasksPath+"/t-1/log", ""), http.StatusNotImplemented,
		protocol.CodeNotSupported)
	require.Contains(t, p.Detail, "activity.enableStandalone")
	f = running()
	f.start = serviceerror.NewUnavailable("canary")
	problem(t, do(serveWith(t, f), http.MethodGet, tasksPath+"/t-1/log", ""), http.StatusServiceUnavailable,
		protocol.CodeUnavailable)
	f = running()
	f.answers = []func(contract.ReadLogInput) (contract.ReadLogResult,
		error){func(contract.ReadLogInput) (contract.ReadLogResult, error) {
		return contract.ReadLogResult{}, errors.New("canary")
	}}
	problem(t, do(serveWith(t, f), http.MethodGet, tasksPath+"/t-1/log", ""), http.StatusInternalServerError,
		protocol.CodeInternal)
	for query, location := range map[string]string{"?after=-1": "query.after", "?attempt=-1": "query.attempt",
		"?wait=2m": "query.wait", "?wait=canary": "query.wait"} {
		p := problem(t, do(serveWith(t, running()), http.MethodGet, tasksPath+"/t-1/log"+query, ""),
			http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
		require.Equal(t, location, p.Errors[0].Location)
	}
	problem(t, do(serveWith(t, running()), http.MethodGet, tasksPath+"/t-2/log", ""), http.StatusNotFound,
		protocol.CodeUnknownTask)
}
