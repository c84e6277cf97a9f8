package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// listening is a stream of events and what came of it.
type listening struct {
	mu     sync.Mutex
	events []api.CloudEvent
	at     []time.Time // when each came
	last   string
	stop   context.CancelFunc
	ended  chan struct{}
}

// listen opens a stream and returns when it has begun: what happens afterwards is in it.
func listen(t *testing.T, node *plane.Node, query url.Values, last string) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, node.URL+"/api/v1/agents/events?"+query.Encode(),
		nil)
	require.NoError(t, err)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	l := &listening{stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		defer response.Body.Close()
		reader := client.NewEventReader(response.Body)
		for {
			_, event, err := reader.Next()
			l.mu.Lock()
			l.last = reader.LastID
			if err != nil {
				l.mu.Unlock()
				return
			}
			l.events, l.at = append(l.events, *event), append(l.at, time.Now())
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-l.ended })
	return l
}

// leave ends the stream, and returns the id to go on from.
func (l *listening) leave() string {
	l.stop()
	<-l.ended
	return l.last
}

func (l *listening) list() []api.CloudEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// line is an event in short: its type without the prefix, and its subject.
func line(e *api.CloudEvent) string {
	return strings.TrimPrefix(string(e.Type), api.EventPrefix) + " " + e.Subject
}

func (l *listening) lines() []string {
	var lines []string
	for _, e := range l.list() {
		lines = append(lines, line(&e))
	}
	return lines
}

// all are the events with a line. Others may come between: a gap is also about hubs of other tests.
func (l *listening) all(want string) []api.CloudEvent {
	return slices.DeleteFunc(l.list(), func(e api.CloudEvent) bool { return line(&e) != want })
}

// await waits for an event by its line and returns the first.
func (l *listening) await(t *testing.T, want string) api.CloudEvent {
	t.Helper()
	var found api.CloudEvent
	ok := func() bool {
		for _, e := range l.list() {
			if line(&e) == want {
				found = e
				return true
			}
		}
		return false
	}
	if !waits(t, ok) {
		require.Failf(t, "no event", "%s is not in\n%s", want, strings.Join(l.lines(), "\n"))
	}
	return found
}

// waits looks until ok, for 20 s at most.
func waits(t *testing.T, ok func() bool) bool {
	t.Helper()
	return waitsEvery(t, 5*time.Millisecond, ok)
}

// waitsEvery is waits for a look that costs more. Unlike require.Eventually it looks on the test's own goroutine, where
// a look may fail the test.
func waitsEvery(t *testing.T, interval time.Duration, ok func() bool) bool {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for over := time.After(time.Minute); ; {
		if ok() {
			return true
		}
		select {
		case <-tick.C:
		case <-over:
			return false
		}
	}
}

// inOrder requires that the lines come in this order, whatever is between them.
func (l *listening) inOrder(t *testing.T, want ...string) {
	t.Helper()
	lines := l.lines()
	rest := lines
	for _, w := range want {
		i := slices.Index(rest, w)
		require.GreaterOrEqual(t, i, 0, "%s, in its order, is not in\n%s", w, strings.Join(lines, "\n"))
		rest = rest[i+1:]
	}
}

func TestEventsOfAKillComeInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	l := listen(t, b.node, url.Values{"cluster": {b.cluster}}, "")
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, first)
	l.await(t, "agent.joined agents/"+first)
	id := b.submit(t, nil)
	b.waitBegins(t, id, 1)
	b.agent(t, second)
	wire.cut()
	b.waitBegins(t, id, 2)
	b.finish.Store(true)
	l.await(t, "task.completed tasks/"+id)
	record := b.failover(t, first, 1)
	l.await(t, "failover.ended failovers/"+record.ID)
	// What the hub saw and what the cluster did may reach a busy gateway by turns: the events' times have the order.
	slices.SortStableFunc(l.events, func(a, b api.CloudEvent) int { return a.Time.Compare(b.Time) })
	l.inOrder(t, "agent.joined agents/"+first, "task.queued tasks/"+id, "task.running tasks/"+id,
		"agent.suspect agents/"+first,
		"agent.lost agents/"+first, "task.running tasks/"+id, "task.completed tasks/"+id)
	l.inOrder(t, "agent.lost agents/"+first, "failover.started failovers/"+record.ID,
		"failover.ended failovers/"+record.ID)
	t.Log(strings.Join(l.lines(), "\n"))
}

