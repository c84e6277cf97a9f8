package gateway_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestTaskFilters(t *testing.T) {
	t.Parallel()
	f := newFake()
	var query string
	f.list = func(r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse,
		error) {
		query = r.GetQuery()
		return &workflowservice.ListWorkflowExecutionsResponse{}, nil
	}
	h := serve(t, f)
	const all = "WorkflowType = 'Task'"
	for name, c := range map[string]struct {
		params url.Values
		want   string
	}{
		"none":  {url.Values{}, all},
		"label": {url.Values{"label": {"project=film"}}, all + " AND MainstayLabels = 'project=film'"},
		"colon": {url.Values{"label": {"project:a=b:c"}}, all + " AND MainstayLabels = 'project=a=b:c'"},
		"two": {url.Values{"label": {"b=2", "a=1"}}, all +
			" AND MainstayLabels = 'a=1' AND MainstayLabels = 'b=2'"},
		"quotes":    {url.Values{"label": {`a=' OR 1=1 --`}}, all + ` AND MainstayLabels = 'a=%27 OR 1=1 --'`},
		"backslash": {url.Values{"label": {`a=\`}}, all + ` AND MainstayLabels = 'a=%5C'`},
		"unicode":   {url.Values{"label": {"a=Größe, 日本"}}, all + " AND MainstayLabels = 'a=Größe, 日本'"},
		"empty":     {url.Values{"label": {"a="}}, all + " AND MainstayLabels = 'a='"},
		"times": {url.Values{"submitted_after": {"2026-11-21T12:00:00+02:00"},
			"submitted_before": {"2026-11-21T12:00:00.5Z"}},
			all + " AND StartTime >= '2026-11-21T10:00:00Z' AND StartTime < '2026-11-21T12:00:00.5Z'"},
		"agent": {url.Values{"agent": {"a-1"}}, all + " AND (MainstayAgent = 'a-1' OR MainstayRanOn = 'a-1')"},
		"blocked": {url.Values{"recovery": {"blocked"}},
			all + " AND " + contract.WithStatus(string(contract.TaskWaiting))},
		"prefix": {url.Values{"id_prefix": {"acme:t-0"}}, all + " AND WorkflowId STARTS_WITH 'task/acme:t-0'"},
		"with status": {url.Values{"status": {"completed"}, "label": {"a=1"}}, all +
			" AND MainstayLabels = 'a=1' AND ((ExecutionStatus = 'Completed'))"},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // one query at a time
			answer[struct{ Tasks []api.Task }](t, do(h, http.MethodGet, tasksPath+"?"+c.params.Encode(), ""),
				http.StatusOK)
			require.Equal(t, c.want, query)
		})
	}
	for _, bad := range []url.Values{
		{"label": {"canary"}}, {"label": {"=canary"}}, {"label": {"Canary x=1"}}, {"label": {"a=1", "a=2"}}, {"id_prefix": {"t'"}},
		{"submitted_after": {"canary"}}, {"submitted_before": {"2026-11-21"}},
	} {
		problem(t, do(h, http.MethodGet, tasksPath+"?"+bad.Encode(), ""), 422, protocol.CodeInvalidRequest)
	}
}

// Visibility in SQLite compares labels without regard to case.
func TestLabelsAreComparedExactly(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withTask(contract.TaskState{})
	e.info.SearchAttributes.IndexedFields[contract.AttrLabels.GetName()] = payload([]string{contract.LabelTerm(
		"project", "it's Film")})
	f.list = func(*workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse,
		error) {
		return &workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflowpb.WorkflowExecutionInfo{e.info}},
			nil
	}
	h := serve(t, f)
	for label, n := range map[string]int{"project=it's Film": 1, "project=it's film": 0} {
		page := answer[struct{ Tasks []api.Task }](t, do(h, http.MethodGet, tasksPath+"?label="+url.QueryEscape(label),
			""), http.StatusOK)
		require.Len(t, page.Tasks, n, label)
	}
}
