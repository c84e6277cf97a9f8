package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// answer is one answer of a server of tests; status 0 breaks the connection.
type answer struct {
	status     int
	body       string
	retryAfter string
}

func problem(status int, code string) answer {
	return answer{status: status, body: fmt.Sprintf(`{"title":"no","status":%d,"code":%q,"detail":"not now"}`, status,
		code)}
}

// server gives its answers in turn, the last one again and again. It keeps what was asked.
type server struct {
	asked   []string
	bodies  []string
	headers []http.Header
}

func serve(t *testing.T, answers ...answer) (*Client, *server, *[]time.Duration) {
	t.Helper()
	s := &server{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.asked, s.bodies, s.headers = append(s.asked, r.Method+" "+r.URL.RequestURI()), append(s.bodies,
			string(body)), append(s.headers, r.Header)
		a := answers[min(len(s.asked), len(answers))-1]
		if a.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Request-Id", "r-1")
		if a.retryAfter != "" {
			w.Header().Set("Retry-After", a.retryAfter)
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(web.Close)
	c, err := New(Options{URL: web.URL + "/", Token: "secret"})
	require.NoError(t, err)
	pauses := &[]time.Duration{}
	c.pause = func(_ context.Context, d time.Duration) error {
		*pauses = append(*pauses, d)
		return nil
	}
	return c, s, pauses
}

func TestWhatIsRepeated(t *testing.T) {
	t.Parallel()
	ok, busy := answer{status: 200, body: `{"id":"t-1"}`}, problem(503, "temporal_unavailable")
	get := func(ctx context.Context, c *Client) error { _, err := c.Tasks.Get(ctx, "t-1"); return err }
	submit := func(r api.TaskRequest) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error { _, err := c.Tasks.Submit(ctx, &r); return err }
	}
	batch := func(tasks ...api.TaskRequest) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error { _, err := SubmitAll(ctx, c, tasks); return err }
	}
	for name, c := range map[string]struct {
		do      func(context.Context, *Client) error
		answers []answer
		tries   int
		failed  bool
	}{
		"a broken connection":            {get, []answer{{}, ok}, 2, false},
		"429":                            {get, []answer{problem(429, "rate_limited"), ok}, 2, false},
		"502 of a proxy":                 {get, []answer{{status: 502, body: "<html>"}, ok}, 2, false},
		"503 three times":                {get, []answer{busy, busy, busy, ok}, 4, false},
		"503 for good":                   {get, []answer{busy}, -1, true},
		"504":                            {get, []answer{{status: 504}, ok}, 2, false},
		"500":                            {get, []answer{problem(500, "internal"), ok}, 1, true},
		"404":                            {get, []answer{problem(404, "unknown_task"), ok}, 1, true},
		"a submission":                   {submit(api.TaskRequest{}), []answer{busy, ok}, 2, false},
		"a submission that names its id": {submit(api.TaskRequest{ID: "t-1"}), []answer{busy, ok}, 2, false},
		"one with a key":                 {submit(api.TaskRequest{IdempotencyKey: "k"}), []answer{{}, ok}, 2, false},
		"a batch of named tasks": {batch(api.TaskRequest{ID: "a"}, api.TaskRequest{IdempotencyKey: "b"}),
			[]answer{busy, {status: 200, body: `{"tasks":[{"id":"a"},{"id":"b"}]}`}}, 2, false},
		"a batch with one without": {batch(api.TaskRequest{ID: "a"}, api.TaskRequest{}), []answer{busy,
			{status: 200, body: `{"tasks":[{"id":"a"},{"id":"b","duplicate":true}]}`}}, 2, false},
		"a DELETE": {func(ctx context.Context, c *Client) error { return c.Schedules.Delete(ctx, "s") },
			[]answer{busy, {status: 204}}, 2, false},
		"a DELETE of one revision": {func(ctx context.Context,
			c *Client) error {
			return c.Clusters.Delete(ctx, "c", false, "r")
		}, []answer{busy, {status: 204}}, 1, true},
		"a DELETE that worked, but whose answer was lost": {func(ctx context.Context, c *Client) error {
			return c.Clusters.Delete(ctx, "c", false, "")
		}, []answer{{}, problem(404, "unknown_cluster")}, 2, false},
		"a DELETE of what is not there": {func(ctx context.Context, c *Client) error {
			return c.Clusters.Delete(ctx, "c", false, "")
		}, []answer{problem(404, "unknown_cluster")}, 1, true},
		"a PATCH": {func(ctx context.Context, c *Client) error {
			_,
				err := c.Clusters.Update(ctx, "c", nil, "")
			return err
		}, []answer{busy, ok}, 1, true},
		"not what an action is for": {func(ctx context.Context, c *Client) error {
			_,
				err := c.Tasks.Cancel(ctx, "t", "")
			return err
		}, []answer{busy, ok}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server, pauses := serve(t, c.answers...)
			err := c.do(t.Context(), client)
			require.Equal(t, c.failed, err != nil, "%v", err)
			if c.tries >= 0 {
				require.Len(t, server.asked, c.tries)
			}
			for i := range server.asked {
				require.Equal(t, server.asked[0]+server.bodies[0], server.asked[i]+server.bodies[i], "the same again")
			}
			var waited time.Duration
			for i, pause := range *pauses {
				require.Less(t, pause, min(firstPause<<i, maxPause)*3/2)
				waited += pause
			}
			require.Equal(t, c.tries < 0, waited == defaultPatience, "it gives up when its patience is at its end")
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0,
		"Sun, 22 Nov 2026 12:00:09 GMT": 9 * time.Second, "Sun, 22 Nov 2026 11:59:59 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(header, now), header)
	}
	ok := answer{status: 200, body: `{}`}
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "3600": 0} {
		client, _, pauses := serve(t, answer{status: 429, retryAfter: header}, ok)
		_, err := client.Overview(t.Context())
		if want == 0 {
			require.Error(t, err, "an hour is left to the caller")
			require.Empty(t, *pauses)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []time.Duration{want}, *pauses)
	}
}

