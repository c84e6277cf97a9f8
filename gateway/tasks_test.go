package gateway_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// withTask adds an open task t-1 of the cluster default whose workflow answers with state.
func (f *fakeTemporal) withTask(state contract.TaskState) *execution {
	e := open(contract.TaskWorkflowID("t-1"), contract.TaskWorkflow)
	e.info.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
		contract.AttrCluster.GetName(): payload("default"), contract.AttrTaskType.GetName(): payload("exec"),
	}}
	e.query = func() (any, error) { return state, nil }
	f.executions[contract.TaskWorkflowID("t-1")] = e
	return e
}

func (e *execution) close(status enumspb.WorkflowExecutionStatus, event *historypb.HistoryEvent) {
	e.info.Status, e.info.CloseTime, e.last = status, timestamppb.New(time.Unix(1_800_000_009, 0)), event
}

func delivery(
	number int, state enumspb.PendingActivityState, report *contract.AttemptReport,
) *workflowpb.PendingActivityInfo {
	p := &workflowpb.PendingActivityInfo{
		ActivityId:   contract.AttemptActivityID("t-1", number),
		ActivityType: &commonpb.ActivityType{Name: contract.RunTaskActivity.Name},
		State:        state, LastStartedTime: timestamppb.New(time.Unix(1_800_000_005, 0)),
	}
	if report != nil {
		p.HeartbeatDetails = payloads(report)
	}
	return p
}

func TestRunningTaskShowsItsAttempt(t *testing.T) {
	t.Parallel()
	f := newFake()
	lost := api.Attempt{Number: 1, AgentID: "a-1", Outcome: api.AttemptLost, Reason: "its agent was lost"}
	e := f.withTask(contract.TaskState{Status: api.TaskQueued, Attempts: []api.Attempt{lost}})
	e.pending = []*workflowpb.PendingActivityInfo{delivery(2, enumspb.PENDING_ACTIVITY_STATE_STARTED,
		&contract.AttemptReport{AgentID: "a-2", Epoch: 7, Hub: "hub-1",
			Progress: &api.Progress{Percent: 40, Step: "copying"}})}
	task := answer[api.Task](t, do(serve(t, f), http.MethodGet, tasksPath+"/t-1", ""), http.StatusOK)
	require.Equal(t, api.TaskRunning, task.Status)
	require.Equal(t, "exec", task.Type)
	require.Equal(t, "default", task.Cluster)
	require.Len(t, task.Attempts, 2)
	require.Equal(t, lost.Reason, task.Attempts[0].Reason)
	running := task.Attempts[1]
	require.Equal(t, 2, running.Number)
	require.Equal(t, "a-2", running.AgentID)
	require.EqualValues(t, 7, running.Epoch)
	require.Equal(t, 40, running.Progress.Percent)
	require.NotNil(t, running.StartedAt)
	require.Empty(t, task.Why)
}

