package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
)

const taskJSON = `{"id":"t-1","type":"exec","cluster":"default","status":"completed","priority":2,"priority_name":"high","payload":{"command":["echo","hello"]},"labels":{"b":"2","a":"1"},
"attempts":[
{"number":1,"agent_id":"agent-1","epoch":3,"started_at":"2026-11-21T11:58:00Z","ended_at":"2026-11-21T11:58:04Z","outcome":"lost","reason":"its connection\nclosed\u001b[31m","progress":{"percent":40,"step":"half"}},
{"number":2,"agent_id":"agent-2","epoch":1,"started_at":"2026-11-21T11:58:05Z","ended_at":"2026-11-21T11:58:05.250Z","outcome":"completed"}],
"result":{"exit_code":0,"stdout":"hello\n\u001b[2J","stderr":""},
"created_at":"2026-11-21T11:57:59Z","closed_at":"2026-11-21T11:58:06Z","workflow_id":"task/t-1","run_id":"r"}`

func TestTaskGet(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/tasks/t-1": {200, taskJSON}})
	got := f.at(t, "task", "get", "t-1")
	require.Equal(t, app.ExitOK, got.code, got.stderr)
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

ATTEMPT  AGENT    EPOCH  STARTED               TOOK   OUTCOME    PROGRESS  REASON
1        agent-1  3      2026-11-21T11:58:00Z  4.0s   lost       40% half  its connection closed [31m
2        agent-2  1      2026-11-21T11:58:05Z  250ms  completed  -

Exit code: 0
Output:
hello
`+"\uFFFD[2J\n", "\n"), got.stdout)

	got = f.at(t, "task", "get", "t-1", "-o", "json")
	require.JSONEq(t, taskJSON, got.stdout)
	require.Contains(t, got.stdout, "\n  \"id\": \"t-1\"", "indented for people")
}

func TestReturnsOfOneReasonAreOneLine(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/tasks/t-1": {200, `{"id":"t-1","type":"x","cluster":"c","status":"retry_wait","attempts":[
{"number":1,"outcome":"returned","reason":"all are busy"},{"number":2,"outcome":"returned","reason":"all are busy"},
{"number":3,"outcome":"returned","reason":"none is online"},{"number":4,"agent_id":"a","epoch":2,"outcome":"returned","reason":"none is online"},
{"number":5,"outcome":"returned","reason":"all are busy"},{"number":6,"outcome":"returned","reason":"all are busy"}]}`}})
	got := f.at(t, "task", "get", "t-1")
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, strings.TrimLeft(`
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
			app.ExitOK, "a\x1b[1m\n\nb", "oops\uFFFD[2J\nTask t-1 completed on agent-1.\n",
		},
		"failed": {
			`{"id":"t-1","type":"exec","status":"dead_letter","why":"3 of 3 attempts failed; last: exec: exit status 3"}`,
			app.ExitIncomplete, "", "3 of 3 attempts failed; last: exec: exit status 3\nError: task t-1 has used up its attempts: try it again with `mainstay task retry t-1`\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t, map[string]answer{"POST /api/v1/agents/tasks": {201, c.task}, "GET /api/v1/agents/tasks/t-1": {200, c.task}})
			got := f.at(t, "task", "submit", "--wait", "--", "x")
			require.Equal(t, c.code, got.code)
			require.Equal(t, c.stdout, got.stdout)
			require.Equal(t, c.stderr, got.stderr)
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
			f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/tasks/t-1": {200, `{"id":"t-1","type":"x","cluster":"c","status":"` + status + `"}`}})
			got := f.at(t, "task", "get", "t-1", "--wait")
			require.Equal(t, c.code, got.code)
			require.Contains(t, got.stderr, c.wants)
			require.Contains(t, got.stdout, status)
			require.Len(t, f.requests, 1)
			require.Regexp(t, `\?include=payload&wait=(30s|29\.\d+s)$`, f.requests[0].uri)
		})
	}
	t.Run("the time is over", func(t *testing.T) {
		t.Parallel()
		f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/tasks/t-1": {200, `{"id":"t-1","type":"x","cluster":"c","status":"queued","why":"no agent is online"}`}})
		got := f.at(t, "task", "get", "t-1", "--wait=20ms")
		require.Equal(t, app.ExitIncomplete, got.code)
		require.Contains(t, got.stderr, "task t-1 is still queued after 20ms")
		require.Contains(t, got.stdout, "Why      no agent is online")
	})
}