func TestRetriesHaveABoundThatIsAskedFor(t *testing.T) {
	t.Parallel()
	client, server, pauses := serve(t, problem(503, "temporal_unavailable"))
	client.retries = 3
	_, err := client.Overview(t.Context())
	require.Error(t, err)
	require.Len(t, server.asked, 4, "once, and three times again")
	require.Len(t, *pauses, 3, "nobody waits after the last try")
}

func TestNoPauseBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	client, server, pauses := serve(t, answer{status: 503, retryAfter: "50"}, answer{status: 200, body: `{}`})
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	_, err := client.Overview(ctx)
	var refused *Error
	require.ErrorAs(t, err, &refused, "the last answer, not that time is over")
	require.Len(t, server.asked, 1)
	require.Empty(t, *pauses)
}

func TestSleepEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, sleep(ctx, time.Second/2))
		require.ErrorIs(t, sleep(ctx, time.Minute), context.DeadlineExceeded)
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	client, server, _ := serve(t,
		answer{status: 422,
			body: `{"title":"Unprocessable","status":422,"code":"invalid_request","detail":"the request is not valid; errors says where","errors":[{"location":"body.type","message":"is missing"}]}`})
	_, err := client.Tasks.Submit(t.Context(), &api.TaskRequest{})
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "r-1", refused.RequestID)
	require.Equal(t, 422, refused.Status)
	require.Equal(t, "body.type", refused.Errors[0].Location)
	require.EqualError(t, err, "the request is not valid (invalid_request)\n  body.type: is missing")
	require.Equal(t, "Bearer secret", server.headers[0].Get("Authorization"))

	client, _, _ = serve(t, problem(404, "unknown_task"))
	_, err = client.Tasks.Get(t.Context(), "t")
	require.True(t, IsNotFound(err))
	client, _, _ = serve(t, answer{status: 404, body: "<html>"})
	_, err = client.Tasks.Get(t.Context(), "t")
	require.False(t, IsNotFound(err), "of something else")
	require.ErrorContains(t, err, "answered 404 Not Found, and not as Mainstay does")

	client, err = New(Options{URL: "http://127.0.0.1:1", Patience: -1})
	require.NoError(t, err)
	_, err = client.Tasks.Get(t.Context(), "t")
	var away *UnreachableError
	require.ErrorAs(t, err, &away)
	require.ErrorContains(t, err, "cannot reach the control plane at http://127.0.0.1:1: connect: connection refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Tasks.Get(ctx, "t")
	require.Equal(t, context.Canceled, err)

	for _, address := range []string{"", "127.0.0.1:8080", "ftp://x", "http://x?y=1", "http://x#y"} {
		_, err := New(Options{URL: address})
		require.Error(t, err, address)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	pages := []answer{{status: 200, body: `{"tasks":[{"id":"a","why":"<"},{"id":"b"}],"next_page_token":"x"}`},
		{status: 200, body: `{"tasks":[],"next_page_token":"y"}`}, {status: 200, body: `{"tasks":[{"id":"c"}]}`}}
	client, server, _ := serve(t, pages...)
	var ids []string
	for task, err := range client.Tasks.List(TaskQuery{Cluster: "k", Status: api.TaskQueued,
		Labels: []string{"a=b", "c=d"}}).All(t.Context()) {
		require.NoError(t, err)
		ids = append(ids, task.ID)
	}
	require.Equal(t, []string{"a", "b", "c"}, ids)
	const path = "GET /api/v1/agents/tasks?cluster=k&label=a%3Db&label=c%3Dd"
	require.Equal(t, []string{path + "&status=queued", path + "&page_token=x&status=queued", path +
		"&page_token=y&status=queued"}, server.asked)

	client, server, _ = serve(t, pages...)
	for _, err := range client.Tasks.List(TaskQuery{}).All(t.Context()) {
		require.NoError(t, err)
		break
	}
	require.Len(t, server.asked, 1, "what nobody reads is not asked for")

	client, _, _ = serve(t, answer{status: 200, body: `{"tasks":[{"id":"a"},{"id":"b"}]}`})
	list := client.Tasks.List(TaskQuery{})
	for _, err := range list.All(t.Context()) {
		require.NoError(t, err)
		break
	}
	ids = nil
	for task, err := range list.All(t.Context()) {
		require.NoError(t, err)
		ids = append(ids, task.ID)
	}
	require.Equal(t, []string{"a", "b"}, ids, "a loop that ended early loses nothing")

	client, server, _ = serve(t, pages...)
	var raw json.RawMessage
	list = client.Raw(&raw).Tasks.List(TaskQuery{})
	tasks, err := list.Take(t.Context(), 2)
	require.NoError(t, err)
	require.Len(t, tasks, 2)
	require.True(t, list.More())
	require.Equal(t, `{"tasks":[{"id":"a","why":"<"},{"id":"b"}]}`, string(raw))
	require.Equal(t, []string{"GET /api/v1/agents/tasks?page_size=2"}, server.asked)
	tasks, err = list.Take(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, tasks, 1)
	require.False(t, list.More())

	client, _, _ = serve(t, pages[0], problem(422, "invalid_request"))
	var last error
	for _, err := range client.Tasks.List(TaskQuery{}).All(t.Context()) {
		last = err
	}
	require.Error(t, last, "an error ends the items, and is not lost")
}

func TestWaitForTask(t *testing.T) {
	t.Parallel()
	client, server, _ := serve(t, answer{status: 200, body: `{"id":"a/b","status":"running"}`},
		answer{status: 200, body: `{"id":"a/b","status":"completed"}`})
	var raw json.RawMessage
	task, err := client.Raw(&raw).Tasks.Wait(t.Context(), "a/b", time.Hour, WithPayload)
	require.NoError(t, err)
	require.Equal(t, api.TaskCompleted, task.Status)
	require.Equal(t, `{"id":"a/b","status":"completed"}`, string(raw))
	require.Equal(t, []string{"GET /api/v1/agents/tasks/a%2Fb?include=payload&wait=1m0s",
		"GET /api/v1/agents/tasks/a%2Fb?include=payload&wait=1m0s"}, server.asked)
	_, err = client.Tasks.Get(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, "GET /api/v1/agents/tasks/x", server.asked[2])
}

func TestHealthOfAnUnhealthyProcess(t *testing.T) {
	t.Parallel()
	client, server, _ := serve(t, answer{status: 503, body: `{"status":"unhealthy"}`})
	var raw json.RawMessage
	health, err := client.Raw(&raw).Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "unhealthy", health.Status)
	require.Equal(t, `{"status":"unhealthy"}`, string(raw))
	require.Len(t, server.asked, 1, "it is an answer, and not repeated")
}