func TestOpenTasksSayWhy(t *testing.T) {
	t.Parallel()
	member := cluster.Member{AgentID: "a-1", Instance: "i-1", Status: api.AgentOnline,
		AgentProfile: api.AgentProfile{MaxTasks: 2}}
	busy := &workerpb.WorkerHeartbeat{
		WorkerIdentity: contract.AgentIdentity("default", "a-1"), WorkerInstanceKey: "i-1",
		ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{CurrentUsedSlots: 2},
	}
	next := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		state   contract.TaskState
		members []cluster.Member
		workers []*workerpb.WorkerHeartbeat
		agent   string
		status  api.TaskStatus
		why     string
	}{
		"nobody": {contract.TaskState{Status: api.TaskQueued}, nil, nil, "", api.TaskQueued,
			"no online agent in cluster default"},
		"busy": {contract.TaskState{Status: api.TaskQueued}, []cluster.Member{member},
			[]*workerpb.WorkerHeartbeat{busy}, "", api.TaskQueued,
			"all 2 slots of the only agent of cluster default are in use; up to about 4 tasks are ahead of it"},
		"pinned": {contract.TaskState{Status: api.TaskQueued},
			[]cluster.Member{{AgentID: "a-9", Status: api.AgentOffline, StatusSince: next.Add(-time.Hour)}}, nil, "a-9",
			api.TaskQueued, "agent a-9 is offline since 2027-01-15T07:00:00Z; the task waits for it"},
		"backoff": {contract.TaskState{Status: api.TaskRetryWait, Why: "exit code 1", NextAttempt: &next}, nil, nil,
			"", api.TaskRetryWait, "backoff until 2027-01-15T08:00:00Z: exit code 1"},
		"review": {contract.TaskState{Status: api.TaskReview, Why: "it may have run"}, nil, nil, "",
			api.TaskReview, "in review because it may have run"},
		"dead letter": {contract.TaskState{Status: api.TaskDeadLetter, Why: "3 of 3",
			DeadLetter: &api.DeadLetter{Since: next, Until: next.AddDate(0, 0, 7),
				Cause: "3 of 3 attempts failed"}}, nil, nil, "",
			api.TaskDeadLetter, "dead letter because 3 of 3 attempts failed; kept until 2027-01-22T08:00:00Z"},
		"starts later": {contract.TaskState{Status: api.TaskQueued, Why: "starts at 2027-01-15T08:00:00Z",
			NextAttempt: &next}, nil, nil, "", api.TaskQueued, "starts at 2027-01-15T08:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.withCluster(api.ClusterConfig{Name: "default"}, c.members...)
			f.workers = c.workers
			e := f.withTask(c.state)
			if c.agent != "" {
				e.info.SearchAttributes.IndexedFields[contract.AttrAgent.GetName()] = payload(c.agent)
			}
			waiting := delivery(1, enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, nil)
			waiting.ActivityOptions = &activitypb.ActivityOptions{TaskQueue: &taskqueuepb.TaskQueue{Name: "lane/default"}}
			e.pending = []*workflowpb.PendingActivityInfo{waiting}
			f.backlogs = map[string]map[int32]int64{"lane/default": {2: 2, 3: 3, 4: 9}}
			task := answer[api.Task](t, do(serve(t, f), http.MethodGet, tasksPath+"/t-1", ""), http.StatusOK)
			require.Equal(t, c.status, task.Status)
			require.Equal(t, c.why, task.Why)
		})
	}
}

func TestTaskWithoutAWorkerIsStillShown(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withTask(contract.TaskState{})
	e.query = nil
	h := serve(t, f)
	task := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/t-1", ""), http.StatusOK)
	require.Equal(t, api.TaskQueued, task.Status)
	require.Contains(t, task.Why, "no worker answered")
	e.pending = []*workflowpb.PendingActivityInfo{delivery(1, enumspb.PENDING_ACTIVITY_STATE_STARTED, nil)}
	task = answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/t-1", ""), http.StatusOK)
	require.Equal(t, api.TaskRunning, task.Status)
}

func TestClosedTasks(t *testing.T) {
	t.Parallel()
	ended := func(status api.TaskStatus, why string) contract.TaskState {
		return contract.TaskState{Status: status, Why: why, Attempts: []api.Attempt{{Number: 1, AgentID: "a-1",
			Outcome: api.AttemptFailed}}}
	}
	failure := func(state contract.TaskState) *historypb.HistoryEvent {
		err := temporal.NewApplicationErrorWithOptions("task", string(state.Status),
			temporal.ApplicationErrorOptions{Details: []any{state}})
		return &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
			Attributes: &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{
				WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{Failure: temporal.GetDefaultFailureConverter().ErrorToFailure(err)}}}
	}
	completed := contract.TaskState{Status: api.TaskCompleted, Result: []byte(`{"exit_code":0}`)}
	for name, c := range map[string]struct {
		execution enumspb.WorkflowExecutionStatus
		marked    string
		event     *historypb.HistoryEvent
		status    api.TaskStatus
		why       string
		result    string
	}{
		"completed": {enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, "",
			&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
				Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{Result: payloads(completed)}}},
			api.TaskCompleted, "", `{"exit_code":0}`},
		"failed": {enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, "failed", failure(ended(api.TaskFailed, "exit code 1")),
			api.TaskFailed, "exit code 1", ""},
		"expired": {enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, "expired",
			failure(ended(api.TaskExpired, "nobody took it")), api.TaskExpired, "nobody took it", ""},
		"broken": {enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, "",
			&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
				Attributes: &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{
					WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{Failure: temporal.GetDefaultFailureConverter().ErrorToFailure(fmt.Errorf("canary"))}}},
			api.TaskFailed, "its workflow failed; the Temporal Web UI shows the failure", ""},
		"cancelled": {enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, "",
			&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
				Attributes: &historypb.HistoryEvent_WorkflowExecutionCanceledEventAttributes{WorkflowExecutionCanceledEventAttributes: &historypb.WorkflowExecutionCanceledEventAttributes{Details: payloads(ended(api.TaskCancelled, "not needed"))}}},
			api.TaskCancelled, "not needed", ""},
		"terminated": {enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, "dead_letter",
			&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
				Attributes: &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{Reason: "by hand"}}},
			api.TaskCancelled, "its workflow was terminated: by hand", ""},
		"timed out": {enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT, "",
			&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT}, api.TaskExpired,
			"its workflow ran out of time", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			e := f.withTask(contract.TaskState{})
			e.close(c.execution, c.event)
			if c.marked != "" {
				e.info.SearchAttributes.IndexedFields[contract.AttrStatus.GetName()] = payload(c.marked)
			}
			w := do(serve(t, f), http.MethodGet, tasksPath+"/t-1?wait=30s", "")
			task := answer[api.Task](t, w, http.StatusOK)
			require.NotContains(t, w.Body.String(), "canary")
			require.Equal(t, c.status, task.Status)
			require.Equal(t, c.why, task.Why)
			require.Equal(t, c.result, string(task.Result))
			require.NotNil(t, task.ClosedAt)
		})
	}
}

