package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestPriorityIsANumberOrAName(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	for given, want := range map[string]int{`1`: 1, `"critical"`: 1, `"high"`: 2, `3`: 3, `"low"`: 4, `"background"`: 5,
		`null`: 0, ``: 0} {
		body := `{"type":"x","cluster":"default"}`
		if given != "" {
			body = `{"type":"x","cluster":"default","priority":` + given + `}`
		}
		task := answer[api.Task](t, do(h, http.MethodPost, tasksPath, body), http.StatusAccepted)
		e := f.executions[contract.TaskWorkflowID(task.ID)]
		require.Equal(t, want, e.options.Priority.PriorityKey, given)
		require.EqualValues(t, want, e.input.(contract.TaskInput).Spec.Priority, given)
		if want == 0 {
			want = 3
		}
		require.Equal(t, want, task.Priority, given)
		require.Equal(t, api.Priority(want).String(), task.PriorityName, given)
	}
	for _, bad := range []string{`0`, `6`, `2.5`, `"urgent"`, `"1"`, `true`, `[1]`, `{}`} {
		p := problem(t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"default","priority":`+bad+`}`), 422,
			protocol.CodeInvalidRequest)
		require.Equal(t, "body.priority", p.Errors[0].Location, bad)
		require.Contains(t, p.Errors[0].Message, `1, 2, 3, 4, 5, critical, high, normal, low, background`, bad)
	}
	document := do(h, http.MethodGet, "/openapi.json", "").Body.String()
	require.Contains(t, strings.Join(strings.Fields(document), ""),
		`"enum":[1,2,3,4,5,"critical","high","normal","low","background"]`)
}

func TestStartAt(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	submit := func(id string, at time.Time, status int) api.Task {
		return answer[api.Task](t, do(h, http.MethodPost, tasksPath,
			fmt.Sprintf(`{"type":"x","cluster":"default","id":%q,"start_at":%q}`, id,
				at.In(time.FixedZone("", 7200)).Format(time.RFC3339))), status)
	}
	task := submit("later", at, http.StatusAccepted)
	require.Equal(t, "starts at "+at.Format(time.RFC3339), task.Why)
	require.True(t, at.Equal(*task.StartAt))
	require.True(t, at.Equal(*task.NextAttemptAt))
	require.True(t, at.Equal(f.executions["task/later"].input.(contract.TaskInput).Spec.StartAt))

	past := submit("past", at.Add(-48*time.Hour), http.StatusAccepted)
	require.Empty(t, past.Why)
	require.Nil(t, past.NextAttemptAt)
	require.True(t, submit("later", at, http.StatusOK).Duplicate)

	listed := answer[taskPage](t, do(h, http.MethodGet, tasksPath+"/queue", ""), http.StatusOK)
	for _, task := range listed.Tasks {
		switch task.ID {
		case "later":
			require.Equal(t, api.TaskQueued, task.Status, "it waits for its start and not for a retry")
			require.Equal(t, "starts at "+at.Format(time.RFC3339), task.Why)
			require.True(t, at.Equal(*task.NextAttemptAt))
		case "past":
			require.Equal(t, api.TaskRetryWait, task.Status)
			require.Nil(t, task.NextAttemptAt)
		}
	}
	require.Len(t, listed.Tasks, 2)
	for _, bad := range []string{time.Now().AddDate(1, 0, 1).Format(time.RFC3339), "tomorrow", "2027-01-01"} {
		p := problem(t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"default","start_at":"`+bad+`"}`), 422,
			protocol.CodeInvalidRequest)
		require.Equal(t, "body.start_at", p.Errors[0].Location)
		require.NotContains(t, p.Errors[0].Message, bad)
	}
}