func TestEventsGoOn(t *testing.T) {
	t.Parallel()
	event := func(id string) string { return "id: p" + id + "\ndata: {\"id\":\"" + id + "\"}\n\n" }
	client, server, pauses := serve(t,
		answer{status: 200, body: event("1")}, problem(503, "temporal_unavailable"), answer{status: 200},
		problem(503, "temporal_unavailable"),
		answer{status: 200, body: event("1") + event("2")}, problem(403, "forbidden"))
	var ids []string
	var reached []bool
	var last error
	for event, err := range client.Events(t.Context(), EventQuery{Types: []string{"agent", "task"}, Since: "1h",
		Reached: func(r bool) { reached = append(reached, r) }}) {
		if last = err; err == nil {
			ids = append(ids, event.ID)
		}
	}
	var refused *Error
	require.True(t, errors.As(last, &refused), "%v", last)
	require.Equal(t, []string{"1", "2"}, ids, "each once")
	require.Equal(t, []bool{false, true, false, true}, reached)
	require.Len(t, *pauses, 5)
	var after []string
	for i := range server.asked {
		after = append(after, server.headers[i].Get("Last-Event-ID"))
	}
	require.Equal(t, []string{"", "p1", "p1", "p1", "p1", "p2"}, after)
	require.Equal(t, "GET /api/v1/agents/events?since=1h&type=agent&type=task", server.asked[0])
	require.Equal(t, "GET /api/v1/agents/events?type=agent&type=task", server.asked[1])

	client, server, _ = serve(t, answer{status: 200, body: event("1") + event("2")})
	for event, err := range client.Events(t.Context(), EventQuery{Once: true}) {
		require.NoError(t, err)
		require.Equal(t, "1", event.ID)
		break
	}
	require.Equal(t, []string{"GET /api/v1/agents/events?follow=false"}, server.asked)
}

