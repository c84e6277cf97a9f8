package gateway_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func newHealthHub() *fakeHub {
	f := &fakeHub{fakeTemporal: newFake()}
	f.withCluster(api.ClusterConfig{Name: "east"},
		cluster.Member{AgentID: "a-1", Hub: "h1", Status: api.AgentOnline},
		cluster.Member{AgentID: "a-2", Hub: "h2", Status: api.AgentOnline},
		cluster.Member{AgentID: "a-3", Status: api.AgentOffline, StatusReason: "its connection closed"},
		cluster.Member{AgentID: "a-4", Status: api.AgentMaintenance})
	f.workers = []*workerpb.WorkerHeartbeat{{WorkerIdentity: contract.AgentIdentity("east", "a-1"),
		HostInfo:              &workerpb.WorkerHostInfo{CurrentHostCpuUsage: .5},
		ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{CurrentUsedSlots: 2, TotalProcessedTasks: 4, TotalFailedTasks: 1}}}
	f.health = func(queue string) (contract.ReadHealthResult, error) {
		if queue == contract.HubQueue("h2") {
			return contract.ReadHealthResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		return contract.ReadHealthResult{Agents: map[string]cluster.Health{"a-1": cluster.AssessHealth(
			cluster.HealthFacts{Failed: 10}, "")}}, nil
	}
	return f
}

func TestHealthOfACluster(t *testing.T) {
	t.Parallel()
	f := newHealthHub()
	h := serveWith(t, f)
	got := answer[api.ClusterHealth](t, do(h, http.MethodGet, "/api/v1/agents/clusters/east/health", ""), http.StatusOK)
	require.Len(t, got.Agents, 4)
	require.Equal(t, api.HealthHealthy, got.Agents[0].Level)
	require.InDelta(t, .9, *got.Agents[0].Score, .001)
	require.Len(t, got.Agents[0].Factors, 5)
	require.Empty(t, got.Agents[1].Level, "a hub that does not answer leaves it open")
	require.Nil(t, got.Agents[1].Score)
	require.Nil(t, got.Agents[1].ConsecutiveFailures, "nobody has said that it is 0")
	require.NotEmpty(t, got.Agents[1].Why)
	require.Equal(t, api.HealthFailed, got.Agents[2].Level)
	require.Contains(t, got.Agents[2].Why, "its connection closed")
	require.NotNil(t, got.Agents[2].FailedAt)
	require.Nil(t, got.Agents[2].Metrics)
	require.Nil(t, got.Agents[2].ConsecutiveFailures)
	require.InDelta(t, .45, *got.Score, .001,
		"the mean of a-1 and a-3: what is not known and what is in maintenance does not count")
	require.Equal(t, 2, f.removed, "no question is kept in Temporal")
}

func TestHealthOfAnAgent(t *testing.T) {
	t.Parallel()
	f := newHealthHub()
	h := serveWith(t, f)
	got := answer[api.AgentHealth](t, do(h, http.MethodGet, "/api/v1/agents/a-1/health", ""), http.StatusOK)
	require.Equal(t, "a-1", got.AgentID)
	require.Equal(t, &api.HealthMetrics{CPUPercent: new(50.), MemoryPercent: new(0.), TaskCount: 2, ErrorRate: new(.25)},
		got.Metrics)
	require.Equal(t, new(0), got.ConsecutiveFailures)
	require.NotNil(t, got.LastHeartbeat)
	require.Nil(t, got.FailedAt)
	require.Equal(t, []string{contract.HubQueue("h1")}, f.queues, "only its own hub is asked")
	problem(t, do(h, http.MethodGet, "/api/v1/agents/canary/health", ""), http.StatusNotFound,
		protocol.CodeUnknownAgent)
	problem(t, do(h, http.MethodGet, "/api/v1/agents/clusters/canary/health", ""), http.StatusNotFound,
		protocol.CodeUnknownCluster)
	f.start = serviceerror.NewUnimplemented("no such method")
	problem(t, do(h, http.MethodGet, "/api/v1/agents/a-1/health", ""), http.StatusNotImplemented,
		protocol.CodeNotSupported)
}
