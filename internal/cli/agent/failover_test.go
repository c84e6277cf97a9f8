package agent

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

const failedOver = `{"id":"default:agent-1:7","cluster":"default","failed_agent_id":"agent-1","epoch":7,"target_agent_id":"agent-2",
"trigger":"lost","reason":"its connection closed","status":"%s","tasks":2,"tasks_transferred":1,"transfers":[
{"task_id":"t-2","from":"agent-1","retry_count":0,"status":"review","why":"it may have run"},
{"task_id":"t-1","from":"agent-1","to":"agent-2","epoch":8,"retry_count":1,"status":"running","why":"its agent was lost","at":"2026-11-21T11:59:01.25Z"}],
"promoted":"agent-2","leader_epoch":9,"shards":[{"shard":3,"from":"agent-1","to":"agent-2","epoch":10}],
"noticed_at":"2026-11-21T11:59:00Z","resumed_at":"2026-11-21T11:59:01.25Z","started_at":"2026-11-21T11:59:00.03Z","completed_at":"2026-11-21T11:59:02Z"}`

func TestFailoverTimeline(t *testing.T) {
	t.Parallel()
	url, _ := clitest.Answering(t, 200, "application/json", fmt.Sprintf(failedOver, "succeeded"))
	got := clitest.Run(t.Context(), "", "failover", "get", "default:agent-1:7", "--server", url)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	_, steps, found := strings.Cut(got.Stdout, "WHAT\n")
	require.True(t, found, got.Stdout)
	for i, want := range []string{
		"11:59:00.000Z +0ms noticed: the agent was lost",
		"11:59:00.030Z +30ms started",
		"11:59:01.250Z +1.2s task t-1: agent-1 → agent-2, epoch 8, running, retry 1: its agent was lost",
		"11:59:01.250Z +1.2s all that moved runs again",
		"- - task t-2: agent-1 → nobody yet, review: it may have run",
		"- - leader: agent-1 → agent-2, epoch 9",
		"- - shard 3: agent-1 → agent-2, epoch 10",
		"11:59:02.000Z +2.0s closed: succeeded",
	} {
		require.Equal(t, want, strings.Join(strings.Fields(strings.Split(steps, "\n")[i]), " "))
	}
	for _, want := range []string{"agent-1, epoch 7, in cluster default", "its connection closed", "1 of 2 tasks", "after 1.2s", "after 2.0s"} {
		require.Contains(t, got.Stdout, want)
	}
	got = clitest.Run(t.Context(), "", "failover", "get", "default:agent-1:7", "-o", "json", "--server", url)
	require.JSONEq(t, fmt.Sprintf(failedOver, "succeeded"), got.Stdout)
}

func TestFailoverList(t *testing.T) {
	t.Parallel()
	url, _ := clitest.Answering(t, 200, "application/json", `{"failovers":[`+fmt.Sprintf(failedOver, "succeeded")+`]}`)
	got := clitest.Run(t.Context(), "", "failover", "list", "--cluster", "default", "--server", url)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "default:agent-1:7 succeeded lost agent-2 1 of 2 tasks 60s ago after 1.2s after 2.0s",
		strings.Join(strings.Fields(strings.Split(got.Stdout, "\n")[1]), " "))
	url, _ = clitest.Answering(t, 200, "application/json", `{"failovers":[]}`)
	require.Contains(t, clitest.Run(t.Context(), "", "failover", "list", "--server", url).Stdout, "no such failovers")
	require.Equal(t, app.ExitUsage, clitest.Run(t.Context(), "", "failover", "list", "--limit", "0").Code)
}

// failoverServer plays a control plane. A failover is asked for by POST, begins at the second look at it and ends with
// status at the third.
type failoverServer struct {
	mu     sync.Mutex
	status string
	asked  string
	looks  int
	never  bool // no failover begins
}

func (s *failoverServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record := fmt.Sprintf(failedOver, s.status)
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/agents/agent-1/failover":
		body, _ := io.ReadAll(r.Body)
		s.asked = string(body)
		w.WriteHeader(http.StatusAccepted)
		record = `{"cluster":"default","agent_id":"agent-1","failover_id":"default:agent-1:7"}`
	case r.URL.Path != "/api/v1/agents/failovers/default:agent-1:7":
		w.WriteHeader(http.StatusInternalServerError)
	default:
		if s.asked != "" && !s.never {
			s.looks++
		}
		switch {
		case s.looks < 2:
			w.WriteHeader(http.StatusNotFound)
			record = `{"status":404,"title":"Not Found","code":"unknown_failover"}`
		case s.looks == 2:
			record = strings.ReplaceAll(strings.Replace(record, s.status, "running", 1),
				`,"completed_at":"2026-11-21T11:59:02Z"`, "")
		}
	}
	_, _ = io.WriteString(w, record)
}

func TestAgentFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status string
		code   int
	}{
		"succeeded": {"succeeded", app.ExitOK},
		"no target": {"no_target_available", app.ExitIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &failoverServer{status: test.status}
			server := httptest.NewServer(s)
			defer server.Close()
			got := clitest.Run(t.Context(), "", "agent", "failover", "agent-1", "--to", "agent-2", "--reason",
				"why not", "--wait=1m", "--server", server.URL)
			require.Equal(t, test.code, got.Code, got.Stderr)
			require.JSONEq(t, `{"target_agent_id":"agent-2","reason":"why not"}`, s.asked)
			require.Contains(t, got.Stdout, "11:59:02.000Z  +2.0s  closed: "+test.status)
			require.Equal(t, 3, s.looks)
		})
	}
}

func TestAgentFailoverThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&failoverServer{status: "succeeded", never: true})
	defer server.Close()
	got := clitest.Run(t.Context(), "", "agent", "failover", "agent-1", "--wait=1ms", "--server", server.URL)
	require.Equal(t, app.ExitIncomplete, got.Code)
	require.Contains(t, got.Stderr, "has not begun")

	got = clitest.Run(t.Context(), "", "agent", "failover", "agent-1", "--server", server.URL)
	require.Equal(t, app.ExitOK, got.Code)
	require.Contains(t, got.Stdout, "mainstay failover get default:agent-1:7")
}

// TestDryRunsOfDrainsAreNoPlans: a list must not look as if an agent were about to be drained.
func TestDryRunsOfDrainsAreNoPlans(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/drains": {Status: 200, Body: `{"drains":[{"id":"c:d-1","cluster":"c","status":"planned","agents":[{"agent_id":"a","status":"planned"}]},
		{"id":"c:d-2","cluster":"c","status":"running","agents":[{"agent_id":"a","status":"waiting"}]}]}`},
		"GET /api/v1/agents/drains/c:d-2": {Status: 200,
			Body: `{"id":"c:d-2","cluster":"c","status":"running","timeout":"5m0s","agents":[{"agent_id":"a","status":"waiting"}]}`}})
	got := f.At(t, "drain", "list")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "c:d-1  dry run")
	require.NotContains(t, got.Stdout, "planned")
	require.Contains(t, f.At(t, "drain", "get", "c:d-2").Stdout, "See how far it is with: mainstay drain get c:d-2")
}
