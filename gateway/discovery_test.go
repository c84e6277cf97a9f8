package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func newRegistry() *fakeHub {
	f := &fakeHub{fakeTemporal: newFake()}
	began := time.Unix(1_800_000_000, 0).UTC()
	f.withCluster(api.ClusterConfig{Name: "east"},
		cluster.Member{AgentID: "busy", Instance: "i", Hub: "h1", Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 2, Capabilities: []string{"gpu", "ssd"},
				Metadata: map[string]string{"rack": "7", "os": "linux"}, Address: "10.0.0.5:9091", StartedAt: began}},
		cluster.Member{AgentID: "drains", Instance: "i", Hub: "h1", Status: api.AgentDraining,
			AgentProfile: api.AgentProfile{MaxTasks: 2, TaskTypes: []string{"render"},
				Metadata: map[string]string{"rack": "8"}},
			Health: &cluster.MemberHealth{Level: api.HealthWarning}},
		cluster.Member{AgentID: "gone", Status: api.AgentOffline, AgentProfile: api.AgentProfile{MaxTasks: 2}},
		cluster.Member{AgentID: "ready", Instance: "i", Hub: "h2", Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 2, Capabilities: []string{"gpu"}},
			Health:       &cluster.MemberHealth{Level: api.HealthDegraded}})
	used := func(agent string, n int32) *workerpb.WorkerHeartbeat {
		return &workerpb.WorkerHeartbeat{WorkerIdentity: contract.AgentIdentity("east", agent), WorkerInstanceKey: "i",
			ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{CurrentUsedSlots: n}}
	}
	f.workers = []*workerpb.WorkerHeartbeat{used("busy", 2), used("ready", 1)}
	f.tasks = func(queue string) (contract.ReadTasksResult, error) {
		if queue == contract.HubQueue("h2") {
			return contract.ReadTasksResult{}, serviceerror.NewUnavailable("canary")
		}
		return contract.ReadTasksResult{Agents: map[string][]api.HeldTask{"busy": {{TaskID: "t-1", Attempt: 1,
			StartedAt: &began, Percent: 40}, {TaskID: "t-2", Attempt: 3}}}}, nil
	}
	return f
}

// Suspicion, silence and a stop that began are an agent's status, although its cluster has it as online.
func TestLiveStatusIsTheStatus(t *testing.T) {
	t.Parallel()
	since := time.Unix(1_800_000_000, 0).UTC()
	for status, reason := range map[api.AgentStatus]string{
		api.AgentSuspect: "connection closed", api.AgentWarning: "silent", api.AgentStopping: "leaves",
	} {
		f := newRegistry()
		for _, w := range f.workers {
			w.Plugins = append(w.Plugins, contract.StatusPlugin(status, since))
		}
		h := serveWith(t, f)
		a := answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/ready", ""), http.StatusOK)
		require.Equal(t, status, a.Status)
		require.Equal(t, &since, a.StatusSince)
		require.Contains(t, a.StatusReason, reason)
		state := api.WorkerUnknown
		if status == api.AgentStopping {
			state = api.WorkerDraining
		}
		require.Equal(t, state, a.State)
		require.Empty(t, answer[agentPage](t, do(h, http.MethodGet, "/api/v1/agents?state=ready", ""),
			http.StatusOK).Agents)
		listed := answer[agentPage](t, do(h, http.MethodGet, "/api/v1/agents?status="+string(status), ""), http.StatusOK)
		require.Len(t, listed.Agents, 2)
		gone := answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/gone", ""), http.StatusOK)
		require.Equal(t, api.AgentOffline, gone.Status)
	}
}

// An agent whose hub has not told its load may be full.
func TestUnknownLoadIsNotReady(t *testing.T) {
	t.Parallel()
	f := newRegistry()
	f.workers = nil
	h := serveWith(t, f)
	require.Equal(t, api.WorkerUnknown, answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/ready", ""),
		http.StatusOK).State)
}

