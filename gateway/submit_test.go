package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// withCluster adds a cluster whose worker answers.
func (f *fakeTemporal) withCluster(config api.ClusterConfig, members ...cluster.Member) *execution {
	return f.withClusterState(&cluster.Cluster{Config: config, Members: members})
}

func (f *fakeTemporal) withClusterState(state *cluster.Cluster) *execution {
	state.Config = state.Config.WithDefaults()
	e := open(contract.ClusterWorkflowID(state.Config.Name), contract.ClusterWorkflow)
	e.query = func() (any, error) { return contract.ClusterView{Cluster: *state}, nil }
	e.update = func(name string, arg any) (any, error) {
		if name == contract.OpenLaneUpdate.Name {
			state.OpenLane(arg.(contract.OpenLaneRequest).LaneNeeds, "", time.Now())
		}
		return nil, nil
	}
	f.executions[contract.ClusterWorkflowID(state.Config.Name)] = e
	return e
}

const tasksPath = "/api/v1/agents/tasks"

func TestSubmitStartsAWorkflow(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	task := answer[api.Task](t, do(h, http.MethodPost, tasksPath,
		`{"type":"render","cluster":"default","payload":{"command":["true"],"big":12345678901234567890},"priority":2,
		  "tenant":"acme",
		  "labels":{"b":"2","a":"1=1"},"timeout":"00:00:30","expires_in":"5m",
		  "retry":{"max_attempts":5,"initial_interval":"100ms"},
		  "retry_safety":"at_most_once"}`), http.StatusAccepted)
	require.Regexp(t, `^acme:t-[0-9a-z]{32}$`, task.ID)
	require.Equal(t, api.TaskQueued, task.Status)
	require.False(t, task.Duplicate)

	e := f.executions[contract.TaskWorkflowID(task.ID)]
	require.NotNil(t, e)
	o := e.options
	require.Equal(t, contract.WorkerQueue, o.TaskQueue)
	require.Equal(t, "render in default", o.StaticSummary)
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, o.WorkflowIDReusePolicy)
	require.True(t, o.WorkflowExecutionErrorWhenAlreadyStarted)
	require.True(t, o.EnableEagerStart)
	require.Equal(t, 2, o.Priority.PriorityKey)
	require.Equal(t, "acme", o.Priority.FairnessKey)
	labels, _ := o.TypedSearchAttributes.GetKeywordList(contract.AttrLabels)
	require.Equal(t, []string{"a=1=1", "b=2"}, labels)
	require.False(t, o.TypedSearchAttributes.ContainsKey(contract.AttrAgent))

	in := e.input.(contract.TaskInput)
	require.Equal(t, "lane/default", in.Lane)
	require.JSONEq(t, `{"command":["true"],"big":12345678901234567890}`, string(in.Spec.Payload))
	require.Contains(t, string(in.Spec.Payload), "12345678901234567890", "numbers pass untouched")
	require.Equal(t, "30s", in.Spec.Timeout.String())
	require.Equal(t, 5, in.Spec.Retry.MaxAttempts)

	e.wft = nil
	got := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+task.ID, ""), http.StatusOK)
	require.Equal(t, map[string]string{"a": "1=1", "b": "2"}, got.Labels)
	require.Equal(t, "acme", got.Tenant)
}