// TestEventsGoOnAtAnotherGateway has a listener go from one gateway to another, and to a restarted one: together it
// hears of everything, and nothing but what was told last comes twice.
func TestEventsGoOnAtAnotherGateway(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	b.finish.Store(true)
	name := plane.UniqueID("a")
	b.agent(t, name)
	query := url.Values{"cluster": {b.cluster}}
	l := listen(t, b.node, query, "")
	first := b.submit(t, nil)
	l.await(t, "task.completed tasks/"+first)
	last := l.leave()

	second := b.submit(t, nil)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, second, "20s").Status)
	other := plane.NewNode(t, plane.NodeOptions{})
	l = listen(t, other, query, last)
	l.await(t, "task.completed tasks/"+second)
	l.inOrder(t, "task.queued tasks/"+second, "task.running tasks/"+second, "task.completed tasks/"+second)
	third := b.submit(t, nil)
	l.await(t, "task.completed tasks/"+third)
	seen := map[string]int{}
	for _, e := range l.list() {
		seen[e.ID]++
		require.Equal(t, 1, seen[e.ID], "%s comes twice in one stream", e.ID)
		if strings.HasPrefix(e.Data.Reason, "hub ") && !strings.Contains(e.Data.Reason, b.node.Hub.ID()) &&
			!strings.Contains(e.Data.Reason, other.Hub.ID()) {
			continue // of another test, which has ended
		}
		require.NotEqual(t, api.EventGap, e.Type, "nothing is missing: %s", e.Data.Reason)
	}
	require.Zero(t, seen[first+".running"])
	other.Stop()
	<-l.ended
	last = l.leave()

	fourth := b.submit(t, nil)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, fourth, "20s").Status)
	l = listen(t, b.node, query, last)
	l.await(t, "task.completed tasks/"+fourth)
	l.inOrder(t, "task.running tasks/"+fourth, "task.completed tasks/"+fourth)
}

// TestEventsOfDecidedTasks: what visibility tells reaches listeners too.
func TestEventsOfDecidedTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	l := listen(t, b.node, url.Values{"cluster": {b.cluster}, "type": {"task"}, "tenant": {"film"}}, "")
	other := b.submit(t, map[string]any{"tenant": "other"})
	once := b.submit(t, map[string]any{"tenant": "film", "retry_safety": "at_most_once"})
	waiting := b.submit(t, map[string]any{"tenant": "film", "agent": plane.UniqueID("nobody")})
	_, wire := b.agent(t, plane.UniqueID("a"))
	b.waitBegins(t, once, 1)
	l.await(t, "task.running tasks/"+once)
	wire.cut()
	require.Contains(t, l.await(t, "task.review tasks/"+once).Data.Cluster, b.cluster)
	status, _ := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/tasks/"+once+"/review",
		map[string]any{"decision": "completed", "result": 7, "reason": "seen"}, nil)
	require.Equal(t, http.StatusOK, status)
	status, _ = call(t, http.MethodPost, b.node.URL+"/api/v1/agents/tasks/"+waiting+"/cancel", map[string]any{}, nil)
	require.Equal(t, http.StatusOK, status)
	l.await(t, "task.completed tasks/"+once)
	l.await(t, "task.cancelled tasks/"+waiting)
	l.inOrder(t, "task.queued tasks/"+once, "task.running tasks/"+once, "task.review tasks/"+once,
		"task.completed tasks/"+once)
	l.inOrder(t, "task.queued tasks/"+waiting, "task.cancelled tasks/"+waiting)
	for _, e := range l.list() {
		require.NotEqual(t, "tasks/"+other, e.Subject, "another tenant's")
	}
}