func TestWaitReturnsWhenTheTaskIsSettled(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(e *execution){
		"ended": func(e *execution) {
			e.close(enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
				&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT})
		},
		"needs a person": func(e *execution) {
			e.info.SearchAttributes.IndexedFields[contract.AttrStatus.GetName()] = payload("dead_letter")
			e.query = func() (any, error) { return contract.TaskState{Status: api.TaskDeadLetter}, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			e := f.withTask(contract.TaskState{Status: api.TaskQueued})
			f.onDescribe = func(n int) {
				if n == 4 {
					settle(e)
				}
			}
			start := time.Now()
			task := answer[api.Task](t, do(serve(t, f), http.MethodGet, tasksPath+"/t-1?wait=00:00:30", ""),
				http.StatusOK)
			require.Contains(t, []api.TaskStatus{api.TaskExpired, api.TaskDeadLetter}, task.Status)
			require.Less(t, time.Since(start), 10*time.Second)
			require.Equal(t, 4, f.describes)
		})
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withTask(contract.TaskState{Status: api.TaskQueued})
	h := serve(t, f)
	task := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/t-1?wait=60ms", ""), http.StatusOK)
	require.Equal(t, api.TaskQueued, task.Status)
	require.GreaterOrEqual(t, f.describes, 2)
	require.LessOrEqual(t, f.describes, 8, "it does not spin")
	for _, wait := range []string{"61s", "-1s", "canary"} {
		problem(t, do(h, http.MethodGet, tasksPath+"/t-1?wait="+wait, ""), 422, protocol.CodeInvalidRequest)
	}
}

func TestUnknownTasks(t *testing.T) {
	t.Parallel()
	h := serve(t, newFake())
	for _, id := range []string{"canary", "CANARY", "canary%20x"} {
		problem(t, do(h, http.MethodGet, tasksPath+"/"+id, ""), 404, protocol.CodeUnknownTask)
		problem(t, do(h, http.MethodPost, tasksPath+"/"+id+"/cancel", ""), 404, protocol.CodeUnknownTask)
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withTask(contract.TaskState{Status: api.TaskDeadLetter})
	var got []any
	e.update = func(name string, arg any) (any, error) {
		got = append(got, arg)
		if name == contract.ReviewUpdate.Name {
			return nil, temporal.NewNonRetryableApplicationError("only a task in review can be decided",
				contract.Refused, nil)
		}
		return nil, nil
	}
	h := serve(t, f)
	answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/t-1/retry", `{"reason":"fixed"}`), http.StatusOK)
	answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/t-1/cancel", ``), http.StatusOK)
	require.Equal(t, []any{contract.RetryRequest{Reason: "fixed"}, contract.CancelRequest{}}, got)
	p := problem(t, do(h, http.MethodPost, tasksPath+"/t-1/review", `{"decision":"completed","result":{"a":1}}`), 409,
		protocol.CodeConflict)
	require.Equal(t, "only a task in review can be decided", p.Detail)
	problem(t, do(h, http.MethodPost, tasksPath+"/t-1/review", `{"decision":"canary"}`), 422,
		protocol.CodeInvalidRequest)
	problem(t, do(h, http.MethodPost, tasksPath+"/t-1/review", `{}`), 422, protocol.CodeInvalidRequest)

	e.close(enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
		&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT})
	p = problem(t, do(h, http.MethodPost, tasksPath+"/t-1/cancel", `{}`), 409, protocol.CodeConflict)
	require.Contains(t, p.Detail, "expired")
}