// A task that names no retry_safety has its cluster's.
func TestSafetyOfTheCluster(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default", TaskDefaults: api.TaskDefaults{RetrySafety: api.Unmarked}})
	h := serve(t, f)
	for body, want := range map[string]api.RetrySafety{`{"id":"left","type":"echo","cluster":"default"}`: api.Unmarked,
		`{"id":"own","type":"echo","cluster":"default","retry_safety":"idempotent"}`: api.Idempotent} {
		task := answer[api.Task](t, do(h, http.MethodPost, tasksPath, body), http.StatusAccepted)
		in := f.executions[contract.TaskWorkflowID(task.ID)].input.(contract.TaskInput)
		require.Equal(t, want, in.Spec.RetrySafety, body)
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withCluster(api.ClusterConfig{Name: "keyed", ReplicationMode: api.Sharded, Shards: 4})
	h := serve(t, f)
	for name, c := range map[string]struct{ body, lane string }{
		"any member": {`{"type":"x","cluster":"default","shard_key":"ignored"}`, "lane/default"},
		"capability": {`{"type":"x","cluster":"default","required_capabilities":["gpu","arm"]}`,
			"lane/default/cap/arm+gpu"},
		"pinned": {`{"type":"x","cluster":"default","agent":"a-1","required_capabilities":["gpu"]}`,
			"lane/default/agent/a-1"},
		"shard": {`{"type":"x","cluster":"keyed","shard_key":"k"}`,
			contract.LaneQueue("keyed", task.ShardLane(task.ShardOf("k", 4)))},
		"no key": {`{"type":"x","cluster":"keyed","id":"the-id"}`,
			contract.LaneQueue("keyed", task.ShardLane(task.ShardOf("the-id", 4)))},
	} {
		task := answer[api.Task](t, do(h, http.MethodPost, tasksPath, c.body), http.StatusAccepted)
		require.Equal(t, c.lane, f.executions[contract.TaskWorkflowID(task.ID)].input.(contract.TaskInput).Lane, name)
	}
	require.Equal(t, []string{contract.OpenLaneUpdate.Name}, f.updates, "only the capability lane is opened")
	answer[api.Task](t,
		do(h, http.MethodPost, tasksPath,
			`{"type":"x","cluster":"default","required_capabilities":["arm","gpu"]}`), http.StatusAccepted)
	require.Len(t, f.updates, 1, "an open lane is not opened again")
}

// A tenant that asks for many lanes, which its cluster opens slowly or refuses, keeps no other tenant's tasks waiting.
func TestTenantsOpenLanesSideBySide(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withCluster(api.ClusterConfig{Name: "default"})
	e.query = func() (any, error) {
		c := cluster.Cluster{Config: api.ClusterConfig{Name: "default"}.WithDefaults()}
		c.OpenLane(api.LaneNeeds{Capabilities: []string{"old"}}, "", time.Now())
		return contract.ClusterView{Cluster: c}, nil
	}
	refused, asked := make(chan struct{}), make(chan struct{}, 10)
	e.update = func(_ string, arg any) (any, error) {
		if arg.(contract.OpenLaneRequest).Tenant != "acme" {
			return nil, nil
		}
		asked <- struct{}{}
		return refused, temporal.NewNonRetryableApplicationError("no more are free", contract.Refused, nil)
	}
	h := serve(t, f)
	submit := func(tenant, capability string) int {
		return do(h, http.MethodPost, tasksPath, fmt.Sprintf(
			`{"type":"x","cluster":"default","tenant":%q,"required_capabilities":[%q]}`, tenant, capability)).Code
	}
	codes := make(chan int)
	for i := range 5 {
		go func() { codes <- submit("acme", fmt.Sprint("new-", i)) }()
	}
	<-asked
	require.Equal(t, http.StatusAccepted, submit("beta", "gpu"))
	close(refused)
	for range 5 {
		require.Equal(t, http.StatusConflict, <-codes)
	}
	require.Len(t, f.updates, 2, "acme's further lanes are refused without asking")
	require.Equal(t, http.StatusAccepted, submit("acme", "old"), "what is open stays so")
}

func TestOneKeyOneTask(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withCluster(api.ClusterConfig{Name: "other"})
	h := serve(t, f)
	submit := func(cluster, tenant string, status int) api.Task {
		return answer[api.Task](t, do(h, http.MethodPost, tasksPath,
			fmt.Sprintf(`{"type":"x","cluster":%q,"tenant":%q,"idempotency_key":"order 7"}`, cluster, tenant)), status)
	}
	first := submit("default", "acme", http.StatusAccepted)
	require.True(t, strings.HasPrefix(first.ID, "acme:key@"))
	again := submit("default", "acme", http.StatusOK)
	require.Equal(t, first.ID, again.ID)
	require.True(t, again.Duplicate)
	require.NotEqual(t, first.ID, submit("default", "umbrella", http.StatusAccepted).ID)
	require.NotEqual(t, first.ID, submit("other", "acme", http.StatusAccepted).ID)

	f.executions[contract.TaskWorkflowID(first.ID)].info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	closed := submit("default", "acme", http.StatusOK)
	require.Equal(t, first.ID, closed.ID, "also after it has ended")
	require.Equal(t, api.TaskCompleted, closed.Status)
	require.True(t, closed.Duplicate)
}

func TestSubmitRefuses(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	gone := f.withCluster(api.ClusterConfig{Name: "deleted"})
	gone.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	h := serve(t, f)
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
		where  string
	}{
		"unknown cluster": {`{"type":"x","cluster":"canary"}`, 404, protocol.CodeUnknownCluster, ""},
		"deleted cluster": {`{"type":"x","cluster":"deleted"}`, 404, protocol.CodeUnknownCluster, ""},
		"bad type":        {`{"type":"canary!","cluster":"default"}`, 422, protocol.CodeInvalidRequest, "body.type"},
		"no type":         {`{"cluster":"default"}`, 422, protocol.CodeInvalidRequest, "body"},
		"unknown field": {`{"type":"x","cluster":"default","paylod":{}}`, 422, protocol.CodeInvalidRequest,
			"body.paylod"},
		"priority": {`{"type":"x","cluster":"default","priority":9}`, 422, protocol.CodeInvalidRequest,
			"body.priority"},
		"duration": {`{"type":"x","cluster":"default","timeout":"canary"}`, 422, protocol.CodeInvalidRequest,
			"body.timeout"},
		"short timeout": {`{"type":"x","cluster":"default","timeout":"1ms"}`, 422, protocol.CodeInvalidRequest,
			"body"},
		"nested duration": {`{"type":"x","cluster":"default","retry":{"max_interval":"canary"}}`, 422,
			protocol.CodeInvalidRequest, "body.retry.max_interval"},
		"odd duration": {`{"type":"x","cluster":"default","timeout":"1:2:3:4"}`, 422, protocol.CodeInvalidRequest,
			"body.timeout"},
		"safety": {`{"type":"x","cluster":"default","retry_safety":"canary"}`, 422,
			protocol.CodeInvalidRequest, "body.retry_safety"},
		"capability": {`{"type":"x","cluster":"default","required_capabilities":["canary canary"]}`, 422,
			protocol.CodeInvalidRequest, "body"},
		"id and key": {`{"type":"x","cluster":"default","id":"a","idempotency_key":"b"}`, 422,
			protocol.CodeInvalidRequest, "body.id"},
		"id of tenants": {`{"type":"x","cluster":"default","id":"acme:a","tenant":"beta"}`, 422,
			protocol.CodeInvalidRequest, "body.id"},
		"id of a firing": {`{"type":"x","cluster":"default","id":"a@20261121t030000z"}`, 422,
			protocol.CodeInvalidRequest, "body.id"},
		"reserved id": {`{"type":"x","cluster":"default","id":"queue"}`, 422, protocol.CodeInvalidRequest,
			"body.id"},
		"big payload": {`{"type":"x","cluster":"default","payload":"` + strings.Repeat("p", 3<<19) + `"}`, 413,
			protocol.CodePayloadTooLarge, ""},
		"2 MiB payload": {`{"type":"x","cluster":"default","payload":"` + strings.Repeat("p", 2<<20) + `"}`, 413,
			protocol.CodePayloadTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := problem(t, do(h, http.MethodPost, tasksPath, c.body), c.status, c.code)
			if c.where != "" {
				require.NotEmpty(t, p.Errors)
				require.Equal(t, c.where, p.Errors[0].Location)
			}
		})
	}
}

