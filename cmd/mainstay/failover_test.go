package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
)

const failedOver = `{"id":"default:agent-1:7","cluster":"default","failed_agent_id":"agent-1","epoch":7,"target_agent_id":"agent-2",
"trigger":"lost","reason":"its connection closed","status":"%s","tasks_transferred":1,"transfers":[
{"task_id":"t-2","from":"agent-1","retry_count":0,"status":"review","why":"it may have run"},
{"task_id":"t-1","from":"agent-1","to":"agent-2","epoch":8,"retry_count":1,"status":"running","why":"its agent was lost","at":"2026-11-21T11:59:01.25Z"}],
"promoted":"agent-2","leader_epoch":9,"shards":[{"shard":3,"from":"agent-1","to":"agent-2","epoch":10}],
"noticed_at":"2026-11-21T11:59:00Z","started_at":"2026-11-21T11:59:00.03Z","completed_at":"2026-11-21T11:59:02Z"}`

func TestFailoverTimeline(t *testing.T) {
	t.Parallel()
	url, _ := answering(t, 200, "application/json", fmt.Sprintf(failedOver, "succeeded"))
	got := run(t.Context(), "", "failover", "get", "default:agent-1:7", "--server", url)
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	_, steps, found := strings.Cut(got.stdout, "WHAT\n")
	require.True(t, found, got.stdout)
	for i, want := range []string{
		"11:59:00.000 +0ms noticed: the agent was lost",
		"11:59:00.030 +30ms started",
		"11:59:01.250 +1.2s task t-1: agent-1 → agent-2, epoch 8, running, retry 1: its agent was lost",
		"- - task t-2: agent-1 → nobody yet, review: it may have run",
		"- - leader: agent-1 → agent-2, epoch 9",
		"- - shard 3: agent-1 → agent-2, epoch 10",
		"11:59:02.000 +2.0s completed: succeeded",
	} {
		require.Equal(t, want, strings.Join(strings.Fields(strings.Split(steps, "\n")[i]), " "))
	}
	for _, want := range []string{"agent-1, epoch 7, in cluster default", "its connection closed", "1 of 2", "2.0s"} {
		require.Contains(t, got.stdout, want)
	}
	got = run(t.Context(), "", "failover", "get", "default:agent-1:7", "-o", "json", "--server", url)
	require.JSONEq(t, fmt.Sprintf(failedOver, "succeeded"), got.stdout)
}

func TestFailoverList(t *testing.T) {
	t.Parallel()
	url, _ := answering(t, 200, "application/json", `{"failovers":[`+fmt.Sprintf(failedOver, "succeeded")+`]}`)
	got := run(t.Context(), "", "failover", "list", "--cluster", "default", "--server", url)
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Equal(t, "default:agent-1:7 succeeded lost agent-2 1 of 2 60s ago 2.0s",
		strings.Join(strings.Fields(strings.Split(got.stdout, "\n")[1]), " "))
	url, _ = answering(t, 200, "application/json", `{"failovers":[]}`)
	require.Contains(t, run(t.Context(), "", "failover", "list", "--server", url).stdout, "no such failovers")
	require.Equal(t, app.ExitUsage, run(t.Context(), "", "failover", "list", "--limit", "0").code)
}

// failoverServer plays a control plane where agent-1 was failed over before, in the same session. The new failover is
// asked for by POST, begins at the second look at it and ends with status at the third.
type failoverServer struct {
	mu     sync.Mutex
	status string
	asked  string
	looks  int
	first  bool // nothing was recorded before
	never  bool // no new failover begins
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
	case r.URL.Path == "/api/v1/agents/agent-1":
		record = `{"id":"agent-1","cluster":"default","epoch":7}`
	case r.URL.Path != "/api/v1/agents/failovers/default:agent-1:7":
		w.WriteHeader(http.StatusInternalServerError)
	default:
		if s.asked != "" && !s.never {
			s.looks++
		}
		switch {
		case s.looks < 2 && s.first:
			w.WriteHeader(http.StatusNotFound)
			record = `{"status":404,"title":"Not Found","code":"unknown_failover"}`
		case s.looks < 2:
			record = strings.ReplaceAll(record, "T11:", "T10:")
		case s.looks == 2:
			record = strings.ReplaceAll(strings.Replace(record, s.status, "running", 1), `,"completed_at":"2026-11-21T11:59:02Z"`, "")
		}
	}
	_, _ = io.WriteString(w, record)
}

func TestAgentFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status string
		first  bool
		code   int
	}{
		"first":     {"succeeded", true, app.ExitOK},
		"again":     {"succeeded", false, app.ExitOK},
		"no target": {"no_target_available", true, app.ExitIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &failoverServer{status: test.status, first: test.first}
			server := httptest.NewServer(s)
			defer server.Close()
			got := run(t.Context(), "", "agent", "failover", "agent-1", "--to", "agent-2", "--reason", "why not", "--wait=1m", "--server", server.URL)
			require.Equal(t, test.code, got.code, got.stderr)
			require.JSONEq(t, `{"target_agent_id":"agent-2","reason":"why not"}`, s.asked)
			require.Contains(t, got.stdout, "11:59:02.000  +2.0s  completed: "+test.status)
			require.Equal(t, 3, s.looks)
		})
	}
}

func TestAgentFailoverThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&failoverServer{status: "succeeded", never: true})
	defer server.Close()
	got := run(t.Context(), "", "agent", "failover", "agent-1", "--wait=1ms", "--server", server.URL)
	require.Equal(t, app.ExitIncomplete, got.code)
	require.Contains(t, got.stderr, "has not begun")

	got = run(t.Context(), "", "agent", "failover", "agent-1", "--server", server.URL)
	require.Equal(t, app.ExitOK, got.code)
	require.Contains(t, got.stdout, "mainstay failover get default:agent-1:7")
}

func TestReleaseBrake(t *testing.T) {
	t.Parallel()
	url, body := answering(t, 200, "application/json", `{"released":true}`)
	got := run(t.Context(), "", "cluster", "release-brake", "default", "--reason", "no power", "--server", url)
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "default is released")
	require.JSONEq(t, `{"reason":"no power"}`, body.String())
	require.JSONEq(t, `{"released":true}`, run(t.Context(), "", "cluster", "release-brake", "default", "-o", "json", "--server", url).stdout)
}