func TestTaskSubmit(t *testing.T) {
	t.Parallel()
	accepted := map[string]answer{"POST /api/v1/agents/tasks": {202, `{"id":"t-9","type":"exec","cluster":"default","status":"queued"}`}}
	for name, c := range map[string]struct {
		args []string
		body string
	}{
		"command": {[]string{"--dir", "/srv", "--env", "A=b=c", "--", "echo", "--wait", "hello"},
			`{"type":"exec","cluster":"default","payload":{"command":["echo","--wait","hello"],"env":{"A":"b=c"},"dir":"/srv"}}`},
		"payload": {[]string{"--type", "render", "--cluster", "studio", "--payload", `{"n": 1}`, "--priority", "critical", "--non-retryable", "exit_2", "--start-at", "+1h30m", "--agent", "a", "--retry-safety", "fenced",
			"--timeout", "90s", "--expires-in", "2h", "--max-attempts", "5", "--beacon-timeout", "45s", "--provider", "llm", "--capability", "gpu", "--capability", "big", "--tenant", "acme", "--label", "k=v"},
			`{"type":"render","cluster":"studio","payload":{"n":1},"priority":1,"start_at":"2026-11-21T13:30:00Z","agent":"a","retry_safety":"fenced","timeout":"1m30s","expires_in":"2h0m0s",
			"retry":{"max_attempts":5,"non_retryable":["exit_2"]},"beacon_timeout":"45s","provider":"llm","required_capabilities":["gpu","big"],"tenant":"acme","labels":{"k":"v"}}`},
		"named": {[]string{"--type", "x", "--id", "mine", "--priority", "4", "--start-at", "2026-12-24T18:00:00+01:00"}, `{"type":"x","cluster":"default","id":"mine","priority":4,"start_at":"2026-12-24T17:00:00Z"}`},
		"keyed": {[]string{"--type", "x", "--idempotency-key", "k 1"}, `{"type":"x","cluster":"default","idempotency_key":"k 1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t, accepted)
			got := f.at(t, append([]string{"task", "submit"}, c.args...)...)
			require.Equal(t, app.ExitOK, got.code, got.stderr)
			require.Equal(t, "Task t-9 submitted. See it with: mainstay task get t-9 --wait\n", got.stdout)
			require.Len(t, f.requests, 1)
			require.JSONEq(t, c.body, f.requests[0].body)
		})
	}
	t.Run("submitted before", func(t *testing.T) {
		t.Parallel()
		f := newFakeAPI(t, map[string]answer{"POST /api/v1/agents/tasks": {200, `{"id":"t-9","type":"x","cluster":"c","status":"completed","duplicate":true}`}})
		require.Contains(t, f.at(t, "task", "submit", "--type", "x", "--id", "t-9").stdout, "Task t-9 was submitted before; it is completed.")
	})
	t.Run("and waited for", func(t *testing.T) {
		t.Parallel()
		f := newFakeAPI(t, map[string]answer{"POST /api/v1/agents/tasks": {202, `{"id":"t-1"}`}, "GET /api/v1/agents/tasks/t-1": {200, taskJSON}})
		got := f.at(t, "task", "submit", "--wait=1m", "-o", "json", "--", "true")
		require.Equal(t, app.ExitOK, got.code, got.stderr)
		require.JSONEq(t, taskJSON, got.stdout)
	})
}

func TestTaskActions(t *testing.T) {
	t.Parallel()
	after := answer{200, `{"id":"t-1","type":"x","cluster":"c","status":"queued"}`}
	f := newFakeAPI(t, map[string]answer{
		"POST /api/v1/agents/tasks/t-1/cancel": after, "POST /api/v1/agents/tasks/t-1/retry": after, "POST /api/v1/agents/tasks/t-1/review": after,
	})
	for _, args := range [][]string{{"cancel", "t-1"}, {"retry", "t-1", "--reason", "why"}, {"review", "t-1", "--decision", "completed", "--result", "7"}} {
		got := f.at(t, append([]string{"task"}, args...)...)
		require.Equal(t, app.ExitOK, got.code, got.stderr)
		require.Equal(t, "Task t-1 is now queued.\n", got.stdout)
	}
	require.Equal(t, []string{`{}`, `{"reason":"why"}`, `{"decision":"completed","result":7}`}, []string{f.requests[0].body, f.requests[1].body, f.requests[2].body})
}

func TestTaskList(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/tasks": {200, `{"tasks":[
		{"id":"t-1","type":"exec","cluster":"default","status":"running","priority":3,"priority_name":"normal","created_at":"2026-11-21T11:59:57Z","attempts":[{"number":1,"agent_id":"agent-1"}]},
		{"id":"t-3","type":"exec","cluster":"default","status":"queued","priority":2,"priority_name":"high","created_at":"2026-11-21T11:59:00Z","next_attempt_at":"2026-11-21T12:10:00Z"},
		{"id":"t-2","type":"exec","cluster":"default","status":"completed","created_at":"2026-11-21T09:00:00Z","closed_at":"2026-11-21T09:00:30Z"}],"next_page_token":"abc"}`}})
	got := f.at(t, "task", "list", "--limit", "3", "--status", "running")
	require.Equal(t, strings.TrimLeft(`
TASK  TYPE  CLUSTER  PRIORITY  STATUS          AGENT    SUBMITTED  TOOK
t-1   exec  default  normal    running         agent-1  3.0s ago
t-3   exec  default  high      queued, in 10m  -        60s ago
t-2   exec  default  -         completed       -        3h ago     30s
`, "\n"), got.stdout)
	require.Equal(t, "There are more: raise --limit.\n", got.stderr)
	require.Equal(t, []request{{http.MethodGet, "/api/v1/agents/tasks?page_size=3&status=running", ""}}, f.requests)
}

func TestListReadsAllPages(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/tasks": {200, `{"tasks":[{"id":"t-1"},{"id":"t-2"}],"next_page_token":"abc"}`}})
	got := f.at(t, "task", "list", "--limit", "5", "-o", "json")
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Equal(t, 6, strings.Count(got.stdout, `"id"`), "pages of two until there are five or more")
	require.Equal(t, "/api/v1/agents/tasks?page_size=3&page_token=abc", f.requests[1].uri)
}

func TestAgentsAndClusters(t *testing.T) {
	t.Parallel()
	agent := `{"id":"agent-1","cluster":"default","status":"online","role":"member","epoch":4,"instance_id":"i","host":"h","pid":12,"max_tasks":4,"running":1,
		"last_heartbeat":"2026-11-21T11:59:59.5Z","cpu_percent":12.4,"capabilities":["gpu"],"task_types":["exec"]}`
	gone := `{"id":"agent-2","cluster":"default","status":"offline","role":"member","epoch":1,"instance_id":"j","max_tasks":4,"status_since":"2026-11-21T10:00:00Z","status_reason":"its connection closed"}`
	cluster := `{"name":"default","status":"healthy","replication_mode":"active_active","selection_strategy":"least_loaded","min_agents":1,"desired_agents":2,"max_agents":9,"healthy_agent_count":1,"agent_count":2,"role_lease":"5s","task_transfer_timeout":"5m0s","dead_letter_retention":"168h0m0s","brake":{"share":0.5,"min_lost":3,"window":"10s"},"created_at":"2026-11-11T12:00:00Z"}`
	f := newFakeAPI(t, map[string]answer{
		"GET /api/v1/agents":                          {200, `{"agents":[` + agent + `,` + gone + `]}`},
		"GET /api/v1/agents/agent-2":                  {200, gone},
		"GET /api/v1/agents/clusters":                 {200, `{"clusters":[` + cluster + `]}`},
		"GET /api/v1/agents/clusters/default":         {200, cluster},
		"GET /api/v1/agents/clusters/default/members": {200, `{"members":[` + agent + `]}`},
		"POST /api/v1/agents/clusters":                {201, cluster},
		"DELETE /api/v1/agents/clusters/default":      {204, ""},
	})
	rows := `
AGENT    CLUSTER  STATUS   HEALTH  ROLE    TASKS  EPOCH  CPU  HOST  PID  LAST HEARTBEAT
agent-1  default  online   -       member  1/4    4      12%  h     12   500ms ago
agent-2  default  offline  -       member  ?/4    1      -    -     -
`
	for _, c := range []struct {
		args  string
		wants string
	}{
		{"agent list", rows},
		{"agent get agent-2", `
Agent     agent-2
Cluster   default
Status    offline, since 2h ago
Reason    its connection closed
Role      member
Epoch     1
Instance  j
Tasks     ?/4
`},
		{"cluster list", `
CLUSTER  STATUS   MODE           HEALTHY  AGENTS  LEADER  CREATED  PAUSED
default  healthy  active_active  1        2       -       10d ago
`},
		{"cluster get default", `
Cluster           default
Status            healthy
Agents            1 healthy of 2 (min 1, desired 2, max 9)
Mode              active_active
Selection         least_loaded
Role lease        5s
Transfer timeout  5m0s
Dead letters      kept for 7d
Brake             when at least 3 and more than 50% of the agents vanish within 10s
Created           10d ago
`},
		{"cluster members default", `
AGENT    CLUSTER  STATUS  HEALTH  ROLE    TASKS  EPOCH  CPU  HOST  PID  LAST HEARTBEAT
agent-1  default  online  -       member  1/4    4      12%  h     12   500ms ago
`},
		{"cluster create default --min-agents 1", "\nCluster default is there. Agents join it with: mainstay agent run --cluster default\n"},
		{"cluster delete default --force", "\nCluster default is deleted.\n"},
		{"cluster delete default -o json", "\n{\n  \"deleted\": \"default\"\n}\n"},
	} {
		got := f.at(t, strings.Fields(c.args)...)
		require.Equal(t, app.ExitOK, got.code, "%s: %s", c.args, got.stderr)
		require.Equal(t, c.wants[1:], got.stdout, c.args)
	}
	require.Equal(t, "/api/v1/agents/clusters/default?force=true", f.requests[6].uri)
}

func TestDevReport(t *testing.T) {
	t.Parallel()
	r := devReport{
		URL: "http://127.0.0.1:8080", DocsURL: "http://127.0.0.1:8080/docs", UIURL: "http://127.0.0.1:8233", Temporal: "127.0.0.1:7233", Namespace: "default",
		DataDir: "/x/.mainstay", Logs: "/x/.mainstay/logs", Cluster: "default", Agents: []devAgent{{"agent-1", 11}, {"agent-2", 12}}, Slots: 4, Exec: true,
	}
	var out bytes.Buffer
	require.NoError(t, r.write(&out, "mainstay"))
	require.Equal(t, strings.TrimLeft(`
Mainstay is running. Ctrl-C stops it.

  Fleet page http://127.0.0.1:8080/
  REST API   http://127.0.0.1:8080  (described at http://127.0.0.1:8080/docs)
  Web UI     http://127.0.0.1:8233  (of Temporal)
  Temporal   127.0.0.1:7233, namespace default
  Data       /x/.mainstay
  Logs       /x/.mainstay/logs
  Cluster    default
  Agents     agent-1    pid 11       4 tasks at a time
             agent-2    pid 12       4 tasks at a time
  Security   off: only this machine can reach it

Try in another terminal:
  mainstay task submit --wait -- echo hello
  mainstay agent list
  kill -9 11    (its work moves to another agent, and it is started again)
  mainstay demo

`, "\n"), out.String())

	out.Reset()
	r.Temporal, r.OpenTemporal, r.Security = "192.0.2.1:7233", true, true
	require.NoError(t, r.write(&out, "mainstay"))
	require.Contains(t, out.String(), "Warning    others than this machine can reach Temporal on 192.0.2.1:7233, ")

	out.Reset()
	r.Agents, r.URL, r.DataDir, r.UIURL = nil, "http://127.0.0.1:9", "", ""
	require.NoError(t, r.write(&out, "bin/mainstay"))
	require.Contains(t, out.String(), "in memory, gone at the end")
	require.Contains(t, out.String(), "bin/mainstay agent run --hub http://127.0.0.1:9 --id my-agent --allow-exec")
	require.NotContains(t, out.String(), "Web UI")
	require.NotContains(t, out.String(), "task submit")
}

func TestWords(t *testing.T) {
	t.Parallel()
	for d, wants := range map[time.Duration]string{
		999 * time.Millisecond: "999ms", 1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s", 3 * time.Minute: "3m", 5 * time.Hour: "5h", 72 * time.Hour: "3d",
	} {
		require.Equal(t, wants, app.Roughly(d))
	}
	for n, wants := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 5 << 30: "5.0 GiB"} {
		require.Equal(t, wants, app.ByteCount(n))
	}
	for text, wants := range map[string]string{"Build-Box.local": "build-box.local", "-x": "x", "ÄÖ": "host", "": "host", "a b": "a-b"} {
		require.Equal(t, wants, app.Slug(text, 20), text)
	}
	require.Equal(t, "abc", app.Slug("abcdef", 3))
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var lines, bar bytes.Buffer
	plain := &app.Progress{To: &lines, Unit: "tasks", Total: 10}
	tty := &app.Progress{To: &bar, TTY: true, Unit: "tasks", Total: 2}
	for range 10 {
		plain.Step()
	}
	require.Equal(t, "3 of 10 tasks\n5 of 10 tasks\n8 of 10 tasks\n10 of 10 tasks\n", lines.String())
	tty.Step()
	tty.Step()
	require.Equal(t, "\r["+strings.Repeat("#", 20)+strings.Repeat(".", 20)+"] 1 of 2 tasks\r["+strings.Repeat("#", 40)+"] 2 of 2 tasks\n", bar.String())
}
