package gateway_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	updatepb "go.temporal.io/api/update/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// asked is what an update that a workflow has accepted leaves in its history.
func asked(second int64, name string, request any) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventTime: timestamppb.New(time.Unix(1_800_000_000+second, 0)),
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionUpdateAcceptedEventAttributes{
			WorkflowExecutionUpdateAcceptedEventAttributes: &historypb.WorkflowExecutionUpdateAcceptedEventAttributes{
				AcceptedRequest: &updatepb.Request{Input: &updatepb.Input{Name: name, Args: payloads(request)}}}},
	}
}

func TestTaskHistory(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withTask(contract.TaskState{Status: api.TaskQueued})
	second := func(n int64) *time.Time { return new(time.Unix(1_800_000_000+n, 0).UTC()) }
	spec := api.TaskSpec{Type: "exec", Cluster: "default", Payload: []byte(`{"a":1}`), RetrySafety: api.Fenced,
		ShardKey: "k", Affinity: "a-1", Provider: "p", RequiredCapabilities: []string{"gpu"},
		Timeout: api.Duration(time.Minute), ExpiresIn: api.Duration(time.Hour), Retry: api.RetryPolicy{MaxAttempts: 2}}
	e.input = contract.TaskInput{TaskID: "t-1", Spec: spec, By: "ops (k-1)"}
	returned := contract.AttemptReport{Outcome: api.AttemptReturned, Reason: "all are busy"}
	for number := 1; number <= 3; number++ {
		e.history = append(e.history, deliveryEvents(number, returned)...)
	}
	e.history = append(e.history, deliveryEvents(4, contract.AttemptReport{
		AgentID: "a-1", Outcome: api.AttemptLost, Planned: true, StartedAt: second(41), Reason: "drained",
		Marks: []contract.ProgressMark{{At: *second(90), Progress: api.Progress{Percent: 40}}}, // a clock ahead
	})...)
	e.history = append(e.history, asked(43, contract.ReprioritizeUpdate.Name,
		contract.ReprioritizeRequest{Priority: api.PriorityHigh, ForTask: contract.ForTask{By: "ops (k-1)"}}))
	e.history = append(e.history, deliveryEvents(5, contract.AttemptReport{AgentID: "a-2", Outcome: api.AttemptFailed,
		StartedAt: second(51), Reason: "exit 1"})...)
	e.history = append(e.history, asked(60, contract.RetryUpdate.Name, contract.RetryRequest{Reason: "fixed",
		ForTask: contract.ForTask{By: "eve (k-2)"}}))
	e.history = append(e.history, asked(61, contract.ReviewUpdate.Name, contract.ReviewRequest{
		Decision: api.ReviewRerun, Reason: "the printer was off", ForTask: contract.ForTask{By: "ann (k-3)"}}))
	e.history = append(e.history, deliveryEvents(7, returned)[0])
	e.history = append(e.history, asked(75, contract.CancelUpdate.Name, contract.CancelRequest{Reason: "enough"}))
	running := delivery(7, enumspb.PENDING_ACTIVITY_STATE_STARTED, &contract.AttemptReport{AgentID: "a-3", StartedAt: second(72)})
	e.pending = []*workflowpb.PendingActivityInfo{running}

	h := serve(t, f)
	task := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/t-1?include=payload&include=history", ""), http.StatusOK)
	var told []string
	for _, m := range task.History {
		line := fmt.Sprintf("%d %s %d %s|%s|%s", m.At.Unix()-1_800_000_000, m.Event, m.Attempt, m.AgentID, m.By, m.Reason)
		if m.Times > 0 {
			line += fmt.Sprint(" times ", m.Times)
		}
		told = append(told, line)
	}
	require.Equal(t, []string{
		"0 submitted 0 |ops (k-1)|",
		"10 queued 1 ||",
		"32 returned 3 ||all are busy times 3",
		"40 queued 4 ||",
		"41 running 4 a-1||",
		"42 progress 4 a-1||",
		"42 moved 4 a-1||drained",
		"43 prioritized 0 |ops (k-1)|high",
		"50 queued 5 ||",
		"51 running 5 a-2||",
		"52 failed 5 a-2||exit 1",
		"60 retried 0 |eve (k-2)|fixed",
		"61 reviewed 0 |ann (k-3)|rerun: the printer was off",
		"70 queued 7 ||",
		"72 running 7 a-3||",
		"75 cancel_asked 0 ||enough",
	}, told)
	require.JSONEq(t, `{"a":1}`, string(task.Payload))
	spec.Payload = nil
	require.Equal(t, &spec, task.Spec, "what it was submitted with can be read back")
	task = answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/t-1", ""), http.StatusOK)
	require.Nil(t, task.History)
	require.Nil(t, task.Spec)
}
