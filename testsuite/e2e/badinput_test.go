package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// secret is in every wrong value: no answer may repeat it.
const secret = "hunter2"

func TestBadRequestsAreExplained(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	const tasks, register = "/api/v1/agents/tasks", protocol.RegisterPath
	with := func(extra string) string { return `{"type":"echo","cluster":"` + cluster + `"` + extra + `}` }
	agent := func(id, instance, cluster, extra string) string {
		return `{"agent_id":"` + id + `","instance_id":"` + instance + `","cluster":"` + cluster + `","max_tasks":1` + extra + `}`
	}
	const invalid = protocol.CodeInvalidRequest
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"unknown cluster": {"POST", tasks, `{"type":"echo","cluster":"` + secret + `"}`, 404,
			protocol.CodeUnknownCluster},
		"cluster that is no id": {"POST", tasks, `{"type":"echo","cluster":"No ` + secret + `"}`, 422, invalid},
		"no cluster":            {"POST", tasks, `{"type":"` + secret + `"}`, 422, invalid},
		"type that is no id": {"POST", tasks, `{"type":"../` + secret + `","cluster":"` + cluster + `"}`, 422,
			invalid},
		"task id that is no id":  {"POST", tasks, with(`,"id":"` + secret + `/x"`), 422, invalid},
		"reserved task id":       {"POST", tasks, with(`,"id":"queue"`), 422, invalid},
		"unknown field":          {"POST", tasks, with(`,"colour":"` + secret + `"`), 422, invalid},
		"field in other letters": {"POST", tasks, with(`,"Payload":"` + secret + `"`), 422, invalid},
		"wrong type": {"POST", tasks, `{"type":["` + secret + `"],"cluster":"` + cluster + `"}`, 422,
			invalid},
		"wrong enum":            {"POST", tasks, with(`,"retry_safety":"` + secret + `"`), 422, invalid},
		"wrong duration":        {"POST", tasks, with(`,"timeout":"` + secret + `"`), 422, invalid},
		"wrong number":          {"POST", tasks, with(`,"priority":"` + secret + `"`), 422, invalid},
		"priority out of range": {"POST", tasks, with(`,"priority":7742`), 422, invalid},
		"capability that is no id": {"POST", tasks, with(`,"required_capabilities":["` + secret + ` x"]`), 422,
			invalid},
		"invalid JSON": {"POST", tasks, `{"type":"` + secret + `",`, 400, invalid},
		"text":         {"POST", tasks, secret, 400, invalid},
		"no body":      {"POST", tasks, "", 400, invalid},
		"2 MiB payload": {"POST", tasks, with(`,"payload":"` + strings.Repeat(secret+".", 2<<17) + `"`), 413,
			protocol.CodePayloadTooLarge},
		"1 MiB and a bit": {"POST", tasks, with(`,"payload":"` + strings.Repeat(secret+".", 1<<17) + `"`), 413,
			protocol.CodePayloadTooLarge},
		"huge body":                {"POST", tasks, strings.Repeat(" ", 5<<20), 413, protocol.CodePayloadTooLarge},
		"batch that is none":       {"POST", tasks + "/batch", with(`,"labels":{"a":"` + secret + `"}`), 422, invalid},
		"unknown task":             {"GET", tasks + "/" + secret, "", 404, protocol.CodeUnknownTask},
		"task id of other form":    {"GET", tasks + "/No%20" + secret, "", 404, protocol.CodeUnknownTask},
		"wait that is no duration": {"GET", tasks + "/x?wait=" + secret, "", 422, invalid},
		"unknown parameter":        {"GET", tasks + "?colour=" + secret, "", 422, invalid},
		"wrong page":               {"GET", tasks + "?page_token=" + secret, "", 422, invalid},
		"wrong page size":          {"GET", tasks + "?page_size=" + secret, "", 422, invalid},
		"cancel unknown task":      {"POST", tasks + "/" + secret + "/cancel", "{}", 404, protocol.CodeUnknownTask},
		"unknown agent":            {"GET", "/api/v1/agents/" + secret, "", 404, protocol.CodeUnknownAgent},
		"unknown cluster's view":   {"GET", "/api/v1/agents/clusters/" + secret, "", 404, protocol.CodeUnknownCluster},
		"unknown path":             {"GET", "/api/v1/" + secret, "", 404, protocol.CodeNotFound},
		"wrong method": {"PUT", tasks, with(`,"payload":"` + secret + `"`), 405,
			protocol.CodeMethodNotAllowed},
		"an instance id of four bytes a character": {"POST", register,
			agent("a-1", strings.Repeat("\U00020000", 8)+secret, cluster, ""), 422, invalid},
		"join unknown cluster": {"POST", register, agent("a-"+secret, "12345678", secret, ""), 404,
			protocol.CodeUnknownCluster},
		"agent id that is no id": {"POST", register, agent("A "+secret, "12345678", cluster, ""), 422, invalid},
		"agent id in a query":    {"POST", register, agent("x' OR '"+secret, "12345678", cluster, ""), 422, invalid},
		"short instance id":      {"POST", register, agent("a", "hunter2", cluster, ""), 422, invalid},
		"agent's unknown field": {"POST", register, agent("a", "12345678", cluster, `,"colour":"`+secret+`"`), 422,
			invalid},
		"agent's task type": {"POST", register, agent("a", "12345678", cluster,
			`,"task_types":["`+secret+` x"]`), 422, invalid},
		"poll without a session": {"POST", "/api/v1/agents/a/poll", `{"sequence":1}`, 401, protocol.CodeUnauthorized},
		"result without a session": {"POST", "/api/v1/agents/a/tasks/t/result",
			`{"token":"` + secret + `","attempt":1,"outcome":"completed","started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:00Z"}`, 401, protocol.CodeUnauthorized},
		"result of wrong outcome": {"POST", "/api/v1/agents/a/tasks/t/result",
			`{"token":"x","attempt":1,"outcome":"` + secret + `","started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:00Z"}`, 422, invalid},
		"result at a wrong time": {"POST", "/api/v1/agents/a/tasks/t/result",
			`{"token":"x","attempt":1,"outcome":"completed","started_at":"` + secret + `","ended_at":"2026-01-01T00:00:00Z"}`, 422, invalid},
		"goodbye of nobody": {"DELETE", "/api/v1/agents/a/session", "", 401, protocol.CodeUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, text := exchange(t, http.DefaultClient, c.method, node.URL+c.path, "", c.body)
			for begun := time.Now(); status == http.StatusServiceUnavailable && time.Since(begun) < 30*time.Second; {
				// a busy worker: "try again"
				status, text = exchange(t, http.DefaultClient, c.method, node.URL+c.path, "", c.body)
			}
			requireProblem(t, c.status, c.code, status, text, secret, "7742")
		})
	}
}

