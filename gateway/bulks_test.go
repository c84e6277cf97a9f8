package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const bulkPath = "/api/v1/agents/tasks/bulk"

// CountWorkflow counts the tasks, whatever the query, unless the test has set count.
func (f *fakeTemporal) CountWorkflow(
	_ context.Context, r *workflowservice.CountWorkflowExecutionsRequest,
) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &workflowservice.CountWorkflowExecutionsResponse{}
	if f.count != nil {
		answer.Count = f.count(r.GetQuery())
		return answer, f.fail
	}
	for _, e := range f.executions {
		if e.info.GetType().GetName() == contract.TaskWorkflow {
			answer.Count++
		}
	}
	return answer, f.fail
}

// withDelivered adds open tasks with a delivery each; the first so many are with an agent.
func (f *fakeTemporal) withDelivered(n, running int) {
	for i := range n {
		e := open(contract.TaskWorkflowID(fmt.Sprintf("t-%d", i)), contract.TaskWorkflow)
		state := enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
		if i < running {
			state = enumspb.PENDING_ACTIVITY_STATE_STARTED
		}
		e.pending = []*workflowpb.PendingActivityInfo{{ActivityId: contract.AttemptActivityID("t-1", 1),
			ActivityType: &commonpb.ActivityType{Name: contract.RunTaskActivity.Name}, State: state}}
		f.executions[e.info.GetExecution().GetWorkflowId()] = e
	}
}

func TestBulkDryRun(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withDelivered(5, 2)
	h := serve(t, f)
	found := answer[api.Bulk](t, do(h, http.MethodPost, bulkPath,
		`{"action":"cancel","filter":{"status":"queued"},"reason":"x","dry_run":true}`), http.StatusOK)
	require.Equal(t, 3, found.Expected, "those with an agent are not meant")
	require.ElementsMatch(t, []string{"t-2", "t-3", "t-4"}, found.Sample)
	require.False(t, found.AtMost)
	require.Empty(t, found.ID)
	require.Len(t, f.executions, 5, "nothing was started")

	f.list = func(*workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse,
		error) {
		return &workflowservice.ListWorkflowExecutionsResponse{NextPageToken: []byte("more")}, nil
	}
	found = answer[api.Bulk](t, do(h, http.MethodPost, bulkPath,
		`{"action":"cancel","filter":{"status":"queued"},"reason":"x","dry_run":true}`), http.StatusOK)
	require.True(t, found.AtMost, "not all could be looked at")
	require.Equal(t, 5, found.Expected)
}

func TestBulkIsStartedAndRead(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "studio"})
	f.withDelivered(3, 0)
	h := serve(t, f)
	bulk := answer[api.Bulk](t, do(h, http.MethodPost, bulkPath,
		`{"action":"priority","priority":"high","filter":{"cluster":"studio","tenant":"acme","labels":{"a":"b"}},"reason":"deadline"}`), http.StatusAccepted)
	e := f.executions[contract.BulkWorkflowID(bulk.ID)]
	require.Equal(t, "acme", e.options.Priority.FairnessKey)
	in := e.input.(contract.BulkInput)
	require.Equal(t, bulk.ID, in.ID)
	require.Equal(t, api.PriorityHigh, in.Spec.Priority)
	require.Equal(t, api.TaskFilter{Cluster: "studio", Tenant: "acme", Labels: map[string]string{"a": "b"}}, in.Spec.Filter)

	e.query = func() (any, error) {
		return contract.BulkState{Status: api.BulkRunning, Expected: 3,
			BulkCounts: contract.BulkCounts{Matched: 2, Done: 2}}, nil
	}
	got := answer[api.Bulk](t, do(h, http.MethodGet, bulkPath+"/"+bulk.ID, ""), http.StatusOK)
	require.Equal(t, []int{3, 2, 2}, []int{got.Expected, got.Matched, got.Done})
	require.Equal(t, "studio", got.Filter.Cluster)
	require.Equal(t, "deadline", got.Reason)

	e.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
	e.last = &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCanceledEventAttributes{
			WorkflowExecutionCanceledEventAttributes: &historypb.WorkflowExecutionCanceledEventAttributes{Details: payloads(
				contract.BulkState{Status: api.BulkCancelled, Why: "enough", BulkCounts: contract.BulkCounts{Done: 2}})}}}
	got = answer[api.Bulk](t, do(h, http.MethodGet, bulkPath+"/"+bulk.ID+"?wait=30s", ""), http.StatusOK)
	require.Equal(t, api.BulkCancelled, got.Status)
	require.Equal(t, "enough", got.Why)
	problem(t, do(h, http.MethodPost, bulkPath+"/"+bulk.ID+"/cancel", ""), http.StatusConflict, protocol.CodeConflict)
	list := answer[struct{ Bulks []api.Bulk }](t, do(h, http.MethodGet, bulkPath, ""), http.StatusOK)
	require.Len(t, list.Bulks, 1)
	require.Equal(t, 2, list.Bulks[0].Done)
	for _, path := range []string{"/canary", "/No%20canary"} {
		problem(t, do(h, http.MethodGet, bulkPath+path, ""), http.StatusNotFound, protocol.CodeUnknownBulk)
		problem(t, do(h, http.MethodPost, bulkPath+path+"/cancel", ""), http.StatusNotFound, protocol.CodeUnknownBulk)
	}
	problem(t, do(h, http.MethodPost, bulkPath, `{"action":"cancel","filter":{"cluster":"canary"},"reason":"x"}`),
		http.StatusNotFound, protocol.CodeUnknownCluster)
	problem(t, do(h, http.MethodPost, bulkPath, `{"action":"cancel","filter":{"type":"x"}}`),
		http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
}

// One request acts on up to thousands of tasks.
func TestBulksOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	f := newFake()
	open := int64(0)
	f.count = func(query string) int64 {
		if strings.Contains(query, contract.Equals("WorkflowType", contract.BulkWorkflow)) &&
			strings.Contains(query, contract.OfTenant("acme")) {
			return open
		}
		return 0
	}
	_, send := tenants(t, f)
	start := func(tenant string) *httptest.ResponseRecorder {
		return send(tenant, http.MethodPost, bulkPath, `{"action":"cancel","all":true,"reason":"x"}`)
	}
	require.Equal(t, http.StatusAccepted, start("acme").Code)
	open = 10
	problem(t, start("acme"), http.StatusConflict, protocol.CodeConflict)
	require.Equal(t, http.StatusAccepted, start("beta").Code)
	open = 9
	w := start("acme")
	for n := 0; w.Code == http.StatusAccepted && n < 100; n++ {
		w = start("acme")
	}
	problem(t, w, http.StatusTooManyRequests, protocol.CodeRateLimited)
}
