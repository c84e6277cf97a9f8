package gateway_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// TestOneBrokenClusterBreaksNoList has a cluster that cannot answer, as when its state does not fit into a message.
func TestOneBrokenClusterBreaksNoList(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "well"}, cluster.Member{AgentID: "a-1", Status: api.AgentOnline})
	broken := f.withCluster(api.ClusterConfig{Name: "broken"}, cluster.Member{AgentID: "a-2", Status: api.AgentOnline})
	answers := broken.query
	broken.query = func() (any, error) { return nil, errors.New("payloads with size that exceeded the error limit") }
	h := serve(t, f)

	agents := answer[struct {
		Agents  []api.Agent
		Missing []string `json:"missing_clusters"`
	}](t, do(h, http.MethodGet, "/api/v1/agents", ""), http.StatusOK)
	require.Len(t, agents.Agents, 1)
	require.Equal(t, []string{"broken"}, agents.Missing)
	queue := answer[struct {
		Lanes   []api.Lane
		Missing []string `json:"missing_clusters"`
	}](t, do(h, http.MethodGet, "/api/v1/agents/queue", ""), http.StatusOK)
	require.Len(t, queue.Lanes, 1)
	require.Equal(t, []string{"broken"}, queue.Missing)
	answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/a-1", ""), http.StatusOK)
	problem(t, do(h, http.MethodGet, "/api/v1/agents/a-2", ""), 503, protocol.CodeUnavailable)
	problem(t, do(h, http.MethodGet, "/api/v1/agents?cluster=broken", ""), 500, protocol.CodeInternal)

	broken.query = answers
	require.Empty(t, answer[struct {
		Missing []string `json:"missing_clusters"`
	}](t, do(h, http.MethodGet, "/api/v1/agents", ""), http.StatusOK).Missing)
	problem(t, do(h, http.MethodGet, "/api/v1/agents/a-3", ""), 404, protocol.CodeUnknownAgent)
}