func TestForeignTokensAreRefused(t *testing.T) {
	t.Parallel()
	timing := plane.QuickTiming() // but these agents do not poll meanwhile
	timing.WarningThreshold, timing.FailureThreshold = 30*time.Second, time.Minute
	node := plane.NewNode(t, plane.NodeOptions{Config: hub.Config{Timing: timing}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	mine, other := newWireAgent(t, node.URL, cluster), newWireAgent(t, node.URL, cluster)
	mine.register(t)
	first := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster, "agent": mine.id})
	a := mine.take(t)
	require.Equal(t, first, a.TaskID)
	other.register(t)
	second := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster, "agent": other.id})
	b := other.take(t)
	require.Equal(t, second, b.TaskID)

	forged := a.Token[:len(a.Token)-8] + "AAAAAAAA"
	for name, c := range map[string]struct {
		session, task string
		attempt       int
		token         string
	}{
		"another agent's session":        {other.session, a.TaskID, a.Attempt, a.Token},
		"another agent's attempt":        {mine.session, b.TaskID, b.Attempt, b.Token},
		"another task's token":           {mine.session, b.TaskID, a.Attempt, a.Token},
		"another attempt's number":       {mine.session, a.TaskID, a.Attempt + 1, a.Token},
		"a forged attempt token":         {mine.session, a.TaskID, a.Attempt, forged},
		"a truncated attempt token":      {mine.session, a.TaskID, a.Attempt, a.Token[:40]},
		"the session token as attempt's": {mine.session, a.TaskID, a.Attempt, mine.session},
		"the attempt token as session's": {a.Token, a.TaskID, a.Attempt, a.Token},
		"a forged session token": {mine.session[:len(mine.session)-8] + "AAAAAAAA", a.TaskID, a.Attempt,
			a.Token},
		"an empty session token":          {"", a.TaskID, a.Attempt, a.Token},
		"a session token that is no base": {"%%%", a.TaskID, a.Attempt, a.Token},
	} {
		status, text := mine.report(t, c.session, c.task, c.attempt, c.token)
		require.Equal(t, http.StatusUnauthorized, status, name)
		requireProblem(t, http.StatusUnauthorized, protocol.CodeUnauthorized, status, text, a.Token, b.Token,
			mine.session, other.session, forged)
	}
	stolen := *mine
	stolen.session = other.session
	status, _, text := stolen.poll(t)
	requireProblem(t, http.StatusUnauthorized, protocol.CodeUnauthorized, status, text, other.session)

	// Nothing of that harmed the work.
	for _, w := range []struct {
		agent *wireAgent
		a     protocol.Assignment
	}{{mine, a}, {other, b}} {
		status, text := w.agent.report(t, w.agent.session, w.a.TaskID, w.a.Attempt, w.a.Token)
		require.Equal(t, http.StatusOK, status, text)
		got := getTask(t, node.URL, w.a.TaskID, "20s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Len(t, got.Attempts, 1)
	}
}
