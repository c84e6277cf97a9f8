package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const arraysPath = "/api/v1/agents/arrays"

// servedArrays is a gateway whose arrays tell the state that the test has set.
func servedArrays(t *testing.T) (*fakeTemporal, http.Handler, *contract.ArrayState) {
	t.Helper()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	state := &contract.ArrayState{Status: api.ArrayRunning, Counts: api.ElementCounts{Total: 3, Queued: 3}}
	f.onStart = func(e *execution) {
		if _, is := e.input.(contract.ArrayInput); is {
			e.query = func() (any, error) { return state, nil }
			e.update = func(string, any) (any, error) { return state, nil }
		}
	}
	return f, serve(t, f), state
}

func TestAnArrayIsSubmittedOnce(t *testing.T) {
	t.Parallel()
	f, h, _ := servedArrays(t)
	const body = `{"id":"a-1","type":"render","cluster":"default","items":[1,2,3],"tolerate":1,"priority":2,"labels":{"x":"y"}}`
	first := answer[api.Array](t, do(h, http.MethodPost, arraysPath, body), http.StatusAccepted)
	require.Equal(t, "a-1", first.ID)
	require.Equal(t, api.ElementCounts{Total: 3, Queued: 3}, first.Counts)
	e := f.executions[contract.ArrayWorkflowID("a-1")]
	in := e.input.(contract.ArrayInput)
	require.Equal(t, contract.ClusterLane("default"), in.Lane)
	require.Equal(t, 1, *in.Tolerate)
	require.Len(t, in.Items, 3)
	require.EqualValues(t, 2, e.options.Priority.PriorityKey)
	require.EqualValues(t, 3, e.options.Memo[contract.MemoElements])
	again := answer[api.Array](t, do(h, http.MethodPost, arraysPath, body), http.StatusOK)
	require.True(t, again.Duplicate)
	problem(t, do(h, http.MethodPost, arraysPath, strings.Replace(body, "2,3", "2,4", 1)), http.StatusConflict,
		protocol.CodeIdempotency)

	const keyed = `{"idempotency_key":"k","type":"render","cluster":"default","count":3}`
	one := answer[api.Array](t, do(h, http.MethodPost, arraysPath, keyed), http.StatusAccepted)
	require.Equal(t, one.ID, answer[api.Array](t, do(h, http.MethodPost, arraysPath, keyed), http.StatusOK).ID)
	const free = `{"type":"render","cluster":"default","count":3}`
	require.NotEqual(t, answer[api.Array](t, do(h, http.MethodPost, arraysPath, free), http.StatusAccepted).ID,
		answer[api.Array](t, do(h, http.MethodPost, arraysPath, free), http.StatusAccepted).ID)
}

