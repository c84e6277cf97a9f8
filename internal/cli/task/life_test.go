package task

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestTaskStoryOfADeadLetter(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: `{"id":"t-1","type":"render","cluster":"studio","status":"dead_letter",
		"why":"dead letter because 1 of 1 attempts failed; last: disk full; kept until 2026-11-28T11:00:00Z","priority":3,"priority_name":"normal",
		"created_at":"2026-11-21T10:59:00Z","start_at":"2026-11-21T10:59:30Z","workflow_id":"task/t-1",
		"dead_letter":{"since":"2026-11-21T11:00:00Z","until":"2026-11-28T11:00:00Z","cause":"1 of 1 attempts failed; last: disk full"},
		"attempts":[{"number":1,"agent_id":"agent-1","epoch":3,"started_at":"2026-11-21T10:59:58Z","ended_at":"2026-11-21T11:00:00Z","outcome":"failed","reason":"disk full","error_type":"io"}]}`}})
	got := f.At(t, "task", "get", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, strings.TrimLeft(`
Task         t-1
Type         render
Cluster      studio
Status       dead_letter
Why          dead letter because 1 of 1 attempts failed; last: disk full; kept until 2026-11-28T11:00:00Z
Priority     3 normal
Submitted    2026-11-21T10:59:00Z, 61m ago
Not before   2026-11-21T10:59:30Z, 60m ago
Dead letter  since 2026-11-21T11:00:00Z, 60m ago
Kept until   2026-11-28T11:00:00Z, in 6d
Workflow     task/t-1

ATTEMPT  AGENT    EPOCH  STARTED               TOOK  OUTCOME  PROGRESS  REASON
1        agent-1  3      2026-11-21T10:59:58Z  2.0s  failed   -         io: disk full
`, "\n"), got.Stdout)
}

// What people asked for is told with who asked and why, and so is a cancellation that the agent has not confirmed.
func TestTaskHistoryNamesPeople(t *testing.T) {
	t.Parallel()
	const task = `{"id":"t-1","type":"render","cluster":"studio","status":"running","cancelling":{"by":"ops (k-1)"},"history":[
		{"at":"2026-11-21T11:00:00Z","event":"submitted","by":"ops (k-1)"},
		{"at":"2026-11-21T11:00:01Z","event":"returned","attempt":3,"times":3,"reason":"all are busy"},
		{"at":"2026-11-21T11:00:02Z","event":"progress","attempt":4,"agent_id":"a-1","progress":{"percent":40,"step":"half","message":"page 4"}},
		{"at":"2026-11-21T11:00:03Z","event":"moved","attempt":4,"agent_id":"a-1","reason":"drained"},
		{"at":"2026-11-21T11:00:04Z","event":"reviewed","by":"ann (k-3)","reason":"rerun: the printer was off"},
		{"at":"2026-11-21T11:00:05Z","event":"cancel_asked","by":"ops (k-1)","reason":"enough"}]}`
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: task}})
	got := f.At(t, "task", "get", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "\nStatus   running, being cancelled\n")
	require.Contains(t, got.Stdout, `
TIME                  HISTORY            ATTEMPT  AGENT  BY         WHY
2026-11-21T11:00:00Z  submitted          -        -      ops (k-1)
2026-11-21T11:00:01Z  returned, 3 times  3        -      -          all are busy
2026-11-21T11:00:02Z  progress           4        a-1    -          40% half page 4
2026-11-21T11:00:03Z  moved              4        a-1    -          drained
2026-11-21T11:00:04Z  reviewed           -        -      ann (k-3)  rerun: the printer was off
2026-11-21T11:00:05Z  cancel asked       -        -      ops (k-1)  enough
`)
	require.JSONEq(t, task, f.At(t, "task", "get", "t-1", "-o", "json").Stdout)
}

