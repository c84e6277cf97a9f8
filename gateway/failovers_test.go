package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const failoversPath = "/api/v1/agents/failovers"

func TestFailoverByHand(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "east"},
		cluster.Member{AgentID: "a-1", Epoch: 7, Status: api.AgentOnline},
		cluster.Member{AgentID: "a-2", Status: api.AgentOnline},
		cluster.Member{AgentID: "a-3", Status: api.AgentOffline}, cluster.Member{AgentID: "a-4",
			Status: api.AgentDraining})
	f.withCluster(api.ClusterConfig{Name: "west"}, cluster.Member{AgentID: "b-1", Status: api.AgentOnline})
	h := serve(t, f)
	for _, request := range []struct {
		body string
		sent contract.ManualFailover
	}{
		{`{"target_agent_id":"a-2","reason":"its disk is old"}`,
			contract.ManualFailover{AgentID: "a-1", TargetAgentID: "a-2", Reason: "its disk is old"}},
		{`{}`, contract.ManualFailover{AgentID: "a-1"}},
		{"", contract.ManualFailover{AgentID: "a-1"}},
	} {
		f.signals = nil
		accepted := answer[api.FailoverAccepted](t, do(h, http.MethodPost, "/api/v1/agents/a-1/failover", request.body),
			http.StatusAccepted)
		require.Equal(t, api.FailoverAccepted{Cluster: "east", AgentID: "a-1", FailoverID: "east:a-1:7"}, accepted)
		require.Equal(t, []fakeSignal{{"cluster/east", "manual-failover", request.sent}}, f.signals)
	}

	f.signals = nil
	for _, refused := range []struct {
		agent, body, code string
		status            int
	}{
		{"canary", `{}`, protocol.CodeUnknownAgent, 404},
		{"a-1", `{"target_agent_id":"a-1"}`, protocol.CodeInvalidRequest, 422},
		{"a-1", `{"target_agent_id":"canary"}`, protocol.CodeInvalidRequest, 422},
		{"a-1", `{"target_agent_id":"b-1"}`, protocol.CodeInvalidRequest, 422},
		{"a-1", `{"target_agent_id":"Canary!"}`, protocol.CodeInvalidRequest, 422},
		{"a-1", `{"target":"canary"}`, protocol.CodeInvalidRequest, 422},
		{"a-1", `{"target_agent_id":"a-3"}`, protocol.CodeConflict, 409},
		{"a-1", `{"target_agent_id":"a-4"}`, protocol.CodeConflict, 409},
	} {
		p := problem(t, do(h, http.MethodPost, "/api/v1/agents/"+refused.agent+"/failover", refused.body),
			refused.status, refused.code)
		require.NotEmpty(t, p.Detail, "%+v", refused)
		if refused.status == 422 && refused.body != `{"target":"canary"}` {
			require.Equal(t, "body.target_agent_id", p.Errors[0].Location)
		}
	}
	require.Empty(t, f.signals)
	f.fail = serviceerror.NewUnavailable("canary")
	problem(t, do(h, http.MethodPost, "/api/v1/agents/a-1/failover", ""), 503, protocol.CodeUnavailable)
}

