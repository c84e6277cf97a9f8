package array

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
	"mainstay.dev/sdk/api"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command)) }

const (
	arraysPath = "/api/v1/agents/arrays"
	blocked    = `{"id":"a-1","type":"render","cluster":"studio","elements":4,"status":"blocked","why":"1 dead letter waits for a person",
"counts":{"total":4,"queued":0,"running":0,"review":0,"dead_letter":1,"completed":3,"failed":0,"cancelled":0},
"created_at":"2026-11-21T11:58:00Z","workflow_id":"array/a-1"}`
)

// submitted runs a submit, and returns what the API was sent.
func submitted(t *testing.T, stdin string, args ...string) (api.ArrayRequest, clitest.Ran) {
	t.Helper()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"POST " + arraysPath: {Status: http.StatusAccepted,
		Body: `{"id":"a-1","status":"running","counts":{"total":3}}`}})
	ran := clitest.Run(t.Context(), stdin, append([]string{"array", "submit", "--server", f.URL}, args...)...)
	var sent api.ArrayRequest
	if len(f.Requests) > 0 {
		require.NoError(t, json.Unmarshal([]byte(f.Requests[0].Body), &sent))
	}
	return sent, ran
}

func TestEachLineIsAnElement(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "frames.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("{\"frame\": 1}\n\n{\"frame\": 2}\r\n[3]"), 0o600))
	sent, ran := submitted(t, "", "--type", "render", "--cluster", "studio", "--each", file, "--tolerate", "0",
		"--max-parallel", "16", "--id", "a-1")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	require.Equal(t, "Array a-1 with 3 elements submitted. See it with: mainstay array get a-1 --wait\n", ran.Stdout)
	require.Len(t, sent.Items, 3)
	require.JSONEq(t, `{"frame":2}`, string(sent.Items[1]))
	require.Equal(t, 0, *sent.Tolerate)
	require.Equal(t, 16, sent.MaxParallel)

	sent, ran = submitted(t, "/data/a b.jpg\n/data/c.jpg\n", "--each", "-", "--", "sha256sum", "-b")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	require.Equal(t, "exec", sent.Type)
	require.Nil(t, sent.Tolerate)
	require.JSONEq(t, `{"command": ["sha256sum", "-b", "/data/a b.jpg"]}`, string(sent.Items[0]))
	sent, ran = submitted(t, "\ufeffa\r\nb\r\n", "--each", "-", "--", "echo")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	require.JSONEq(t, `{"command": ["echo", "a"]}`, string(sent.Items[0]))
	require.JSONEq(t, `{"command": ["echo", "b"]}`, string(sent.Items[1]))
	sent, ran = submitted(t, "", "--count", "1000", "--", "./simulate.sh")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	require.Equal(t, 1000, sent.Count)
	require.JSONEq(t, `{"command": ["./simulate.sh"]}`, string(sent.Payload))
}

func TestWhatIsNoArrayIsNotSubmitted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stdin, says string
		args        []string
	}{
		"each and count":   {"1\n", "--each or --count, not both", []string{"--type", "x", "--each", "-", "--count", "2"}},
		"each and payload": {"1\n", "--each or --payload, not both", []string{"--type", "x", "--each", "-", "--payload", "1"}},
		"no JSON":          {"1\nhello\n", "line 2 is not JSON", []string{"--type", "x", "--each", "-"}},
		"no UTF-8":         {"a\ncaf\xe9\n", "line 2 is not UTF-8", []string{"--each", "-", "--", "ls"}},
		"UTF-16":           {"\xff\xfe1\x00", "is UTF-16: save it as UTF-8", []string{"--type", "x", "--each", "-"}},
		"no such file":     {"", "no such file", []string{"--type", "x", "--each", "/none/such"}},
		"nothing":          {"", "an array has 1 to", []string{"--type", "x", "--each", "-"}},
		"too parallel":     {"", "--max-parallel must be between 1 and 512", []string{"--type", "x", "--count", "2", "--max-parallel", "600"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, ran := submitted(t, c.stdin, c.args...)
			require.Equal(t, app.ExitUsage, ran.Code, ran.Stderr)
			require.Contains(t, ran.Stderr, c.says)
			require.Empty(t, sent.Type)
		})
	}
}

