package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// asTenant is a gate that believes the header Tenant.
type asTenant struct{}

func (asTenant) Admit(r *http.Request, _ httpapi.Route, _ map[string]string) (context.Context, func(int), error) {
	return access.With(r.Context(), access.Identity{Kind: api.IdentityToken, ID: "k-1", Name: "ops",
		Role: api.RoleOperator, Tenant: r.Header.Get("Tenant")}), nil, nil
}

// tenants serves a gateway to operators of tenants.
func tenants(
	t *testing.T, f *fakeTemporal,
) (*httpapi.Server, func(tenant, method, target, body string) *httptest.ResponseRecorder) {
	t.Helper()
	s := httpapi.New(httpapi.Options{Gate: asTenant{}})
	gateway.New(gateway.Options{Store: store.Store{Client: f}, Registerer: prometheus.NewRegistry()}).Register(s.API())
	h := validated(t, s)
	return s, func(tenant, method, target, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Tenant", tenant)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
}

// TestWhatIsOfAnotherTenantIsNotThere sends an operator of one tenant to everything of another that can be named in a
// path.
func TestWhatIsOfAnotherTenantIsNotThere(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"discard-task": `{"reason":"x"}`, "discard-event": `{"reason":"x"}`, "set-task-priority": `{"priority":1}`,
		"set-array-priority": `{"priority":1}`, "review-task": `{"decision":"rerun"}`,
		"replace-schedule": `{"interval":"1h","task":{"type":"work","cluster":"default"}}`,
		"dispatch-job":     `{}`, "revert-job": `{"version":1}`, "scale-job": `{"count":1}`,
		"apply-job": `job: named`, "plan-job": `job: named`,
	}
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	s, do := tenants(t, f)
	require.Equal(t, http.StatusAccepted, do("acme", http.MethodPost, tasksPath,
		`{"id":"named","type":"work","cluster":"default"}`).Code)
	require.Equal(t, http.StatusCreated, do("acme", http.MethodPost, "/api/v1/agents/schedules",
		`{"name":"named","interval":"1h","task":{"type":"work","cluster":"default"}}`).Code)
	bulk := answer[api.Bulk](t, do("acme", http.MethodPost, bulkPath, `{"action":"cancel","all":true,"reason":"x"}`),
		http.StatusAccepted)
	task := f.executions[contract.TaskWorkflowID("acme:named")]
	task.update = func(string, any) (any, error) { return nil, nil }
	task.query = func() (any, error) { return contract.TaskState{Status: api.TaskQueued}, nil }
	f.executions[contract.BulkWorkflowID(bulk.ID)].query = func() (any,
		error) {
		return contract.BulkState{Status: api.BulkRunning}, nil
	}
	seen := 0
	for _, route := range s.Routes() {
		if !route.Policy.IsScoped() || !strings.Contains(route.Path, "{") {
			continue
		}
		seen++
		for _, id := range []string{"named", "acme:named"} {
			target := strings.NewReplacer("{name}", id, "{id}", id).Replace(route.Path)
			if strings.Contains(route.Path, "/bulk/") {
				target = strings.Replace(route.Path, "{id}", bulk.ID, 1)
			}
			if id == "named" && (route.Operation == "apply-job" || route.Operation == "plan-job" ||
				route.Operation == "get-service") {
				continue // it would be a job, or a service, of their own
			}
			before := len(f.updates)
			w := do("beta", route.Method, target, bodies[route.Operation])
			require.Equal(t, http.StatusNotFound, w.Code, "%s: %s", route.Operation, w.Body)
			require.NotContains(t, w.Body.String(), "acme")
			require.Len(t, f.updates, before, route.Operation)
			require.Empty(t, f.schedules.patches, route.Operation)
			require.Len(t, f.schedules.byID, 1, route.Operation)
		}
	}
	require.GreaterOrEqual(t, seen, 15)
	for _, by := range []struct{ tenant, id string }{{"acme", "named"}, {"acme", "acme:named"}, {"", "acme:named"}} {
		require.Equal(t, http.StatusOK, do(by.tenant, http.MethodGet, tasksPath+"/"+by.id, "").Code)
		require.Equal(t, http.StatusOK, do(by.tenant, http.MethodPost, tasksPath+"/"+by.id+"/cancel", "").Code)
		require.Equal(t, http.StatusOK, do(by.tenant, http.MethodGet, bulkPath+"/"+bulk.ID, "").Code)
		require.Equal(t, http.StatusOK, do(by.tenant, http.MethodGet, "/api/v1/agents/schedules/"+by.id, "").Code)
		require.Equal(t, http.StatusOK, do(by.tenant, http.MethodPost, "/api/v1/agents/schedules/"+by.id+"/pause",
			"").Code)
	}
}