// A target that can run none of the agent's work is refused, and whom to take instead is said. The cluster hears what
// types the work has.
func TestFailoverTargetMustHandleTheWork(t *testing.T) {
	t.Parallel()
	profile := func(types, capabilities string) api.AgentProfile {
		p := api.AgentProfile{MaxTasks: 2, TaskTypes: strings.Fields(types)}
		p.Capabilities = strings.Fields(capabilities)
		return p
	}
	member := func(id string, p api.AgentProfile) cluster.Member {
		return cluster.Member{AgentID: id, Instance: "i", Hub: "h1", Status: api.AgentOnline, AgentProfile: p}
	}
	f := &fakeHub{fakeTemporal: newFake()}
	f.withCluster(api.ClusterConfig{Name: "east"}, member("any", profile("", "")), member("both",
		profile("echo exec", "gpu")), member("echo", profile("echo", "")), member("exec", profile("exec", "")))
	f.withCluster(api.ClusterConfig{Name: "parted", ReplicationMode: api.Sharded}, member("s-1", profile("", "")),
		member("s-2", profile("", "")))
	h := serveWith(t, f)
	work := func(held ...api.HeldTask) {
		f.tasks = func(string) (contract.ReadTasksResult, error) {
			return contract.ReadTasksResult{Agents: map[string][]api.HeldTask{"any": held, "exec": held, "s-1": held}}, nil
		}
	}
	ask := func(agent, body string) *httptest.ResponseRecorder {
		f.signals = nil
		return do(h, http.MethodPost, "/api/v1/agents/"+agent+"/failover", body)
	}
	work(api.HeldTask{TaskID: "t-1", Type: "exec", RequiredCapabilities: []string{"gpu"}})
	for _, target := range []string{"echo", "exec"} { // another type, and no gpu
		p := problem(t, ask("any", `{"target_agent_id":"`+target+`"}`), 409, protocol.CodeConflict)
		require.Contains(t, p.Detail, "can run none of the agent's 1 task")
		require.Contains(t, p.Detail, "leave target_agent_id out")
	}
	require.Empty(t, f.signals)
	answer[api.FailoverAccepted](t, ask("any", `{"target_agent_id":"both"}`), http.StatusAccepted)
	require.Equal(t, []fakeSignal{{"cluster/east", "manual-failover", contract.ManualFailover{AgentID: "any",
		TargetAgentID: "both", TaskTypes: []string{"exec"}}}}, f.signals)
	f.signals = nil
	p := problem(t, ask("any", `{"target_agent_id":"both","affinity":["z1"]}`), 422, protocol.CodeInvalidRequest)
	require.Equal(t, "body.affinity", p.Errors[0].Location)
	answer[api.FailoverAccepted](t, ask("any", `{"affinity":["z1","both"]}`), http.StatusAccepted)
	require.Equal(t, []fakeSignal{{"cluster/east", "manual-failover", contract.ManualFailover{AgentID: "any",
		TaskTypes: []string{"exec"}, Affinity: []string{"z1", "both"}}}}, f.signals)

	work()
	problem(t, ask("exec", `{"target_agent_id":"echo"}`), 409, protocol.CodeConflict)
	p = problem(t, ask("exec", `{"target_agent_id":"any","required_capabilities":["gpu"]}`), 409,
		protocol.CodeConflict)
	require.Contains(t, p.Detail, "required_capabilities")
	answer[api.FailoverAccepted](t, ask("exec", `{"target_agent_id":"any"}`), http.StatusAccepted)
	p = problem(t, ask("s-1", `{"target_agent_id":"s-2"}`), 409, protocol.CodeConflict)
	require.Contains(t, p.Detail, "sharded")
	answer[api.FailoverAccepted](t, ask("s-1", ``), http.StatusAccepted)
}

// A named target without a free slot is refused: the work would come back to the agent.
func TestFailoverTargetHasAFreeSlot(t *testing.T) {
	t.Parallel()
	member := func(id string) cluster.Member {
		return cluster.Member{AgentID: id, Instance: "i", Hub: "h1", Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 2}}
	}
	f := &fakeHub{fakeTemporal: newFake()}
	f.withCluster(api.ClusterConfig{Name: "east"}, member("a"), member("full"), member("half"))
	one, two := api.HeldTask{TaskID: "t-1", Type: "exec"}, api.HeldTask{TaskID: "t-2", Type: "exec"}
	f.tasks = func(string) (contract.ReadTasksResult, error) {
		return contract.ReadTasksResult{Agents: map[string][]api.HeldTask{
			"a": {one}, "half": {two}, "full": {one, two}}}, nil
	}
	h := serveWith(t, f)
	p := problem(t, do(h, http.MethodPost, "/api/v1/agents/a/failover", `{"target_agent_id":"full"}`), 409,
		protocol.CodeConflict)
	require.Contains(t, p.Detail, "the target has no free slot: it runs 2 of 2 tasks; choose another")
	require.Empty(t, f.signals)
	answer[api.FailoverAccepted](t, do(h, http.MethodPost, "/api/v1/agents/a/failover", `{"target_agent_id":"half"}`),
		http.StatusAccepted)
}

// Each failover of a session has an id of its own, and one is asked for at a time.
func TestFailoversOfASessionComeOneByOne(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "east"},
		cluster.Member{AgentID: "a-1", Epoch: 7, Status: api.AgentOnline, Failovers: 1},
		cluster.Member{AgentID: "a-2", Status: api.AgentOnline, Epoch: 8, Failovers: 3})
	under := f.withFailover("a-1", 7)
	h := serve(t, f)
	p := problem(t, do(h, http.MethodPost, "/api/v1/agents/a-1/failover", ""), 409, protocol.CodeConflict)
	require.Contains(t, p.Detail, "failover east:a-1:7 of the agent is under way")
	require.Empty(t, f.signals)
	under.ended(recorded("a-1", 7, api.FailoverSucceeded))
	accepted := answer[api.FailoverAccepted](t, do(h, http.MethodPost, "/api/v1/agents/a-1/failover", ""),
		http.StatusAccepted)
	require.Equal(t, "east:a-1:7.2", accepted.FailoverID)
	accepted = answer[api.FailoverAccepted](t, do(h, http.MethodPost, "/api/v1/agents/a-2/failover", ""),
		http.StatusAccepted)
	require.Equal(t, "east:a-2:8.4", accepted.FailoverID, "the record of the third is kept no more")
}

