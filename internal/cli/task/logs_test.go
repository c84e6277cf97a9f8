package task

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

// logServer answers the readings of a log one after the other, and the task's status in the same order.
func logServer(t *testing.T, logs, statuses []string) (*clitest.API, *[]string) {
	t.Helper()
	var mu sync.Mutex
	asked := &[]string{}
	f := &clitest.API{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/api/v1/agents/tasks/t-1" {
			_, _ = w.Write([]byte(`{"id":"t-1","type":"exec","cluster":"c","status":"` + statuses[0] + `"}`))
			statuses = statuses[1:]
			return
		}
		*asked = append(*asked, r.URL.Path+"?"+r.URL.RawQuery)
		if strings.Contains(logs[0], "temporal_unavailable") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(logs[0]))
		logs = logs[1:]
	}))}
	t.Cleanup(f.Close)
	return f, asked
}

const logPath = "/api/v1/agents/tasks/t-1/log"

func TestTaskLogs(t *testing.T) {
	t.Parallel()
	const body = `{"lines":[{"number":1,"at":"2026-11-21T12:00:00Z","stream":"stdout","text":"one"},{"number":4,"at":"2026-11-21T12:00:01Z","text":"four"}],"next":4,"attempt":1,"agent_id":"a","ended":false}`
	f, asked := logServer(t,
		[]string{body, body, `{"lines":[],"next":0,"attempt":2,"ended":true,"why":"the attempt has ended"}`}, nil)
	got := f.At(t, "task", "logs", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "one\nfour\n", got.Stdout)
	require.Equal(t, "[2 lines before these are no longer kept]\n", got.Stderr)

	got = f.At(t, "task", "logs", "t-1", "-o", "json")
	require.JSONEq(t, body, got.Stdout)
	got = f.At(t, "task", "logs", "--attempt", "2", "t-1")
	require.Empty(t, got.Stdout)
	require.Equal(t, "[the attempt has ended]\n", got.Stderr)
	require.Equal(t, []string{logPath + "?", logPath + "?", logPath + "?attempt=2"}, *asked)
}

func TestTaskLogsFollowsAllAttempts(t *testing.T) {
	t.Parallel()
	line := func(number, text string) string {
		return `{"number":` + number + `,"at":"2026-11-21T12:00:00Z","text":"` + text + `"}`
	}
	answers := []string{
		`{"lines":[],"next":0,"ended":false,"why":"no agent is online"}`,
		`{"lines":[],"next":0,"ended":false,"why":"no agent is online"}`,
		`{"lines":[` + line("1", "first") + `],"next":1,"attempt":1,"ended":false}`,
		`{"lines":[` + line("2", "last words") + `],"next":2,"attempt":1,"ended":true}`,
		`{"lines":[` + line("1", "again") + `],"next":1,"attempt":2,"ended":true}`,
	}
	f, asked := logServer(t, slices.Clone(answers), []string{"retry_wait", "completed"})
	got := f.At(t, "task", "logs", "-f", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "first\nlast words\nagain\n", got.Stdout)
	require.Equal(t, "[no agent is online]\n[attempt 1 has ended; the task is retry_wait]\n[attempt 2 has ended; the task is completed: mainstay task get t-1]\n", got.Stderr)
	require.Equal(t, []string{"?wait=20s", "?wait=20s", "?wait=20s", "?after=1&attempt=1&wait=20s",
		"?attempt=2&wait=20s"},
		strings.Split(strings.ReplaceAll(strings.Join(*asked, "\n"), logPath, ""), "\n"))

	f, _ = logServer(t, append([]string{clitest.Problem(503, "temporal_unavailable", "try again").Body},
		answers[2:4]...), []string{"completed"})
	got = f.At(t, "task", "logs", "-f", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "first\nlast words\n", got.Stdout, "a restart of the control plane does not end it")
	require.Contains(t, got.Stderr, "trying again")

	f, _ = logServer(t, slices.Clone(answers[2:]), []string{"retry_wait"})
	got = f.At(t, "task", "logs", "-f", "--attempt", "1", "-o", "json", "t-1")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, line("1", "first")+"\n"+line("2", "last words")+"\n", got.Stdout, "one object for each line")
}
