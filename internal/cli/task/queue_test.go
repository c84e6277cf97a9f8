package task

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestListsOfTasksSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents/tasks/queue": {Status: 200, Body: `{"tasks":[
			{"id":"t-1","type":"resize","cluster":"c","priority_name":"normal","status":"retry_wait",
				"why":"no agent handles it; agent a handles echo"},
			{"id":"t-2","type":"train","cluster":"c","priority_name":"high","status":"queued","agent":"a",
				"required_capabilities":["cuda"],"delivery_attempts":2,"expires_at":"2026-11-21T12:10:00Z","why":"busy",
				"place":{"resources":{"cpu":"2"},"devices":[{"kind":"gpu"}],"volumes":[{"name":"films"}],
					"ports":{"a":{},"b":{"static":80}}}}]}`},
		"GET /api/v1/agents/tasks/queue/dead-letter": {Status: 200, Body: `{"tasks":[
			{"id":"t-3","type":"render","cluster":"c","priority_name":"normal","status":"dead_letter",
				"delivery_attempts":3,"required_capabilities":["blender"],"why":"x",
				"dead_letter":{"since":"2026-11-21T11:00:00Z","until":"2026-11-28T11:00:00Z","cause":"x","kind":"exit_2"}}]}`},
	})
	got := f.At(t, "task", "queue")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	blanks := regexp.MustCompile(` +`)
	require.Equal(t, strings.TrimLeft(`
TASK TYPE CLUSTER PRIORITY STATUS AGENT SUBMITTED TRIED EXPIRES NEEDS WHY
t-1 resize c normal retry_wait - - 0 - - no agent handles it; agent a handles echo
t-2 train c high queued a - 2 in 10m agent a, cuda, cpu 2, whole gpu, volume films, a port, port 80 busy
`, "\n"), blanks.ReplaceAllString(got.Stdout, " "))
	require.Equal(t, strings.TrimLeft(`
TASK TYPE CLUSTER PRIORITY STATUS AGENT SUBMITTED TRIED KEPT NEEDS CAUSE WHY
t-3 render c normal dead_letter - - 3 in 6d blender exit_2 x
`, "\n"), blanks.ReplaceAllString(f.At(t, "task", "dead-letters").Stdout, " "))
}

func TestTaskSubmitBatch(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks/batch": {Status: 202,
		Body: `{"tasks":[{"id":"t-1","status":"queued"},
			{"error":{"code":"unknown_cluster","detail":"no such cluster"}}],"accepted":1,"rejected":1}`}})
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