func TestWhatATenantSubmitsIsItsOwn(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	_, do := tenants(t, f)
	mine := answer[api.Task](t, do("acme", http.MethodPost, tasksPath,
		`{"id":"one","type":"work","cluster":"default"}`), http.StatusAccepted)
	require.Equal(t, "acme", mine.Tenant)
	e := f.executions[contract.TaskWorkflowID("acme:one")]
	require.Equal(t, "acme", e.input.(contract.TaskInput).Spec.Tenant)
	require.Equal(t, "acme", e.options.Priority.FairnessKey, "it cannot take another's share either")
	named := answer[api.Task](t, do("acme", http.MethodPost, tasksPath,
		`{"type":"work","cluster":"default","tenant":"acme"}`), http.StatusAccepted)
	require.Equal(t, "acme", named.Tenant)
	problem(t, do("acme", http.MethodPost, tasksPath, `{"type":"work","cluster":"default","tenant":"beta"}`),
		http.StatusForbidden, protocol.CodeForbidden)
	for _, c := range []struct{ tenant, body string }{{"acme", `"id":"one"`}, {"acme", `"id":"acme:one"`},
		{"", `"id":"acme:one"`}, {"", `"id":"one","tenant":"acme"`}} {
		again := answer[api.Task](t, do(c.tenant, http.MethodPost, tasksPath,
			`{`+c.body+`,"type":"work","cluster":"default"}`), http.StatusOK)
		require.Equal(t, "acme:one", again.ID, c.body)
	}
	for tenant, id := range map[string]string{"beta": "beta:one", "": "one"} {
		other := answer[api.Task](t, do(tenant, http.MethodPost, tasksPath,
			`{"id":"one","type":"work","cluster":"default"}`), http.StatusAccepted)
		require.Equal(t, id, other.ID, "each tenant has its own ids")
	}
	problem(t, do("beta", http.MethodPost, tasksPath, `{"id":"acme:one","type":"work","cluster":"default"}`),
		http.StatusNotFound, protocol.CodeUnknownTask)
	w := do("beta", http.MethodPost, tasksPath+"/batch",
		`[{"id":"acme:one","type":"work","cluster":"default"},{"type":"work","cluster":"default"},`+
			`{"type":"work","cluster":"default","tenant":"acme"}]`)
	require.Equal(t, http.StatusAccepted, w.Code)
	require.NotContains(t, w.Body.String(), "acme")
	require.Contains(t, w.Body.String(), `"accepted":1`)

	key := `{"idempotency_key":"order-7","type":"work","cluster":"default"}`
	first := answer[api.Task](t, do("acme", http.MethodPost, tasksPath, key), http.StatusAccepted)
	second := answer[api.Task](t, do("beta", http.MethodPost, tasksPath, key), http.StatusAccepted)
	require.NotEqual(t, first.ID, second.ID, "each tenant has its own keys")

	problem(t, do("acme", http.MethodPost, "/api/v1/agents/schedules",
		`{"name":"n","interval":"1h","task":{"type":"work","cluster":"default","tenant":"beta"}}`),
		http.StatusForbidden, protocol.CodeForbidden)
	schedule := answer[api.Schedule](t, do("acme", http.MethodPost, "/api/v1/agents/schedules",
		`{"name":"n","interval":"1h","task":{"type":"work","cluster":"default"}}`), http.StatusCreated)
	require.Equal(t, "acme", schedule.Task.Tenant)
	require.Equal(t, "acme:n", schedule.Name)
	for tenant, name := range map[string]string{"beta": "beta:n", "": "n"} {
		schedule := answer[api.Schedule](t, do(tenant, http.MethodPost, "/api/v1/agents/schedules",
			`{"name":"n","interval":"1h","task":{"type":"work","cluster":"default"}}`), http.StatusCreated)
		require.Equal(t, name, schedule.Name, "each tenant has its own names")
	}
	problem(t, do("beta", http.MethodPost, "/api/v1/agents/schedules",
		`{"name":"acme:n","interval":"1h","task":{"type":"work","cluster":"default"}}`),
		http.StatusNotFound, protocol.CodeUnknownSchedule)
	everybodys := answer[api.Task](t, do("", http.MethodPost, tasksPath,
		`{"type":"work","cluster":"default","tenant":"beta"}`), http.StatusAccepted)
	require.Equal(t, "beta", everybodys.Tenant)
}

