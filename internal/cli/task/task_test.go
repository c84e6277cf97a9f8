package task

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command)) }

const jSON = `{"id":"t-1","type":"exec","cluster":"default","status":"completed","priority":2,"priority_name":"high","payload":{"command":["echo","hello"]},"labels":{"b":"2","a":"1"},
"attempts":[
{"number":1,"agent_id":"agent-1","epoch":3,"started_at":"2026-11-21T11:58:00Z","ended_at":"2026-11-21T11:58:04Z","outcome":"lost","reason":"its connection\nclosed\u001b[31m","progress":{"percent":40,"step":"half","estimated_duration":"10s"}},
{"number":2,"agent_id":"agent-2","epoch":1,"started_at":"2026-11-21T11:58:05Z","ended_at":"2026-11-21T11:58:05.250Z","outcome":"completed"}],
"result":{"exit_code":0,"stdout":"hello\n\u001b[2J","stderr":""},
"created_at":"2026-11-21T11:57:59Z","closed_at":"2026-11-21T11:58:06Z","workflow_id":"task/t-1","run_id":"r"}`

func TestTaskGet(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: jSON}})
	got := f.At(t, "task", "get", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, strings.TrimLeft(`
Task       t-1
Type       exec
Cluster    default
Status     completed
Priority   2 high
Labels     a=1, b=2
Submitted  2026-11-21T11:57:59Z, 2m ago
Ended      2026-11-21T11:58:06Z, 114s ago, after 7.0s
Workflow   task/t-1

Payload:
{
  "command": [
    "echo",
    "hello"
  ]
}

ATTEMPT  AGENT    EPOCH  STARTED               TOOK   OUTCOME    PROGRESS                     REASON
1        agent-1  3      2026-11-21T11:58:00Z  4.0s   lost       40% half (about 10s in all)  its connection closed
2        agent-2  1      2026-11-21T11:58:05Z  250ms  completed  -

Exit code: 0
Output:
hello
`, "\n"), got.Stdout)

	got = f.At(t, "task", "get", "t-1", "-o", "json")
	require.JSONEq(t, jSON, got.Stdout)
	require.Contains(t, got.Stdout, "\n  \"id\": \"t-1\"", "indented for people")
}

func TestReturnsOfOneReasonAreOneLine(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: `{"id":"t-1","type":"x","cluster":"c","status":"retry_wait","attempts":[
{"number":1,"outcome":"returned","reason":"all are busy"},{"number":2,"outcome":"returned","reason":"all are busy"},
{"number":3,"outcome":"returned","reason":"none is online"},{"number":4,"agent_id":"a","epoch":2,"outcome":"returned","reason":"none is online"},
{"number":5,"outcome":"returned","reason":"all are busy"},{"number":6,"outcome":"returned","reason":"all are busy"}]}`}})
	got := f.At(t, "task", "get", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, strings.TrimLeft(`
ATTEMPT  AGENT  EPOCH  STARTED  TOOK  OUTCOME   PROGRESS  REASON
1 to 2   -      -      -        -     returned  -         all are busy
3        -      -      -        -     returned  -         none is online
4        a      2      -        -     returned  -         none is online
5 to 6   -      -      -        -     returned  -         all are busy
`, "\n"))
}

func TestTaskSubmitPrintsWhatTheCommandWrote(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task           string
		code           int
		stdout, stderr string
	}{
		"completed": {
			`{"id":"t-1","type":"exec","status":"completed","attempts":[{"number":1,"agent_id":"agent-1","outcome":"completed"}],"result":{"exit_code":0,"stdout":"a\u001b[1m\n\nb","stderr":"oops\u001b[2J"}}`,
			app.ExitOK, "a\n\nb", "oops\nTask t-1 completed on agent-1.\n",
		},
		"failed": {
			`{"id":"t-1","type":"exec","status":"dead_letter","why":"3 of 3 attempts failed; last: exec: exit status 3"}`,
			app.ExitIncomplete, "",
			"3 of 3 attempts failed; last: exec: exit status 3\nError: task t-1 has used up its attempts: try it again with `mainstay task retry t-1`\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks": {Status: 201, Body: c.task},
				"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: c.task}})
			got := f.At(t, "task", "submit", "--wait", "--", "x")
			require.Equal(t, c.code, got.Code)
			require.Equal(t, c.stdout, got.Stdout)
			require.Equal(t, "Task t-1 is submitted.\n"+c.stderr, got.Stderr)
		})
	}
}