type taskPage struct {
	Tasks         []api.Task `json:"tasks"`
	NextPageToken string     `json:"next_page_token"`
}

func TestListTasks(t *testing.T) {
	t.Parallel()
	f := newFake()
	var infos []*workflowpb.WorkflowExecutionInfo
	for i := range 4 {
		e := open(contract.TaskWorkflowID(fmt.Sprintf("t-%d", i)), contract.TaskWorkflow)
		f.executions[contract.TaskWorkflowID(fmt.Sprintf("t-%d", i))] = e
		infos = append(infos, e.info)
		switch i {
		case 0: // just accepted: its first workflow task is under way
			e.wft = &workflowpb.PendingWorkflowTaskInfo{}
		case 1:
			e.pending = []*workflowpb.PendingActivityInfo{delivery(1, enumspb.PENDING_ACTIVITY_STATE_STARTED, nil)}
		case 2:
			e.pending = []*workflowpb.PendingActivityInfo{delivery(1, enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, nil)}
		} // 3 waits out a backoff
	}
	var asked []*workflowservice.ListWorkflowExecutionsRequest
	f.list = func(r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse,
		error) {
		asked = append(asked, r)
		return &workflowservice.ListWorkflowExecutionsResponse{Executions: infos}, nil
	}
	h := serve(t, f)
	list := func(target string) (taskPage, []api.TaskStatus) {
		page := answer[taskPage](t, do(h, http.MethodGet, tasksPath+target, ""), http.StatusOK)
		statuses := []api.TaskStatus{}
		for _, task := range page.Tasks {
			statuses = append(statuses, task.Status)
		}
		return page, statuses
	}
	page, statuses := list("?cluster=default&type=exec&tenant=acme&page_size=4")
	require.Equal(t, []api.TaskStatus{api.TaskQueued, api.TaskRunning, api.TaskQueued, api.TaskRetryWait},
		statuses)
	require.Equal(t, "WorkflowType = 'Task' AND MainstayCluster = 'default' AND MainstayTaskType = 'exec' AND MainstayTenant = 'acme'", asked[0].GetQuery())
	require.Empty(t, page.NextPageToken, "these are all")
	page, statuses = list("?cluster=default&type=exec&tenant=acme&page_size=3")
	require.Len(t, statuses, 3)
	rest, _ := list("?cluster=default&type=exec&tenant=acme&page_token=" + page.NextPageToken)
	require.Len(t, rest.Tasks, 1, "page by page each is listed once")
	require.Contains(t, asked[len(asked)-1].GetQuery(), " AND StartTime <= '2027-01-15T08:00:00Z'")
	for token, seen := "", map[string]bool{}; ; { // submitted in one moment
		page, _ = list("?page_size=1&page_token=" + token)
		for _, task := range page.Tasks {
			require.False(t, seen[task.ID], "each is listed once")
			seen[task.ID] = true
		}
		if token = page.NextPageToken; token == "" {
			require.Len(t, seen, 4)
			break
		}
	}
	page, _ = list("?cluster=default&type=exec&tenant=acme&page_size=3")
	list("?cluster=default&type=exec&tenant=acme&submitted_after=2026-11-21T12:00:00Z&page_token=" + page.NextPageToken)
	// of another list
	problem(t, do(h, http.MethodGet, tasksPath+"?page_token="+page.NextPageToken, ""), 422, protocol.CodeInvalidRequest)
	_, statuses = list("?status=running")
	require.Equal(t, []api.TaskStatus{api.TaskRunning}, statuses)
	_, statuses = list("/queue")
	require.Equal(t, []api.TaskStatus{api.TaskQueued, api.TaskQueued, api.TaskRetryWait}, statuses)
	list("/queue/dead-letter?cluster=default")
	require.Equal(t, "WorkflowType = 'Task' AND MainstayCluster = 'default' AND ((ExecutionStatus = 'Running' AND MainstayStatus BETWEEN 'dead_letter' AND 'dead_letter'))", asked[len(asked)-1].GetQuery())

	for _, bad := range []string{"?page_size=201", "?page_size=0", "?status=canary", "?cluster=a'+OR+1",
		"?page_token=%25canary", "?clustr=canary"} {
		problem(t, do(h, http.MethodGet, tasksPath+bad, ""), 422, protocol.CodeInvalidRequest)
	}
	problem(t, do(h, http.MethodGet, tasksPath+"?page_token="+base64.RawURLEncoding.EncodeToString([]byte("forged")),
		""), 422, protocol.CodeInvalidRequest)
}