// TestListsOfATenantAskForNothingElse looks at what Temporal is asked: its answer is not filtered again.
func TestListsOfATenantAskForNothingElse(t *testing.T) {
	t.Parallel()
	for _, path := range []string{tasksPath, tasksPath + "/queue", tasksPath + "/queue/dead-letter", bulkPath,
		"/api/v1/agents/schedules"} {
		f := newFake()
		var queries []string
		f.list = func(r *workflowservice.ListWorkflowExecutionsRequest) (
			*workflowservice.ListWorkflowExecutionsResponse, error) {
			queries = append(queries, r.GetQuery())
			return &workflowservice.ListWorkflowExecutionsResponse{}, nil
		}
		_, do := tenants(t, f)
		require.Equal(t, http.StatusOK, do("acme", http.MethodGet, path, "").Code, path)
		if path == "/api/v1/agents/schedules" {
			queries = []string{f.schedules.query}
		}
		require.NotEmpty(t, queries)
		for _, query := range queries {
			require.Contains(t, query, "AND MainstayTenant = 'acme'", path)
			require.NotContains(t, query, " OR MainstayTenant", path)
		}
		if path != bulkPath {
			problem(t, do("acme", http.MethodGet, path+"?tenant=beta", ""), http.StatusForbidden,
				protocol.CodeForbidden)
			require.Equal(t, http.StatusOK, do("acme", http.MethodGet, path+"?tenant=acme", "").Code)
		}
		before := len(queries)
		require.Equal(t, http.StatusOK, do("", http.MethodGet, path, "").Code)
		if path == "/api/v1/agents/schedules" {
			queries, before = []string{f.schedules.query}, 0
		}
		require.False(t, slices.ContainsFunc(queries[before:],
			func(q string) bool { return strings.Contains(q, "MainstayTenant") }))
	}
}

func TestABulkOperationOfATenantMeansItsTasks(t *testing.T) {
	t.Parallel()
	f := newFake()
	_, do := tenants(t, f)
	problem(t, do("acme", http.MethodPost, bulkPath, `{"action":"cancel","filter":{"tenant":"beta"},"reason":"x"}`),
		http.StatusForbidden, protocol.CodeForbidden)
	for _, body := range []string{
		`{"action":"cancel","all":true,"reason":"x"}`,
		`{"action":"cancel","filter":{"ids":["t-of-beta"]},"reason":"x"}`,
		`{"action":"cancel","filter":{"tenant":"acme"},"reason":"x"}`,
	} {
		bulk := answer[api.Bulk](t, do("acme", http.MethodPost, bulkPath, body), http.StatusAccepted)
		e := f.executions[contract.BulkWorkflowID(bulk.ID)]
		spec := e.input.(contract.BulkInput).Spec
		require.Equal(t, "acme", spec.Filter.Tenant, body)
		require.Contains(t, spec.Query(), "MainstayTenant = 'acme'")
		require.Equal(t, "acme", store.OfInfo(e.info).Tenant, "the list of operations finds it by this")
	}
	bulk := answer[api.Bulk](t, do("acme", http.MethodPost, bulkPath,
		`{"action":"cancel","filter":{"ids":["b","acme:a","a","beta:a"]},"reason":"x"}`), http.StatusAccepted)
	require.Equal(t, []string{"acme:a", "acme:b", "beta:a"},
		f.executions[contract.BulkWorkflowID(bulk.ID)].input.(contract.BulkInput).Spec.IDs,
		"its own in full; what is not its own, the operation does not find")
}