func TestOneKeyOneBody(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withCluster(api.ClusterConfig{Name: "keyed", ReplicationMode: api.Sharded})
	h := serve(t, f)
	for name, c := range map[string]struct{ first, same, other string }{
		"key": {`"cluster":"default","idempotency_key":"k","payload":{"a":1,"b":2}`,
			`"payload":{"b": 2,"a":1},"cluster":"default","idempotency_key":"k","priority":"normal"`,
			`"cluster":"default","idempotency_key":"k","payload":{"a":1}`},
		"id": {`"cluster":"default","id":"mine"`, `"cluster":"default","id":"mine","timeout":"24h"`,
			`"cluster":"default","id":"mine","labels":{"a":"b"}`},
		"sharded": {`"cluster":"keyed","id":"yours"`, `"cluster":"keyed","id":"yours"`,
			`"cluster":"keyed","id":"yours","shard_key":"s"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := func(fields string) string { return `{"type":"x",` + fields + `}` }
			first := answer[api.Task](t, do(h, http.MethodPost, tasksPath, body(c.first)), http.StatusAccepted)
			again := answer[api.Task](t, do(h, http.MethodPost, tasksPath, body(c.same)), http.StatusOK)
			require.True(t, again.Duplicate)
			require.Equal(t, first.ID, again.ID)
			problem(t, do(h, http.MethodPost, tasksPath, body(c.other)), 409, protocol.CodeIdempotency)

			batch := answer[batchAnswer](t, do(h, http.MethodPost, tasksPath+"/batch",
				`[`+body(c.same)+`,`+body(c.other)+`]`), http.StatusAccepted)
			require.True(t, batch.Tasks[0].Duplicate)
			require.Equal(t, protocol.CodeIdempotency, batch.Tasks[1].Error.Code)
			require.Equal(t, 1, batch.Rejected)
		})
	}
}

// A task that was started by other means than the gateway has no digest; its id is taken all the same.
func TestTaskWithoutADigestIsADuplicate(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withTask(contract.TaskState{Status: api.TaskQueued})
	task := answer[api.Task](t, do(serve(t, f), http.MethodPost, tasksPath,
		`{"type":"x","cluster":"default","id":"t-1"}`), http.StatusOK)
	require.True(t, task.Duplicate)
}

func TestDeadLetterRetentionIsTheClusters(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	c := answer[api.Cluster](t, do(h, http.MethodPost, "/api/v1/agents/clusters",
		`{"name":"kept","dead_letter_retention":"30.00:00:00"}`), http.StatusCreated)
	require.Equal(t, 30*24*time.Hour, c.DeadLetterRetention.Std())
	f.withCluster(api.ClusterConfig{Name: "default"})
	for name, want := range map[string]time.Duration{"kept": 30 * 24 * time.Hour, "default": 7 * 24 * time.Hour} {
		task := answer[api.Task](t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"`+name+`"}`),
			http.StatusAccepted)
		require.Equal(t, want,
			f.executions[contract.TaskWorkflowID(task.ID)].input.(contract.TaskInput).DeadLetterRetention.Std())
	}
	problem(t, do(h, http.MethodPost, "/api/v1/agents/clusters", `{"name":"x","dead_letter_retention":"1ms"}`), 422,
		protocol.CodeInvalidRequest)

	f.executions[contract.ClusterWorkflowID("kept")].query = func() (any, error) {
		return contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "kept"}.WithDefaults()}},
			nil
	}
	f.executions[contract.ClusterWorkflowID("kept")].update = func(_ string, arg any) (any, error) {
		config := arg.(contract.ConfigureRequest).ClusterConfig
		f.executions[contract.ClusterWorkflowID("kept")].info.Memo.Fields[contract.MemoConfig] = payload(config)
		return contract.Done{}, nil
	}
	answer[api.Cluster](t, do(h, http.MethodPut, "/api/v1/agents/clusters/kept", `{"dead_letter_retention":"1h"}`),
		http.StatusOK)
	task := answer[api.Task](t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"kept"}`), http.StatusAccepted)
	require.Equal(t, time.Hour,
		f.executions[contract.TaskWorkflowID(task.ID)].input.(contract.TaskInput).DeadLetterRetention.Std(), "a change is not overlooked")
}

func TestDeadLettersSayWhy(t *testing.T) {
	t.Parallel()
	f := newFake()
	dead := api.DeadLetter{Since: time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC),
		Until: time.Date(2027, 1, 22, 8, 0, 0, 0, time.UTC), Cause: "3 of 3 attempts failed", Kind: "exit_2"}
	e := f.withTask(contract.TaskState{Status: api.TaskDeadLetter, DeadLetter: &dead, Priority: api.PriorityHigh})
	e.info.SearchAttributes.IndexedFields[contract.AttrStatus.GetName()] = payload("dead_letter")
	e.info.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{contract.MemoDeadLetter: payload(dead),
		contract.MemoPriority: payload(2)}}
	h := serve(t, f)
	listed := answer[taskPage](t, do(h, http.MethodGet, tasksPath+"/queue/dead-letter", ""), http.StatusOK).Tasks
	got := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/t-1", ""), http.StatusOK)
	for _, task := range append(listed, got) {
		require.Equal(t, &dead, task.DeadLetter)
		require.Equal(t, "dead letter because 3 of 3 attempts failed; kept until 2027-01-22T08:00:00Z", task.Why)
		require.Equal(t, "high", task.PriorityName)
	}
	require.Len(t, listed, 1)
	for cause, want := range map[string]int{"exit_2": 1, "exit_3": 0} {
		listed := answer[taskPage](t, do(h, http.MethodGet, tasksPath+"?cause="+cause, ""), http.StatusOK).Tasks
		require.Len(t, listed, want)
		counted := answer[api.DeadLetters](t, do(h, http.MethodGet, tasksPath+"/queue/dead-letter/causes?cause="+cause, ""),
			http.StatusOK)
		require.Equal(t, want, counted.Total)
		require.Len(t, counted.Groups, want)
		bulk := answer[api.Bulk](t, do(h, http.MethodPost, bulkPath,
			`{"action":"retry","reason":"again","dry_run":true,"filter":{"cause":"`+cause+`"}}`), http.StatusOK)
		require.Equal(t, want, bulk.Expected)
	}
}

func TestDiscardAndPriority(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withTask(contract.TaskState{Status: api.TaskDeadLetter})
	var got []any
	e.update = func(_ string, arg any) (any, error) { got = append(got, arg); return nil, nil }
	h := serve(t, f)
	answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/t-1/discard", `{"reason":"the customer is gone"}`),
		http.StatusOK)
	answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/t-1/priority", `{"priority":"high","reason":"late"}`),
		http.StatusOK)
	answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/t-1/priority", `{"priority":5}`), http.StatusOK)
	require.Equal(t, []any{contract.DiscardRequest{Reason: "the customer is gone"},
		contract.ReprioritizeRequest{Priority: api.PriorityHigh,
			Reason: "late"}, contract.ReprioritizeRequest{Priority: api.PriorityBackground}}, got)
	require.Equal(t, []string{contract.DiscardUpdate.Name, contract.ReprioritizeUpdate.Name,
		contract.ReprioritizeUpdate.Name}, f.updates)
	for target, bodies := range map[string][]string{"discard": {``, `{}`, `{"reason":""}`},
		"priority": {``, `{}`, `{"priority":0}`, `{"priority":null}`, `{"priority":"canary"}`}} {
		for _, body := range bodies {
			w := do(h, http.MethodPost, tasksPath+"/t-1/"+target, body)
			require.Contains(t, []int{400, 422}, w.Code, "%s %s", target, body)
		}
	}
}

// TestATaskThatTakesNoMoreChanges has had as many updates as Temporal takes: that is no failure of ours, and it can be
// cancelled.
func TestATaskThatTakesNoMoreChanges(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withTask(contract.TaskState{Status: api.TaskQueued})
	e.update = func(_ string, request any) (any, error) {
		if r, ok := request.(contract.ReprioritizeRequest); ok && r.Priority == api.DefaultPriority {
			return nil, temporal.NewNonRetryableApplicationError("it has it", contract.Refused, nil, contract.Unchanged)
		}
		return nil, serviceerror.NewFailedPrecondition(
			"The limit on the total number of distinct updates in this workflow has been reached (2000).")
	}
	h := serve(t, f)
	p := problem(t, do(h, http.MethodPost, tasksPath+"/t-1/priority", `{"priority":1}`), 409, protocol.CodeConflict)
	require.Contains(t, p.Detail, "takes no more changes")
	require.Empty(t, f.cancelled)
	answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/t-1/priority", `{"priority":3}`), http.StatusOK)
	answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/t-1/cancel", ""), http.StatusOK)
	require.Equal(t, []string{contract.TaskWorkflowID("t-1")}, f.cancelled)
}

func TestPayloadIsAnsweredWhenAskedFor(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	answer[api.Task](t,
		do(h, http.MethodPost, tasksPath,
			`{"type":"x","cluster":"default","id":"mine","payload":{"n":12345678901234567890}}`), http.StatusAccepted)
	got := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/mine?include=payload", ""), http.StatusOK)
	require.Equal(t, `{"n":12345678901234567890}`, string(got.Payload))
	require.Empty(t, answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/mine", ""), http.StatusOK).Payload)
	problem(t, do(h, http.MethodGet, tasksPath+"/mine?include=canary", ""), 422, protocol.CodeInvalidRequest)
}

func TestRerunHasWhatTheTaskHad(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.list = func(*workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
		return &workflowservice.ListWorkflowExecutionsResponse{}, nil
	}
	h := serve(t, f)
	at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	old := answer[api.Task](t, do(h, http.MethodPost, tasksPath, `{"id":"acme:old","type":"x","cluster":"default",
		"tenant":"acme","payload":{"n":1.10},"priority":2,"labels":{"a":"b"},"retry_safety":"fenced","timeout":"7s",
		"recovery":{"mode":"local_restart"},"retry":{"non_retryable":["bad"]},"start_at":"`+at.Format(time.RFC3339)+`"}`),
		http.StatusAccepted)
	e := f.executions[contract.TaskWorkflowID(old.ID)]
	rerun := func(body string, status int) api.Task {
		return answer[api.Task](t, do(h, http.MethodPost, tasksPath+"/acme:old/rerun", body), status)
	}
	problem(t, do(h, http.MethodPost, tasksPath+"/acme:old/rerun", ""), http.StatusConflict, protocol.CodeConflict)
	e.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
	e.last = &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED}
	spec := func(id string) api.TaskSpec {
		in := f.executions[contract.TaskWorkflowID(id)].input.(contract.TaskInput)
		require.Equal(t, "acme:old", in.RerunOf)
		return in.Spec
	}
	want := e.input.(contract.TaskInput).Spec
	want.StartAt = time.Time{}
	first := rerun("", http.StatusAccepted)
	require.Equal(t, "acme:old", first.RerunOf)
	require.Equal(t, map[string]string{"a": "b"}, first.Labels)
	require.Equal(t, want, spec(first.ID))
	again := rerun(`{"idempotency_key":"k","payload":{"n":2}}`, http.StatusAccepted)
	want.Payload = []byte(`{"n":2}`)
	require.Equal(t, want, spec(again.ID))
	require.True(t, rerun(`{"idempotency_key":"k","payload":{"n":2}}`, http.StatusOK).Duplicate)
	problem(t, do(h, http.MethodPost, tasksPath+"/acme:old/rerun", `{"idempotency_key":"k"}`), http.StatusConflict,
		protocol.CodeIdempotency)
	e.input = "canary" // its history is damaged
	problem(t, do(h, http.MethodPost, tasksPath+"/acme:old/rerun", ""), http.StatusConflict, protocol.CodeConflict)
}