func TestUnknownClusterAsksNoWorker(t *testing.T) {
	t.Parallel()
	f := newFake()
	problem(t, do(serve(t, f), http.MethodPost, tasksPath, `{"type":"x","cluster":"nobody"}`), 404,
		protocol.CodeUnknownCluster)
	require.Equal(t, 1, f.describes)
	require.Empty(t, f.updates)
}

func TestSubmitNeedsNoWorkerForAClusterOfTheGateway(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	answer[api.Cluster](t, do(h, http.MethodPost, "/api/v1/agents/clusters",
		`{"name":"fresh","replication_mode":"sharded","shards":8}`), http.StatusCreated)
	item := answer[api.Task](t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"fresh","shard_key":"k"}`),
		http.StatusAccepted)
	require.Equal(t, contract.LaneQueue("fresh", task.ShardLane(task.ShardOf("k", 8))),
		f.executions[contract.TaskWorkflowID(item.ID)].input.(contract.TaskInput).Lane)
}

func TestKnownClustersAreCached(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	for range 5 {
		answer[api.Task](t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"default"}`), http.StatusAccepted)
	}
	require.Equal(t, 1, f.describes)
}

type batchAnswer struct {
	Tasks    []api.BatchItem `json:"tasks"`
	Accepted int             `json:"accepted"`
	Rejected int             `json:"rejected"`
}