func TestTaskGetWaits(t *testing.T) {
	t.Parallel()
	for status, c := range map[string]struct {
		code  int
		wants string
	}{
		"completed":   {app.ExitOK, ""},
		"failed":      {app.ExitIncomplete, "task t-1 is failed"},
		"review":      {app.ExitIncomplete, "needs a decision"},
		"dead_letter": {app.ExitIncomplete, "mainstay task retry t-1"},
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200,
				Body: `{"id":"t-1","type":"x","cluster":"c","status":"` + status + `"}`}})
			got := f.At(t, "task", "get", "t-1", "--wait")
			require.Equal(t, c.code, got.Code)
			require.Contains(t, got.Stderr, c.wants)
			require.Contains(t, got.Stdout, status)
			require.Len(t, f.Requests, 1)
			require.Regexp(t, `\?include=payload&include=history&wait=(30s|29\.\d+s)$`, f.Requests[0].URI)
		})
	}
	t.Run("the time is over", func(t *testing.T) {
		t.Parallel()
		f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200,
			Body: `{"id":"t-1","type":"x","cluster":"c","status":"queued","why":"no agent is online"}`}})
		got := f.At(t, "task", "get", "t-1", "--wait=20ms")
		require.Equal(t, app.ExitIncomplete, got.Code)
		require.Contains(t, got.Stderr, "task t-1 is still queued after 20ms")
		require.Contains(t, got.Stdout, "Why      no agent is online")
	})
}

// madeID is an id that the client made.
var madeID = regexp.MustCompile(`"id":"t-[0-9a-z]{32}",`)

