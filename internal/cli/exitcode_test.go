package cli

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestArgumentsAreUTF8(t *testing.T) {
	t.Parallel()
	ran := clitest.Run(t.Context(), "", "task", "submit", "--", "ls", "caf\xe9")
	require.Equal(t, app.ExitUsage, ran.Code)
	require.Equal(t, "Error: argument 5 is not UTF-8: write it as UTF-8, or rename the file\n", ran.Stderr)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		args   []string
		code   int
		says   string
	}{
		"not found": {404, `{"title":"Not Found","detail":"there is no task with this id","code":"unknown_task"}`,
			[]string{"task", "get", "x"}, app.ExitNotFound, "there is no task with this id (unknown_task)"},
		"conflict": {409, `{"title":"Conflict","detail":"the task has ended","code":"conflict"}`,
			[]string{"task", "cancel", "x"}, app.ExitConflict, "the task has ended (conflict)"},
		"away": {503, `{"title":"Unavailable","detail":"Temporal did not answer","code":"temporal_unavailable"}`,
			[]string{"agent", "list"}, app.ExitUnreachable, "Temporal did not answer"},
		"refused": {422,
			`{"title":"x","detail":"not valid; errors says where","code":"invalid_request","errors":[{"location":"query.status","message":"no such status"}]}`, []string{"task", "list", "--status", "x"}, app.ExitUsage, "not valid (invalid_request)\n  query.status: no such status"},
		"internal": {500, `{"title":"x","detail":"on our side","code":"internal"}`, []string{"cluster", "list"},
			app.ExitFailure, "on our side"},
		"a stranger": {502, `<html>`, []string{"cluster", "list"}, app.ExitFailure, "not as Mainstay does"},
		"no gateway": {404, `{"title":"Not Found","detail":"there is nothing at this path","code":"not_found"}`,
			[]string{"task", "get", "x"}, app.ExitFailure, "is a gateway behind it"},
		"not JSON": {200, `<html>`, []string{"cluster", "get", "x"}, app.ExitFailure, "not of the Mainstay API"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := clitest.Answering(t, test.status, "application/problem+json", test.body)
			got := clitest.Run(t.Context(), "", append(test.args, "--server", url)...)
			require.Equal(t, test.code, got.Code, got.Stderr)
			require.Contains(t, got.Stderr, test.says)
			require.NotContains(t, got.Stderr, "{")
			require.Empty(t, got.Stdout)
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	const nowhere = "http://127.0.0.1:1"
	start := time.Now()
	got := clitest.Run(t.Context(), "", "agent", "list", "--server", nowhere)
	require.Equal(t, app.ExitUnreachable, got.Code)
	require.Less(t, time.Since(start), 5*time.Second)
	require.Contains(t, got.Stderr, nowhere)
	require.Contains(t, got.Stderr, "`mainstay dev`")
}

// A command repeats once what is safe to repeat: a moment without an answer passes unseen.
func TestOneRefusalIsSurvived(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args  []string
		tries int
		code  int
	}{
		"a question":             {[]string{"task", "list"}, 2, app.ExitOK},
		"a submission by its id": {[]string{"task", "submit", "--id", "x", "--", "true"}, 2, app.ExitOK},
		"a submission without":   {[]string{"task", "submit", "--", "true"}, 2, app.ExitOK}, // it is given an id
		"a change":               {[]string{"task", "cancel", "x"}, 1, app.ExitUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+test.args[1] {
					return // somebody looks for a server that had this port before
				}
				if tries++; tries == 1 {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = io.WriteString(w, clitest.Problem(503, "temporal_unavailable", "try again").Body)
					return
				}
				_, _ = io.WriteString(w, `{"tasks":[]}`)
			}))
			t.Cleanup(server.Close)
			args := append([]string{test.args[0], test.args[1], "--server", server.URL, "--token", test.args[1]}, test.args[2:]...)
			got := clitest.Run(t.Context(), "", args...)
			require.Equal(t, test.code, got.Code, got.Stderr)
			require.Equal(t, test.tries, tries)
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"unknown command":     {"tsk"},
		"unknown sub command": {"task", "sumbit"},
		"unknown flag":        {"task", "list", "--nope"},
		"missing argument":    {"task", "get"},
		"surplus argument":    {"cluster", "list", "x"},
		"output":              {"task", "list", "-o", "yaml"},
		"server":              {"task", "list", "--server", "ftp://x"},
		"no type":             {"task", "submit"},
		"payload":             {"task", "submit", "--type", "x", "--payload", "{secret"},
		"payload and command": {"task", "submit", "--payload", "{}", "--", "true"},
		"no command":          {"task", "submit", "--"},
		"priority":            {"task", "submit", "--type", "x", "--priority", "9"},
		"safety":              {"task", "submit", "--type", "x", "--retry-safety", "secret"},
		"label":               {"task", "submit", "--type", "x", "--label", "secret"},
		"wait":                {"task", "get", "x", "--wait=-1s"},
		"demo path":           {"demo", "--path", "/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t.Context(), "", args...)
			require.Equal(t, app.ExitUsage, got.Code, got.Stderr)
			require.NotEmpty(t, got.Stderr)
			require.NotContains(t, got.Stderr, "secret")
		})
	}
}