// Where nobody is chosen to take over, what would guide the choice is refused.
func TestFailoverRefusesWhatHasNoEffect(t *testing.T) {
	t.Parallel()
	member := func(id string) cluster.Member {
		return cluster.Member{AgentID: id, Instance: "i", Hub: "h1", Status: api.AgentOnline}
	}
	f := &fakeHub{fakeTemporal: newFake(),
		tasks: func(string) (contract.ReadTasksResult, error) { return contract.ReadTasksResult{}, nil }}
	f.withClusterState(&cluster.Cluster{Config: api.ClusterConfig{Name: "led", ReplicationMode: api.ActivePassive},
		Leader: "l-1", Members: []cluster.Member{member("l-1"), member("l-2")}})
	f.withCluster(api.ClusterConfig{Name: "parted", ReplicationMode: api.Sharded}, member("s-1"), member("s-2"))
	h := serveWith(t, f)
	for agent, other := range map[string]string{"l-2": "l-1", "s-1": "s-2"} {
		path := "/api/v1/agents/" + agent + "/failover"
		for _, body := range []string{`{"target_agent_id":"` + other + `"}`, `{"affinity":["` + other + `"]}`,
			`{"required_capabilities":["gpu"]}`} {
			p := problem(t, do(h, http.MethodPost, path, body), http.StatusConflict, protocol.CodeConflict)
			require.Contains(t, p.Detail, "leave target_agent_id, required_capabilities and affinity out")
		}
		answer[api.FailoverAccepted](t, do(h, http.MethodPost, path, ""), http.StatusAccepted)
	}
	answer[api.FailoverAccepted](t, do(h, http.MethodPost, "/api/v1/agents/l-1/failover",
		`{"target_agent_id":"l-2"}`), http.StatusAccepted)
}

// withFailover adds a running failover in the cluster east.
func (f *fakeTemporal) withFailover(agent string, epoch int64) *execution {
	id := contract.FailoverWorkflowID(contract.FailoverID("east", agent, epoch))
	f.executions[id] = open(id, contract.FailoverWorkflow)
	return f.executions[id]
}

// ended closes a failover with what its workflow returned.
func (e *execution) ended(record api.FailoverRecord) *execution {
	e.close(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
			WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{
				Result: payloads(record)},
		},
	})
	return e
}

func recorded(agent string, epoch int64, status api.FailoverStatus) api.FailoverRecord {
	noticed := time.Unix(1_800_000_000, 0).UTC()
	began := noticed.Add(40 * time.Millisecond)
	completed := noticed.Add(time.Second)
	return api.FailoverRecord{
		ID:            contract.FailoverID("east", agent, epoch),
		Cluster:       "east",
		FailedAgentID: agent,
		Epoch:         epoch,
		TargetAgentID: "a-9",
		Trigger:       api.TriggerLost, Reason: "its connection closed", Status: status, Tasks: 1, TasksTransferred: 1,
		Transfers: []api.Transfer{{TaskID: "t-1", From: agent, To: "a-9", Epoch: 8, RetryCount: 1,
			Status: api.TaskRunning, Why: "its agent was lost", At: &began}},
		Promoted: "a-9", LeaderEpoch: 9, Shards: []api.ShardMove{{Shard: 3, From: agent, To: "a-9", Epoch: 10}},
		NoticedAt: noticed, StartedAt: noticed, CompletedAt: &completed,
	}
}

