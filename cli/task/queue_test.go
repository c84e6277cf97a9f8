package task

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/cli/clitest"
)

func TestWaitingTasksSayWhy(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents/tasks/queue": {Status: 200,
			Body: `{"tasks":[{"id":"t-1","type":"resize","cluster":"c","priority_name":"normal","status":"retry_wait","why":"no agent handles it; agent a handles echo"}]}`},
		"GET /api/v1/agents/tasks/queue/dead-letter": {Status: 200, Body: `{"tasks":[]}`},
	})
	got := f.At(t, "task", "queue")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, strings.TrimLeft(`
TASK  TYPE    CLUSTER  PRIORITY  STATUS      AGENT  SUBMITTED  WHY
t-1   resize  c        normal    retry_wait  -      -          no agent handles it; agent a handles echo
`, "\n"), got.Stdout)
	require.Equal(t, "There are no such tasks.\n", f.At(t, "task", "dead-letters").Stdout)
}

func TestTaskSubmitBatch(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks/batch": {Status: 202,
		Body: `{"tasks":[{"id":"t-1","status":"queued"},{"error":{"code":"unknown_cluster","detail":"no such cluster"}}],"accepted":1,"rejected":1}`}})
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	for _, text := range []string{`[{"type":"a"},{"type":"b"}]`, `{"type":"a"}` + "\n" + `{"type":"b"}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		f.Requests = nil
		got := f.At(t, "task", "submit-batch", path)
		require.Equal(t, app.ExitUsage, got.Code)
		require.Equal(t, "1 task accepted, 1 refused.\n", got.Stdout)
		require.Contains(t, got.Stderr, "Task 2 was refused: no such cluster (unknown_cluster)")
		require.Len(t, f.Requests, 1)
		require.Equal(t, http.MethodPost, f.Requests[0].Method)
		require.JSONEq(t, `[{"type":"a"},{"type":"b"}]`, f.Requests[0].Body)
	}
	for text, want := range map[string]string{"": "holds no tasks", `{"type":`: "is not JSON"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got := f.At(t, "task", "submit-batch", path)
		require.Equal(t, app.ExitUsage, got.Code)
		require.Contains(t, got.Stderr, want)
	}
}
