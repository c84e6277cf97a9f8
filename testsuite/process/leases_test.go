package process

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// rawAgent is an agent by HTTP alone, which may do what the library does not.
type rawAgent struct {
	t        *testing.T
	register protocol.Register
	url      string // of its hub
	token    string
	sequence int64
	client   http.Client
	held     []protocol.RunningAttempt
}

// at registers it at a hub with what it has. Its connection to the former hub is closed.
func (a *rawAgent) at(url string) {
	a.t.Helper()
	a.client.CloseIdleConnections()
	a.client = http.Client{Transport: &http.Transport{}}
	a.url, a.token, a.sequence, a.register.Running = url, "", 0, a.held
	var answer protocol.Registered
	a.post(protocol.RegisterPath, a.register, &answer)
	a.token = answer.SessionToken
}

func (a *rawAgent) post(path string, body, into any) {
	a.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(a.t, err)
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost,
		a.url+strings.ReplaceAll(path, "{id}", a.register.AgentID), bytes.NewReader(text))
	require.NoError(a.t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+a.token)
	response, err := a.client.Do(request)
	require.NoError(a.t, err)
	defer func() { _ = response.Body.Close() }()
	var answer bytes.Buffer
	_, err = answer.ReadFrom(response.Body)
	require.NoError(a.t, err)
	require.Equal(a.t, http.StatusOK, response.StatusCode, "%s: %s", path, &answer)
	require.NoError(a.t, json.Unmarshal(answer.Bytes(), into))
}

// poll polls once, and returns the commands of the answer.
func (a *rawAgent) poll() []protocol.Command {
	a.t.Helper()
	a.sequence++
	var answer protocol.Polled
	a.post(protocol.PollPath, protocol.Poll{Sequence: a.sequence, Running: a.held}, &answer)
	for _, g := range answer.Assignments {
		a.held = append(a.held, protocol.RunningAttempt{TaskID: g.TaskID, Attempt: g.Attempt, Token: g.Token})
	}
	return answer.Commands
}

// TestAMovedAttemptIsNotFailed moves an agent with its work from one hub to another while both are in touch with
// Temporal (01_fenced_twice). The hub that it left must not end the attempt, whatever its retry safety: nobody else
// gets it, and its result counts.
func TestAMovedAttemptIsNotFailed(t *testing.T) {
	t.Parallel()
	left, from := serve(t, "hub-left")
	_, to := serve(t, "hub-joined")
	for _, safety := range []api.RetrySafety{api.Idempotent, api.Fenced, api.AtMostOnce} {
		t.Run(string(safety), func(t *testing.T) {
			t.Parallel()
			c := clusterNamed(t, from, "moves-"+strings.ReplaceAll(string(safety), "_", "-"))
			a := &rawAgent{t: t, register: protocol.Register{AgentID: c + "-a", InstanceID: "instance-1", Cluster: c,
				AgentProfile: api.AgentProfile{MaxTasks: 1, TaskTypes: []string{"move"}}}}
			a.at(from)
			id := submit(t, from, map[string]any{"cluster": c, "type": "move", "retry_safety": safety})
			for len(a.held) == 0 {
				a.poll()
			}
			a.poll()
			a.at(to)
			other := &rawAgent{t: t, register: a.register}
			other.register.AgentID, other.register.InstanceID = c+"-b", "instance-2"
			other.register.Running = nil
			other.at(to)
			const leaves = "An attempt goes on at another hub, or has ended"
			var got task
			for deadline := time.Now().Add(patience); !saysOf(left, leaves, id); {
				for _, c := range a.poll() {
					require.NotEqual(t, protocol.CommandDrop, c.Type, c.Reason)
				}
				call(t, http.StatusOK, http.MethodGet, to+"/api/v1/agents/tasks/"+id, nil, &got)
				require.Equal(t, api.TaskRunning, got.Status, got.Why)
				require.True(t, time.Now().Before(deadline), "hub-left never missed the agent")
			}
			call(t, http.StatusOK, http.MethodGet, to+"/api/v1/agents/tasks/"+id, nil, &got)
			require.Len(t, got.Attempts, 1)
			require.Equal(t, api.TaskRunning, got.Status, got.Why)
			var taken protocol.ResultAccepted
			a.post(strings.ReplaceAll(protocol.ResultPath, "{task_id}", id), protocol.Result{Token: a.held[0].Token,
				Attempt: 1, Outcome: api.AttemptCompleted, StartedAt: time.Now(), EndedAt: time.Now()}, &taken)
			require.Len(t, completed(t, to, id, patience).Attempts, 1)
			require.Empty(t, other.held)
		})
	}
}

// TestALeaseHoldsThroughAChange changes the mode and the lease of a cluster under an agent that runs a fenced command,
// and then cuts the agent off (02_lease_after_patch). The next agent must not begin the command while the first runs
// it.
func TestALeaseHoldsThroughAChange(t *testing.T) {
	t.Parallel()
	_, at := serve(t, "hub-lease")
	c := clusterNamed(t, at, "lease")
	hub, err := url.Parse(at)
	require.NoError(t, err)
	line := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(hub) }})
	t.Cleanup(line.Close)
	runAgent(t, line.URL, c, "lease-1")
	online(t, at, "lease-1")
	dir := t.TempDir()
	fenced := execTask(c, `while :; do date +%s%N >> "$0/$MAINSTAY_ATTEMPT"; sleep 0.05; done`, dir)
	fenced["retry_safety"] = api.Fenced
	submit(t, at, fenced)
	require.Eventually(t, func() bool { return len(lines(dir+"/1")) > 0 }, patience, tick)
	runAgent(t, at, c, "lease-2")
	online(t, at, "lease-2")
	call(t, http.StatusOK, http.MethodPatch, at+"/api/v1/agents/clusters/"+c,
		map[string]any{"replication_mode": api.ActivePassive, "role_lease": "1s"}, nil)
	require.Eventually(t, func() bool {
		var view struct{ Leader string }
		call(t, http.StatusOK, http.MethodGet, at+"/api/v1/agents/clusters/"+c, nil, &view)
		return view.Leader != ""
	}, patience, tick)

	line.CloseClientConnections()
	line.Close()
	var first []string
	require.Eventually(t, func() bool { // the first copy has ended, and the second begun
		before := len(first)
		first = lines(dir + "/1")
		return len(first) == before && len(lines(dir+"/2")) > 0
	}, patience, time.Second)
	ended, err := strconv.ParseInt(first[len(first)-1], 10, 64)
	require.NoError(t, err)
	begun, err := strconv.ParseInt(lines(dir + "/2")[0], 10, 64)
	require.NoError(t, err)
	require.Less(t, ended, begun, "two agents ran it for %s", time.Duration(ended-begun))
}

// saysOf reports whether a hub has written a message about a task.
func saysOf(hub *program, text, task string) bool {
	for line := range strings.Lines(hub.stderr.String()) {
		var entry struct{ Msg, Task string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == text && entry.Task == task {
			return true
		}
	}
	return false
}
