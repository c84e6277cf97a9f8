//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// The credentials of an installation whose security is on, which lives for minutes on loopback.
const (
	adminToken = "an-admin-token-for-chaos-tests-alone"
	joinToken  = "a-join-token-for-chaos-tests-alone"
)

// bearer adds a token to each request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// victim is the tenant of the tasks, and intruder the one beside it. No answer to the intruder may name the victim.
// No id that is made at random can contain its name: these have no i.
const victim, intruder = "initech", "acme"

// adversary is an operator of one tenant that knows all ids of another's and tries to touch them.
type adversary struct {
	in     *installation
	client *http.Client

	mu       sync.Mutex
	tries    int
	problems []string
}

// newAdversary makes a token of the tenant for it.
func (in *installation) newAdversary(t testing.TB) *adversary {
	t.Helper()
	var token struct {
		Token string `json:"token"`
	}
	status, err := in.call(0, http.MethodPost, "/api/v1/agents/tokens",
		map[string]any{"name": "adversary", "role": "operator", "tenant": intruder}, &token)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status)
	return &adversary{in: in, client: &http.Client{Timeout: 8 * time.Second, Transport: bearer{token.Token}}}
}

// intrusions are what it sends about a task and a schedule of the victim: method, path and body.
func intrusions(j *job, schedule string) [][3]string {
	name := strings.TrimPrefix(j.id, victim+":")
	task := func(id, key string) string {
		text, _ := json.Marshal(map[string]any{"type": "nobody-handles-this", "cluster": j.cluster,
			"expires_in": "1s", "id": id, "idempotency_key": key}) // plain texts: cannot fail
		return strings.NewReplacer(`"id":"",`, "", `"idempotency_key":"",`, "").Replace(string(text))
	}
	tries := [][3]string{
		{http.MethodPost, tasksPath, task(j.id, "")},
		{http.MethodPost, tasksPath, task("", j.key)},
		{http.MethodPost, tasksPath, task(schedule+"@20261122t120000z", "")},
		{http.MethodPost, tasksPath + "/batch", "[" + task(j.id, "") + "," + task("", j.key) + "]"},
		{http.MethodPost, tasksPath + "/bulk", `{"action":"cancel","reason":"x","filter":{"ids":["` + j.id + `"]}}`},
		{http.MethodPost, tasksPath + "/bulk", `{"action":"cancel","reason":"x","filter":{"tenant":"` + victim + `"}}`},
		{http.MethodPost, tasksPath + "/bulk",
			`{"action":"cancel","reason":"x","filter":{"cluster":"` + j.cluster + `"}}`},
		{http.MethodGet, tasksPath + "?page_size=200", ""},
		{http.MethodGet, tasksPath + "?tenant=" + victim, ""},
		{http.MethodGet, tasksPath + "/queue", ""},
		{http.MethodGet, "/api/v1/agents/schedules", ""},
		{http.MethodGet, "/api/v1/agents/events?follow=false&since=5m", ""},
	}
	for _, id := range []string{j.id, name} {
		path := tasksPath + "/" + id
		tries = append(tries, [3]string{http.MethodGet, path + "?include=payload", ""},
			[3]string{http.MethodGet, path + "/log", ""},
			[3]string{http.MethodPost, path + "/cancel", `{}`},
			[3]string{http.MethodPost, path + "/retry", `{}`},
			[3]string{http.MethodPost, path + "/priority", `{"priority":5}`},
			[3]string{http.MethodPost, path + "/review", `{"decision":"failed"}`})
	}
	for _, name := range []string{victim + ":" + schedule, schedule} {
		path := "/api/v1/agents/schedules/" + name
		tries = append(tries, [3]string{http.MethodGet, path, ""}, [3]string{http.MethodPost, path + "/pause", `{}`},
			[3]string{http.MethodPost, path + "/trigger", `{}`}, [3]string{http.MethodDelete, path, ""})
	}
	return tries
}

// intrude sends all that it can about some tasks. What names the victim in an answer, or works on its things, is a
// problem.
func (a *adversary) intrude(ctx context.Context, jobs []*job, schedule string) {
	for _, j := range jobs {
		for _, try := range intrusions(j, schedule) {
			request, err := http.NewRequestWithContext(ctx, try[0], a.in.planes[0].url+try[1],
				bytes.NewReader([]byte(try[2])))
			if err != nil {
				a.blame("%s", err)
				continue
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := a.client.Do(request)
			if err != nil {
				continue // the control plane is away
			}
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			a.mu.Lock()
			a.tries++
			a.mu.Unlock()
			if response.StatusCode < 300 && strings.Contains(try[1], victim+":") {
				a.blame("%s %s was answered %d", try[0], try[1], response.StatusCode)
			}
			text = bytes.ReplaceAll(text, []byte(j.id), nil) // it may hear what it has said
			if bytes.Contains(text, []byte(victim)) || bytes.Contains(text, []byte(j.work.Nonce)) {
				a.blame("%s %s %s was answered with what is the other tenant's: %.200s", try[0], try[1], try[2], text)
			}
		}
	}
}

func (a *adversary) blame(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// besideAnother is I8: a tenant's tasks and schedule go on as if it were alone, whatever another tenant sends, also
// while agents are killed.
func besideAnother(t *testing.T, g *stage) []string {
	const schedule = "tick"
	status, err := g.call(0, http.MethodPost, "/api/v1/agents/schedules", map[string]any{"name": schedule,
		"interval": "2s", "task": map[string]any{"type": "work", "cluster": clusterAll, "tenant": victim,
			"payload": work{MS: 10, Nonce: "of the schedule"}}}, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status)
	a := g.newAdversary(t)
	for i := range 6 {
		g.begin(t, &job{tenant: victim, work: work{MS: 2000 + 500*i}})
	}
	ctx, stop := context.WithCancel(g.ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		for ctx.Err() == nil {
			a.intrude(ctx, g.jobs, schedule)
		}
	})
	g.agents[0].current().kill()
	v := g.verdict(t, 40*time.Second)
	stop()
	beside.Wait()
	if v.outcomes[api.TaskCompleted] != len(g.jobs) {
		v.problems = append(v.problems, "not all tasks completed: "+outcomes(v.outcomes))
	}
	var seen struct {
		Paused bool `json:"paused"`
		Counts struct {
			Fired int `json:"fired"`
		} `json:"counts"`
		RecentRuns []struct {
			Status api.TaskStatus `json:"status"`
		} `json:"recent_runs"`
	}
	status, err = g.call(0, http.MethodGet, "/api/v1/agents/schedules/"+victim+":"+schedule, nil, &seen)
	if err != nil || status != http.StatusOK || seen.Paused || seen.Counts.Fired == 0 {
		v.problems = append(v.problems, fmt.Sprintf("the schedule is not as it was: %d %+v %v", status, seen, err))
	}
	for _, r := range seen.RecentRuns {
		if r.Status == api.TaskFailed || r.Status == api.TaskCancelled {
			v.problems = append(v.problems, "a run of the schedule is "+string(r.Status))
		}
	}
	if a.tries < 50 {
		v.problems = append(v.problems, fmt.Sprintf("the adversary got only %d answers", a.tries))
	}
	return append(v.problems, a.problems...)
}
