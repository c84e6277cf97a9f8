package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestDrainIsStarted(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "east"}, cluster.Member{AgentID: "a-1", Status: api.AgentOnline},
		cluster.Member{AgentID: "a-2", Status: api.AgentOnline})
	h := serve(t, f)
	record := answer[api.DrainRecord](t, do(h, http.MethodPost, "/api/v1/agents/a-1/drain",
		`{"deadline":"90s","reason":"disk"}`), http.StatusAccepted)
	workflowID, ok := contract.DrainWorkflowID(record.ID)
	require.True(t, ok, record.ID)
	require.Equal(t, contract.DrainInput{ID: record.ID, Cluster: "east", Agents: []string{"a-1"}, Reason: "disk",
		Timeout: api.Duration(90 * time.Second), MaxParallel: 1}, f.executions[workflowID].input)
	require.Equal(t, []api.AgentDrain{{AgentID: "a-1", Status: api.DrainWaiting}}, record.Agents)

	record = answer[api.DrainRecord](t, do(h, http.MethodPost, "/api/v1/agents/a-2/drain", ""), http.StatusAccepted)
	require.Equal(t, 5*time.Minute, record.Timeout.Std())
	record = answer[api.DrainRecord](t, do(h, http.MethodPost, "/api/v1/agents/clusters/east/drain",
		`{"agents":["a-2","a-1"],"max_parallel":2}`), http.StatusAccepted)
	require.Len(t, record.Agents, 2)
	require.Equal(t, 2, record.MaxParallel)
}

func TestDrainBadRequests(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withClusterState(&cluster.Cluster{Config: api.ClusterConfig{Name: "east"},
		Members: []cluster.Member{{AgentID: "a-1", Status: api.AgentOnline},
			{AgentID: "a-2", Status: api.AgentDraining}},
		Cordons: []cluster.Cordon{{AgentID: "a-2", Status: api.AgentDraining, Drain: "east:d1"}}})
	h := serve(t, f)
	for _, bad := range []struct {
		method, path, body, code string
		status                   int
	}{
		{"POST", "canary/drain", `{}`, protocol.CodeUnknownAgent, 404},
		{"POST", "a-1/drain", `{"deadline":"canary"}`, protocol.CodeInvalidRequest, 422},
		{"POST", "a-1/drain", `{"deadline":"25h"}`, protocol.CodeInvalidRequest, 422},
		{"POST", "a-1/drain", `{"deadline":"-1s"}`, protocol.CodeInvalidRequest, 422},
		{"POST", "a-1/drain", `{"unknown":1}`, protocol.CodeInvalidRequest, 422},
		{"POST", "a-2/drain", `{}`, protocol.CodeConflict, 409},
		{"POST", "clusters/canary/drain", `{"agents":["a-1"]}`, protocol.CodeUnknownCluster, 404},
		{"POST", "clusters/east/drain", `{"agents":[]}`, protocol.CodeInvalidRequest, 422},
		{"POST", "clusters/east/drain", `{"agents":["canary"]}`, protocol.CodeInvalidRequest, 422},
		{"POST", "clusters/east/drain", `{"agents":["a-1"],"max_parallel":0}`, protocol.CodeInvalidRequest, 422},
		{"GET", "drains/canary", "", protocol.CodeUnknownDrain, 404},
		{"GET", "drains/east:canary", "", protocol.CodeUnknownDrain, 404},
		{"POST", "drains/east:canary/cancel", "", protocol.CodeUnknownDrain, 404},
		{"GET", "drains?page_token=canary", "", protocol.CodeInvalidRequest, 422},
		{"POST", "canary/maintenance", `{"enabled":true}`, protocol.CodeUnknownAgent, 404},
		{"POST", "a-1/maintenance", `{}`, protocol.CodeInvalidRequest, 422},
	} {
		p := problem(t, do(h, bad.method, "/api/v1/agents/"+bad.path, bad.body), bad.status, bad.code)
		require.NotContains(t, p.Detail, "canary", "%+v", bad)
	}
}