// A lost agent can be forgotten; the cluster decides, and its refusal is a conflict.
func TestForgetAgent(t *testing.T) {
	t.Parallel()
	f := newRegistry()
	var asked []any
	refuse := true
	f.executions["cluster/east"].update = func(name string, arg any) (any, error) {
		require.Equal(t, contract.ForgetUpdate.Name, name)
		asked = append(asked, arg)
		if refuse {
			return nil, temporal.NewNonRetryableApplicationError("the agent is connected", contract.Refused, nil)
		}
		return nil, nil
	}
	h := serveWith(t, f)
	p := problem(t, do(h, http.MethodDelete, "/api/v1/agents/ready", ""), 409, protocol.CodeConflict)
	require.Contains(t, p.Detail, "connected")
	refuse = false
	require.Equal(t, http.StatusNoContent, do(h, http.MethodDelete, "/api/v1/agents/gone", "").Code)
	require.Equal(t, []any{contract.ForgetRequest{AgentID: "ready"}, contract.ForgetRequest{AgentID: "gone"}}, asked)
	problem(t, do(h, http.MethodDelete, "/api/v1/agents/canary", ""), 404, protocol.CodeUnknownAgent)
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	f := newRegistry()
	h := serveWith(t, f)
	for target, want := range map[string][]string{
		"?state=ready": {"ready"}, "?state=busy": {"busy"}, "?state=draining": {"drains"}, "?state=dead": {"gone"},
		"?live=true":                            {"busy", "drains", "ready"},
		"?capability=gpu":                       {"busy", "ready"},
		"?capability=gpu&capability=ssd":        {"busy"},
		"?task_type=render":                     {"busy", "drains", "gone", "ready"}, // who names no types handles any
		"?task_type=other":                      {"busy", "gone", "ready"},
		"?metadata=rack%3D7":                    {"busy"},
		"?metadata=rack%3D7&metadata=os%3Dbsd":  {},
		"?metadata=rack%3D":                     {},
		"?health=healthy":                       {"busy"},
		"?health=healthy,degraded":              {"busy", "ready"},
		"?health=failed":                        {"gone"},
		"?health=degraded&live=true&state=busy": {},
	} {
		ids := []string{}
		for _, a := range answer[agentPage](t, do(h, http.MethodGet, "/api/v1/agents"+target, ""),
			http.StatusOK).Agents {
			ids = append(ids, a.ID)
		}
		require.Equal(t, want, ids, target)
	}
	for _, bad := range []string{"?health=fine", "?state=asleep", "?metadata=rack", "?metadata=%3D7", "?view=long"} {
		problem(t, do(h, http.MethodGet, "/api/v1/agents"+bad, ""), 422, protocol.CodeInvalidRequest)
	}
}

func TestRegistryView(t *testing.T) {
	t.Parallel()
	f := newRegistry()
	h := serveWith(t, f)
	plain := answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/busy", ""), http.StatusOK)
	require.Equal(t, api.WorkerBusy, plain.State)
	require.Equal(t, "10.0.0.5:9091", plain.Address)
	require.NotNil(t, plain.StartedAt)
	require.Empty(t, plain.CurrentTasks)
	require.Empty(t, f.queues, "the basic view asks no hub")

	full := answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/busy?view=full", ""), http.StatusOK)
	require.Equal(t, []string{"t-1", "t-2"}, []string{full.CurrentTasks[0].TaskID, full.CurrentTasks[1].TaskID})
	require.Equal(t, 40, full.CurrentTasks[0].Percent)
	require.Equal(t, api.HealthHealthy, full.Health)

	agents := answer[agentPage](t, do(h, http.MethodGet, "/api/v1/agents?view=full", ""), http.StatusOK).Agents
	require.Len(t, agents, 4)
	require.Len(t, agents[0].CurrentTasks, 2)
	require.Empty(t, agents[3].CurrentTasks, "a hub that does not answer leaves it open")
	require.Equal(t, api.HealthDegraded, agents[3].Health)

	// Without standalone activities the view tells what it can.
	f.start = serviceerror.NewUnimplemented("no such method")
	require.Empty(t, answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/busy?view=full", ""),
		http.StatusOK).CurrentTasks)
	require.Len(t, answer[agentPage](t, do(h, http.MethodGet, "/api/v1/agents?view=full", ""), http.StatusOK).Agents, 4)
}