func TestSubmitCommand(t *testing.T) {
	t.Parallel()
	url, body := clitest.Answering(t, 202, "application/json",
		`{"id":"t-1","type":"exec","cluster":"default","status":"queued","workflow_id":"task/t-1"}`)
	got := clitest.Run(t.Context(), "", "task", "submit", "--server", url, "--priority", "1", "--label", "a=b=c",
		"--capability", "gpu", "--", "echo", "--hello")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "t-1")
	require.JSONEq(t,
		`{"type":"exec","cluster":"default","payload":{"command":["echo","--hello"]},"priority":1,"labels":{"a":"b=c"},"required_capabilities":["gpu"]}`,
		withoutID(t, body.String()))
}

// withoutID is the body of a submission without the id that lets it be repeated.
func withoutID(t *testing.T, body string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &fields))
	require.Regexp(t, "^t-", fields["id"])
	delete(fields, "id")
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(text)
}

func TestSubmitFromStdin(t *testing.T) {
	t.Parallel()
	url, body := clitest.Answering(t, 202, "application/json", `{"id":"t-1","status":"queued"}`)
	got := clitest.Run(t.Context(), `{"n": 1}`, "task", "submit", "--server", url, "--type", "count", "--payload", "-",
		"-o", "json")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.JSONEq(t, `{"id":"t-1","status":"queued"}`, got.Stdout)
	require.JSONEq(t, `{"type":"count","cluster":"default","payload":{"n":1}}`,
		withoutID(t, body.String()))
}

func TestWaitedForTaskThatDidNotComplete(t *testing.T) {
	t.Parallel()
	for status, code := range map[string]int{"completed": app.ExitOK, "failed": app.ExitIncomplete,
		"cancelled": app.ExitIncomplete, "expired": app.ExitIncomplete, "review": app.ExitIncomplete, "dead_letter": app.ExitIncomplete} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			url, _ := clitest.Answering(t, 200, "application/json",
				`{"id":"t-1","type":"x","cluster":"c","status":"`+status+`"}`)
			require.Equal(t, code, clitest.Run(t.Context(), "", "task", "get", "t-1", "--wait", "--server", url).Code)
			require.Equal(t, app.ExitOK, clitest.Run(t.Context(), "", "task", "get", "t-1", "--server", url).Code)
		})
	}
}