func TestBatch(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	var items []string
	for i := range 1000 {
		switch i % 100 {
		case 3:
			items = append(items, `{"type":"x","cluster":"canary"}`)
		case 5:
			items = append(items, `{"type":"x","cluster":"default","priority":"canary"}`)
		case 7:
			items = append(items, `"canary"`)
		default:
			items = append(items, fmt.Sprintf(`{"type":"x","cluster":"default","id":"n-%d"}`, i))
		}
	}
	h := serve(t, f)
	w := do(h, http.MethodPost, tasksPath+"/batch", "["+strings.Join(items, ",")+"]")
	got := answer[batchAnswer](t, w, http.StatusAccepted)
	require.Equal(t, 970, got.Accepted)
	require.Equal(t, 30, got.Rejected)
	require.Len(t, got.Tasks, 1000)
	require.NotContains(t, w.Body.String(), "canary")
	require.LessOrEqual(t, int(f.mostStarts.Load()), store.BatchFanOut(), "others wait for what runs side by side")
	for i, item := range got.Tasks {
		switch i % 100 {
		case 3:
			require.Equal(t, protocol.CodeUnknownCluster, item.Error.Code)
		case 5:
			require.Equal(t, protocol.CodeInvalidRequest, item.Error.Code)
			require.Equal(t, "priority", item.Error.Errors[0].Location)
		case 7:
			require.Equal(t, protocol.CodeInvalidRequest, item.Error.Code)
		default:
			require.Equal(t, fmt.Sprintf("n-%d", i), item.ID, "in order")
		}
	}
	problem(t, do(h, http.MethodPost, tasksPath+"/batch", `[]`), 422, protocol.CodeInvalidRequest)
	problem(t, do(h, http.MethodPost, tasksPath+"/batch", "["+strings.Repeat(`{},`, 1000)+"{}]"), 422,
		protocol.CodeInvalidRequest)
}

// A workflow takes ten updates at a time: were each task of a batch to open the lane, most would be turned away.
func TestBatchOpensALaneOnce(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	// it knows the cluster now
	answer[api.Task](t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"default"}`), http.StatusAccepted)
	queries, query := 0, e.query
	e.query = func() (any, error) { queries++; return query() }
	const lanes = 20
	var items []string
	for i := range 1000 {
		items = append(items, fmt.Sprintf(`{"type":"x","cluster":"default","required_capabilities":["c-%d"]}`,
			i*lanes/1000))
	}
	got := answer[batchAnswer](t, do(h, http.MethodPost, tasksPath+"/batch", "["+strings.Join(items, ",")+"]"),
		http.StatusAccepted)
	require.Equal(t, 1000, got.Accepted)
	require.Equal(t, lanes, queries)
	require.Len(t, f.updates, lanes)
}

func TestBatchWithoutTemporal(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.fail = serviceerror.NewUnavailable("canary")
	problem(t, do(serve(t, f), http.MethodPost, tasksPath+"/batch",
		"["+strings.Repeat(`{"type":"x","cluster":"c"},`,
			999)+`{"type":"x","cluster":"c"}]`), 503, protocol.CodeUnavailable)
	require.LessOrEqual(t, f.describes, 40, "it does not wait for each task")
}

func TestErrorsOfTemporal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"unavailable": {serviceerror.NewUnavailable("canary"), 503, protocol.CodeUnavailable},
		"deadline":    {serviceerror.NewDeadlineExceeded("canary"), 503, protocol.CodeUnavailable},
		"exhausted": {serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "canary"), 503,
			protocol.CodeUnavailable},
		"denied":    {serviceerror.NewPermissionDenied("canary", "canary"), 500, protocol.CodeInternal},
		"namespace": {serviceerror.NewNamespaceNotFound("canary"), 500, protocol.CodeInternal},
		"other":     {errors.New("canary"), 500, protocol.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.fail = c.err
			h := serve(t, f)
			for _, r := range [][3]string{
				{http.MethodPost, tasksPath, `{"type":"x","cluster":"c"}`},
				{http.MethodGet, tasksPath, ``},
				{http.MethodGet, tasksPath + "/t-1", ``},
				{http.MethodGet, tasksPath + "/queue", ``},
				{http.MethodPost, tasksPath + "/t-1/cancel", `{}`},
				{http.MethodGet, "/api/v1/agents", ``},
				{http.MethodGet, "/api/v1/agents/a-1", ``},
				{http.MethodGet, "/api/v1/agents/clusters", ``},
				{http.MethodPost, "/api/v1/agents/clusters", `{"name":"c"}`},
				{http.MethodGet, "/api/v1/agents/clusters/c", ``},
				{http.MethodPut, "/api/v1/agents/clusters/c", `{}`},
				{http.MethodDelete, "/api/v1/agents/clusters/c", ``},
				{http.MethodGet, "/api/v1/agents/clusters/c/members", ``},
			} {
				problem(t, do(h, r[0], r[1], r[2]), c.status, c.code)
			}
		})
	}
}