// The control plane is killed after it has taken a submission and before it has answered, and is away for a while.
func TestSubmissionOutlivesARestart(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	taken := map[string]int{} // submissions by id: what is durable
	killed := make(chan struct{})
	start := func(l net.Listener, dies bool) {
		var server *http.Server
		server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var task api.TaskRequest
			_ = json.NewDecoder(r.Body).Decode(&task)
			mu.Lock()
			defer mu.Unlock()
			taken[task.ID]++
			if dies {
				go func() {
					_ = server.Close()
					close(killed)
				}()
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, `{"id":%q,"status":"queued","duplicate":%t}`, task.ID, taken[task.ID] > 1)
		})}
		t.Cleanup(func() { _ = server.Close() })
		go func() { _ = server.Serve(l) }()
	}
	start(listener, true)
	c, err := New(Options{URL: "http://" + listener.Addr().String()})
	require.NoError(t, err)
	pauses := 0
	c.pause = func(context.Context, time.Duration) error {
		<-killed
		if pauses++; pauses == 4 { // until then nothing listens
			again, err := net.Listen("tcp", listener.Addr().String())
			require.NoError(t, err)
			start(again, false)
		}
		return nil
	}
	task, err := c.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: "x"}})
	require.NoError(t, err)
	require.False(t, task.Duplicate, "the caller has submitted it once")
	require.Equal(t, map[string]int{task.ID: 2}, taken, "one task, asked for twice")
	require.Equal(t, 4, pauses)
}

func TestTheTokenGoesToNoOtherServer(t *testing.T) {
	t.Parallel()
	var got []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, "elsewhere "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/agents/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/api/v1/agents/within":
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		default:
			got = append(got, "own "+r.Header.Get("Authorization"))
		}
	}))
	t.Cleanup(own.Close)
	c, err := New(Options{URL: own.URL, Token: "secret", Patience: -1})
	require.NoError(t, err)
	_, err = c.Agents.Get(t.Context(), "away", false)
	require.Error(t, err)
	_, err = c.Agents.Get(t.Context(), "within", false)
	require.NoError(t, err)
	require.Equal(t, []string{"own Bearer secret"}, got)
}
