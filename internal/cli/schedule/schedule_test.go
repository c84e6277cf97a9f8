package schedule

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command)) }

const jSON = `{"name":"nightly","cron":"0 3 * * 1-5","time_zone":"Europe/Berlin","overlap":"skip","catchup_window":"1h0m0s",
"task":{"type":"exec","cluster":"default","payload":{"command":["echo","x"]}},"paused":false,"note":"the\u001b[2J backup","next_times":["2026-11-24T02:00:00Z","2026-11-25T02:00:00Z"],
"recent_runs":[
{"task_id":"nightly@20261121t020000z","status":"running","scheduled_at":"2026-11-21T02:00:00Z","fired_at":"2026-11-21T11:59:00Z"},
{"task_id":"nightly@20261120t020000z","status":"not_submitted","why":"there is no cluster default any more","scheduled_at":"2026-11-20T02:00:00Z","fired_at":"2026-11-20T02:00:00Z","closed_at":"2026-11-20T02:00:01Z"}],
"counts":{"fired":2,"skipped_overlap":1,"missed_catchup_window":0}}`

func TestScheduleCreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		body string
	}{
		"a command by cron": {[]string{"nightly", "--cron", "0 3 * * 1-5", "--time-zone", "Europe/Berlin", "--note",
			"the backup", "--", "backup.sh", "--cron"},
			`{"name":"nightly","cron":"0 3 * * 1-5","time_zone":"Europe/Berlin","note":"the backup","task":{"type":"exec","cluster":"default","payload":{"command":["backup.sh","--cron"]}}}`},
		"a task at an interval": {[]string{"--every", "30s", "--offset", "5s", "--overlap", "buffer_one",
			"--catchup-window", "10m", "--jitter", "2s", "--start-at", "+1h", "--end-at", "2026-12-24T18:00:00+01:00",
			"--paused",
			"poll", "--type", "poll", "--cluster", "studio", "--payload", `{"n":1}`, "--priority", "high", "--label",
			"a=b"},
			`{"name":"poll","interval":"30s","offset":"5s","overlap":"buffer_one","catchup_window":"10m0s","jitter":"2s","start_at":"2026-11-21T13:00:00Z","end_at":"2026-12-24T17:00:00Z","paused":true,
			"task":{"type":"poll","cluster":"studio","payload":{"n":1},"priority":2,"labels":{"a":"b"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewAPI(t, map[string]clitest.Answer{"POST /api/v1/agents/schedules": {Status: 201, Body: jSON},
				"PUT /api/v1/agents/schedules/nightly": {Status: 200,
					Body: jSON}, "PUT /api/v1/agents/schedules/poll": {Status: 200, Body: jSON}})
			got := f.At(t, append([]string{"schedule", "create"}, c.args...)...)
			require.Equal(t, app.ExitOK, got.Code, got.Stderr)
			require.Equal(t, "Schedule nightly is made. Its next task is due 2026-11-24T02:00:00Z, in 2d.\n",
				got.Stdout)
			require.JSONEq(t, c.body, f.Requests[0].Body)
			got = f.At(t, append([]string{"schedule", "replace"}, c.args...)...)
			require.Equal(t, app.ExitOK, got.Code, got.Stderr)
			require.Equal(t, http.MethodPut, f.Requests[1].Method)
			require.JSONEq(t, c.body, f.Requests[1].Body)
		})
	}
	for wants, args := range map[string][]string{
		"needs a schedule's name, got 0 arguments":       {"--every", "1s", "--", "x"},
		"needs a schedule's name, got 2 arguments":       {"nightly", "backup.sh", "--every", "1s"},
		"there is no command after --":                   {"nightly", "--every", "1s", "--"},
		"give --type, or a command to run after --":      {"nightly", "--every", "1s"},
		"--end-at must be a time such as 2026-12-24":     {"nightly", "--every", "1s", "--end-at", "soon", "--", "x"},
		"--catchup-window must be between 10s and 8784h": {"nightly", "--every", "1s", "--catchup-window", "0s", "--", "x"},
		"--label must be NAME=VALUE":                     {"nightly", "--every", "1s", "--label", "a", "--", "x"},
	} {
		got := clitest.Run(t.Context(), "", append([]string{"schedule", "create"}, args...)...)
		require.Equal(t, app.ExitUsage, got.Code, "%s: %s", wants, got.Stderr)
		require.Contains(t, got.Stderr, wants)
	}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents/schedules": {Status: 200, Body: `{"schedules":[{"name":"nightly","cron":"0 3 * * *","type":"exec","cluster":"default","paused":false,"next_time":"2026-11-22T03:00:00Z","last_time":"2026-11-21T11:00:00Z","last_task_id":"nightly@20261121t030000z"},
			{"name":"poll","interval":"30s","type":"poll","cluster":"studio","paused":true},
			{"name":"over","interval":"30s","type":"poll","cluster":"studio","paused":false,"ended":true}]}`},
		"POST /api/v1/agents/schedules/over/resume":    {Status: 200, Body: `{"name":"over","ended":true}`},
		"GET /api/v1/agents/schedules/nightly":         {Status: 200, Body: jSON},
		"POST /api/v1/agents/schedules/nightly/pause":  {Status: 200, Body: jSON},
		"POST /api/v1/agents/schedules/nightly/resume": {Status: 200, Body: jSON},
		"POST /api/v1/agents/schedules/nightly/trigger": {Status: 202,
			Body: `{"name":"nightly","task_id":"nightly@20261121t120000z"}`},
		"DELETE /api/v1/agents/schedules/nightly": {Status: 204, Body: ""},
	})
	for _, c := range []struct{ args, wants string }{
		{"schedule list --cluster default", `
SCHEDULE  WHEN             TYPE  CLUSTER  STATE   NEXT    LAST     LAST TASK
nightly   0 3 * * * (UTC)  exec  default  active  in 15h  60m ago  nightly@20261121t030000z
poll      every 30s        poll  studio   paused  -       -
over      every 30s        poll  studio   ended   -       -
`},
		{"schedule get nightly", `
Schedule        nightly
State           active
Note            the backup
When            0 3 * * 1-5 (Europe/Berlin)
Overlap         skip
Catchup window  1h0m0s
Task            exec in default
Payload         {"command":["echo","x"]}
Next            2026-11-24T02:00:00Z, 2026-11-25T02:00:00Z
Fired           2 times, 1 skipped because the last task had not ended

TASK                      STATUS         FOR                   FIRED    TOOK  WHY
nightly@20261121t020000z  running        2026-11-21T02:00:00Z  60s ago  -
nightly@20261120t020000z  not_submitted  2026-11-20T02:00:00Z  34h ago  1.0s  there is no cluster default any more
`},
		{"schedule pause nightly --reason holiday",
			"\nSchedule nightly is paused. Resume it with: mainstay schedule resume nightly\n"},
		{"schedule resume nightly",
			"\nSchedule nightly goes on. See its next times with: mainstay schedule get nightly\n"},
		{"schedule resume over",
			"\nSchedule over has ended. It has no next time. Give it a later end with: mainstay schedule replace over … --end-at TIME\n"},
		{"schedule trigger nightly --overlap allow_all",
			"\nSchedule nightly makes task nightly@20261121t120000z. See it with: mainstay task get nightly@20261121t120000z\n"},
		{"schedule delete nightly", "\nSchedule nightly is deleted. The tasks that it has made go on.\n"},
		{"schedule delete nightly -o json", "\n{\n  \"deleted\": \"nightly\"\n}\n"},
	} {
		got := f.At(t, strings.Fields(c.args)...)
		require.Equal(t, app.ExitOK, got.Code, "%s: %s", c.args, got.Stderr)
		require.Equal(t, c.wants[1:], got.Stdout, c.args)
	}
	require.Equal(t, "/api/v1/agents/schedules?cluster=default&page_size=50", f.Requests[0].URI)
	require.JSONEq(t, `{"reason":"holiday"}`, f.Requests[2].Body)
	require.JSONEq(t, `{"overlap":"allow_all"}`, f.Requests[5].Body)
}