// byVisibility lists the fake's tasks as Temporal does: open ones first, then those that ended last, in pages of at
// most limit.
func (f *fakeTemporal) byVisibility(limit int) {
	key := func(e *execution) string {
		ended := "9"
		if at := e.info.GetCloseTime(); at != nil {
			ended = at.AsTime().Format(time.RFC3339Nano)
		}
		return ended + e.info.GetStartTime().AsTime().Format(time.RFC3339)
	}
	f.list = func(r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse,
		error) {
		var all []*execution
		for _, e := range f.executions {
			open := e.info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
			if strings.Contains(r.GetQuery(), "ExecutionStatus != 'Running'") && open {
				continue
			}
			if _, bound, has := strings.Cut(r.GetQuery(), "StartTime <= '"); has &&
				e.info.GetStartTime().AsTime().Format(time.RFC3339) > strings.Trim(bound[:20], "'") {
				continue
			}
			all = append(all, e)
		}
		slices.SortFunc(all, func(a, b *execution) int { return strings.Compare(key(b), key(a)) })
		begin, _ := strconv.Atoi(string(r.GetNextPageToken()))
		end := min(len(all), begin+min(limit, int(r.GetPageSize())))
		answer := &workflowservice.ListWorkflowExecutionsResponse{}
		for _, e := range all[begin:end] {
			answer.Executions = append(answer.Executions, e.info)
		}
		if end < len(all) {
			answer.NextPageToken = []byte(strconv.Itoa(end))
		}
		return answer, nil
	}
}

// Lists have the task first that was submitted last, however visibility orders them, and each task once.
func TestListIsNewestFirst(t *testing.T) {
	t.Parallel()
	f := newFake()
	const tasks = 60
	for i := range tasks { // the higher the number, the later submitted
		id := contract.TaskWorkflowID(fmt.Sprintf("t-%02d", i))
		e := open(id, contract.TaskWorkflow)
		e.info.StartTime = timestamppb.New(time.Unix(int64(1_800_000_000+10*i), 0))
		if i%3 != 0 { // some run for long, so that they end after later ones
			e.close(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, nil)
			e.info.CloseTime = timestamppb.New(e.info.GetStartTime().AsTime().Add(time.Duration(1+i%7*40) * time.Second))
		}
		f.executions[id] = e
	}
	f.byVisibility(7)
	h := serve(t, f)
	var got []string
	for token := ""; ; {
		page := answer[taskPage](t, do(h, http.MethodGet, tasksPath+"?page_size=8&page_token="+token, ""), http.StatusOK)
		for _, task := range page.Tasks {
			got = append(got, task.ID)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	var want []string
	for i := range tasks {
		want = append(want, fmt.Sprintf("t-%02d", tasks-1-i))
	}
	require.Equal(t, want, got)
}

func TestListSearchesText(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i, labels := range []string{"project=Film", "project=news", "project=films"} {
		e := open(contract.TaskWorkflowID(fmt.Sprintf("t-%d", i)), contract.TaskWorkflow)
		e.info.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			contract.AttrLabels.GetName(): payload([]string{labels}), contract.AttrRanOn.GetName(): payload([]string{"render-1"})}}
		e.info.StartTime = timestamppb.New(time.Unix(int64(1_800_000_000+i), 0))
		f.executions[e.info.GetExecution().GetWorkflowId()] = e
	}
	f.byVisibility(1000)
	h := serve(t, f)
	ids := func(target string) (list []string, next string) {
		page := answer[taskPage](t, do(h, http.MethodGet, tasksPath+target, ""), http.StatusOK)
		for _, task := range page.Tasks {
			list = append(list, task.ID)
		}
		return list, page.NextPageToken
	}
	found, _ := ids("?text=FILM")
	require.Equal(t, []string{"t-2", "t-0"}, found)
	found, next := ids("?text=film&page_size=1")
	require.Equal(t, []string{"t-2"}, found)
	found, _ = ids("?text=film&page_size=1&page_token=" + next)
	require.Equal(t, []string{"t-0"}, found)
	found, _ = ids("?text=render-1")
	require.Len(t, found, 3)
	found, _ = ids("?text=canary")
	require.Empty(t, found)
}