func TestWhoDecidesAboutATaskIsKept(t *testing.T) {
	t.Parallel()
	f := newFake()
	by := contract.ForTask{By: "ops (k-1)"}
	cancel := contract.CancelRequest{ForTask: by, Reason: "enough"}
	e := f.withTask(contract.TaskState{Status: api.TaskRunning, Cancelling: &cancel})
	var got []any
	e.update = func(_ string, request any) (any, error) {
		got = append(got, request)
		return nil, nil
	}
	_, do := tenants(t, f)
	for _, action := range [][2]string{{"cancel", `{"reason":"enough"}`}, {"retry", `{"reason":"mended"}`},
		{"review", `{"decision":"rerun","reason":"seen"}`}, {"discard", `{"reason":"old"}`}, {"priority", `{"priority":1}`}} {
		task := answer[api.Task](t, do("", http.MethodPost, tasksPath+"/t-1/"+action[0], action[1]), http.StatusOK)
		require.Equal(t, &api.Cancelling{By: "ops (k-1)", Reason: "enough"}, task.Cancelling, "it is under way")
	}
	require.Equal(t, []any{cancel, contract.RetryRequest{ForTask: by, Reason: "mended"},
		contract.ReviewRequest{ForTask: by, Decision: api.ReviewRerun, Reason: "seen"},
		contract.DiscardRequest{ForTask: by, Reason: "old"},
		contract.ReprioritizeRequest{ForTask: by, Priority: api.PriorityCritical}}, got)
}

// TestClusterIsOnlyForItsTenants has a cluster of one tenant: to tokens of others it does not exist.
func TestClusterIsOnlyForItsTenants(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withCluster(api.ClusterConfig{Name: "own", Tenants: []string{"acme"}})
	_, do := tenants(t, f)
	for path, body := range map[string]string{
		tasksPath:                  `{"type":"work","cluster":"own"}`,
		"/api/v1/agents/arrays":    `{"type":"work","cluster":"own","count":2}`,
		"/api/v1/agents/schedules": `{"name":"s","interval":"1h","task":{"type":"work","cluster":"own"}}`,
	} {
		own := do("acme", http.MethodPost, path, body)
		require.Less(t, own.Code, 300, "%s: %s", path, own.Body)
		others := do("beta", http.MethodPost, path, body)
		require.Equal(t, http.StatusNotFound, others.Code, path)
		require.Equal(t, do("beta", http.MethodPost, path, strings.ReplaceAll(body, "own", "none")).Body.String(),
			others.Body.String(), "as a cluster that does not exist")
	}
}

// A lane of an agent that there is not stays in Temporal's memory for minutes.
func TestWorkForAgentsThatThereAreNotIsBounded(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"}, cluster.Member{AgentID: "here", Status: api.AgentOnline})
	_, send := tenants(t, f)
	submit := func(tenant, agent string) *httptest.ResponseRecorder {
		return send(tenant, http.MethodPost, "/api/v1/agents/tasks",
			`{"type":"x","cluster":"default","agent":"`+agent+`"}`)
	}
	for n := range 256 {
		require.Equal(t, http.StatusAccepted, submit("acme", fmt.Sprint("ghost-", n)).Code)
	}
	problem(t, submit("acme", "one-more"), http.StatusConflict, protocol.CodeConflict)
	require.Equal(t, http.StatusAccepted, submit("acme", "ghost-7").Code, "its lane is there")
	require.Equal(t, http.StatusAccepted, submit("acme", "here").Code)
	require.Equal(t, http.StatusAccepted, submit("beta", "one-more").Code)
}
