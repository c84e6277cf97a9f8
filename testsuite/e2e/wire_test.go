package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// wireAgent speaks the agent protocol by hand, so that a test can say what no agent library would.
type wireAgent struct {
	url, cluster, id, instance string
	session                    string
	slots                      int // it takes bundles of arrays in
	sequence                   int64
	http                       *http.Client
}

func newWireAgent(t testing.TB, url, cluster string) *wireAgent {
	w := &wireAgent{url: url, cluster: cluster, id: plane.UniqueID("wire"), slots: 1,
		http: &http.Client{Transport: &http.Transport{}}}
	w.instance = w.id + "-instance"
	t.Cleanup(w.http.CloseIdleConnections)
	return w
}

// register opens a session and keeps its token.
func (w *wireAgent) register(t testing.TB) protocol.Registered {
	t.Helper()
	var registered protocol.Registered
	status, text := w.send(t, http.MethodPost, protocol.RegisterPath, "", map[string]any{
		"agent_id": w.id, "instance_id": w.instance, "cluster": w.cluster, "max_tasks": w.slots, "bundles": w.slots > 1}, &registered)
	require.Equal(t, http.StatusOK, status, text)
	w.session = registered.SessionToken
	return registered
}

// poll polls once with what runs.
func (w *wireAgent) poll(t testing.TB, running ...protocol.RunningAttempt) (int, protocol.Polled, string) {
	t.Helper()
	w.sequence++
	var polled protocol.Polled
	status, text := w.send(t, http.MethodPost, strings.ReplaceAll(protocol.PollPath, "{id}", w.id), w.session,
		protocol.Poll{Sequence: w.sequence, Running: running}, &polled)
	return status, polled, text
}

// take polls until it is given an assignment, and accepts it. It registers again when the hub asks for that.
func (w *wireAgent) take(t testing.TB) protocol.Assignment {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		status, polled, text := w.poll(t)
		if status == http.StatusConflict && strings.Contains(text, protocol.CodeUnknownSession) {
			w.sequence = 0
			w.register(t)
			continue
		}
		require.Equal(t, http.StatusOK, status, text)
		if len(polled.Assignments) > 0 {
			a := polled.Assignments[0]
			status, _, text = w.poll(t, protocol.RunningAttempt{TaskID: a.TaskID, Attempt: a.Attempt, Token: a.Token})
			require.Equal(t, http.StatusOK, status, text)
			return a
		}
	}
	t.Fatal("no assignment came")
	return protocol.Assignment{}
}

// report reports that an attempt completed, with the given session and attempt tokens.
func (w *wireAgent) report(t testing.TB, session, taskID string, attempt int, token string) (int, string) {
	t.Helper()
	return w.end(t, session, taskID, protocol.Result{Token: token, Attempt: attempt, Outcome: api.AttemptCompleted,
		Output: json.RawMessage(`"done"`), StartedAt: time.Now(), EndedAt: time.Now()})
}

// end sends a result.
func (w *wireAgent) end(t testing.TB, session, taskID string, result protocol.Result) (int, string) {
	t.Helper()
	path := strings.NewReplacer("{id}", w.id, "{task_id}", taskID).Replace(protocol.ResultPath)
	return w.send(t, http.MethodPost, path, session, result, nil)
}

// hangUp closes the agent's connection without a goodbye.
func (w *wireAgent) hangUp() { w.http.CloseIdleConnections() }

func (w *wireAgent) send(t testing.TB, method, path, session string, body, out any) (int, string) {
	t.Helper()
	status, text := exchange(t, w.http, method, w.url+path, session, body)
	if status < 300 && out != nil {
		require.NoError(t, json.Unmarshal([]byte(text), out), text)
	}
	return status, text
}

// exchange sends a body, JSON unless it is a string, and returns the answer as it came.
func exchange(t testing.TB, via *http.Client, method, url, session string, body any) (int, string) {
	t.Helper()
	text, isText := body.(string)
	if !isText {
		encoded, err := json.Marshal(body)
		require.NoError(t, err)
		text = string(encoded)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(text))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	if session != "" {
		request.Header.Set("Authorization", "Bearer "+session)
	}
	response, err := via.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	if response.StatusCode >= 400 {
		require.Equal(t, "application/problem+json", response.Header.Get("Content-Type"), "%s", answer)
	}
	return response.StatusCode, string(answer)
}

// requireProblem checks that an answer is a clear problem with a code and holds none of the texts.
func requireProblem(t testing.TB, wantStatus int, wantCode string, status int, text string, secrets ...string) {
	t.Helper()
	require.Equal(t, wantStatus, status, text)
	var p protocol.Problem
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	require.Equal(t, wantCode, p.Code, text)
	require.Equal(t, wantStatus, p.Status)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail, "a problem says what is wrong")
	require.NotContains(t, text, "goroutine")
	require.NotContains(t, text, ".go:")
	for _, secret := range secrets {
		require.NotContains(t, text, secret, "what was submitted must not come back")
	}
}
