package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

// taskDone is what a test reads of GET /tasks/{id}.
type taskDone struct {
	ID       string          `json:"id"`
	Status   api.TaskStatus  `json:"status"`
	Why      string          `json:"why"`
	Attempts []api.Attempt   `json:"attempts"`
	Result   json.RawMessage `json:"result"`
}

// call sends JSON and decodes the answer into out, which may be nil. It returns the status and, of a problem, the body.
// It tries again when the API asks for that, as where many tests keep Temporal busy.
func call(t testing.TB, method, url string, body, out any) (int, protocol.Problem) {
	t.Helper()
	return callAs(t, http.DefaultClient, "", method, url, body, out)
}

// callAs is call with a token, over a client.
func callAs(t testing.TB, via *http.Client, token, method, url string, body, out any) (int, protocol.Problem) {
	t.Helper()
	for begun := time.Now(); ; {
		status, problem := callOnce(t, via, token, method, url, body, out)
		if problem.Code != protocol.CodeUnavailable || time.Since(begun) > patience {
			return status, problem
		}
		backoff.Pause(t.Context(), 100*time.Millisecond)
	}
}

func callOnce(t testing.TB, via *http.Client, token, method, url string, body, out any) (int, protocol.Problem) {
	t.Helper()
	var reader io.Reader
	if body != nil {
		switch b := body.(type) {
		case string:
			reader = bytes.NewBufferString(b)
		default:
			text, err := json.Marshal(b)
			require.NoError(t, err)
			reader = bytes.NewReader(text)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, reader)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := via.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var problem protocol.Problem
	if response.StatusCode >= 400 {
		require.Equal(t, "application/problem+json", response.Header.Get("Content-Type"), "%s", text)
		require.NoError(t, json.Unmarshal(text, &problem))
		require.NotEmpty(t, problem.Code)
		return response.StatusCode, problem
	}
	if out != nil {
		require.NoError(t, json.Unmarshal(text, out), "%s", text)
	}
	return response.StatusCode, problem
}

func submit(t testing.TB, url string, spec map[string]any) string {
	t.Helper()
	var submitted taskDone
	status, problem := call(t, http.MethodPost, url+"/api/v1/agents/tasks", spec, &submitted)
	require.Equal(t, http.StatusAccepted, status, "%+v", problem)
	require.NotEmpty(t, submitted.ID)
	return submitted.ID
}

func getTask(t testing.TB, url, id, wait string) taskDone {
	t.Helper()
	var got taskDone
	status, problem := call(t, http.MethodGet, url+"/api/v1/agents/tasks/"+id+"?wait="+wait, nil, &got)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	return got
}

// waitTask waits until the task has the status.
func waitTask(t testing.TB, url, id string, want api.TaskStatus) taskDone {
	t.Helper()
	var got taskDone
	require.Eventually(t, func() bool {
		got = getTask(t, url, id, "0s")
		return got.Status == want
	}, patience, 20*time.Millisecond, "task %s", id)
	return got
}