func TestTaskSubmit(t *testing.T) {
	t.Parallel()
	accepted := map[string]clitest.Answer{"POST /api/v1/agents/tasks": {Status: 202,
		Body: `{"id":"t-9","type":"exec","cluster":"default","status":"queued"}`}}
	for name, c := range map[string]struct {
		args []string
		body string
	}{
		"command": {[]string{"--dir", "/srv", "--env", "A=b=c", "--", "echo", "--wait", "hello"},
			`{"type":"exec","cluster":"default","payload":{"command":["echo","--wait","hello"],"env":{"A":"b=c"},"dir":"/srv"}}`},
		"payload": {[]string{"--type", "render", "--cluster", "studio", "--payload", `{"n": 1}`, "--priority",
			"critical", "--non-retryable", "exit_2", "--start-at", "+1h30m", "--agent", "a", "--retry-safety", "fenced",
			"--timeout", "90s", "--expires-in", "2h", "--max-attempts", "5", "--beacon-timeout", "45s", "--provider",
			"llm", "--capability", "gpu", "--capability", "big", "--tenant", "acme", "--label", "k=v"},
			`{"type":"render","cluster":"studio","payload":{"n":1},"priority":1,"start_at":"2026-11-21T13:30:00Z","agent":"a","retry_safety":"fenced","timeout":"1m30s","expires_in":"2h0m0s",
			"retry":{"max_attempts":5,"non_retryable":["exit_2"]},"beacon_timeout":"45s","provider":"llm","required_capabilities":["gpu","big"],"tenant":"acme","labels":{"k":"v"}}`},
		"named": {[]string{"--type", "x", "--id", "mine", "--priority", "4", "--start-at", "2026-12-24T18:00:00+01:00"},
			`{"type":"x","cluster":"default","id":"mine","priority":4,"start_at":"2026-12-24T17:00:00Z"}`},
		"keyed": {[]string{"--type", "x", "--idempotency-key", "k 1"},
			`{"type":"x","cluster":"default","idempotency_key":"k 1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewAPI(t, accepted)
			got := f.At(t, append([]string{"task", "submit"}, c.args...)...)
			require.Equal(t, app.ExitOK, got.Code, got.Stderr)
			require.Equal(t, "Task t-9 submitted. See it with: mainstay task get t-9 --wait\n", got.Stdout)
			require.Len(t, f.Requests, 1)
			require.JSONEq(t, c.body, madeID.ReplaceAllString(f.Requests[0].Body, ""))
		})
	}
	t.Run("submitted before", func(t *testing.T) {
		t.Parallel()
		f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks": {Status: 200,
			Body: `{"id":"t-9","type":"x","cluster":"c","status":"completed","duplicate":true}`}})
		require.Contains(t, f.At(t, "task", "submit", "--type", "x", "--id", "t-9").Stdout,
			"Task t-9 was submitted before; it is completed.")
	})
	t.Run("and waited for", func(t *testing.T) {
		t.Parallel()
		f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks": {Status: 202,
			Body: `{"id":"t-1"}`}, "GET /api/v1/agents/tasks/t-1": {Status: 200, Body: jSON}})
		got := f.At(t, "task", "submit", "--wait=1m", "-o", "json", "--", "true")
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.JSONEq(t, jSON, got.Stdout)
	})
}

// The control plane breaks the connection, is busy, and is back: the task is submitted once, and the user knows why it
// takes long.
func TestSubmitOutlivesARestart(t *testing.T) {
	t.Parallel()
	var ids []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var task struct{ ID string }
		_ = json.NewDecoder(r.Body).Decode(&task)
		switch ids = append(ids, task.ID); len(ids) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, `{"id":%q,"type":"exec","cluster":"default","status":"queued"}`, task.ID)
		}
	}))
	t.Cleanup(server.Close)
	got := clitest.Run(t.Context(), "", "task", "submit", "--server", server.URL, "--", "true")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, []string{ids[0], ids[0], ids[0]}, ids)
	require.Equal(t, "Task "+ids[0]+" submitted. See it with: mainstay task get "+ids[0]+" --wait\n", got.Stdout)
	require.Contains(t, got.Stderr, "Trying again for up to 30s.\n")
	require.Equal(t, 1, strings.Count(got.Stderr, "Trying again"), "it is said once")

	got = clitest.Run(t.Context(), "", "task", "submit", "--patience", "1ms", "--server", "127.0.0.1:1", "--", "true")
	require.Equal(t, app.ExitUnreachable, got.Code, got.Stderr)
}

func TestTaskActions(t *testing.T) {
	t.Parallel()
	after := clitest.Answer{Status: 200, Body: `{"id":"t-1","type":"x","cluster":"c","status":"queued"}`}
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"POST /api/v1/agents/tasks/t-1/cancel": after, "POST /api/v1/agents/tasks/t-1/retry": after,
		"POST /api/v1/agents/tasks/t-1/review": after,
	})
	for _, args := range [][]string{{"cancel", "t-1"}, {"retry", "t-1", "--reason", "why"},
		{"review", "t-1", "--decision", "completed", "--result", "7"}} {
		got := f.At(t, append([]string{"task"}, args...)...)
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.Equal(t, "Task t-1 is now queued.\n", got.Stdout)
	}
	running := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks/t-1/cancel": {Status: 200,
		Body: `{"id":"t-1","type":"x","cluster":"c","status":"running","cancelling":{"by":"ops"}}`}})
	require.Contains(t, running.At(t, "task", "cancel", "t-1").Stdout, "Task t-1 is running and being cancelled",
		"a cancellation that is under way is told")
	require.Equal(t, []string{`{}`, `{"reason":"why"}`, `{"decision":"completed","result":7}`},
		[]string{f.Requests[0].Body, f.Requests[1].Body, f.Requests[2].Body})
}

func TestTaskList(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks": {Status: 200, Body: `{"tasks":[
		{"id":"t-1","type":"exec","cluster":"default","status":"running","priority":3,"priority_name":"normal","created_at":"2026-11-21T11:59:57Z","attempts":[{"number":1,"agent_id":"agent-1"}]},
		{"id":"t-3","type":"exec","cluster":"default","status":"queued","priority":2,"priority_name":"high","created_at":"2026-11-21T11:59:00Z","next_attempt_at":"2026-11-21T12:10:00Z"},
		{"id":"t-2","type":"exec","cluster":"default","status":"completed","ran_on":["agent-9","agent-2"],"created_at":"2026-11-21T09:00:00Z","closed_at":"2026-11-21T09:00:30Z"}],"next_page_token":"abc"}`}})
	got := f.At(t, "task", "list", "--limit", "3", "--status", "running")
	require.Equal(t, strings.TrimLeft(`
TASK  TYPE  CLUSTER  PRIORITY  STATUS          AGENT    SUBMITTED  ENDED   TOOK
t-1   exec  default  normal    running         agent-1  3.0s ago   -
t-3   exec  default  high      queued, in 10m  -        60s ago    -
t-2   exec  default  -         completed       agent-2  3h ago     2h ago  30s
`, "\n"), got.Stdout)
	require.Equal(t, "There are more: raise --limit.\n", got.Stderr)
	require.Equal(t, []clitest.Request{{Method: http.MethodGet, URI: "/api/v1/agents/tasks?page_size=3&status=running",
		Body: ""}}, f.Requests)
}

func TestListReadsAllPages(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks": {Status: 200,
		Body: `{"tasks":[{"id":"t-1"},{"id":"t-2"}],"next_page_token":"abc"}`}})
	got := f.At(t, "task", "list", "--limit", "5", "-o", "json")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, 6, strings.Count(got.Stdout, `"id"`), "pages of two until there are five or more")
	require.Equal(t, "/api/v1/agents/tasks?page_size=3&page_token=abc", f.Requests[1].URI)
}

func TestTaskListFilters(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks": {Status: 200, Body: `{"tasks":[]}`}})
	got := f.At(t, "task", "list", "--label", "a=it's", "--label", "b:2", "--submitted-after", "2h",
		"--submitted-before", "2026-11-21T11:00:00+01:00", "--limit", "0")
	require.Equal(t, app.ExitUsage, got.Code)
	got = f.At(t, "task", "list", "--label", "a=it's", "--label", "b:2", "--submitted-after", "2h",
		"--submitted-before", "2026-11-21T11:00:00+01:00")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, app.ExitOK, f.At(t, "task", "list", "--label", "a=it's", "--label", "b:2", "--submitted-after",
		"-2h", "--submitted-before", "2026-11-21T11:00:00+01:00").Code)
	require.Equal(t, f.Requests[0].URI, f.Requests[1].URI, "2h ago either way")
	_, query, _ := strings.Cut(f.Requests[0].URI, "?")
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	require.Equal(t, url.Values{"label": {"a=it's", "b:2"}, "submitted_after": {"2026-11-21T10:00:00Z"},
		"submitted_before": {"2026-11-21T10:00:00Z"}, "page_size": {"50"}}, values)
	require.Equal(t, app.ExitOK, f.At(t, "task", "list", "--agent", "a-1", "--id", "t-06", "--text", "it's").Code)
	require.Equal(t, "/api/v1/agents/tasks?agent=a-1&id_prefix=t-06&page_size=50&text=it%27s", f.Requests[2].URI)
	for _, bad := range [][]string{{"--label", "a"}, {"--submitted-after", "yesterday"},
		{"--submitted-before", "+2h"}} {
		got := f.At(t, append([]string{"task", "list"}, bad...)...)
		require.Equal(t, app.ExitUsage, got.Code, "%v", bad)
	}
}

// TestResultOfAReviewedCommand: a person who completes a task may give it any result, also one of a command.
func TestResultOfAReviewedCommand(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`{"ok":true}`: "\nResult:\n{\n  \"ok\": true\n}\n",
		`{}`:          "\nResult:\n{}\n",
		`{"exit_code":0,"stdout":"hello\n","stderr":""}`: "\nExit code: 0\nOutput:\nhello\n",
	} {
		f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200,
			Body: `{"id":"t-1","type":"exec","cluster":"c","status":"completed","result":` + result + `}`}})
		got := f.At(t, "task", "get", "t-1")
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.Contains(t, got.Stdout, want)
	}
}

func TestTaskIDsMayBeCutShort(t *testing.T) {
	t.Parallel()
	const task = `{"id":"t-0612","type":"x","cluster":"c","status":"completed"}`
	one := clitest.Answer{Status: 200, Body: `{"tasks":[` + task + `]}`}
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents/tasks":            one,
		"GET /api/v1/agents/tasks/t-0612":     {Status: 200, Body: task},
		"GET /api/v1/agents/tasks/t-0612/log": {Status: 200, Body: `{"lines":[{"number":1,"text":"one"}],"ended":true}`},
	})
	got := f.At(t, "task", "get", "t-06")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "t-0612")
	require.Contains(t, f.Requests[1].URI, "id_prefix=t-06")
	got = f.At(t, "task", "logs", "t-06")
	require.Equal(t, "one\n", got.Stdout, got.Stderr)

	for verb, args := range map[string][]string{"cancel": nil, "retry": nil, "discard": {"--reason", "x"},
		"review": {"--decision", "rerun"}, "priority": {"high"}} {
		f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks": one,
			"POST /api/v1/agents/tasks/t-0612/" + verb: {Status: 200, Body: task}})
		got := f.At(t, append([]string{"task", verb, "t-06"}, args...)...)
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.Contains(t, got.Stdout, "t-0612", verb)
	}

	missing := clitest.Problem(404, "unknown_task", "there is no such task")
	several := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-06": missing,
		"POST /api/v1/agents/tasks/t-06/cancel": missing, "GET /api/v1/agents/tasks": {Status: 200,
			Body: `{"tasks":[` + task + `,{"id":"t-0699"}]}`}})
	for _, verb := range []string{"get", "cancel"} {
		got = several.At(t, "task", verb, "t-06")
		require.Equal(t, app.ExitNotFound, got.Code)
		require.Equal(t, "Error: several tasks have ids that begin so; give more of it:\n  t-0612\n  t-0699\n",
			got.Stderr)
	}
	none := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-06": missing,
		"GET /api/v1/agents/tasks": {Status: 200, Body: `{"tasks":[]}`}})
	got = none.At(t, "task", "get", "t-06")
	require.Equal(t, app.ExitNotFound, got.Code)
	require.Contains(t, got.Stderr, "there is no such task")
}

func TestWatchPrintsAgainAndAgain(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked := 0
	url := clitest.Recorder(t, func(*http.Request) {
		if asked++; asked == 3 {
			stop()
		}
	}, clitest.Answer{Status: 200, Body: `{"tasks":[{"id":"t-1","type":"x","cluster":"c","status":"queued"}]}`})
	got := clitest.Run(ctx, "", "task", "list", "--watch=1ms", "--server", url)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, 2, strings.Count(got.Stdout, "t-1 "), "twice, and nothing after Ctrl-C")
	got = clitest.Run(t.Context(), "", "task", "list", "--watch=-1s", "--server", url)
	require.Equal(t, app.ExitUsage, got.Code)
}

// On a terminal, what the command writes comes out while it runs, and not again at its end.
func TestSubmitWaitStreams(t *testing.T) {
	t.Parallel()
	const task = `{"id":"t-1","type":"exec","cluster":"c","status":"completed","attempts":[{"number":1,"agent_id":"a","outcome":"completed"}],"result":{"exit_code":0,"stdout":"one\n","stderr":"oops\n"}}`
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"POST /api/v1/agents/tasks":    {Status: 202, Body: `{"id":"t-1","type":"exec","cluster":"c","status":"queued"}`},
		"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: task},
		"GET /api/v1/agents/tasks/t-1/log": {Status: 200,
			Body: `{"lines":[{"number":1,"stream":"stdout","text":"one"},{"number":2,"stream":"stderr","text":"oops"}],"next":2,"attempt":1,"ended":true}`},
	})
	got := clitest.RunOnTerminal(t.Context(), "task", "submit", "--server", f.URL, "--wait", "--", "x")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "one\n", got.Stdout)
	require.Equal(t, "Task t-1 is submitted.\noops\nTask t-1 completed on a.\n", got.Stderr)
}