func TestLongTextsAreShortened(t *testing.T) {
	t.Parallel()
	lines, err := json.Marshal(strings.Repeat("line\n", 100))
	require.NoError(t, err)
	task := `{"id":"t-1","type":"exec","cluster":"c","status":"completed","payload":"` + strings.Repeat("é", 5000) + `",
		"result":{"exit_code":0,"stdout":` + string(lines) + `,"stderr":"short"}}`
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: task}})
	got := f.At(t, "task", "get", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "éé\n[… the first of 9.8 KiB; all of it: mainstay task get t-1 -o json]\n")
	require.NotContains(t, got.Stdout, "\uFFFD", "no character is cut in two")
	require.Contains(t, got.Stdout,
		"line\n[… the first of 499 B; all of it: mainstay task get t-1 -o json]\nErrors:\nshort\n")
	require.Equal(t, shortLines, strings.Count(got.Stdout, "line\n"))
	require.JSONEq(t, task, f.At(t, "task", "get", "t-1", "-o", "json").Stdout)

	f = clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks": {Status: 202, Body: task},
		"GET /api/v1/agents/tasks/t-1": {Status: 200, Body: strings.Replace(task, "exec", "x", 1)}})
	require.NotContains(t, f.At(t, "task", "submit", "--type", "x", "--wait").Stdout, "the first of",
		"the result is what was waited for")
}

func TestTimesToCome(t *testing.T) {
	t.Parallel()
	a := &app.App{Now: func() time.Time { return clitest.Now }}
	for wait, want := range map[time.Duration]string{
		1500 * time.Millisecond: "in 1.5s", 10*time.Minute - 20*time.Millisecond: "in 10m",
		3*time.Hour - 2*time.Second: "in 3h", 7*24*time.Hour - time.Minute: "in 7d",
		9*time.Minute + 30*time.Second: "in 9m",
	} {
		at := clitest.Now.Add(wait)
		require.Equal(t, want, a.Ago(&at))
	}
}

func TestReadableJSON(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"a\u003cb\u003e\u0026"`: `"a<b>&"`, `"\\u003c"`: `"\\u003c"`, `"\\\u003c"`: `"\\<"`,
		`"\n\u001b"`: `"\n\u001b"`, `{"a":1}`: "{\n  \"a\": 1\n}", `\`: `\`,
	} {
		require.Equal(t, want, readable([]byte(raw)), raw)
	}
}

func TestTaskDiscardAndPriority(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"POST /api/v1/agents/tasks/t-1/discard": {Status: 200, Body: `{"id":"t-1","status":"failed"}`},
		"POST /api/v1/agents/tasks/t-1/priority": {Status: 200,
			Body: `{"id":"t-1","status":"queued","priority":2,"priority_name":"high"}`},
	})
	require.Equal(t, "Task t-1 is now failed.\n", f.At(t, "task", "discard", "t-1", "--reason",
		"the customer is gone").Stdout)
	require.Equal(t, "Task t-1 has priority high now; it is queued.\n",
		f.At(t, "task", "priority", "t-1", "high", "--reason", "late").Stdout)
	require.Equal(t, []string{`{"reason":"the customer is gone"}`, `{"priority":2,"reason":"late"}`},
		[]string{f.Requests[0].Body, f.Requests[1].Body})
	for _, args := range []string{"task discard t-1", "task priority t-1 urgent", "task priority t-1",
		"task submit --type x --priority 9",
		"task submit --type x --start-at tomorrow", "task submit --type x --start-at +soon", "task submit --type x --start-at +-5m"} {
		got := f.At(t, strings.Fields(args)...)
		require.Equal(t, app.ExitUsage, got.Code, args)
		require.NotEmpty(t, got.Stderr)
	}
	require.Len(t, f.Requests, 2)
}

func TestSubmitSaysWhenTheTaskStarts(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/tasks": {Status: 202,
		Body: `{"id":"t-9","status":"queued","next_attempt_at":"2026-11-21T12:10:00Z"}`}})
	require.Equal(t, "Task t-9 submitted; it starts in 10m. See it with: mainstay task get t-9 --wait\n",
		f.At(t, "task", "submit", "--type", "x", "--start-at", "+10m").Stdout)
}