// TestOtherNamesOfEvents reads the past by each of the other names: it is what happened, and nothing else.
func TestOtherNamesOfEvents(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster, id := node.EnsureCluster(t, api.ClusterConfig{}), plane.UniqueID("a")
	c, err := client.New(client.Options{URL: node.URL})
	require.NoError(t, err)
	a := startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id, Slots: 8},
		map[string]agent.Handler{"echo": echo, "model": echo,
			"mcp-tool": func(ctx context.Context, task *agent.Task) (any, error) {
				if strings.Contains(string(task.Payload), "bad") {
					return nil, errors.New("no such tool")
				}
				return echo(ctx, task)
			},
			"fails": func(context.Context, *agent.Task) (any, error) {
				return nil, agent.NonRetryable(errors.New("disk full"))
			},
			"dies": func(context.Context, *agent.Task) (any, error) { return nil, errors.New("disk full") }})
	payloads := map[string]string{"mcp-tool": `{"server":"s","tool":"t"}`,
		"model": `{"messages":[{"role":"user","content":"x"}],"route":{"provider":"p","model":"m"}}`}
	subject := map[string]string{}
	for _, kind := range []string{"echo", "model", "mcp-tool", "fails", "dies"} {
		task, err := c.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: kind, Cluster: cluster,
			Payload: json.RawMessage(payloads[kind]), Retry: api.RetryPolicy{MaxAttempts: 1}}})
		require.NoError(t, err)
		subject[kind] = " tasks/" + task.ID
	}
	bad, err := c.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: "mcp-tool", Cluster: cluster,
		Payload: json.RawMessage(`{"server":"s","tool":"bad"}`), Retry: api.RetryPolicy{MaxAttempts: 1}}})
	require.NoError(t, err)
	subject["bad"] = " tasks/" + bad.ID
	run := (&runsOf{Client: c, cluster: cluster}).start(t, "", "  a: {task: {type: echo, payload: {}}, "+
		"check: {schema: {required: [text]}, correct: {attempts: 1}, exhausted: fail}}")
	a.own.ReportHealth(0, "the disk is full")
	for kind := range subject {
		_, err := c.Tasks.Wait(t.Context(), strings.TrimPrefix(subject[kind], " tasks/"), patience)
		require.NoError(t, err)
	}
	for name, want := range map[string][]string{
		"AgentExecutionStarted": {"task.running" + subject["echo"], "task.running" + subject["dies"]},
		"AgentTaskFailed": {"task.failed" + subject["fails"], "task.dead_letter" + subject["dies"],
			"task.dead_letter" + subject["bad"], "step.failed runs/" + run.ID},
		"CorrectionAttempted": {"step.corrected runs/" + run.ID},
		"ModelInvoked":        {"task.completed" + subject["model"]},
		"ToolInvoked":         {"task.completed" + subject["mcp-tool"], "task.attempt_failed" + subject["bad"]},
		"AgentHealthChanged":  {"agent.health agents/" + id},
	} {
		var heard *listening
		told := func() bool {
			heard = listen(t, node, url.Values{"cluster": {cluster}, "type": {name}, "since": {"15m"}, "follow": {"false"}}, "")
			<-heard.ended
			return !slices.ContainsFunc(want, func(line string) bool { return len(heard.all(line)) == 0 })
		}
		// Where many hubs are gone, as of other tests, or the machine is busy, one read takes a while.
		require.True(t, waitsEvery(t, time.Second, told), "%s: %q", name, want)
		for _, e := range heard.all("step.corrected runs/" + run.ID) {
			require.Equal(t, run.ID+"~a", e.Data.TaskID)
		}
		others := slices.DeleteFunc(heard.lines(), func(line string) bool {
			return slices.Contains(want, line) || strings.HasPrefix(line, "gap ")
		})
		if name == "AgentExecutionStarted" { // of the others, too
			others = slices.DeleteFunc(others, func(line string) bool { return strings.HasPrefix(line, "task.running ") })
		}
		require.Empty(t, others, name)
	}
}

// TestEventsComeSoon measures from when something happened to when a listener has it.
func TestEventsComeSoon(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{Brake: api.BrakePolicy{MinLost: 1000}})
	b.finish.Store(true)
	_, _ = b.agent(t, plane.UniqueID("stays"))
	l := listen(t, b.node, url.Values{"cluster": {b.cluster}}, "")
	for range 20 {
		id := b.submit(t, nil)
		l.await(t, "task.completed tasks/"+id)
	}
	for range 10 {
		name := plane.UniqueID("gone")
		_, wire := b.agent(t, name)
		l.await(t, "agent.joined agents/"+name)
		wire.cut()
		l.await(t, "agent.lost agents/"+name)
	}
	for _, kind := range []api.EventType{api.EventTaskRunning, api.EventTaskCompleted, api.EventAgentJoined,
		api.EventAgentSuspect, api.EventAgentLost, api.EventFailoverStarted, api.EventFailoverEnded} {
		took := l.delays(kind)
		require.NotEmpty(t, took, kind)
		slices.Sort(took)
		t.Logf("%-40s n %3d  p50 %8s  p99 %8s  max %8s", kind, len(took), took[len(took)/2].Round(time.Millisecond),
			took[len(took)*99/100].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
		require.Less(t, took[len(took)/2], 5*time.Second, kind)
	}
}

// delays are how long the events of a type took to the listener.
func (l *listening) delays(kind api.EventType) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []time.Duration
	for i, e := range l.events {
		if e.Type == kind {
			list = append(list, l.at[i].Sub(e.Time))
		}
	}
	return list
}