func TestTLSMistakesAreNamed(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for server, says := range map[string]string{
		secure.URL: "--ca or MAINSTAY_CA",
		strings.Replace(secure.URL, "https:", "http:", 1): "speaks https: write the address so",
		strings.Replace(plain.URL, "http:", "https:", 1):  "it does not speak https",
	} {
		got := clitest.Run(t.Context(), "", "agent", "list", "--server", server)
		require.Equal(t, app.ExitUnreachable, got.Code, got.Stderr)
		require.Contains(t, got.Stderr, says)
		require.NotContains(t, got.Stderr, "mainstay dev")
	}
}

// TestExitCodesOfAgents: whoever starts an agent sees why it did not come up, and does not try a wrong token for ever.
func TestExitCodesOfAgents(t *testing.T) {
	t.Parallel()
	for code, test := range map[string]struct{ status, exit int }{
		"invalid_token": {401, app.ExitRefused}, "forbidden": {403, app.ExitRefused},
		"unknown_cluster": {404, app.ExitNotFound},
		"invalid_request": {422, app.ExitUsage}, "cluster_full": {409, app.ExitConflict},
		"agent_id_in_use": {409, app.ExitConflict}, "not_found": {404, app.ExitFailure},
	} {
		url, _ := clitest.Answering(t, test.status, "application/problem+json",
			`{"title":"x","detail":"so it is","code":"`+code+`"}`)
		got := clitest.Run(t.Context(), "", "agent", "run", "--hub", url, "--id", "a", "--allow-exec")
		require.Equal(t, test.exit, got.Code, "%s: %s", code, got.Stderr)
		require.Contains(t, got.Stderr, "so it is")
	}
}

func TestInterruptedWhileWaiting(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt() // once it waits
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	got := clitest.Run(ctx, "", "task", "get", "t-1", "--wait", "--server", server.URL)
	require.Equal(t, 130, got.Code)
	require.Equal(t, "Error: interrupted\n", got.Stderr)
}

// Whoever does not wait until the end learns the id first, and what to do then.
func TestInterruptedAfterASubmission(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"task submit --wait -- true": "Task x is submitted.\nError: interrupted; task x goes on\n" +
			"  Wait for it:  mainstay task get x --wait=1h\n  Cancel it:    mainstay task cancel x\n",
		"array submit --count 2 --wait -o json -- true": "Array x is submitted.\nError: interrupted; array x goes on\n" +
			"  Wait for it:  mainstay array get x --wait=1h\n  Cancel it:    mainstay array cancel x\n",
		"job dispatch j --follow -o json": "Run x of job j began.\nError: interrupted; run x goes on\n" +
			"  Wait for it:  mainstay run watch x\n  Cancel it:    mainstay run cancel x\n",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = io.WriteString(w, `{"id": "x", "job": "j", "type": "exec", "status": "queued"}`)
					return
				}
				interrupt()
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			words := strings.Fields(args)
			got := clitest.Run(ctx, "", append([]string{words[0], words[1], "--server", server.URL}, words[2:]...)...)
			require.Equal(t, app.ExitInterrupted, got.Code)
			require.Equal(t, says, got.Stderr)
		})
	}
}

func TestATokenIsRevokedByItsName(t *testing.T) {
	t.Parallel()
	const tokens = "/api/v1/agents/tokens"
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET " + tokens:                {Status: 200, Body: `{"tokens":[{"id":"a1","name":"other"},{"id":"b2","name":"ci"}]}`},
		"DELETE " + tokens + "/ci":     clitest.Problem(404, "unknown_token", "there is no token with this id"),
		"DELETE " + tokens + "/nobody": clitest.Problem(404, "unknown_token", "there is no token with this id"),
		"DELETE " + tokens + "/b2":     {Status: 200, Body: `{"id":"b2"}`},
	})
	ran := f.At(t, "token", "revoke", "ci")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	require.Equal(t, "Token b2 is revoked.\n", ran.Stdout)
	require.Equal(t, app.ExitNotFound, f.At(t, "token", "revoke", "nobody").Code)
}