func TestSubmitWaits(t *testing.T) {
	t.Parallel()
	for status, code := range map[string]int{"completed": app.ExitOK, "partial": app.ExitOK,
		"blocked": app.ExitIncomplete, "failed": app.ExitIncomplete} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewAPI(t, map[string]clitest.Answer{
				"POST " + arraysPath:         {Status: http.StatusOK, Body: `{"id":"a-1","status":"running","duplicate":true,"counts":{"total":4}}`},
				"GET " + arraysPath + "/a-1": {Status: http.StatusOK, Body: strings.Replace(blocked, `"blocked"`, `"`+status+`"`, 1)}})
			ran := f.At(t, "array", "submit", "--id", "a-1", "--count", "4", "--type", "render", "--wait")
			require.Equal(t, code, ran.Code, ran.Stderr)
			require.Contains(t, ran.Stdout, "was submitted before; it is running")
			require.Contains(t, ran.Stdout, "3 completed, 0 running")
		})
	}
}

func TestArrayGetSaysWhatToDo(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET " + arraysPath + "/a-1": {Status: http.StatusOK, Body: blocked}})
	ran := f.At(t, "array", "get", "a-1")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	require.Equal(t, strings.TrimLeft(`
Array          a-1
Type           render
Cluster        studio
Status         blocked
Why            1 dead letter waits for a person
Elements       4: 3 completed, 0 running, 0 queued, 0 failed, 0 cancelled
Need a person  1 dead letter, 0 in review
Submitted      2m ago

See why:    mainstay array elements a-1 --status dead_letter
Run again:  mainstay array retry a-1
`, "\n"), ran.Stdout)
	require.Equal(t, app.ExitIncomplete, f.At(t, "array", "get", "a-1", "--wait").Code)
	require.JSONEq(t, blocked, f.At(t, "array", "get", "a-1", "-o", "json").Stdout)
}

func TestArrayLists(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET " + arraysPath: {Status: http.StatusOK, Body: `{"arrays":[{"id":"a-1","type":"render","cluster":"studio","elements":4,"status":"completed","created_at":"2026-11-21T11:58:00Z","closed_at":"2026-11-21T11:58:30Z"}]}`},
		"GET " + arraysPath + "/a-1/elements": {Status: http.StatusOK,
			Body: `{"elements":[{"element":2,"task_id":"a-1~.2","status":"dead_letter","why":"no\ndisk"}]}`},
		"GET " + arraysPath + "/a-1/results.ndjson": {Status: http.StatusOK,
			Body: "{\"element\":1,\"output\":{\"a\":1}}\n{\"element\":0}\n{\"error\":\"the rest cannot be read now\"}\n"},
	})
	ran := f.At(t, "array", "list", "--status", "completed", "--cluster", "studio")
	require.Regexp(t, `(?m)^a-1 +render +studio +4 +completed +2m ago +30s$`, ran.Stdout)
	require.Contains(t, f.Requests[0].URI, "status=completed")
	require.Contains(t, f.Requests[0].URI, "cluster=studio")
	ran = f.At(t, "array", "elements", "a-1", "--status", "dead_letter")
	require.Equal(t, "ELEMENT  STATUS       WHY\n2        dead_letter  no disk\n", ran.Stdout)
	ran = f.At(t, "array", "results", "a-1")
	require.Equal(t, "{\"element\":1,\"output\":{\"a\":1}}\n{\"element\":0}\n", ran.Stdout)
	require.NotEqual(t, app.ExitOK, ran.Code)
	require.Contains(t, ran.Stderr, "the rest cannot be read now")
}

func TestArrayIsSteered(t *testing.T) {
	t.Parallel()
	for word, c := range map[string]struct {
		args       []string
		body, says string
	}{
		"pause":    {[]string{"--reason", "new disks"}, `{"reason":"new disks"}`, "is paused"},
		"resume":   {nil, `{}`, "goes on"},
		"cancel":   {nil, `{}`, "is being cancelled"},
		"retry":    {[]string{"--element", "17", "--element", "25"}, `{"elements":[17,25]}`, "runs elements again"},
		"priority": {[]string{"low"}, `{"priority":4}`, "has another priority"},
	} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewAPI(t, map[string]clitest.Answer{"POST " + arraysPath + "/a-1/" + word: {Status: http.StatusOK,
				Body: blocked}})
			ran := f.At(t, append([]string{"array", word, "a-1"}, c.args...)...)
			require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
			require.Equal(t, "Array a-1 "+c.says+". See it with: mainstay array get a-1\n", ran.Stdout)
			require.JSONEq(t, c.body, f.Requests[0].Body)
		})
	}
	require.Equal(t, app.ExitUsage, clitest.NewAPI(t, nil).At(t, "array", "priority", "a-1", "urgent").Code)
}