func TestWhatIsNoArrayIsRefused(t *testing.T) {
	t.Parallel()
	f, h, _ := servedArrays(t)
	started := len(f.executions)
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"no elements":       {`{"type":"x","cluster":"default"}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"items and count":   {`{"type":"x","cluster":"default","items":[1],"count":2}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"no type":           {`{"cluster":"default","count":2}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"id and key":        {`{"id":"a","idempotency_key":"k","type":"x","cluster":"default","count":2}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"another's id":      {`{"id":"beta:a","tenant":"acme","type":"x","cluster":"default","count":2}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"too many elements": {`{"type":"x","cluster":"default","count":100001}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"too parallel":      {`{"type":"x","cluster":"default","count":2,"max_parallel":513}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"a start":           {`{"type":"x","cluster":"default","count":2,"start_at":"2030-01-01T00:00:00Z"}`, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest},
		"an unknown cluster": {`{"type":"x","cluster":"none","count":2}`, http.StatusNotFound,
			protocol.CodeUnknownCluster},
		"too large together": {`{"type":"x","cluster":"default","items":["` + strings.Repeat("x", task.MaxItemsBytes) + `"]}`,
			http.StatusRequestEntityTooLarge, protocol.CodePayloadTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problem(t, do(h, http.MethodPost, arraysPath, c.body), c.status, c.code)
		})
	}
	t.Cleanup(func() { require.Len(t, f.executions, started) })
}

func TestAnArrayIsSteered(t *testing.T) {
	t.Parallel()
	f, h, state := servedArrays(t)
	do(h, http.MethodPost, arraysPath, `{"id":"a-1","type":"x","cluster":"default","count":3}`)
	e := f.executions[contract.ArrayWorkflowID("a-1")]
	var asked []contract.ArrayRequest
	e.update = func(name string, arg any) (any, error) {
		require.Equal(t, contract.ArrayUpdate.Name, name)
		asked = append(asked, arg.(contract.ArrayRequest))
		return state, nil
	}
	for _, c := range []struct {
		path, body string
		want       contract.ArrayRequest
	}{
		{"/pause", `{"reason":"new disks"}`, contract.ArrayRequest{Action: contract.PauseArray, Reason: "new disks"}},
		{"/resume", "", contract.ArrayRequest{Action: contract.ResumeArray}},
		{"/retry", `{"elements":[2]}`, contract.ArrayRequest{Action: contract.RetryArray, Elements: []int{2}}},
		{"/retry", "", contract.ArrayRequest{Action: contract.RetryArray}},
		{"/priority", `{"priority":1}`, contract.ArrayRequest{Action: contract.ReprioritizeArray, Priority: 1}},
		{"/cancel", "", contract.ArrayRequest{Action: contract.CancelArray}},
	} {
		require.Equal(t, "a-1", answer[api.Array](t, do(h, http.MethodPost, arraysPath+"/a-1"+c.path, c.body),
			http.StatusOK).ID)
		require.Equal(t, c.want, asked[len(asked)-1])
		problem(t, do(h, http.MethodPost, arraysPath+"/none"+c.path, c.body), http.StatusNotFound,
			protocol.CodeUnknownArray)
	}
	problem(t, do(h, http.MethodPost, arraysPath+"/a-1/priority", `{"priority":9}`), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	for _, id := range []string{array.ElementID("a-1", 1), array.BundleID("a-1", 1)} {
		require.Contains(t, problem(t, do(h, http.MethodPost, tasksPath+"/"+id+"/cancel", ""), http.StatusConflict,
			protocol.CodeConflict).Detail, "act on the array")
	}
	e.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	require.Contains(t, problem(t, do(h, http.MethodPost, arraysPath+"/a-1/cancel", ""), http.StatusConflict,
		protocol.CodeConflict).Detail, "it is completed")
}

func TestAnArrayTellsWhatWaitsInItsLane(t *testing.T) {
	t.Parallel()
	f, h, state := servedArrays(t)
	do(h, http.MethodPost, arraysPath, `{"id":"a-1","type":"x","cluster":"default","count":3}`)
	e := f.executions[contract.ArrayWorkflowID("a-1")]
	waits, runs := delivery(1, enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, nil),
		delivery(1, enumspb.PENDING_ACTIVITY_STATE_STARTED, &contract.AttemptReport{AgentID: "a"})
	waits.ActivityId = contract.AttemptActivityID(array.BundleID("a-1", 2), 1)
	runs.ActivityId = contract.AttemptActivityID(array.BundleID("a-1", 1), 1)
	e.pending = []*workflowpb.PendingActivityInfo{waits, runs}
	state.Counts = api.ElementCounts{Total: 9, Running: 7, Queued: 2}
	state.Flying = map[string]int{array.BundleID("a-1", 1): 4, array.BundleID("a-1", 2): 3}
	got := answer[api.Array](t, do(h, http.MethodGet, arraysPath+"/a-1", ""), http.StatusOK)
	require.Equal(t, api.ElementCounts{Total: 9, Running: 4, Queued: 5}, got.Counts)
	bundle := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+array.BundleID("a-1", 1), ""), http.StatusOK)
	require.Equal(t, api.TaskRunning, bundle.Status)
	require.Equal(t, "a", bundle.Attempts[0].AgentID)
	e.query = func() (any, error) {
		return contract.ElementsPage{Elements: []api.ElementEntry{{Number: 5, Status: api.ElementRunning,
			Delivery: array.BundleID("a-1", 1), Why: "in delivery 1"}}}, nil
	}
	element := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+array.ElementID("a-1", 5), ""), http.StatusOK)
	require.Equal(t, api.TaskRunning, element.Status)
	require.Equal(t, "a", element.Attempts[0].AgentID)
	e.query = func() (any, error) {
		return contract.ElementsPage{Elements: []api.ElementEntry{{Number: 8, Status: api.ElementDeadLetter, Why: "no disk"}}}, nil
	}
	element = answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+array.ElementID("a-1", 8), ""), http.StatusOK)
	require.Equal(t, api.TaskDeadLetter, element.Status)
	require.Equal(t, "no disk", element.Why)
	for _, none := range []string{array.BundleID("a-1", 3), "a-1~.", "a-1~.x", array.ElementID("none", 1)} {
		problem(t, do(h, http.MethodGet, tasksPath+"/"+none, ""), http.StatusNotFound, protocol.CodeUnknownTask)
	}
}

func TestResultsOfAnArray(t *testing.T) {
	t.Parallel()
	f, h, _ := servedArrays(t)
	do(h, http.MethodPost, arraysPath, `{"id":"a-1","type":"x","cluster":"default","count":5}`)
	e := f.executions[contract.ArrayWorkflowID("a-1")]
	done := func(number int) api.ElementResult {
		return api.ElementResult{Number: number, Outcome: api.AttemptCompleted, Output: json.RawMessage(`7`), Milliseconds: 2}
	}
	failed := api.ElementResult{Number: 4, Outcome: api.AttemptFailed, Error: "no disk"}
	for n, results := range [][]api.ElementResult{{done(1), failed, done(0)}, {done(2), done(3)}} {
		e.history = append(e.history, deliveryEvents(n+1, contract.AttemptReport{AgentID: "a",
			Outcome: api.AttemptCompleted, Elements: results})...)
	}
	type page struct {
		Results []api.ArrayResult
		Next    string `json:"next_page_token"`
	}
	first := answer[page](t, do(h, http.MethodGet, arraysPath+"/a-1/results?page_size=3", ""), http.StatusOK)
	require.Equal(t, api.ArrayResult{Element: 1, Output: json.RawMessage(`7`), AgentID: "a", Millis: 2}, first.Results[0])
	require.Len(t, first.Results, 3)
	second := answer[page](t, do(h, http.MethodGet, arraysPath+"/a-1/results?page_size=3&page_token="+first.Next, ""),
		http.StatusOK)
	require.Equal(t, 3, second.Results[0].Element)
	require.Len(t, second.Results, 1)
	require.Empty(t, second.Next)
	problem(t, do(h, http.MethodGet, arraysPath+"/a-1/results?page_token=x", ""), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)

	w := do(h, http.MethodGet, arraysPath+"/a-1/results.ndjson", "")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/x-ndjson", w.Header().Get("Content-Type"))
	require.Equal(t, 4, strings.Count(w.Body.String(), "\n"))
	problem(t, do(h, http.MethodGet, arraysPath+"/none/results.ndjson", ""), http.StatusNotFound, protocol.CodeUnknownArray)
}

func TestTenantsHaveTheirOwnArrays(t *testing.T) {
	t.Parallel()
	f, _, _ := servedArrays(t)
	_, do := tenants(t, f)
	const body = `{"id":"a-1","type":"x","cluster":"default","count":3}`
	for tenant, id := range map[string]string{"acme": "acme:a-1", "beta": "beta:a-1"} {
		made := answer[api.Array](t, do(tenant, http.MethodPost, arraysPath, body), http.StatusAccepted)
		require.Equal(t, id, made.ID)
		require.Equal(t, id, answer[api.Array](t, do(tenant, http.MethodGet, arraysPath+"/a-1", ""), http.StatusOK).ID)
	}
	for _, path := range []string{"", "/elements", "/results", "/results.ndjson"} {
		problem(t, do("beta", http.MethodGet, arraysPath+"/acme:a-1"+path, ""), http.StatusNotFound,
			protocol.CodeUnknownArray)
	}
	problem(t, do("beta", http.MethodPost, arraysPath+"/acme:a-1/cancel", ""), http.StatusNotFound,
		protocol.CodeUnknownArray)
	problem(t, do("beta", http.MethodGet, tasksPath+"/acme:a-1~.1", ""), http.StatusNotFound, protocol.CodeUnknownTask)
}

// What reads much is counted before it reads, so that many such requests at once are refused and not read.
func TestLargeReadsAreCountedFirst(t *testing.T) {
	t.Parallel()
	f, h, _ := servedArrays(t)
	do(h, http.MethodPost, arraysPath, `{"id":"a-1","type":"x","cluster":"default","count":3}`)
	do(h, http.MethodPost, "/api/v1/agents/tasks", `{"id":"t-1","type":"x","cluster":"default"}`)
	f.executions[contract.TaskWorkflowID("t-1")].info.HistorySizeBytes = 3 << 20
	for path, want := range map[string]int64{
		arraysPath + "/a-1/elements":             store.ResultsTake,
		"/api/v1/agents/tasks/a-1~.1":            2 << 20,
		arraysPath + "/a-1/results":              store.ResultsTake,
		arraysPath + "/a-1/results.ndjson":       store.ResultsTake,
		"/api/v1/agents/tasks/t-1":               2 << 20,
		"/api/v1/agents/tasks?page_size=200":     200 * 32 << 10,
		"/api/v1/agents/tasks?text=t":            500 * 16 << 10,
		"/api/v1/agents/failovers?page_size=100": 100 * 16 << 10,
		// the task itself comes first
		"/api/v1/agents/tasks/t-1?include=history": 3 << 20,
		"/api/v1/agents/tasks/t-1/log":             3 << 20,
	} {
		var asked int64
		r := newRequest(http.MethodGet, path, "")
		problem(t, serveRequest(h, r.WithContext(httpapi.WithReserve(r.Context(), func(bytes int64) error {
			if asked = bytes; bytes < want {
				return nil
			}
			return httpapi.RetryAfter(time.Second, "too many")
		}))), http.StatusTooManyRequests, protocol.CodeRateLimited)
		require.Equal(t, want, asked, path)
	}
}

// Lists keep the store busy, so those of one client are read one after another.
func TestListsAreReadInTurn(t *testing.T) {
	t.Parallel()
	_, h, _ := servedArrays(t)
	do(h, http.MethodPost, "/api/v1/agents/tasks", `{"id":"t-1","type":"x","cluster":"default"}`)
	for request, turns := range map[string]int{
		"GET tasks": 2, "GET tasks?text=t": 2, "GET tasks/queue": 2, "GET failovers": 1, "GET drains": 1, "GET runs": 1,
		"GET jobs": 1, "GET arrays": 1, "GET schedules": 1,
		`POST tasks/bulk {"action":"cancel","reason":"x","filter":{"type":"x"},"dry_run":true}`: 1,
	} {
		serve := func(turn func(context.Context) (func(), error)) *httptest.ResponseRecorder {
			parts := append(strings.SplitN(request, " ", 3), "")
			r := newRequest(parts[0], "/api/v1/agents/"+parts[1], parts[2])
			return serveRequest(h, r.WithContext(httpapi.WithTurn(r.Context(), turn)))
		}
		took, ended := 0, 0
		w := serve(func(context.Context) (func(), error) {
			took++
			return func() { ended++ }, nil
		})
		require.Equal(t, http.StatusOK, w.Code, request)
		require.Equal(t, []int{turns, turns}, []int{took, ended}, request)
		problem(t, serve(func(context.Context) (func(), error) {
			return nil, httpapi.RetryAfter(time.Second, "not yet")
		}), http.StatusTooManyRequests, protocol.CodeRateLimited)
	}
}
