package task

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

const (
	dryRunJSON = `{"dry_run":true,"action":"cancel","reason":"x","expected":3,"at_most":true,"sample":["t-1","t-2"],"matched":0,"done":0,"skipped":0,"failed":0}`
	bulkJSON   = `{"id":"b-1","action":"cancel","filter":{"cluster":"studio","status":"queued","labels":{"a":"b"},"submitted_before":"2026-11-21T10:00:00Z"},"reason":"wrong input","status":"completed","expected":3,
"matched":3,"done":1,"skipped":1,"failed":1,"examples":[{"task_id":"t-2","outcome":"skipped","reason":"the task has ended"},{"task_id":"t-3","outcome":"failed","reason":"its workflow\nis paused"}],
"started_at":"2026-11-21T11:58:00Z","closed_at":"2026-11-21T11:58:04Z","workflow_id":"bulk/b-1"}`
)

func TestBulkAsks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stdin    string
		args     []string
		code     int
		requests int
		wants    string
	}{
		"yes": {"y\n", nil, app.ExitOK, 2, "Bulk operation b-1 is under way on 3 tasks."},
		"no": {"n\n", nil, app.ExitOK, 1,
			"This will cancel at most 3 tasks, such as t-1, t-2. Go on? [y/N] Nothing was done."},
		"nobody there": {"", nil, app.ExitUsage, 1, "say --yes to go on without being asked"},
		"not asked":    {"", []string{"--yes"}, app.ExitOK, 1, "Bulk operation b-1"},
		"only to look": {"", []string{"--dry-run"}, app.ExitOK, 1,
			"This would cancel at most 3 tasks.\n  t-1\n  t-2\n  … and 1 more\n"},
		"look and --yes": {"", []string{"--dry-run", "--yes"}, app.ExitOK, 1, "This would cancel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks/bulk": {Status: 200,
				Body: dryRunJSON}})
			f.Config.Handler = sayBoth(f)
			got := clitest.Run(t.Context(), c.stdin, append([]string{"task", "bulk", "--server", f.URL, "cancel",
				"--cluster", "studio", "--reason", "wrong input"}, c.args...)...)
			require.Equal(t, c.code, got.Code, got.Stderr)
			require.Contains(t, got.Stderr+got.Stdout, c.wants)
			require.Len(t, f.Requests, c.requests)
			started := slices.ContainsFunc(f.Requests, func(r clitest.Request) bool {
				return !strings.Contains(r.Body,
					`"dry_run":true`)
			})
			require.Equal(t, strings.Contains(got.Stdout, "under way"), started)
		})
	}
}

// sayBoth answers a dry run and a start with different bodies.
func sayBoth(f *clitest.API) http.Handler {
	next := f.Config.Handler
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &bodyRecorder{ResponseWriter: w}
		next.ServeHTTP(recorder, r)
		body := dryRunJSON
		if !strings.Contains(f.Requests[len(f.Requests)-1].Body, `"dry_run":true`) {
			body = `{"id":"b-1","action":"cancel","reason":"x","status":"running","expected":3,"matched":0,"done":0,"skipped":0,"failed":0}`
		}
		_, _ = w.Write([]byte(body))
	})
}

// bodyRecorder drops what is written.
type bodyRecorder struct{ http.ResponseWriter }

func (bodyRecorder) Write(b []byte) (int, error) { return len(b), nil }
func (bodyRecorder) WriteHeader(int)             {}

func TestBulkRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		body string
	}{
		{[]string{"retry", "--type", "render", "--status", "dead_letter", "--tenant", "acme", "--agent", "a", "--label",
			"a=b", "--submitted-after", "-24h", "--submitted-before", "2026-11-21T12:00:00+02:00"},
			`{"action":"retry","reason":"x","filter":{"type":"render","status":"dead_letter","tenant":"acme","agent":"a","labels":{"a":"b"},"submitted_after":"2026-11-20T12:00:00Z","submitted_before":"2026-11-21T10:00:00Z"}}`},
		{[]string{"discard", "--all"}, `{"action":"discard","reason":"x","all":true}`},
		{[]string{"review", "--decision", "failed", "--id", "t-1", "--id", "t-2"},
			`{"action":"review","reason":"x","decision":"failed","filter":{"ids":["t-1","t-2"]}}`},
		{[]string{"priority", "--priority", "critical", "--cluster", "studio"},
			`{"action":"priority","reason":"x","priority":1,"filter":{"cluster":"studio"}}`},
	} {
		f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks/bulk": {Status: 202,
			Body: bulkJSON}})
		got := f.At(t, append([]string{"task", "bulk"}, append(c.args, "--reason", "x", "--yes")...)...)
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.JSONEq(t, c.body, f.Requests[0].Body)
	}
	for wants, args := range map[string][]string{
		"give a --reason":                      {"cancel", "--all", "--yes"},
		"if every task is meant, say --all":    {"cancel", "--yes", "--reason", "x"},
		"--priority must be":                   {"priority", "--all", "--yes", "--reason", "x", "--priority", "urgent"},
		"unknown flag: --decision":             {"cancel", "--decision", "failed"},
		"takes no arguments":                   {"cancel", "t-1"},
		"--submitted-after must be a time":     {"cancel", "--submitted-after", "-yesterday", "--reason", "x"},
		"--label must be NAME=VALUE":           {"cancel", "--label", "x", "--reason", "x"},
		`no command "mainstay task bulk kill"`: {"kill"},
	} {
		got := clitest.Run(t.Context(), "", append([]string{"task", "bulk"}, args...)...)
		require.Equal(t, app.ExitUsage, got.Code, got.Stderr)
		require.Contains(t, got.Stderr, wants)
	}
}

func TestBulkViews(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents/tasks/bulk":             {Status: 200, Body: `{"bulks":[` + bulkJSON + `]}`},
		"GET /api/v1/agents/tasks/bulk/b-1":         {Status: 200, Body: bulkJSON},
		"POST /api/v1/agents/tasks/bulk/b-1/cancel": {Status: 200, Body: bulkJSON},
	})
	got := f.At(t, "task", "bulk", "get", "b-1", "--wait")
	require.Equal(t, app.ExitIncomplete, got.Code, "one task failed")
	require.Equal(t, strings.TrimLeft(`
Bulk operation  b-1
Action          cancel
Tasks           cluster studio, status queued, labels a=b, submitted before 2026-11-21T10:00:00Z
Reason          wrong input
Status          completed
Done            1 of 3
Skipped         1, no longer in a state for it
Failed          1
Started         2m ago
Ended           116s ago, after 4.0s
Workflow        bulk/b-1

TASK  OUTCOME  REASON
t-2   skipped  the task has ended
t-3   failed   its workflow is paused
`, "\n"), got.Stdout)
	require.Equal(t, app.ExitOK, f.At(t, "task", "bulk", "get", "b-1").Code)
	require.Equal(t, strings.TrimLeft(`
BULK OPERATION  ACTION  STATUS     DONE    SKIPPED  FAILED  STARTED  REASON
b-1             cancel  completed  1 of 3  1        1       2m ago   wrong input
`, "\n"), f.At(t, "task", "bulk", "list").Stdout)
	require.Equal(t, "Bulk operation b-1 stops; 1 tasks are done so far.\n",
		f.At(t, "task", "bulk", "stop", "b-1", "--reason", "enough").Stdout)
	require.JSONEq(t, `{"reason":"enough"}`, f.Requests[3].Body)
}
