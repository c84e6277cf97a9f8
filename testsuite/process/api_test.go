package process

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// task is what tests read of a task.
type task struct {
	ID       string          `json:"id"`
	Status   api.TaskStatus  `json:"status"`
	Why      string          `json:"why"`
	Attempts []api.Attempt   `json:"attempts"`
	Result   json.RawMessage `json:"result"`
}

// call sends JSON and decodes the answer, which must have the status.
func call(t testing.TB, status int, method, url string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(text))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	var answer bytes.Buffer
	_, err = answer.ReadFrom(response.Body)
	require.NoError(t, err)
	require.Equal(t, status, response.StatusCode, "%s", &answer)
	if into != nil {
		require.NoError(t, json.Unmarshal(answer.Bytes(), into))
	}
}

// submit submits one task and returns its id.
func submit(t testing.TB, url string, spec map[string]any) string {
	t.Helper()
	var submitted task
	call(t, http.StatusAccepted, http.MethodPost, url+"/api/v1/agents/tasks", spec, &submitted)
	return submitted.ID
}

// completed waits until the task is done, and fails when it ends otherwise.
func completed(t testing.TB, url, id string, limit time.Duration) task {
	t.Helper()
	var got task
	for deadline := time.Now().Add(limit); ; {
		call(t, http.StatusOK, http.MethodGet, url+"/api/v1/agents/tasks/"+id+"?wait=20s", nil, &got)
		if got.Status == api.TaskCompleted {
			return got
		}
		require.False(t, got.Status.Final() || time.Now().After(deadline), "task %s is %s: %s; %+v", id, got.Status,
			got.Why, got.Attempts)
	}
}

// online waits until the agent is online in the cluster and returns the process that has its session.
func online(t testing.TB, url, id string) (pid int) {
	t.Helper()
	var got struct {
		Status api.AgentStatus `json:"status"`
		PID    int             `json:"pid"`
	}
	require.Eventually(t, func() bool {
		response, err := http.Get(url + "/api/v1/agents/" + id)
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(&got) == nil &&
			got.Status == api.AgentOnline
	}, patience, 20*time.Millisecond, "agent %s", id)
	return got.PID
}