func TestGetFailover(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	get := func(id string) api.FailoverRecord {
		return answer[api.FailoverRecord](t, do(h, http.MethodGet, failoversPath+"/"+id, ""), http.StatusOK)
	}
	want := recorded("a-1", 7, api.FailoverRunning)
	want.CompletedAt = nil
	e := f.withFailover("a-1", 7)
	e.query = func() (any, error) { return want, nil }
	require.Equal(t, want, get("east:a-1:7"))

	e.query = nil
	partial := get("east:a-1:7")
	require.Equal(t, api.FailoverRunning, partial.Status)
	require.Contains(t, partial.Error, "no worker answered")
	require.Equal(t, "a-1", partial.FailedAgentID)
	require.Equal(t, time.Unix(1_800_000_000, 0).UTC(), partial.StartedAt)

	want = recorded("a-1", 7, api.FailoverSucceeded)
	e.ended(want)
	require.Equal(t, want, get("east:a-1:7"))

	for word, event := range map[string]enumspb.EventType{
		"terminated":     enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
		"cancelled":      enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
		"out of time":    enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
		"Web UI":         enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		"cannot be read": enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
	} {
		e.close(enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, &historypb.HistoryEvent{EventType: event})
		if word == "cannot be read" {
			e.last.Attributes = &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
				WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{
					Result: payloads("canary")},
			}
		}
		broken := get("east:a-1:7")
		require.Equal(t, api.FailoverFailed, broken.Status)
		require.Contains(t, broken.Error, word)
		require.NotNil(t, broken.CompletedAt)
	}
	for _, id := range []string{"east:a-1:8", "canary", "east:a-1:07", "::"} {
		problem(t, do(h, http.MethodGet, failoversPath+"/"+id, ""), 404, protocol.CodeUnknownFailover)
	}
	f.fail = serviceerror.NewUnavailable("canary")
	problem(t, do(h, http.MethodGet, failoversPath+"/east:a-1:7", ""), 503, protocol.CodeUnavailable)
}

func TestListFailovers(t *testing.T) {
	t.Parallel()
	f := newFake()
	open := f.withFailover("a-3", 3)
	running := recorded("a-3", 3, api.FailoverRunning)
	open.query = func() (any, error) { return running, nil }
	executions := []*workflowpb.WorkflowExecutionInfo{
		open.info, f.withFailover("a-4", 4).info,
		f.withFailover("a-2", 2).ended(recorded("a-2", 2, api.FailoverSucceeded)).info,
		f.withFailover("a-1", 1).ended(recorded("a-1", 1, api.FailoverNoTarget)).info,
	}
	foreign := f.withFailover("a-5", 5).info
	foreign.Execution.WorkflowId = "not-ours"
	executions = append(executions, foreign)
	var asked []*workflowservice.ListWorkflowExecutionsRequest
	f.list = func(r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse,
		error) {
		asked = append(asked, r)
		return &workflowservice.ListWorkflowExecutionsResponse{Executions: executions,
			NextPageToken: []byte{1, 255}}, nil
	}
	h := serve(t, f)
	type failoverPage struct {
		Failovers     []api.FailoverRecord `json:"failovers"`
		NextPageToken string               `json:"next_page_token"`
	}
	list := func(target, query string) (ids []string, next string) {
		page := answer[failoverPage](t, do(h, http.MethodGet, failoversPath+target, ""), http.StatusOK)
		ids = []string{}
		for _, record := range page.Failovers {
			ids = append(ids, record.ID)
		}
		require.Equal(t, query, asked[len(asked)-1].GetQuery())
		return ids, page.NextPageToken
	}
	const all = "WorkflowType = 'Failover'"
	ids, _ := list("", all)
	require.Equal(t, []string{"east:a-3:3", "east:a-4:4", "east:a-2:2", "east:a-1:1"}, ids,
		"in the order of visibility, also without a worker's answer")
	require.EqualValues(t, 50, asked[0].GetPageSize())

	_, next := list("?cluster=east&agent=a-1&page_size=4",
		all+" AND MainstayCluster = 'east' AND MainstayAgent = 'a-1'")
	list("?cluster=east&agent=a-1&page_token="+next, all+" AND MainstayCluster = 'east' AND MainstayAgent = 'a-1'")
	require.Equal(t, []byte{1, 255}, asked[2].GetNextPageToken())
	// of another list
	problem(t, do(h, http.MethodGet, failoversPath+"?page_token="+next, ""), 422, protocol.CodeInvalidRequest)

	for status, want := range map[string]struct {
		query string
		ids   []string
	}{
		"running":             {all + " AND ExecutionStatus = 'Running'", []string{"east:a-3:3", "east:a-4:4"}},
		"succeeded":           {all + " AND ExecutionStatus = 'Completed'", []string{"east:a-2:2"}},
		"no_target_available": {all, []string{"east:a-1:1"}},
		"failed":              {all + " AND ExecutionStatus != 'Running'", []string{}},
	} {
		ids, _ := list("?status="+status, want.query)
		require.Equal(t, want.ids, ids, status)
	}
	for _, bad := range []string{"?status=canary", "?page_size=0", "?page_size=201", "?cluster=a'+OR+1",
		"?agent=a'+OR+1", "?page_token=canary", "?clustr=canary"} {
		problem(t, do(h, http.MethodGet, failoversPath+bad, ""), 422, protocol.CodeInvalidRequest)
	}
}
